"""What ten upstreams take in memory, and what ten thousand tools cost a call."""

import time
from contextlib import ExitStack
from typing import Final

from bench.figures import MIB, US, Figures, Metric, Pace, Target, at_most, say
from bench.http_calls import free_port
from bench.processes import open_process
from bench.proxy.candidates import TOOLPOST, Proxy, toolpost_toml
from bench.proxy.ends import MANY, End, HttpEnd, open_proxy, open_upstream
from bench.wire import ERAS, open_session, wait_until_served

UPSTREAMS: Final = 10
FEW, LOTS = 10, 10_000
MEMORY: Final = Metric(f"{UPSTREAMS} upstreams connected", "resident memory of the gateway", MIB)
SECONDS: Final = 0.4
LONGEST_UNREST_S: Final = 10.0


def measure_memory(figures: Figures) -> None:
    """Connect five upstreams over HTTP and five on stdio, call each in both eras, and look at the gateway alone."""
    say(f"memory with {UPSTREAMS} upstreams connected")
    with ExitStack() as stack:
        at_a_port, on_stdio = open_upstream(stack, "HTTP"), open_upstream(stack, "stdio")
        servers = {f"up{n}": at_a_port if n % 2 else on_stdio for n in range(UPSTREAMS)}
        port = free_port()
        command = TOOLPOST.http_command(port, at_a_port)
        server = stack.enter_context(open_process(command, files={"toolpost.toml": toolpost_toml(servers)}))
        for era in ERAS:
            wait_until_served(port, server, era)
            sessions = tuple(open_session(port) for _ in range(MANY)) if era == "handshake" else ()
            for name in servers:
                end = HttpEnd(name=name, tool=f"{name}__echo", era=era, server=server, port=port, sessions=sessions)
                end.load(in_flight=MANY, seconds=SECONDS)
        figures.add(MEMORY, TOOLPOST.name, server.own_memory_mib())


def measure_tools(figures: Figures, pace: Pace) -> None:
    """Call the last of ten and the last of ten thousand tools, in turns."""
    with ExitStack() as stack:
        ends = {count: _opened(stack, count) for count in (FEW, LOTS)}
        for end in ends.values():
            end.load(in_flight=MANY, seconds=SECONDS)
            _let_settle(end)
        for number in range(1, pace.rounds + 1):
            say(f"round {number}/{pace.rounds}: a call among {FEW} and among {LOTS:,} tools")
            # Short ones, first the one and then the other: a machine that others share is often disturbed, and seldom for long.
            for counts in ((FEW, LOTS), (LOTS, FEW)) * 2:
                used_us = {count: _cost_us(ends[count], pace.seconds / 4) for count in counts}
                for count, used in used_us.items():
                    figures.add(_cost_among(count), TOOLPOST.name, used)
                figures.add(GROWTH, TOOLPOST.name, used_us[LOTS] / used_us[FEW])
        figures.add(
            Metric(f"{LOTS:,} tools listed", "resident memory of the gateway", MIB),
            TOOLPOST.name,
            ends[LOTS].server.own_memory_mib(),
        )


def _opened(stack: ExitStack, tools: int) -> End:
    return open_proxy(stack, Proxy(name=TOOLPOST.name), "HTTP", open_upstream(stack, "HTTP", tools=tools), "modern")


def _let_settle(end: End) -> None:
    """Wait until it does nothing by itself: ten thousand tools that were just learnt are still being put away."""
    until, before_s = time.monotonic() + LONGEST_UNREST_S, -1.0
    while end.server.own_cpu_s() - before_s > 0.01 and time.monotonic() < until:
        before_s = end.server.own_cpu_s()
        time.sleep(0.5)


def _cost_us(end: End, seconds: float) -> float:
    used_s = end.server.own_cpu_s()
    load = end.load(in_flight=MANY, seconds=seconds)
    return (end.server.own_cpu_s() - used_s) / load.calls * 1e6


def _cost_among(count: int) -> Metric:
    return Metric(f"{count:,} tools listed", f"HTTP → HTTP, {MANY} in flight, CPU per call", US)


GROWTH: Final = Metric(f"from {FEW} to {LOTS:,} tools", "CPU per call grows by", "x")
MOST_GROWTH: Final = 1.1
"""Less than this nobody can tell from noise."""


def targets(figures: Figures) -> list[Target]:
    aims = ((MEMORY, 100.0, MIB), (GROWTH, MOST_GROWTH, "x"))
    return [
        at_most(str(metric), found, limit, unit)
        for metric, limit, unit in aims
        if (found := figures.median(metric, TOOLPOST.name)) is not None
    ]
