"""Calls and start-up on stdio, in both eras."""

import json
import os
import select
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from bench.candidates import ALL, NAMES, PAIRS, Candidate
from bench.figures import MIB, MS, RATE, US, Figures, Metric, Pace, Part, say
from bench.load import BenchError, Load, stdio_load
from bench.processes import Measured, open_process
from bench.wire import ERAS, READY_S, Era, call_template, initialize, initialized, list_tools

MANY = 32
WARM_UP_S = 1.0


class NotServed(BenchError):
    """The peer does not speak this era on stdio."""


@dataclass(frozen=True, kw_only=True)
class Piped:
    """A server at the other end of two pipes."""

    name: str
    tool: str
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
            raise BenchError(f"{self.name} lists no tools")

    def load(self, *, in_flight: int, seconds: float) -> Load:
        """Send calls for so long."""
        body = call_template(self.tool, self.era) + b"\n"
        try:
            return stdio_load(self.read_fd, self.write_fd, body, in_flight=in_flight, seconds=seconds)
        except BenchError as error:
            what = f"{self.name}, stdio {self.era}, {in_flight} in flight"
            raise BenchError(f"{what}: {error}\n{self.server.said()}") from error
        finally:
            # The load generator shares the pipe, and has made it non-blocking.
            os.set_blocking(self.read_fd, True)

    def _ask(self, request: bytes, request_id: int) -> Any:
        self._write(request)
        answer = self._answer(request_id)
        if "result" not in answer:
            raise NotServed(f"{self.name} on stdio, {self.era}: {json.dumps(answer)[:300]}")
        return answer["result"]

    def _write(self, message: bytes) -> None:
        os.write(self.write_fd, message + b"\n")

    def _answer(self, request_id: int) -> Any:
        deadline, buffer = time.monotonic() + READY_S, b""
        while True:
            if not select.select([self.read_fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise BenchError(f"{self.name} does not answer:\n{self.server.said()}")
            chunk = os.read(self.read_fd, 65_536)
            if not chunk:
                raise BenchError(f"{self.name} has ended by itself:\n{self.server.said()}")
            *lines, buffer = (buffer + chunk).split(b"\n")
            for message in map(json.loads, filter(None, lines)):
                if message.get("id") == request_id:
                    return message


def measure_calls(figures: Figures, pace: Pace) -> None:
    """Measure everybody's calls, in turns; one process per candidate and era, as a client would have it."""
    with ExitStack() as stack:
        piped = [one for era in ERAS for c in ALL if (one := _open(c, era, stack, figures)) is not None]
        for one in piped:
            _load(None, one, MANY, WARM_UP_S)
        for number in range(1, pace.rounds + 1):
            for in_flight in (1, MANY):
                for one in piped:
                    say(f"round {number}/{pace.rounds}: stdio {one.era}, {in_flight} in flight, {one.name}")
                    _load(figures, one, in_flight, pace.seconds)
        for one in piped:
            metric = Metric(f"stdio {one.era}", "resident memory after the load", MIB)
            figures.add(metric, one.name, one.server.memory_mib())


def measure_startup(figures: Figures, pace: Pace) -> None:
    """Measure from the start of a process to its first answered `tools/list`."""
    for number in range(1, pace.rounds + 1):
        for era in ERAS:
            for candidate in ALL:
                say(f"round {number}/{pace.rounds}: start-up, {era}, {candidate.name}")
                _start(figures, candidate, era)


def _start(figures: Figures, candidate: Candidate, era: Era) -> None:
    began = time.perf_counter()
    with open_process(candidate.stdio_command(), piped=True) as server:
        try:
            Piped(name=candidate.name, tool=candidate.tool, era=era, server=server).first_listing()
        except NotServed as reason:
            figures.note(str(reason))
            return
        wall_s, cpu_s = time.perf_counter() - began, server.cpu_s()
    figures.add(Metric(f"start-up, stdio {era}", "time to first answer", MS), candidate.name, wall_s * 1000)
    figures.add(Metric(f"start-up, stdio {era}", "CPU to first answer", MS), candidate.name, cpu_s * 1000)


def _open(candidate: Candidate, era: Era, stack: ExitStack, figures: Figures) -> Piped | None:
    server = stack.enter_context(open_process(candidate.stdio_command(), piped=True))
    one = Piped(name=candidate.name, tool=candidate.tool, era=era, server=server)
    try:
        one.first_listing()
    except NotServed as reason:
        figures.note(str(reason))
        return None
    return one


def _load(figures: Figures | None, one: Piped, in_flight: int, seconds: float) -> None:
    used_s = one.server.cpu_s()
    load = one.load(in_flight=in_flight, seconds=seconds)
    used_s = one.server.cpu_s() - used_s
    if figures is None:
        return
    scenario, flight, who = f"stdio {one.era}", f"{in_flight} in flight", one.name
    figures.add(Metric(scenario, f"{flight}, p50", US), who, load.p50_us)
    figures.add(Metric(scenario, f"{flight}, p99", US), who, load.p99_us)
    if in_flight == MANY:
        figures.add(Metric(scenario, f"{flight}, calls/s", RATE), who, load.rate)
    figures.add(Metric(scenario, f"{flight}, CPU per call", US), who, used_s / load.calls * 1e6)


STARTUP = Part(name="startup", title="Start-up on stdio", measure=measure_startup, names=NAMES, pairs=PAIRS)
PART = Part(name="stdio", title="Calls on stdio", measure=measure_calls, names=NAMES, pairs=PAIRS)
