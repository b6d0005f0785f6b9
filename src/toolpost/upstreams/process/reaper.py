"""The watchman of one command: starts it, reports its exit, and leaves nothing of it behind.

Runs as a process of its own between the gateway and the command (POSIX); `process_tree` is its only user.
On Linux it is a child subreaper: whatever the command starts, and however that hides, stays below this
process, and so is found and ended. The socket to the gateway is its lifeline: when that ends, the tree does.

The command runs as the same user, so it can kill or stop its reaper. On Linux there are therefore two processes: the
guard, which the gateway starts, and the reaper, its child. Each survives the other:

- The reaper is killed or stopped: the guard is told, kills it, adopts what it leaves, and ends that.
- The guard is killed: the reaper gets SIGTERM from the kernel, and ends the tree. A stopped guard is no harm by itself.
- The gateway is killed: the reaper loses its lifeline, the guard gets SIGTERM, and kills a reaper that takes too long.
- Both are stopped, and the gateway is killed: each is a process group of its own in the gateway's session, so the kernel
  sends SIGHUP and SIGCONT when it orphans the guard's, and the guard goes on as above.

Only who kills both at once gets away from them; `process_posix` then sweeps by what is known of the tree.

Every command waits for this file to start, so it imports nothing of Toolpost and as little of Python as it
can: `_signal` and `_ctypes`, the C halves of `signal` and `ctypes`, save half of the start.

What it says, a line each: `started PID ADOPTS REAPER`, `failed ERRNO`, `exited CODE`, `unkilled PID ERRNO`, `gone`.
"""

# ruff: noqa: TID251 - this is the other half of process_tree: it starts and ends processes
import _signal  # type: ignore[import-not-found]
import os
import select
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_SIGKILL: int = _signal.SIGKILL
_SIGTERM: int = _signal.SIGTERM
_SIGCHLD: int = _signal.SIGCHLD

_SETTLE_S = 0.2
"""What the command left behind may still finish by itself for this long: the `tee` of a pipeline does."""

_KILL_S = 0.8
"""SIGKILL takes milliseconds; what is left after this cannot be killed."""

_LATE_S = 0.3
"""How long beyond its own limits a reaper may take, before its guard kills it."""


def main(options: list[str]) -> int:
    """Run one command until nothing of it is left, and return the exit code: 0 unless the guard could not end all."""
    control, gateway, adopts, size_bytes, words = map(int, options[:5])
    grace_s = float(options[5])
    parent = gateway
    os.set_inheritable(control, False)
    is_subreaper = bool(adopts) and _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_PDEATHSIG, _SIGTERM)
    if os.getppid() != parent:
        return 0  # The gateway died before its death could be noticed.
    if is_subreaper:
        # Not to be traced by the command: a process that is held by a tracer looks alive, and does nothing.
        _prctl(_PR_SET_DUMPABLE, 0)
        parent = os.getpid()
        if (reaper := os.fork()) != 0:
            os.close(control)
            return _guard(reaper, grace_s)
        os.setpgid(0, 0)
        is_subreaper = _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _prctl(_PR_SET_PDEATHSIG, _SIGTERM)
    order = _read_payload(control, size_bytes).split(b"\0")
    if os.getppid() == parent:
        watch = CommandWatcher(control, adopts=is_subreaper, grace_s=grace_s)
        watch.run(order[0], order[1 : words + 1], order[words + 1 :])
    return 0


