"""Registering and listing 6,044 real definitions. `python -m bench.register` does it once and prints JSON."""

import json
import re
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

from bench.figures import COUNT, MIB, MS, OURS, Figures, Metric, Pace, Part, S, Target, at_most, say
from bench.http_calls import free_port
from bench.load import BenchError
from bench.processes import BIN, ROOT, Measured, open_process, surroundings
from bench.servers import toucan
from bench.wire import list_over_http, wait_until_served

WHO = OURS
REGISTER = Metric("register 6,044 definitions", "time", S)
SCENARIO = REGISTER.scenario


def measure(figures: Figures, pace: Pace) -> None:
    """Register in a fresh process per round, then list over HTTP."""
    if not toucan.DEFINITIONS.exists():
        raise BenchError(
            f"the definitions are not there: {toucan.DEFINITIONS}\nhint: leave out `register`, as in `scripts/bench http`"
        )
    for number in range(1, pace.rounds + 1):
        say(f"round {number}/{pace.rounds}: register")
        found = _registered_elsewhere()
        figures.add(REGISTER, WHO, found["time_s"])
        figures.add(Metric(SCENARIO, "CPU", S), WHO, found["cpu_s"])
        figures.add(Metric(SCENARIO, "definitions refused", COUNT), WHO, found["refused_count"])
        figures.add(Metric(SCENARIO, "tools/list in the lane, first (preparing)", MS), WHO, found["first_ms"])
        figures.add(Metric(SCENARIO, "tools/list in the lane, later (prepared)", MS), WHO, found["later_ms"])
        figures.refusals = found["refused"]
    _measure_http(figures, pace.rounds)


def _registered_elsewhere() -> Any:
    ran = subprocess.run(
        [sys.executable, "-m", "bench.register"],
        cwd=ROOT,
        env=surroundings(),
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        raise BenchError(f"registering failed:\n{ran.stderr[-2_000:]}")
    return json.loads(ran.stdout)


def _measure_http(figures: Figures, rounds: int) -> None:
    with ExitStack() as stack:
        port = free_port()
        say("serving all definitions over HTTP")
        began = time.perf_counter()
        server = stack.enter_context(open_process([*_serve_all(), "--listen", f"127.0.0.1:{port}"], files=_config()))
        wait_until_served(port, server, "modern")
        figures.add(Metric(SCENARIO, "HTTP: start to first page", S), WHO, time.perf_counter() - began)
        _list_rounds(figures, port, server, rounds)


def _list_rounds(figures: Figures, port: int, server: Measured, rounds: int) -> None:
    pages = tools = 0
    for number in range(rounds + 1):
        say(f"listing all pages, {number + 1}/{rounds + 1}")
        began, cursor = time.perf_counter(), None
        pages = tools = 0
        while cursor or not pages:
            page = list_over_http(port, "modern", None, cursor)
            pages, tools, cursor = pages + 1, tools + len(page["tools"]), page.get("nextCursor")
        which = "later" if number else "first"
        took_ms = (time.perf_counter() - began) * 1000
        figures.add(Metric(SCENARIO, f"HTTP: all pages, {which} (with the client's parsing)", MS), WHO, took_ms)
    figures.note(f"tools/list over HTTP: {tools} tools on {pages} pages")
    figures.add(Metric(SCENARIO, "HTTP: resident memory", MIB), WHO, server.memory_mib())


def _serve_all() -> list[str]:
    return [str(BIN / "toolpost"), "serve"]


def _config() -> dict[str, str]:
    load = [f"bench.servers.toucan:{name}" for name in toucan.tools_by_plugin()]
    return {"toolpost.toml": f"[plugins]\nload = {json.dumps(load)}\n"}


def _register_once() -> dict[str, Any]:
    from toolpost.discovery.catalog import Catalog
    from toolpost.endpoints.listing import Listing
    from toolpost.protocol.era import STATELESS
    from toolpost.providers import FunctionProvider

    wanted = toucan.tools_by_plugin()
    began, began_cpu = time.perf_counter(), time.process_time()
    sources = [FunctionProvider(name, tools) for name, tools in wanted.items()]
    time_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    began = time.perf_counter()
    listing = Listing(Catalog(sources), scope="public")
    _all_pages(listing, STATELESS)
    first_ms = (time.perf_counter() - began) * 1000
    began = time.perf_counter()
    _all_pages(listing, STATELESS)
    later_ms = (time.perf_counter() - began) * 1000
    refusals = [refusal for source in sources for refusal in source.refused]
    return {
        "time_s": time_s,
        "cpu_s": cpu_s,
        "first_ms": first_ms,
        "later_ms": later_ms,
        "refused_count": len(refusals),
        "refused": dict(Counter(_kind(str(refusal.message)) for refusal in refusals).most_common(20)),
    }


def _all_pages(listing: Any, revision: Any) -> None:
    """Follow the cursors through the prepared bytes; the cursor stands in the page's last few hundred bytes."""
    cursor = None
    while True:
        page: bytes = listing.page(revision, cursor, request_id=b"1")
        found = re.search(rb'"nextCursor":"([^"]+)"', page[-2_000:])
        if found is None:
            return
        cursor = found.group(1).decode()


def _kind(message: str) -> str:
    """Strip what differs from tool to tool, so that like refusals are counted together."""
    _, _, reason = message.partition(", tool ")
    place_and_reason = reason.partition("`, ")[2] or message
    place, _, why = place_and_reason.partition(": ")
    return f"{place.partition('/')[0]}: {re.sub(r'[0-9]+', 'N', re.sub(r'`[^`]*`', '`…`', why))}"


def _main() -> None:
    print(json.dumps(_register_once()))


def targets(figures: Figures) -> list[Target]:
    found = figures.median(REGISTER, WHO)
    return [] if found is None else [at_most(str(REGISTER), found, 2, S)]


PART = Part(name="register", title="Thousands of definitions", measure=measure, targets=targets)


if __name__ == "__main__":
    _main()
