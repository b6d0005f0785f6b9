"""A fork of a loaded process that a test holds like any other: its id is the program's, and signals reach it directly."""

import json
import os
import select
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.loaded import can_fork, start_loading


class Forked(subprocess.Popen[Any]):
    """A Python program in a fork, as a process that `subprocess` has started; it ends with this one, but is no child of it."""

    def _execute_child(self, program: Any, *given: Any) -> None:
        """Take the place of fork and exec. These methods are what `subprocess` leaves to its platforms."""
        folder, environment, pipes = given[4], given[5], given[9:15]
        its = [fd if fd != -1 else number for number, fd in enumerate((pipes[0], pipes[3], pipes[5]))]
        wish = json.dumps(
            {
                "program": [str(part) for part in program],
                "folder": str(folder or Path.cwd()),
                "environment": dict(os.environ if environment is None else environment),
            }
        ).encode()
        self._forks = socket.socket(socket.AF_UNIX)
        self._forks.connect(start_loading())
        socket.send_fds(self._forks, [len(wish).to_bytes(4, "big")], its)
        self._forks.sendall(wish)
        self.pid = int.from_bytes(self._forks.recv(4), "big")
        self._child_created = True
        self._forks.sendall(b"\1")
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if wait_flags & os.WNOHANG and not select.select([self._forks], [], [], 0)[0]:
            return 0, 0
        code = int.from_bytes(self._forks.recv(4), "big", signed=True)
        self._forks.close()
        return self.pid, -code if code < 0 else code << 8

    def _internal_poll(self, *_: Any, **_options: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def start(program: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]:
    """Start a Python program as `subprocess.Popen` does: in a fork, where there are any."""
    return (Forked if can_fork() else subprocess.Popen)(program, **options)