def _guard(reaper: int, grace_s: float) -> int:
    """Wait for the reaper's end, then end whatever it left; a reaper that is stopped or late is killed. Return main's code."""
    _close_stdio()
    wake = _open_signal_pipe()
    news = select.poll()
    news.register(wake, select.POLLIN)
    kill_at: float | None = None
    while True:
        pid, status = os.waitpid(reaper, os.WNOHANG | os.WUNTRACED)
        if pid and not os.WIFSTOPPED(status):
            break
        if pid or (kill_at is not None and time.monotonic() >= kill_at):
            os.kill(reaper, _SIGKILL)
        if _wait_for_end_signal(news, wake, kill_at) and kill_at is None:
            # The reaper has lost its lifeline as well, most of the time. It has what it needs for an orderly end, and no more.
            os.kill(reaper, _SIGTERM)
            kill_at = time.monotonic() + _SETTLE_S + grace_s + _KILL_S + _LATE_S
    killed_until = time.monotonic() + _KILL_S
    while (is_anyone_left := _reap_children()) and time.monotonic() < killed_until:
        for pid, _group in _list_descendants():
            try:
                os.kill(pid, _SIGKILL)
            except OSError:
                continue  # It is gone, or not ours to kill: then it is still there at the end.
        _wait_for_end_signal(news, wake, time.monotonic() + 0.01)
    return int(is_anyone_left)


def _wait_for_end_signal(news: select.poll, wake: int, until: float | None) -> bool:
    """Wait for a signal until this time, and return whether it asked for the end; SIGCHLD does not."""
    limit_ms = None if until is None else max(0.0, until - time.monotonic()) * 1000 + 1
    return bool(news.poll(limit_ms)) and any(number != _SIGCHLD for number in os.read(wake, 512))


def _reap_children() -> bool:
    """Reap what has died, and return whether any child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


class CommandWatcher:
    """One command, from its start until its whole tree is gone."""

    def __init__(self, control: int, *, adopts: bool, grace_s: float) -> None:
        self._control = control
        self._adopts = adopts
        self._grace_s = grace_s
        self._command = 0
        self._runs = False
        self._told_to_end = False
        self._unkilled: set[int] = set()
        self._wake = _open_signal_pipe()
        self._news = select.poll()
        self._news.register(control, select.POLLIN)
        self._news.register(self._wake, select.POLLIN)

    def run(self, path: bytes, argv: list[bytes], environment: list[bytes]) -> None:
        """Start the command, wait for its exit or for the word to end it, then end whatever is left."""
        try:
            self._command = _start(path, argv, dict(entry.split(b"=", 1) for entry in environment))
        except OSError as error:
            self._say(f"failed {error.errno}")
            return
        self._runs = True
        _close_stdio()
        self._say(f"started {self._command} {int(self._adopts)} {os.getpid()}")
        self._watch()
        self._end()
        self._say("gone")

    def _watch(self) -> None:
        while self._has_processes() and self._runs and not self._told_to_end:
            self._wait(None)
        settled_at = time.monotonic() + _SETTLE_S
        while self._has_processes() and not self._told_to_end and time.monotonic() < settled_at:
            self._wait(settled_at)

    def _end(self) -> None:
        if not self._has_processes():
            return
        self._signal_all(_SIGTERM)
        graced_until = time.monotonic() + self._grace_s
        while self._has_processes() and time.monotonic() < graced_until:
            self._wait(graced_until)
        killed_until = time.monotonic() + _KILL_S
        while self._has_processes() and time.monotonic() < killed_until:
            # Again and again: what forked meanwhile, or has just been orphaned, is found the next time.
            self._signal_all(_SIGKILL)
            self._wait(time.monotonic() + 0.01)
        for pid, _group in _list_descendants() if self._has_processes() and self._adopts else []:
            self._say_unkilled(pid, 0)

    def _wait(self, until: float | None) -> None:
        limit_ms = None if until is None else max(0.0, until - time.monotonic()) * 1000 + 1
        if limit_ms is not None and not self._adopts:
            limit_ms = min(limit_ms, 20)  # No signal tells of the death of what is not our child.
        for source, _event in self._news.poll(limit_ms):
            if source == self._control:
                self._told_to_end = True
                self._news.unregister(self._control)
            elif any(number != _SIGCHLD for number in os.read(self._wake, 512)):
                self._told_to_end = True

    def _has_processes(self) -> bool:
        """Reap who has died, and tell whether somebody still lives."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._command:
                    self._runs = False
                    self._say(f"exited {os.waitstatus_to_exitcode(status)}")
        except ChildProcessError:
            return not self._adopts and _has_members(self._command)

    def _signal_all(self, number: int) -> None:
        """Signal each process of the tree once: many take a second SIGTERM for impatience."""
        family = _list_descendants() if self._adopts else []
        takes_group = self._runs or not self._adopts
        if takes_group:
            self._signal(-self._command, number)
        for pid, group in family:
            if not takes_group or group != self._command:
                self._signal(pid, number)

    def _signal(self, pid: int, number: int) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        except OSError as error:
            self._say_unkilled(abs(pid), error.errno or 0)

    def _say_unkilled(self, pid: int, errno: int) -> None:
        if pid not in self._unkilled:
            self._unkilled.add(pid)
            self._say(f"unkilled {pid} {errno}")

    def _say(self, line: str) -> None:
        try:
            os.write(self._control, f"{line}\n".encode())
        except OSError:
            self._told_to_end = True  # Nobody listens any more.


