"""What every attack uses: the `attack` mark, the CPU time of an event loop, and the growth of a cost with its input.

Wall time says little on a shared machine. A blocked event loop is seen in the CPU time of its thread, which is compared with
that of a known piece of work (`slowness`), and a bad algorithm in the ratio between the costs of two input sizes; 50 ms of wall
time are asserted only in soak, where a test runs alone.
"""

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any, Literal

import pytest

Attacker = Literal["stranger", "caller", "server", "repository", "agent", "operator"]


def attack(attacker: Attacker, attempt: str, holds: str) -> pytest.MarkDecorator:
    """Mark a test as an attack: who tries what, and what holds. Write literals: the docs page is read from the source."""
    return pytest.mark.attack(attacker=attacker, attempt=attempt, holds=holds)


def loop_cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process's main thread, which runs its event loop, has used so far (Linux)."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


class LoopStretch:
    """The longest stretch of CPU time for which an event loop, this thread's, did nothing else; `cpu_s`."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._seen = time.thread_time()
        self._timer = self._loop.call_later(0.001, self._turn)

    def _turn(self) -> None:
        self._note()
        self._timer = self._loop.call_later(0.001, self._turn)

    def _note(self) -> None:
        now = time.thread_time()
        self.cpu_s, self._seen = max(self.cpu_s, now - self._seen), now

    def end(self) -> None:
        self._note()
        self._timer.cancel()


USUAL_S = 0.0023
"""What the yardstick takes on the machine for which limits in CPU seconds were written, while it does nothing else."""

_VALUES = [{"name": f"value {number}", "list": [number, None, True]} for number in range(2_300)]


def slowness() -> float:
    """Return how many times its usual CPU time a piece of work takes now, at least 1: a limit in CPU seconds is multiplied by it.

    Beside other work a processor core does up to three times less in a second of CPU time, and a slower machine less at any time.
    """
    taken_s = []
    for _ in range(5):
        started = time.thread_time()
        json.loads(json.dumps(_VALUES))
        taken_s.append(time.thread_time() - started)
    return max(1.0, median(taken_s) / USUAL_S)


async def longest_stretch(work: Callable[[], Awaitable[Any]]) -> float:
    """Return the longest stretch for which `work` holds the event loop: the least of three runs, for one may meet a collection of
    garbage. What the test itself does must not be on the loop: requests are answered from a thread (`answering`). The seconds
    are those of a machine that does nothing else (`slowness`).
    """
    found = []
    for _ in range(3):
        stretch = LoopStretch()
        await work()
        stretch.end()
        found.append(stretch.cpu_s / slowness())
    return min(found)


@contextmanager
def answering(answers: Mapping[str, Callable[[], tuple[int, str, bytes]]]) -> Iterator[str]:
    """Serve HTTP from a thread: status, media type and body by path, without the query; 404 for any other. Gives the URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            make = answers.get(self.path.partition("?")[0], lambda: (404, "text/plain", b""))
            status, media_type, body = make()
            self.send_response(status)
            self.send_header("content-type", media_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def thread_cpu_s(work: Callable[[], Any]) -> float:
    """Return the CPU seconds that `work` takes in this thread: the least of three runs."""

    def once() -> float:
        started = time.thread_time()
        work()
        return time.thread_time() - started

    return min(once() for _ in range(3))


def assert_linear(cost_s: Callable[[int], float], *, small: int, factor: int = 8, floor_s: float = 0.002) -> None:
    """Assert that `cost_s(size)` grows with its input at most linearly, with a factor of 2.5 for noise.

    `floor_s` is added to the smaller cost, because below a millisecond the noise is larger than the cost. A quadratic cost grows
    by the square of `factor`, so it is far above the bound once it is well over the floor: choose `small` accordingly.
    """
    least = cost_s(small)
    allowed = 2.5 * factor * (least + floor_s)
    most = cost_s(small * factor)
    for _ in range(2):
        if most > allowed:  # the moment may have been a busy one
            most = min(most, cost_s(small * factor))
    assert most <= allowed, (
        f"{small * factor:,} units cost {most:.3f} s, {small:,} cost {least:.3f} s: more than linear"
    )
