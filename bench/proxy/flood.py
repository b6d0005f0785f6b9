"""A flood of progress: whether it slows the call, and how much of it reaches the client."""

import json
import os
import time
from contextlib import ExitStack
from typing import Any, Final

from bench.figures import COUNT, MS, OURS, Figures, Metric, Pace, Target, at_most, say
from bench.load import BenchError
from bench.processes import ROOT, open_process
from bench.proxy.candidates import DIRECT, TOOLPOST, python_command
from bench.proxy.candidates import Target as Upstream
from bench.stdio_calls import Piped
from bench.wire import META, SLOT

REPORTS: Final = 2_000
SCENARIO: Final = f"stdio → stdio, {REPORTS:,} reports of progress in one call"
TIME: Final = Metric(SCENARIO, "time", MS)
SLOWED: Final = Metric(SCENARIO, "time, against a direct call", "x")
REACHED: Final = Metric(SCENARIO, "reaching the client in any second, at most", COUNT)
SECOND_S: Final = 1.0


def measure(figures: Figures, pace: Pace) -> None:
    """Call in turns, directly and through the gateway."""
    upstream = Upstream(command=python_command(ROOT / "bench" / "servers" / "sdk_flood.py"))
    with ExitStack() as stack:
        direct = _opened(stack, DIRECT, "flood", upstream.command, {})
        gateway = _opened(
            stack, TOOLPOST.name, "bench__flood", TOOLPOST.stdio_command(upstream), dict(TOOLPOST.files(upstream))
        )
        for end in (direct, gateway):
            _flooded(end)
        for number in range(1, pace.rounds + 1):
            say(f"round {number}/{pace.rounds}: a flood of progress")
            took_s = {end.name: _flooded(end) for end in (direct, gateway)}
            for name, (seconds, arrivals) in took_s.items():
                figures.add(TIME, name, seconds * 1000)
                figures.add(REACHED, name, _most_in_a_second(arrivals))
            figures.add(SLOWED, OURS, took_s[OURS][0] / took_s[DIRECT][0])


def _opened(stack: ExitStack, name: str, tool: str, command: Any, files: dict[str, str]) -> Piped:
    server = stack.enter_context(open_process(command, piped=True, files=files))
    end = Piped(name=name, tool=tool, era="modern", server=server)
    end.first_listing()
    return end


_numbers = iter(range(1, 10_000))


def _flooded(end: Piped) -> tuple[float, list[float]]:
    """Return how long the call took, and when each notification came."""
    number = next(_numbers)
    arguments = {"count": REPORTS, "text": f"m{SLOT}"}
    params = {"name": end.tool, "arguments": arguments, "_meta": {**META, "progressToken": number}}
    request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    arrivals: list[float] = []
    began, rest = time.perf_counter(), b""
    os.write(end.write_fd, json.dumps(request).encode() + b"\n")
    while True:
        data = os.read(end.read_fd, 65_536)
        if not data:
            raise BenchError(f"{end.name} has ended by itself:\n{end.server.said()}")
        *lines, rest = (rest + data).split(b"\n")
        now = time.perf_counter()
        for line in lines:
            if b'"notifications/progress"' in line:
                arrivals.append(now)
            elif line.strip():
                _check(end, line)
                return now - began, arrivals


def _check(end: Piped, line: bytes) -> None:
    if f"m{SLOT}".encode() not in line:
        raise BenchError(f"{end.name} answers a flood with {line[:500]!r}")


def _most_in_a_second(arrivals: list[float]) -> int:
    return max((sum(1 for other in arrivals if at <= other < at + SECOND_S) for at in arrivals), default=0)


def targets(figures: Figures) -> list[Target]:
    aims = ((SLOWED, 1.2, "x"), (REACHED, 4.0, "a second"))
    return [
        at_most(str(metric), found, limit, unit)
        for metric, limit, unit in aims
        if (found := figures.median(metric, OURS)) is not None
    ]
