"""Calls and start-up on stdio, in both eras."""

import json
import os
import select
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from bench.candidates import ALL, Candidate
from bench.figures import MIB, MS, RATE, US, Figures, Metric, say
from bench.load import BenchError, stdio_load
from bench.processes import Measured, open_process
from bench.wire import ERAS, READY_S, Era, call_template, initialize, initialized, list_tools

MANY = 32
WARM_UP_S = 1.0


class NotServed(BenchError):
    """The peer does not speak this era on stdio."""


@dataclass(frozen=True, kw_only=True)
class Piped:
    """A server at the other end of two pipes."""

    candidate: Candidate
    era: Era
    server: Measured

    @property
    def read_fd(self) -> int:
        assert self.server.popen.stdout is not None
        return self.server.popen.stdout.fileno()

    @property
    def write_fd(self) -> int:
        assert self.server.popen.stdin is not None
        return self.server.popen.stdin.fileno()

    def first_listing(self) -> None:
        """Say what a client says first, and wait for the tools."""
        if self.era == "handshake":
            self._ask(initialize(), 1)
            self._write(initialized())
        if not self._ask(list_tools(self.era), 2).get("tools"):
            raise BenchError(f"{self.candidate.name} lists no tools")

    def _ask(self, request: bytes, request_id: int) -> Any:
        self._write(request)
        answer = self._answer(request_id)
        if "result" not in answer:
            raise NotServed(f"{self.candidate.name} on stdio, {self.era}: {json.dumps(answer)[:300]}")
        return answer["result"]

    def _write(self, message: bytes) -> None:
        os.write(self.write_fd, message + b"\n")

    def _answer(self, request_id: int) -> Any:
        deadline, buffer = time.monotonic() + READY_S, b""
        while True:
            if not select.select([self.read_fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise BenchError(f"{self.candidate.name} does not answer:\n{self.server.said()}")
            chunk = os.read(self.read_fd, 65_536)
            if not chunk:
                raise BenchError(f"{self.candidate.name} has ended by itself:\n{self.server.said()}")
            *lines, buffer = (buffer + chunk).split(b"\n")
            for message in map(json.loads, filter(None, lines)):
                if message.get("id") == request_id:
                    return message


def measure_calls(figures: Figures, *, rounds: int, seconds: float) -> None:
    """Measure everybody's calls, in turns; one process per candidate and era, as a client would have it."""
    with ExitStack() as stack:
        piped = [one for era in ERAS for c in ALL if (one := _open(c, era, stack, figures)) is not None]
        for one in piped:
            _load(None, one, MANY, WARM_UP_S)
        for number in range(1, rounds + 1):
            for in_flight in (1, MANY):
                for one in piped:
                    say(f"round {number}/{rounds}: stdio {one.era}, {in_flight} in flight, {one.candidate.name}")
                    _load(figures, one, in_flight, seconds)
        for one in piped:
            metric = Metric(f"stdio {one.era}", "resident memory after the load", MIB)
            figures.add(metric, one.candidate.name, one.server.memory_mib())


def measure_startup(figures: Figures, *, rounds: int) -> None:
    """Measure from the start of a process to its first answered `tools/list`."""
    for number in range(1, rounds + 1):
        for era in ERAS:
            for candidate in ALL:
                say(f"round {number}/{rounds}: start-up, {era}, {candidate.name}")
                _start(figures, candidate, era)


def _start(figures: Figures, candidate: Candidate, era: Era) -> None:
    began = time.perf_counter()
    with open_process(candidate.stdio_command(), piped=True) as server:
        try:
            Piped(candidate=candidate, era=era, server=server).first_listing()
        except NotServed as reason:
            figures.note(str(reason))
            return
        wall_s, cpu_s = time.perf_counter() - began, server.cpu_s()
    figures.add(Metric(f"start-up, stdio {era}", "time to first answer", MS), candidate.name, wall_s * 1000)
    figures.add(Metric(f"start-up, stdio {era}", "CPU to first answer", MS), candidate.name, cpu_s * 1000)


def _open(candidate: Candidate, era: Era, stack: ExitStack, figures: Figures) -> Piped | None:
    server = stack.enter_context(open_process(candidate.stdio_command(), piped=True))
    one = Piped(candidate=candidate, era=era, server=server)
    try:
        one.first_listing()
    except NotServed as reason:
        figures.note(str(reason))
        return None
    return one


def _load(figures: Figures | None, one: Piped, in_flight: int, seconds: float) -> None:
    body = call_template(one.candidate.tool, one.era) + b"\n"
    used_s = one.server.cpu_s()
    try:
        load = stdio_load(one.read_fd, one.write_fd, body, in_flight=in_flight, seconds=seconds)
    except BenchError as error:
        what = f"{one.candidate.name}, stdio {one.era}, {in_flight} in flight"
        raise BenchError(f"{what}: {error}\n{one.server.said()}") from error
    finally:
        # The load generator shares the pipe, and has made it non-blocking.
        os.set_blocking(one.read_fd, True)
    used_s = one.server.cpu_s() - used_s
    if figures is None:
        return
    scenario, flight, who = f"stdio {one.era}", f"{in_flight} in flight", one.candidate.name
    figures.add(Metric(scenario, f"{flight}, p50", US), who, load.p50_us)
    figures.add(Metric(scenario, f"{flight}, p99", US), who, load.p99_us)
    if in_flight == MANY:
        figures.add(Metric(scenario, f"{flight}, calls/s", RATE), who, load.rate)
    figures.add(Metric(scenario, f"{flight}, CPU per call", US), who, used_s / load.calls * 1e6)
