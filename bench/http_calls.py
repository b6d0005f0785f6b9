"""Calls over HTTP, in both eras, with 1 and with 32 in flight."""

import socket
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

from bench.candidates import ALL, FASTMCP, NAMES, PAIRS, PEERS, SDK_HIGH, SDK_LOW, Answers, Candidate, like
from bench.figures import MIB, RATE, US, Figures, Metric, Pace, Part, Target, at_least, say
from bench.load import BenchError, http_load
from bench.processes import Measured, open_process
from bench.wire import ERAS, Era, http_template, open_session, wait_until_served

MANY = 32
WARM_UP_S = 1.0
LOOKS = 3
LOOK_S = 0.7


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


def measure(figures: Figures, pace: Pace) -> None:
    """Measure everybody, in turns."""
    chosen = {peer.name: _faster_answers(peer, figures) for peer in PEERS}
    with ExitStack() as stack:
        served = [_serve(c.answering(chosen.get(c.name, "json")), stack) for c in ALL]
        for one in served:
            _warm_up(one)
        for number in range(1, pace.rounds + 1):
            for era in ERAS:
                for in_flight in (1, MANY):
                    for one in served:
                        say(f"round {number}/{pace.rounds}: HTTP {era}, {in_flight} in flight, {one.candidate.name}")
                        _load(figures, one, era, in_flight, pace.seconds)
        for one in served:
            figures.add(
                Metric("HTTP", "resident memory after the load", MIB), one.candidate.name, one.server.memory_mib()
            )


def _faster_answers(peer: Candidate, figures: Figures) -> Answers:
    """Find out how a peer answers faster, in turns and over both eras, so that it is compared at its best."""
    say(f"which way is {peer.name} faster over HTTP: JSON or events")
    ways: tuple[Answers, ...] = ("json", "events")
    rates: dict[tuple[Answers, Era], list[float]] = {(way, era): [] for way in ways for era in ERAS}
    with ExitStack() as stack:
        served = {way: _serve(peer.answering(way), stack) for way in ways}
        for one in served.values():
            _warm_up(one)
        for _ in range(LOOKS):
            for (way, era), seen in rates.items():
                requests = served[way].requests(era, MANY)
                load = http_load(served[way].port, requests, in_flight=MANY, seconds=LOOK_S)
                seen.append(load.rate)
    found = {key: median(values) for key, values in rates.items()}
    # The time for one call in each era: a way that is slow in either does not hide behind the other.
    best = min(ways, key=lambda way: sum(1 / found[way, era] for era in ERAS))
    shown = "; ".join(f"{era} {found['json', era]:.0f} and {found['events', era]:.0f} calls/s" for era in ERAS)
    figures.note(f"{peer.name} over HTTP is measured with answers as {best}; JSON and events in turns: {shown}")
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


def targets(figures: Figures) -> list[Target]:
    found: list[Target] = []
    for metric in figures.values:
        for peer, least in ((FASTMCP, 8.0), (SDK_LOW, 4.0), (SDK_HIGH, 4.0)):
            ratio = figures.ratio(metric, like(peer).name, peer.name)
            if ratio is None:
                continue
            what = f"{metric}, {like(peer).name} against {peer.name}"
            if metric.name == f"{MANY} in flight, calls/s":
                found.append(at_least(what, ratio, least))
            elif metric.name == f"{MANY} in flight, p50" and peer is FASTMCP:
                found.append(at_least(what, ratio, 4.0))
    return found


METHOD = """\
Each server has one tool, `echo`, with one string argument and an output schema. Toolpost runs with everything on that it has by
default: both schemas enforced, the envelope, and an audit entry on disk before the answer goes out. The
peers run under uvicorn with uvloop and httptools, without access log, and answer in whichever way is faster for them. Like is
compared with like: tools with written schemas against the SDK's low-level `Server` (which validates nothing), tools with type
hints against the SDK's `MCPServer` and FastMCP. CPU per call is user and system time of the server and its children."""

PART = Part(
    name="http", title="Calls over HTTP", measure=measure, targets=targets, names=NAMES, pairs=PAIRS, method=METHOD
)
