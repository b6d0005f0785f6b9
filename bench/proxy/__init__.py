"""Calls through a gateway to an upstream: what it adds, how much it takes, and whether that grows."""

from bench.figures import Figures, Pace, Part, Target
from bench.proxy import flood, latency, scale
from bench.proxy.candidates import DIRECT, PEERS, PROXIES, TOOLPOST

METHOD = """\
The same upstream stands behind everybody: `bench/servers/upstream.py`, the leanest echo that we could write, in its own process.
What is added is the p50 through a proxy less the p50 of a direct call over the upstream's own transport, in the same round. The
client speaks the stateless era.

- **Toolpost** runs as `toolpost serve` does by default: arguments and results checked, an audit entry on disk for every call.
- **SDK proxy** (`bench/servers/sdk_proxy.py`) is the official SDK's low-level server in front of one client of the SDK that is
  opened once and kept, with nothing checked and nothing recorded; under uvloop, over HTTP under uvicorn with httptools, in JSON.
- **FastMCP proxy** (`bench/servers/fastmcp_proxy.py`) is `create_proxy` of one client that is opened once and kept.
  `create_proxy(url)`, as its documentation has it, opens a client for each request, and took 75 ms of CPU for one.

CPU per call is that of the proxy's own process. The flood comes from a server of the SDK's, which reports progress 2,000 times
in one call."""


def measure(figures: Figures, pace: Pace) -> None:
    """Measure everything about proxies, in turns."""
    latency.measure(figures, pace)
    scale.measure_memory(figures)
    scale.measure_tools(figures, pace)
    flood.measure(figures, pace)


def targets(figures: Figures) -> list[Target]:
    return [*latency.targets(figures), *scale.targets(figures), *flood.targets(figures)]


PART = Part(
    name="proxy",
    title="Through a gateway",
    measure=measure,
    targets=targets,
    names=(DIRECT, *(proxy.name for proxy in PROXIES)),
    pairs=tuple((TOOLPOST.name, peer.name) for peer in PEERS),
    method=METHOD,
)
