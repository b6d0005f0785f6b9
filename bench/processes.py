"""Processes that are measured: started with the same surroundings, watched with psutil, ended with their children."""

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
STOP_S = 5.0


class Measured:
    """A running server, and what it has used."""

    def __init__(self, popen: subprocess.Popen[bytes], errors: Path) -> None:
        self.popen = popen
        self.errors = errors
        self._process = psutil.Process(popen.pid)

    def cpu_s(self) -> float:
        """User and system time so far, with children, living and reaped."""
        return sum(_cpu_s(process) for process in self._tree())

    def own_cpu_s(self) -> float:
        """User and system time so far, of the process alone."""
        used = self._process.cpu_times()
        return float(used.user + used.system)

    def own_memory_mib(self) -> float:
        """Resident memory now, of the process alone."""
        return float(self._process.memory_info().rss) / 2**20

    def memory_mib(self) -> float:
        """Resident memory now, with children."""
        return sum(process.memory_info().rss for process in self._tree()) / 2**20

    def is_alive(self) -> bool:
        return self.popen.poll() is None

    def said(self) -> str:
        """Return the end of what it wrote to stderr."""
        return self.errors.read_text(errors="replace")[-2_000:]

    def _tree(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]


def _cpu_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system + used.children_user + used.children_system)


@contextmanager
def open_process(
    command: Sequence[str],
    *,
    piped: bool = False,
    files: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    place: Path | None = None,
) -> Iterator[Measured]:
    """Start a server in a folder of its own, or in `place`, with these files; leaving ends it and everything that it started."""
    with ExitStack() as stack:
        own = tempfile.TemporaryDirectory(prefix="toolpost-bench-", ignore_cleanup_errors=True)
        folder = place or stack.enter_context(own)
        for name, text in (files or {}).items():
            (Path(folder) / name).write_text(text)
        errors = Path(folder) / "stderr.txt"
        pipe = subprocess.PIPE if piped else subprocess.DEVNULL
        with errors.open("wb") as stderr:
            popen = subprocess.Popen(
                command,
                cwd=folder,
                env=environment or surroundings(),
                stdin=pipe,
                stdout=pipe,
                stderr=stderr,
                bufsize=0,
            )
        try:
            yield Measured(popen, errors)
        finally:
            _end(popen)


def surroundings() -> dict[str, str]:
    """Return the environment of every process: no settings of the person who runs this."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR") if key in os.environ}
    return kept | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        "FASTMCP_LOG_LEVEL": "WARNING",
        "FASTMCP_CHECK_FOR_UPDATES": "off",
    }


def _end(popen: subprocess.Popen[bytes]) -> None:
    try:
        family = psutil.Process(popen.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    for pipe in (popen.stdin, popen.stdout):
        if pipe is not None:
            pipe.close()
    if popen.poll() is None:
        popen.terminate()
    try:
        popen.wait(STOP_S)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()
    for child in family:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
