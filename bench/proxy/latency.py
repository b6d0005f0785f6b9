"""What a proxy adds to one call, for every pair of transports; and how many calls pass with 32 in flight."""

from contextlib import ExitStack
from typing import Final

from bench.figures import RATE, US, Figures, Metric, Pace, Target, at_least, say
from bench.proxy.candidates import DIRECT, FASTMCP, PROXIES, SDK, TOOLPOST, Transport
from bench.proxy.ends import MANY, End, open_direct, open_proxy, open_upstream

ROUTES: Final[tuple[tuple[Transport, Transport], ...]] = (
    ("HTTP", "HTTP"),
    ("HTTP", "stdio"),
    ("stdio", "HTTP"),
    ("stdio", "stdio"),
)
ERA: Final = "modern"
LEAST_TIMES_LESS: Final = 4.0
LONGEST_S: Final = 1.0
"""How long a load of many lasts at most, and two of one in flight: those have thousands of calls in a second."""

WARM_UP_S: Final = 0.7
ADDED: Final = "added to a call, p50"


def measure(figures: Figures, pace: Pace) -> None:
    """Measure every route, everybody in turns; with 32 in flight over HTTP alone."""
    seconds = min(pace.seconds, LONGEST_S)
    for front, back in ROUTES:
        is_http = (front, back) == ("HTTP", "HTTP")
        with ExitStack() as stack:
            target = open_upstream(stack, back)
            proxies = PROXIES if is_http else (TOOLPOST, SDK)
            ends = [
                open_direct(stack, target, ERA),
                *(open_proxy(stack, proxy, front, target, ERA) for proxy in proxies),
            ]
            for end in ends:
                end.load(in_flight=MANY if is_http else 1, seconds=WARM_UP_S)
            for number in range(1, pace.rounds + 1):
                say(f"round {number}/{pace.rounds}: {front} → {back}: {', '.join(end.name for end in ends)}")
                # A short one twice: a machine that others share is often disturbed, and seldom for long.
                for _ in range(2):
                    _one_by_one(figures, f"{front} → {back}", ends, seconds / 2)
                if is_http:
                    _many(figures, f"{front} → {back}", ends, seconds)


def _one_by_one(figures: Figures, route: str, ends: list[End], seconds: float) -> None:
    direct_us = 0.0
    for end in ends:
        used_s = end.server.own_cpu_s()
        load = end.load(in_flight=1, seconds=seconds)
        used_s = end.server.own_cpu_s() - used_s
        figures.add(Metric(route, "p50", US), end.name, load.p50_us)
        if end.name == DIRECT:
            direct_us = load.p50_us
        else:
            figures.add(Metric(route, ADDED, US), end.name, max(1.0, load.p50_us - direct_us))
            figures.add(Metric(route, "p99", US), end.name, load.p99_us)
            figures.add(Metric(route, "CPU per call", US), end.name, used_s / load.calls * 1e6)


def _many(figures: Figures, route: str, ends: list[End], seconds: float) -> None:
    for end in ends:
        used_s = end.server.own_cpu_s()
        load = end.load(in_flight=MANY, seconds=seconds)
        used_s = end.server.own_cpu_s() - used_s
        figures.add(Metric(route, f"{MANY} in flight, calls/s", RATE), end.name, load.rate)
        if end.name != DIRECT:
            cpu = Metric(route, f"{MANY} in flight, CPU per call", US)
            figures.add(cpu, end.name, used_s / load.calls * 1e6)


def targets(figures: Figures) -> list[Target]:
    aims = [(Metric(f"{front} → {back}", ADDED, US), SDK, LEAST_TIMES_LESS) for front, back in ROUTES]
    rate = Metric("HTTP → HTTP", f"{MANY} in flight, calls/s", RATE)
    return [
        at_least(f"{metric}, against {peer.name}", ratio, least)
        for metric, peer, least in (*aims, (rate, SDK, 6.0), (rate, FASTMCP, 30.0))
        if (ratio := figures.ratio(metric, TOOLPOST.name, peer.name)) is not None
    ]
