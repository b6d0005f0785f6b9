"""Measure two checkouts of Toolpost side by side: `scripts/bench trees OTHER`, after which each figure is a ratio.

Both gateways run during the whole measurement and are loaded in turns, so that a machine that becomes slower does
so for both. CPU time per call is the steadier figure of the two: it hardly depends on what else the machine does.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.http_calls import free_port
from bench.load import BenchError, Load, compiled
from bench.processes import ROOT, Measured, open_process, surroundings
from bench.proxy.candidates import Target, python_command, toolpost_toml
from bench.proxy.ends import End, HttpEnd, open_upstream
from bench.servers import toucan
from bench.stdio_calls import Piped
from bench.wire import ERAS, Era, open_session, wait_until_served

MANY = 32
WARM_UP_S = 1.0
QUIET_S = 2.0
QUIET_CPU_S = 0.05
"""A start is over when the gateway has used no more than this in `QUIET_S`."""
BUS_CYCLES = """
import asyncio, sys, tempfile
from bench.bus import cycles
with tempfile.TemporaryDirectory() as folder:
    print(asyncio.run(cycles.per_second(f"sqlite:{folder}/bus.db", float(sys.argv[1]))))
"""


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A checkout with its own `.venv`."""

    name: str
    path: Path

    @property
    def environment(self) -> dict[str, str]:
        return surroundings() | {"PYTHONPATH": f"{self.path}:{self.path / 'src'}"}

    @contextmanager
    def serve(
        self, *arguments: str, piped: bool = False, toml: str | None = None, place: Path | None = None
    ) -> Iterator[Measured]:
        command = [str(self.path / ".venv/bin/toolpost"), "serve", *arguments]
        files = {} if toml is None else {"toolpost.toml": toml}
        with open_process(command, piped=piped, files=files, environment=self.environment, place=place) as server:
            yield server

    def bus_cycles_per_second(self, seconds: float) -> float:
        command = [str(self.path / ".venv/bin/python"), "-c", BUS_CYCLES, str(seconds)]
        run = subprocess.run(command, cwd=self.path, env=self.environment, capture_output=True, text=True, check=False)
        if run.returncode:
            raise BenchError(f"the bus of {self.path} cannot be measured:\n{run.stderr[-2_000:]}")
        return float(run.stdout)


OpenEnd = Callable[[Tree, ExitStack], End]


@dataclass(kw_only=True)
class Comparison:
    """The values of one figure in both trees, round by round."""

    less_is_better: bool
    here: list[float] = field(default_factory=list)
    other: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """How many times better this tree is than the other; the median over the rounds."""
        ratios = [mine / theirs for mine, theirs in zip(self.here, self.other, strict=True)]
        return 1 / median(ratios) if self.less_is_better else median(ratios)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench trees",
        description=__doc__,
        epilog="example: git worktree add ../before v1.0 && ../before/scripts/setup bench && scripts/bench trees ../before",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("other", type=Path, help="a checkout that was set up with `scripts/setup bench`")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="how long one load lasts (1.5)")
    parser.add_argument(
        "--starts", action="store_true", help="measure starts with thousands of tools of a server instead"
    )
    parser.add_argument("--json", action="store_true", help="print every value as JSON")
    options = parser.parse_args(arguments)
    trees = (Tree(name="here", path=ROOT), Tree(name="other", path=options.other.resolve()))
    try:
        if options.starts:
            figures = _measure_starts(trees, options.rounds)
        else:
            compiled()
            figures = _measure(trees, options.rounds, options.seconds)
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps({name: {"here": c.here, "other": c.other, "ratio": c.ratio} for name, c in figures.items()}))
        return 0
    print(f"{'figure':48} {'other':>10} {'here':>10}  here is so many times better")
    for name, found in figures.items():
        print(f"{name:48} {median(found.other):10,.1f} {median(found.here):10,.1f}  {found.ratio:.3f}")
    return 0


def _measure(trees: tuple[Tree, Tree], rounds: int, seconds: float) -> dict[str, Comparison]:
    figures: dict[str, Comparison] = {}
    with ExitStack() as stack:
        ends = [(what, [open_end(tree, stack) for tree in trees]) for what, open_end in _scenarios(stack)]
        for _, pair in ends:
            for end in pair:
                end.load(in_flight=MANY, seconds=WARM_UP_S)
        for number in range(rounds):
            print(f"round {number + 1}/{rounds}", file=sys.stderr)
            for what, pair in ends:
                for in_flight in (1, MANY):
                    # The order changes with each round: the second one finds warmer caches.
                    order = (0, 1) if number % 2 else (1, 0)
                    found = dict(sorted((which, _load(pair[which], in_flight, seconds)) for which in order))
                    _add(figures, f"{what}, {in_flight} in flight", found)
            cycles = [tree.bus_cycles_per_second(seconds * 2) for tree in trees]
            _figure(figures, "bus cycles/s", cycles, less_is_better=False)
    return figures


