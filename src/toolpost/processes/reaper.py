"""The reaper of one command: starts it, reports its exit, and ends every process that it started.

Runs as a process of its own between the gateway and the command (POSIX); `posix` starts it. On Linux it is a child subreaper: the
kernel makes it the parent of every orphan among the command's descendants, so all of them stay below it, despite any change to
hide, and can be found and ended. The socket to the gateway is its lifeline: when the other side closes it, the tree is ended.

The command runs as the same user, so it can kill or stop its reaper. On Linux there are therefore two processes: the guard, which
the gateway starts, and the reaper, its child. Each survives the other:

- The reaper is killed or stopped: the guard gets SIGCHLD, kills it, adopts its descendants, and ends them.
- The guard is killed: the reaper gets SIGTERM from the kernel, and ends the tree. A stopped guard alone does no harm.
- The gateway is killed: the reaper loses its lifeline; the guard gets SIGTERM, and kills a reaper that takes too long.
- Both are stopped, and the gateway is killed: each is a process group of its own in the gateway's session, so the kernel sends
  SIGHUP and SIGCONT when the guard's group is orphaned, and the guard continues as above.

Only a command that kills both at once escapes them; `posix` then sweeps the known processes of the tree.

Every command waits for this file to start, so it imports nothing of Toolpost and as little of Python as possible: `_signal` and
`_ctypes`, the C parts of `signal` and `ctypes`, halve the time to start.

It reports one event a line: `started PID ADOPTS REAPER`, `failed ERRNO`, `exited CODE`, `unkilled PID ERRNO`, `gone`.
Example, for `sh -c "sleep 9 & exit 3"`: `started 4711 1 4710`, then `exited 3`; the sleep gets 0.2 s to finish, then SIGTERM, and
after the grace period SIGKILL; at the end `gone`.
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
"""How long descendants may go on after the exit of the command: the `tee` of a pipeline finishes its work."""

_KILL_S = 0.8
"""SIGKILL takes milliseconds; a process that is left after this cannot be killed."""

_LATE_S = 0.3
"""How long beyond its own limits a reaper may take before its guard kills it."""


def main(options: list[str]) -> int:
    """Run one command until nothing of it is left; returns the exit code: 0 unless the guard could not end all processes."""
    control, gateway, adopts, size_bytes, words = map(int, options[:5])
    grace_s = float(options[5])
    parent = gateway
    os.set_inheritable(control, False)
    is_subreaper = bool(adopts) and _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_PDEATHSIG, _SIGTERM)
    if os.getppid() != parent:
        return 0  # The gateway died before the death signal was set.
    if is_subreaper:
        # Not traceable by the command: a process that is stopped by a tracer looks alive, and does nothing.
        _prctl(_PR_SET_DUMPABLE, 0)
        parent = os.getpid()
        if (reaper := os.fork()) != 0:
            os.close(control)
            return _guard(reaper, grace_s)
        os.setpgid(0, 0)
        is_subreaper = _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _prctl(_PR_SET_PDEATHSIG, _SIGTERM)
    path, *rest = _read_payload(control, size_bytes).split(b"\0")
    if os.getppid() == parent:
        watcher = CommandWatcher(control, adopts=is_subreaper, grace_s=grace_s)
        watcher.run(path, rest[:words], rest[words:])
    return 0


def _guard(reaper: int, grace_s: float) -> int:
    """Wait for the end of the reaper, then end what it left; a reaper that is stopped or late is killed. Returns main's code."""
    _close_stdio()
    wake = _open_signal_pipe()
    poller = select.poll()
    poller.register(wake, select.POLLIN)
    kill_at: float | None = None
    while True:
        pid, status = os.waitpid(reaper, os.WNOHANG | os.WUNTRACED)
        if pid and not os.WIFSTOPPED(status):
            break
        if pid or (kill_at is not None and time.monotonic() >= kill_at):
            os.kill(reaper, _SIGKILL)
        if _wait_for_end_signal(poller, wake, kill_at) and kill_at is None:
            # Mostly the reaper has lost its lifeline as well. It gets the time that an orderly end takes, and is killed then.
            os.kill(reaper, _SIGTERM)
            kill_at = time.monotonic() + _SETTLE_S + grace_s + _KILL_S + _LATE_S
    killed_until = time.monotonic() + _KILL_S
    while (has_children := _reap_children()) and time.monotonic() < killed_until:
        for pid, _group in _list_descendants():
            try:
                os.kill(pid, _SIGKILL)
            except OSError:
                continue  # It is gone, or may not be killed; then `_reap_children` still finds it at the end.
        _wait_for_end_signal(poller, wake, time.monotonic() + 0.01)
    return int(has_children)


def _wait_for_end_signal(poller: select.poll, wake: int, until: float | None) -> bool:
    """Wait for a signal until this time; True if it asks for the end, which SIGCHLD does not."""
    limit_ms = None if until is None else max(0.0, until - time.monotonic()) * 1000 + 1
    return bool(poller.poll(limit_ms)) and any(number != _SIGCHLD for number in os.read(wake, 512))


