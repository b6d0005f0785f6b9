"""Appending to the audit with 32 callers who each wait for their commit. `python -m bench.store` does it by itself."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

from msgspec.structs import replace
from tests.postgres import NoPostgres, open_postgres

from bench.figures import Figures, Metric, Pace, Part, say
from toolpost.audit import AuditEntry
from toolpost.base.ids import CallerId, CallId, ToolName, TraceId
from toolpost.store import open_store
from toolpost.store.audit import AuditLog

WHO = "Toolpost"
SCENARIO = "the store, 32 callers"
CALLERS = 32
DIGEST = "sha256:" + "a" * 64
ENTRY = AuditEntry(
    at_utc="2026-03-01T12:00:00.000Z",
    call_id=CallId(""),
    trace_id=TraceId("0123456789abcdef0123456789abcdef"),
    caller=CallerId("ada"),
    tool=ToolName("time__now"),
    source="time",
    contract=DIGEST,
    schema_version=1,
    tooling_version="0.1.0",
    arguments=DIGEST,
    outcome="ok",
    code=None,
    duration_ms=1.25,
    result=DIGEST,
)


def measure(figures: Figures, pace: Pace) -> None:
    """Measure each kind of store in turns; without a PostgreSQL, SQLite alone."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolpost-bench-")))
        places: dict[str, tuple[str, int, bool]] = {
            "SQLite": (f"sqlite:{folder}/normal.db", 1, False),
            "SQLite, waiting for the disk": (f"sqlite:{folder}/full.db", 1, True),
        }
        try:
            server = stack.enter_context(open_postgres(waits_for_disk=True))
        except NoPostgres as error:
            figures.note(f"PostgreSQL was not measured: {error}")
        else:
            url = server.new_url()
            places["PostgreSQL"] = (url, 1, True)
            places["PostgreSQL, two gateways"] = (url, 2, True)
        for number in range(1, pace.rounds + 1):
            say(f"round {number}/{pace.rounds}: store")
            for name, (url, stores, durable) in places.items():
                rate = asyncio.run(appended(url, stores=stores, durable=durable, seconds=pace.seconds))
                figures.add(Metric(SCENARIO, f"appends on {name}", "appends/s"), WHO, rate)


async def appended(url: str, *, stores: int, durable: bool, seconds: float) -> float:
    """Return how many entries a second are committed, and check that all of them are there, in one chain."""
    async with AsyncExitStack() as stack:
        logs = [(await stack.enter_async_context(open_store(url, durable=durable))).audit for _ in range(stores)]
        before = await logs[0].newest()
        started = time.perf_counter()
        counts = await asyncio.gather(
            *(_caller(logs[number % stores], number, started + seconds) for number in range(CALLERS))
        )
        took_s = time.perf_counter() - started
        after = await logs[0].newest()
    if after - before != sum(counts):
        raise RuntimeError(f"{sum(counts)} entries were acknowledged, {after - before} are there")
    return sum(counts) / took_s


async def _caller(log: AuditLog, number: int, until: float) -> int:
    count = 0
    while time.perf_counter() < until:
        await log.append(replace(ENTRY, call_id=CallId(f"{number}-{count}")))
        count += 1
    return count


def main(rounds: int = 5, seconds: float = 1.0) -> None:
    """Measure, and print medians."""
    figures = Figures()
    measure(figures, Pace(rounds=rounds, seconds=seconds))
    for metric, by_whom in figures.values.items():
        rates: Sequence[float] = by_whom[WHO]
        print(f"{metric.name}: {statistics.median(rates):,.0f} /s  {[round(rate) for rate in rates]}")
    for note in figures.notes:
        print(note)


PART = Part(name="store", title="The store", measure=measure)


if __name__ == "__main__":
    main()
