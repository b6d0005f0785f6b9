"""What figures of calls are made of: a sample that is read from an index alone, and counts by outcome."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from toolpost.audit import AuditEntry
from toolpost.store import Many, Row, Script, Statement, Store, marks, open_store
from toolpost.store.audit import COUNTED, SAMPLE, _count_outcomes, _read_sample
from toolpost.store.chain import COLUMNS

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

MANY = 30_000
SINCE = "2026-03-01T11:00"
DIGEST = "sha256:" + "a" * 64

Make = Callable[..., AuditEntry]


def write_many(first: int, last: int) -> Script[None]:
    """Write records whose hashes nobody verifies: a client calls two tools in turns, and every tenth call fails."""
    yield Many(
        f"INSERT INTO audit ({', '.join(COLUMNS)}) VALUES ({marks(len(COLUMNS))})",
        [make_row(seq) for seq in range(first, last)],
    )
    yield Statement("UPDATE audit_head SET seq = ?1", (last - 1,))


def make_row(seq: int) -> tuple[Any, ...]:
    second = seq * 7_199 // MANY
    at = f"2026-03-01T{11 + second // 3600}:{second // 60 % 60:02}:{second % 60:02}.000Z"
    tool, is_failed = f"desk__{'ab'[seq % 2]}", seq % 10 == 0
    outcome, code = ("error", "HANDLER_ERROR") if is_failed else ("ok", None)
    ids = (f"c-{seq}", "t" * 32, f"caller{seq % 3}", tool, "desk")
    return (seq, at, *ids, DIGEST, 1, "", DIGEST, outcome, code, float(seq % 100), DIGEST, DIGEST, DIGEST)


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough: thousands of records are written."""
    return "asyncio"


async def fill(store: Store) -> None:
    for first in range(1, MANY + 1, 10_000):
        await store.scripts.run(lambda first=first: write_many(first, first + 10_000))  # type: ignore[misc]


async def test_few_calls_are_all_returned(url: str, entry: Make) -> None:
    async with open_store(url) as store:
        for number, outcome in enumerate(("ok", "error", "refused", "lost", "cancelled")):
            await store.audit.append(
                entry(
                    at_utc=f"2026-03-01T12:0{number}:00.000Z",
                    outcome=outcome,
                    caller="bob" if outcome == "lost" else "ada",
                    duration_ms=float(number),
                )
            )
        everything = await store.audit.sample("2026-03-01T12:00")
        own = await store.audit.sample("2026-03-01T12:00", caller="bob")
        later = await store.audit.sample("2026-03-01T12:04")

    assert everything.calls == [
        (f"2026-03-01T12:0{number}", "time", "time__now", is_failed, float(number))
        for number, is_failed in enumerate((0, 1, 1, 1, 0))
    ]
    assert (everything.total, everything.weight) == (5, 1.0)
    assert [call[3] for call in own.calls] == [1]
    assert len(later.calls) == 1


async def test_figures_of_many_calls(url: str, request: pytest.FixtureRequest) -> None:
    async with open_store(url) as store:
        await fill(store)
        sample = await store.audit.sample(SINCE)
        own = await store.audit.sample(SINCE, caller="caller1")
        newest = await store.audit.count_outcomes("2026-03-01T12:55")
        cut = await store.audit.count_outcomes(SINCE)
        statements = [*collect(_read_sample(SINCE, None)), *collect(_count_outcomes(SINCE, 0))]
        plans = [await explain(store, url, request, statement) for statement in statements]

    # An even part of them: of every n-th record there would be one tool alone, and all failures or none.
    assert (sample.total, own.total) == (MANY, MANY // 3)
    for found in (sample, own):
        assert abs(len(found.calls) - SAMPLE) < SAMPLE * 0.05
        tools = Counter(call[2] for call in found.calls)
        assert abs(tools["desk__a"] / len(found.calls) - 0.5) < 0.02
        assert abs(sum(call[3] for call in found.calls) / len(found.calls) - 0.1) < 0.01
        minutes = Counter(call[0] for call in found.calls)
        assert len(minutes) == 120
        assert max(minutes.values()) < 1.5 * min(minutes.values())
    # Exact numbers, of a bounded number of the newest.
    since = min(seq for seq in range(MANY) if make_row(seq)[1] >= "2026-03-01T12:55")
    assert sum(each.calls for each in newest) == MANY - since + 1
    assert sum(each.calls for each in newest if each.is_failed) == sum(
        1 for seq in range(since, MANY + 1) if seq % 10 == 0
    )
    assert {(each.tool, each.code) for each in newest} == {
        ("desk__a", None),
        ("desk__a", "HANDLER_ERROR"),
        ("desk__b", None),
    }
    assert sum(each.calls for each in cut) == COUNTED
    # From the index alone: to read each record, of half a kilobyte, takes ten times as long.
    for plan in plans:
        assert re.search(r"COVERING INDEX audit_by_time|Index Only Scan using audit_by_time", plan), plan


def collect(script: Script[Any]) -> Sequence[Statement]:
    """Return the statements of a script, each of which is answered with one row that has one number."""
    found: list[Statement] = []
    try:
        step = next(script)
        while True:
            assert isinstance(step, Statement)
            found.append(step)
            step = script.send([(MANY,)])
    except StopIteration:
        return found


def ask(sql: str) -> Script[list[Row]]:
    return (yield Statement(sql))


async def explain(store: Store, url: str, request: pytest.FixtureRequest, statement: Statement) -> str:
    sql = statement.sql
    for number, value in reversed([*enumerate(statement.values, start=1)]):
        sql = sql.replace(f"?{number}", "NULL" if value is None else repr(value))
    if url.startswith("sqlite"):
        return "\n".join(map(str, await store.scripts.read(lambda: ask(f"EXPLAIN QUERY PLAN {sql}"))))
    postgres = request.getfixturevalue("postgres")
    postgres.sql(url, "VACUUM ANALYZE audit")
    return str(postgres.sql(url, "SET enable_seqscan = off", f"EXPLAIN {sql}"))