def _reap_children() -> bool:
    """Reap dead children; True if any child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


class CommandWatcher:
    """One command, from its start until its whole tree has ended."""

    def __init__(self, control: int, *, adopts: bool, grace_s: float) -> None:
        self._control = control
        self._adopts = adopts
        self._grace_s = grace_s
        self._command = 0
        self._runs = False
        self._must_end = False
        self._unkilled: set[int] = set()
        self._wake = _open_signal_pipe()
        self._poller = select.poll()
        self._poller.register(control, select.POLLIN)
        self._poller.register(self._wake, select.POLLIN)

    def run(self, path: bytes, argv: list[bytes], environment: list[bytes]) -> None:
        """Start the command, wait for its exit or the request to end it, then end the rest of its tree."""
        try:
            self._command = _start(path, argv, dict(entry.split(b"=", 1) for entry in environment))
        except OSError as error:
            self._report(f"failed {error.errno}")
            return
        self._runs = True
        _close_stdio()
        self._report(f"started {self._command} {int(self._adopts)} {os.getpid()}")
        self._watch()
        self._end()
        self._report("gone")

    def _watch(self) -> None:
        while self._has_processes() and self._runs and not self._must_end:
            self._wait(None)
        settled_at = time.monotonic() + _SETTLE_S
        while self._has_processes() and not self._must_end and time.monotonic() < settled_at:
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
            # Repeated: a process that was forked, or orphaned, since the last listing is found the next time.
            self._signal_all(_SIGKILL)
            self._wait(time.monotonic() + 0.01)
        for pid, _group in _list_descendants() if self._has_processes() and self._adopts else []:
            self._report_unkilled(pid, 0)

    def _wait(self, until: float | None) -> None:
        limit_ms = None if until is None else max(0.0, until - time.monotonic()) * 1000 + 1
        if limit_ms is not None and not self._adopts:
            limit_ms = min(limit_ms, 20)  # Orphans that are not children of this process die without a signal to it.
        for source, _event in self._poller.poll(limit_ms):
            if source == self._control:
                self._must_end = True
                self._poller.unregister(self._control)
            elif any(number != _SIGCHLD for number in os.read(self._wake, 512)):
                self._must_end = True

    def _has_processes(self) -> bool:
        """Reap dead children, and report the exit of the command; True if any process of the tree is left."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._command:
                    self._runs = False
                    self._report(f"exited {os.waitstatus_to_exitcode(status)}")
        except ChildProcessError:
            return not self._adopts and _has_members(self._command)

    def _signal_all(self, number: int) -> None:
        """Signal each process of the tree once: many programs take a second SIGTERM as a request to abort."""
        descendants = _list_descendants() if self._adopts else []
        takes_group = self._runs or not self._adopts
        if takes_group:
            self._signal(-self._command, number)
        for pid, group in descendants:
            if not takes_group or group != self._command:
                self._signal(pid, number)

    def _signal(self, pid: int, number: int) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        except OSError as error:
            self._report_unkilled(abs(pid), error.errno or 0)

    def _report_unkilled(self, pid: int, errno: int) -> None:
        if pid not in self._unkilled:
            self._unkilled.add(pid)
            self._report(f"unkilled {pid} {errno}")

    def _report(self, line: str) -> None:
        try:
            os.write(self._control, f"{line}\n".encode())
        except OSError:
            self._must_end = True  # The gateway is gone.


def _start(path: bytes, argv: list[bytes], environment: dict[bytes, bytes]) -> int:
    """Start the command in a session of its own; an OSError of its exec is raised here."""
    reaper = os.getpid()
    failure, failed = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            _prctl(_PR_SET_PDEATHSIG, _SIGKILL)
            if os.getppid() == reaper:
                for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # Python ignores them, and exec would pass that on.
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
    """Return a pipe from which the numbers of SIGCHLD, SIGTERM, SIGINT and SIGHUP can be read as they arrive."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    _signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (_SIGCHLD, _SIGTERM, _signal.SIGINT, _signal.SIGHUP):
        _signal.signal(number, _ignore_signal)
    return readable


def _ignore_signal(_number: int, _frame: object) -> None:
    """Handle a signal by doing nothing: without a Python handler, its number is not written to the wake-up pipe."""


def _close_stdio() -> None:
    """Close this process's copies of the command's pipes, so that they end with the command."""
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
    """Return the process id and the group of every descendant, parents first (Linux)."""
    children = _children_by_parent()
    descendants = list(children.get(os.getpid(), []))
    for pid, _group in descendants:
        descendants += children.get(pid, [])
    return descendants


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
            os._exit(0)  # The gateway is gone, and the command was not started yet.
        order += chunk
    return order


def _prctl(option: int, value: int) -> bool:
    """Set a property of this process; False where that is not possible, as on other systems than Linux."""
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
    os._exit(main(sys.argv[1:]))  # At once: the shutdown of the interpreter takes milliseconds.
