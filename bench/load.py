"""The load: `mcpload`, compiled on demand, and what it found."""

import array
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

SOURCE = Path(__file__).with_name("mcpload.c")
BUILD = Path(__file__).with_name(".build")
MAX_CALLS = 1_000_000
SPARE_S = 60.0

# Eight digits, as the load generator wants them; an id may come back once its load is long over.
_first_ids = cycle(range(10_000_000, 90_000_000, MAX_CALLS))


class BenchError(Exception):
    """The benchmark cannot go on; the message says why, in a person's words."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """How one load went. Every call was answered, and answered right."""

    calls: int
    rate: float
    p50_us: float
    p99_us: float


def compiled() -> Path:
    """Return the load generator, compiled if its source is newer."""
    program = BUILD / "mcpload"
    if program.exists() and program.stat().st_mtime >= SOURCE.stat().st_mtime:
        return program
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise BenchError(
            "there is no C compiler (cc, gcc or clang), and the load generator needs one\n"
            "hint: install one, as in `apt install gcc`; a load generator in Python would measure itself"
        )
    BUILD.mkdir(exist_ok=True)
    made = subprocess.run([compiler, "-O2", "-o", program, SOURCE], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise BenchError(f"{compiler} cannot compile {SOURCE.name}:\n{made.stderr}")
    return program


def http_load(port: int, requests: Sequence[bytes], *, in_flight: int, seconds: float) -> Load:
    """Send requests over as many connections as may be in flight; connection i sends request i modulo their number."""
    with tempfile.TemporaryDirectory(prefix="toolpost-load-") as folder:
        files = [Path(folder) / f"request-{number}" for number in range(len(requests))]
        for file, request in zip(files, requests, strict=True):
            file.write_bytes(request)
        where = ["http", "127.0.0.1", str(port)]
        return _run(where, [str(file) for file in files], Path(folder), in_flight, seconds, ())


def stdio_load(read_fd: int, write_fd: int, body: bytes, *, in_flight: int, seconds: float) -> Load:
    """Write requests to one pipe and read answers from another."""
    with tempfile.TemporaryDirectory(prefix="toolpost-load-") as folder:
        file = Path(folder) / "body"
        file.write_bytes(body)
        where = ["stdio", str(read_fd), str(write_fd)]
        return _run(where, [str(file)], Path(folder), in_flight, seconds, (read_fd, write_fd))


def _run(
    where: Sequence[str],
    files: Sequence[str],
    folder: Path,
    in_flight: int,
    seconds: float,
    pass_fds: Sequence[int],
) -> Load:
    out = folder / "latencies"
    numbers = [str(in_flight), str(seconds), str(MAX_CALLS), str(next(_first_ids)), str(out)]
    ran = subprocess.run(
        [compiled(), *where, *numbers, *files],
        capture_output=True,
        text=True,
        pass_fds=tuple(pass_fds),
        timeout=seconds + SPARE_S,
        check=False,
    )
    if ran.returncode != 0:
        raise BenchError(f"mcpload ended with exit code {ran.returncode}: {ran.stderr.strip()}")
    return _read(json.loads(ran.stdout), out)


def _read(said: dict[str, object], out: Path) -> Load:
    if said["bad"] or not said["good"]:
        raise BenchError(
            f"{said['bad']} of {int(str(said['bad'])) + int(str(said['good']))} answers were bad, "
            f"the first with status {said['bad_status']}: {said['bad_sample']}"
        )
    latencies = array.array("d", out.read_bytes())
    ordered = sorted(latencies)
    return Load(
        calls=len(ordered),
        rate=float(str(said["rate"])),
        p50_us=ordered[len(ordered) // 2],
        p99_us=ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
    )
