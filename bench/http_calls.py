"""Calls over HTTP, in both eras, with 1 and with 32 in flight."""

import socket
from contextlib import ExitStack
from dataclasses import dataclass

from bench.candidates import ALL, PEERS, Answers, Candidate
from bench.figures import MIB, RATE, US, Figures, Metric, say
from bench.load import BenchError, http_load
from bench.processes import Measured, open_process
from bench.wire import ERAS, Era, http_template, open_session, wait_until_served

MANY = 32
WARM_UP_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Served:
    """A candidate at a port, with a session per connection for the handshake era."""

    candidate: Candidate
    server: Measured
    port: int
    sessions: tuple[str, ...]

    def requests(self, era: Era, in_flight: int) -> list[bytes]:
        wanted = self.sessions[:in_flight] if era == "handshake" else (None,)
        return [http_template(self.port, self.candidate.tool, era, session) for session in wanted]


def measure(figures: Figures, *, rounds: int, seconds: float) -> None:
    """Measure everybody, in turns."""
    chosen = {peer.name: _faster_answers(peer, figures) for peer in PEERS}
    with ExitStack() as stack:
        served = [_serve(c.answering(chosen.get(c.name, "json")), stack) for c in ALL]
        for one in served:
            _warm_up(one)
        for number in range(1, rounds + 1):
            for era in ERAS:
                for in_flight in (1, MANY):
                    for one in served:
                        say(f"round {number}/{rounds}: HTTP {era}, {in_flight} in flight, {one.candidate.name}")
                        _load(figures, one, era, in_flight, seconds)
        for one in served:
            figures.add(
                Metric("HTTP", "resident memory after the load", MIB), one.candidate.name, one.server.memory_mib()
            )


def _faster_answers(peer: Candidate, figures: Figures) -> Answers:
    """Find out how a peer answers faster, so that it is compared at its best."""
    rates: dict[Answers, float] = {}
    for answers in ("json", "events"):
        say(f"which way is {peer.name} faster over HTTP: {answers}")
        with ExitStack() as stack:
            one = _serve(peer.answering(answers), stack)
            _warm_up(one)
            rates[answers] = http_load(one.port, one.requests("modern", MANY), in_flight=MANY, seconds=WARM_UP_S).rate
    best = max(rates, key=lambda answers: rates[answers])
    figures.note(
        f"{peer.name} over HTTP is measured with answers as {best} "
        f"(a first look: JSON {rates['json']:.0f} calls/s, events, its default, {rates['events']:.0f})"
    )
    return best


def _serve(candidate: Candidate, stack: ExitStack) -> Served:
    port = free_port()
    server = stack.enter_context(open_process(candidate.http_command(port)))
    for era in ERAS:
        wait_until_served(port, server, era)
    sessions = tuple(open_session(port) for _ in range(MANY))
    return Served(candidate=candidate, server=server, port=port, sessions=sessions)


def _warm_up(one: Served) -> None:
    for era in ERAS:
        http_load(one.port, one.requests(era, MANY), in_flight=MANY, seconds=WARM_UP_S)


def _load(figures: Figures, one: Served, era: Era, in_flight: int, seconds: float) -> None:
    used_s = one.server.cpu_s()
    try:
        load = http_load(one.port, one.requests(era, in_flight), in_flight=in_flight, seconds=seconds)
    except BenchError as error:
        raise BenchError(f"{one.candidate.name}, HTTP {era}, {in_flight} in flight: {error}") from error
    used_s = one.server.cpu_s() - used_s
    scenario, flight, who = f"HTTP {era}", f"{in_flight} in flight", one.candidate.name
    figures.add(Metric(scenario, f"{flight}, p50", US), who, load.p50_us)
    figures.add(Metric(scenario, f"{flight}, p99", US), who, load.p99_us)
    if in_flight == MANY:
        figures.add(Metric(scenario, f"{flight}, calls/s", RATE), who, load.rate)
    figures.add(Metric(scenario, f"{flight}, CPU per call", US), who, used_s / load.calls * 1e6)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