def _start(path: bytes, argv: list[bytes], environment: dict[bytes, bytes]) -> int:
    """Start the command in a session of its own; an OSError of its exec is raised here."""
    watchman = os.getpid()
    failure, failed = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            _prctl(_PR_SET_PDEATHSIG, _SIGKILL)
            if os.getppid() == watchman:
                for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # Python ignores them, a command must not.
                    _signal.signal(number, _signal.SIG_DFL)
                os.execve(path, argv, environment)  # noqa: S606 - no shell is what we want
        except OSError as error:
            os.write(failed, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(failed)
    errno = os.read(failure, 16)
    os.close(failure)
    if errno:
        os.waitpid(pid, 0)
        raise OSError(int(errno), os.strerror(int(errno)))
    return pid


def _open_signal_pipe() -> int:
    """Return what becomes readable when a child changed or somebody asks us to leave."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    _signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (_SIGCHLD, _SIGTERM, _signal.SIGINT, _signal.SIGHUP):
        _signal.signal(number, _ignore_signal)
    return readable


def _ignore_signal(_number: int, _frame: object) -> None:
    """Stand in as a handler: the wake-up pipe gets the number, the loop does the rest."""


def _close_stdio() -> None:
    """Close the command's pipes here, so that their end is the command's end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)


def _has_members(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def _list_descendants() -> list[tuple[int, int]]:
    """Return the pid and the group of every descendant, parents first (Linux)."""
    children = _children_by_parent()
    family = list(children.get(os.getpid(), []))
    for pid, _group in family:
        family += children.get(pid, [])
    return family


def _children_by_parent() -> dict[int, list[tuple[int, int]]]:
    children: dict[int, list[tuple[int, int]]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib starts slowly
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb", buffering=0) as file:  # noqa: PTH123
                _state, parent, group = file.read(1024).rpartition(b")")[2].split()[:3]
        except OSError:
            continue  # It is gone by now.
        children.setdefault(int(parent), []).append((int(name), int(group)))
    return children


def _read_payload(control: int, size_bytes: int) -> bytes:
    order = b""
    while len(order) < size_bytes:
        chunk = os.read(control, size_bytes - len(order))
        if not chunk:
            os._exit(0)  # The gateway is gone, and nothing has been started yet.
        order += chunk
    return order


def _prctl(option: int, value: int) -> bool:
    """Set a property of this process; Linux alone has them."""
    if sys.platform != "linux":
        return False
    try:
        import _ctypes
    except ImportError:
        return False  # A Python built without libffi: the gateway sweeps instead.

    class Function(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL

    prctl = Function(_ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl"))  # type: ignore[arg-type]
    return bool(prctl(option, value, 0, 0, 0) == 0)


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # At once: an orderly farewell of Python takes milliseconds.