def _measure_starts(trees: tuple[Tree, Tree], rounds: int) -> dict[str, Comparison]:
    """Start twice on one store, with all real definitions behind a server on stdio."""
    if not toucan.DEFINITIONS.exists():
        raise BenchError(f"the definitions are not there: {toucan.DEFINITIONS}")
    command = python_command(ROOT / "bench" / "servers" / "listing.py", toucan.DEFINITIONS)
    toml = toolpost_toml({"many": Target(command=command)})
    figures: dict[str, Comparison] = {}
    for number in range(rounds):
        print(f"round {number + 1}/{rounds}", file=sys.stderr)
        found: dict[int, dict[str, float]] = {}
        for which in (0, 1) if number % 2 else (1, 0):
            with TemporaryDirectory(prefix="toolpost-bench-") as folder:
                first, second = (_start(trees[which], toml, Path(folder)) for _ in range(2))
            found[which] = {f"first start: {name}": value for name, value in first.items()}
            found[which] |= {f"second start: {name}": value for name, value in second.items()}
        for name in found[0]:
            _figure(figures, name, [found[0][name], found[1][name]], less_is_better=True)
    return figures


def _start(tree: Tree, toml: str, place: Path) -> dict[str, float]:
    with tree.serve("--stdio", piped=True, toml=toml, place=place) as server:
        Piped(name=tree.name, tool="", era="handshake", server=server).first_listing()
        listed_s, used_s, quiet_s = server.own_cpu_s(), -1.0, server.own_cpu_s()
        while quiet_s - used_s > QUIET_CPU_S:
            time.sleep(QUIET_S)
            used_s, quiet_s = quiet_s, server.own_cpu_s()
        return {
            "CPU to the first list, ms": listed_s * 1e3,
            "CPU until it is quiet, ms": quiet_s * 1e3,
            "memory, MiB": server.own_memory_mib(),
        }


def _scenarios(stack: ExitStack) -> Iterator[tuple[str, OpenEnd]]:
    plugin = ("--plugin", "bench.servers.toolpost_schema:plugin")

    def over_http(era: Era, target: Target | None) -> OpenEnd:
        def open_end(tree: Tree, stack: ExitStack) -> End:
            port = free_port()
            toml = None if target is None else toolpost_toml({"upstream": target})
            arguments = plugin if target is None else ()
            server = stack.enter_context(tree.serve(*arguments, "--listen", f"127.0.0.1:{port}", toml=toml))
            wait_until_served(port, server, era)
            sessions = tuple(open_session(port) for _ in range(MANY)) if era == "handshake" else ()
            tool = "bench__echo" if target is None else "upstream__echo"
            return HttpEnd(name=tree.name, tool=tool, era=era, server=server, port=port, sessions=sessions)

        return open_end

    def over_stdio(era: Era) -> OpenEnd:
        def open_end(tree: Tree, stack: ExitStack) -> End:
            server = stack.enter_context(tree.serve(*plugin, "--stdio", piped=True))
            end = Piped(name=tree.name, tool="bench__echo", era=era, server=server)
            end.first_listing()
            return end

        return open_end

    for era in ERAS:
        yield f"HTTP {era}", over_http(era, None)
        yield f"stdio {era}", over_stdio(era)
    yield "HTTP → HTTP", over_http("modern", open_upstream(stack, "HTTP"))
    yield "HTTP → stdio", over_http("modern", open_upstream(stack, "stdio"))


def _load(end: End, in_flight: int, seconds: float) -> tuple[Load, float]:
    used_s = end.server.own_cpu_s()
    load = end.load(in_flight=in_flight, seconds=seconds)
    return load, (end.server.own_cpu_s() - used_s) / load.calls * 1e6


def _add(figures: dict[str, Comparison], what: str, found: dict[int, tuple[Load, float]]) -> None:
    loads = [load for load, _ in found.values()]
    _figure(figures, f"{what}: p50, us", [load.p50_us for load in loads], less_is_better=True)
    _figure(figures, f"{what}: calls/s", [load.rate for load in loads], less_is_better=False)
    _figure(figures, f"{what}: CPU per call, us", [cpu_us for _, cpu_us in found.values()], less_is_better=True)


def _figure(figures: dict[str, Comparison], name: str, values: Sequence[float], *, less_is_better: bool) -> None:
    comparison = figures.setdefault(name, Comparison(less_is_better=less_is_better))
    comparison.here.append(values[0])
    comparison.other.append(values[1])


if __name__ == "__main__":
    sys.exit(main())
