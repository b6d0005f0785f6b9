"""Processes that outlive the gateway, identified by process id and start time. Part of `tree`.

They are the one exception to the rule that every process ends with the gateway that started it.
"""

import os
import subprocess  # noqa: TID251 - this is process_tree
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from toolpost.base.clocks import boot_id
from toolpost.processes.command import COOKIE, make_start_error


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """A process that others look for; its start time distinguishes it from a later one with the same id."""

    pid: int
    born_at: float

    @classmethod
    def start(cls, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path) -> "Daemon":
        """Start a command in its own session, with empty stdin and stderr appended to a file; stdout is dropped.

        Raises `CapabilityMissing`.
        """
        # Without the cookie, or the sweep of `strays` would end it with the tree that started it.
        environment = {name: value for name, value in env.items() if name != COOKIE}
        flags = 0
        if sys.platform == "win32":
            flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.DETACHED_PROCESS
        try:
            with log.open("ab") as stderr:
                process = subprocess.Popen(  # noqa: S603 - our own command
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    cwd=cwd,
                    env=environment,
                    start_new_session=True,
                    creationflags=flags,
                )
        except OSError as error:
            raise make_start_error(command[0], error.errno or 0) from error
        # This process is its parent, and must reap it: an unreaped one would stay a zombie, and look alive.
        threading.Thread(target=process.wait, daemon=True, name="toolpost-daemon").start()
        return cls.find(process.pid) or cls(pid=process.pid, born_at=0.0)

    @classmethod
    def current(cls) -> "Daemon":
        """Return this process."""
        return cls(pid=os.getpid(), born_at=birth_of(psutil.Process()))

    @classmethod
    def find(cls, pid: int) -> "Daemon | None":
        """Return the process with this id; None if there is none, or it may not be seen."""
        try:
            return cls(pid=pid, born_at=birth_of(psutil.Process(pid)))
        except psutil.Error:
            return None

    @property
    def is_alive(self) -> bool:
        """Whether it still runs; a later process with its id does not count."""
        return self._find_process() is not None

    def end(self, *, grace_s: float) -> bool:
        """Send SIGTERM, and SIGKILL after `grace_s`; False if the process was gone already."""
        process = self._find_process()
        if process is None:
            return False
        try:
            process.terminate()
            try:
                process.wait(grace_s)
            except psutil.TimeoutExpired:
                process.kill()
                process.wait(2.0)
        except psutil.NoSuchProcess:
            return True
        return True

    def _find_process(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            if abs(birth_of(process) - self.born_at) > 0.5 or process.status() == psutil.STATUS_ZOMBIE:
                return None
        except psutil.NoSuchProcess:
            return None
        return process


def birth_of(process: psutil.Process) -> float:
    """Return a number that distinguishes a process from any other with its id, and does not change when the clock is set.

    Raises `psutil.NoSuchProcess`. Linux records the start in seconds since boot; psutil adds the boot time by the wall clock,
    which moves. So the seconds since boot are read here, and a number of this boot is added, since they repeat with each boot.
    """
    if sys.platform != "linux":
        return process.create_time()
    try:
        stat = Path(f"{psutil.PROCFS_PATH}/{process.pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise psutil.NoSuchProcess(process.pid) from error
    fields = stat.rpartition(b")")[2].split()
    return int(boot_id()[:8] or "0", 16) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
