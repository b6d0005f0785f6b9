"""What telemetry costs a call, and what the console's timeline does: processor time of gateways with and without them.
`python -m bench.telemetry` measures it alone.
"""

import re
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final
from urllib.request import urlopen

from bench.figures import OURS, PERCENT, RATE, US, Figures, Metric, Pace, Part, Target, at_most, say
from bench.http_calls import free_port
from bench.load import BenchError, compiled
from bench.processes import open_process
from bench.proxy import candidates
from bench.proxy.candidates import Proxy
from bench.proxy.ends import MANY, HttpEnd, open_upstream
from bench.wire import wait_until_served

SCENARIO: Final = "telemetry"
BLOCKS: Final = 12
"""Pairs of neighbors in a round, half a second each: a machine that others share is often disturbed, and seldom for long."""
BLOCK_S: Final = 0.5
WARM_UP_S: Final = 1.0

OFF: Final = Metric(SCENARIO, f"HTTP → HTTP, {MANY} in flight, CPU per call, off", US)
ON: Final = Metric(SCENARIO, "the same, on: four spans of each call are sent", US)
BARE: Final = Metric(SCENARIO, "the same, and the console off", US)
RATE_BARE: Final = Metric(SCENARIO, "calls/s, off, and the console off", RATE)
RATE_OFF: Final = Metric(SCENARIO, "calls/s, off", RATE)
RATE_ON: Final = Metric(SCENARIO, "calls/s, on", RATE)
MORE_ON: Final = Metric(SCENARIO, "CPU per call, more for telemetry on", PERCENT)
MORE_OFF: Final = Metric(SCENARIO, "CPU per call, between two gateways with telemetry off", PERCENT)
MORE_CONSOLE: Final = Metric(SCENARIO, "CPU per call, more for the console's timeline", PERCENT)


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """One of the gateways that are compared."""

    end: HttpEnd
    metric: Metric
    rate: Metric

    def cpu_us(self, figures: Figures) -> float:
        """Return the processor time of a call, with that of the exporter's thread."""
        used_s = self.end.server.own_cpu_s()
        load = self.end.load(in_flight=MANY, seconds=BLOCK_S)
        cpu_us = (self.end.server.own_cpu_s() - used_s) / load.calls * 1e6
        figures.add(self.metric, OURS, cpu_us)
        figures.add(self.rate, OURS, load.rate)
        return cpu_us


def measure(figures: Figures, pace: Pace) -> None:
    """Load the gateways in turns: off and on, off and off, without and with the console."""
    with ExitStack() as stack:
        upstream = open_upstream(stack, "HTTP")
        receiver = free_port()
        stack.enter_context(open_process([sys.executable, "-m", "bench.servers.otlp_receiver", str(receiver)]))
        off, other, on, bare = (
            _open_gateway(stack, upstream, section, metric, rate)
            for section, metric, rate in (
                ("", OFF, RATE_OFF),
                ("[telemetry]\nenabled = false\n", OFF, RATE_OFF),
                (f'[telemetry]\nendpoint = "http://127.0.0.1:{receiver}"\n', ON, RATE_ON),
                ("[console]\nenabled = false\n", BARE, RATE_BARE),
            )
        )
        for gateway in (off, other, on, bare):
            gateway.end.load(in_flight=MANY, seconds=WARM_UP_S)
        for number in range(1, pace.rounds + 1):
            say(f"round {number}/{pace.rounds}: telemetry")
            for block in range(BLOCKS):
                for one, two, more in ((off, on, MORE_ON), (off, other, MORE_OFF), (bare, off, MORE_CONSOLE)):
                    first, second = (two, one) if block % 2 else (one, two)
                    found = {gateway.end.port: gateway.cpu_us(figures) for gateway in (first, second)}
                    figures.add(more, OURS, (found[two.end.port] / found[one.end.port] - 1) * 100)
        _check_export(figures, on.end.port)


def _check_export(figures: Figures, port: int) -> None:
    """End the run if the gateway that is to export does not; note the spans that it could not send."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        found = re.search(rb"^toolpost_telemetry_dropped_total (\S+)", page.read(), re.MULTILINE)
    if found is None:
        raise BenchError("telemetry is not on: is the extra `otel` installed?")
    figures.note(f"spans that could not be sent: {float(found[1]):.0f}")


def _open_gateway(stack: ExitStack, upstream: candidates.Target, section: str, metric: Metric, rate: Metric) -> Gateway:
    proxy, port = Proxy(name=str(metric)), free_port()
    files = {"toolpost.toml": proxy.files(upstream)["toolpost.toml"] + section}
    server = stack.enter_context(open_process(proxy.http_command(port, upstream), files=files))
    wait_until_served(port, server, "modern")
    end = HttpEnd(name=str(metric), tool=proxy.tool, era="modern", server=server, port=port)
    return Gateway(end=end, metric=metric, rate=rate)


def targets(figures: Figures) -> list[Target]:
    """Compare with the aim: a tenth, and nothing while it is off; next to nothing for the console."""
    return [
        at_most(metric.name, value, limit, PERCENT)
        for metric, limit in ((MORE_ON, 10.0), (MORE_OFF, 2.0), (MORE_CONSOLE, 3.0))
        if (value := figures.median(metric, OURS)) is not None
    ]


PART = Part(
    name="telemetry",
    title="Telemetry",
    measure=measure,
    targets=targets,
    method=f"""\
Gateways as `toolpost serve` runs them by default, before the upstream of *Through a gateway*: two with telemetry off, one that
sends every span to an OTLP receiver in another process, and one without the console. {MANY} calls are in flight over HTTP;
blocks of {BLOCK_S} s in turns, and the median of what neighbors differ by. CPU is that of the gateway's own process, all
threads. Off, a gateway runs the same
code as without the part: what the two that are off differ by is noise.""",
)


if __name__ == "__main__":
    compiled()
    measured = Figures()
    measure(measured, Pace(rounds=1, seconds=1))
    for each in measured.values:
        print(f"{each.name}: {measured.median(each, OURS):.2f} {each.unit}")
    print(*measured.notes, sep="\n")
