"""The audit as a reader meets it: what was appended is found, in order, by what is known of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.store.conftest import url_of
from toolpost.audit import AuditEntry, AuditFilter
from toolpost.contracts.errors import ErrorCode, GatewayError
from toolpost.store import open_store

pytestmark = pytest.mark.anyio
Make = Callable[..., AuditEntry]
EVERYTHING = AuditFilter()


@pytest.fixture(params=["sqlite", "memory", "postgres"])
def url(request: pytest.FixtureRequest, path: Path) -> str:
    return url_of(request.param, request, path)


async def test_what_was_appended_is_read_back_in_order(url: str, entry: Make) -> None:
    entries = [entry(), entry(outcome="error", code=ErrorCode.TOOL_TIMEOUT, result=None), entry()]
    async with open_store(url) as store:
        for one in entries:
            await store.audit.append(one)
        records = await store.audit.entries(EVERYTHING, limit=10)

    assert [record.entry for record in records] == entries
    assert [record.seq for record in records] == [1, 2, 3]
    assert [record.previous for record in records[1:]] == [record.hash for record in records[:-1]]


async def test_the_record_outlives_the_store(url: str, entry: Make) -> None:
    if "memory" in url:
        return
    for _ in range(3):
        async with open_store(url, durable=True) as store:
            await store.audit.append(entry())

    async with open_store(url) as store:
        assert (await store.audit.verify()).checked == 3


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"tool": "git__*"}, [2, 3]),
        ({"tool": "git__lo?"}, [2]),
        ({"tool": "git__[l]og"}, []),
        ({"caller": "bob"}, [3]),
        ({"code": "FORBIDDEN"}, [3]),
        ({"outcome": "refused"}, [3]),
        ({"since": "2026-03-02"}, [2, 3]),
        ({"until": "2026-03-02"}, [1]),
        ({"since": "2026-03-02T10:00:00.000Z", "until": "2026-03-02T10:00:00.001Z"}, [2]),
        ({"call_id": "b"}, [2]),
        ({"trace_id": "t3"}, [3]),
        ({"last": 2}, [2, 3]),
        ({"last": 9}, [1, 2, 3]),
        ({"last": 0}, []),
        ({"last": 1, "caller": "ada"}, [2]),
        ({"tool": "git__*", "caller": "nobody"}, []),
    ],
)
async def test_entries_are_found_by_what_is_known_of_them(
    url: str, entry: Make, wanted: dict[str, Any], found: list[int]
) -> None:
    async with open_store(url) as store:
        await store.audit.append(entry(call_id="a"))
        await store.audit.append(entry(call_id="b", tool="git__log", at_utc="2026-03-02T10:00:00.000Z"))
        await store.audit.append(
            entry(
                at_utc="2026-03-03T10:00:00.000Z",
                tool="git__push",
                caller="bob",
                code=ErrorCode.FORBIDDEN,
                outcome="refused",
                trace_id="t3",
            )
        )
        records = await store.audit.entries(AuditFilter(**wanted), limit=10)

    assert [record.seq for record in records] == found


async def test_a_reader_pages_on_from_where_it_was(url: str, entry: Make) -> None:
    async with open_store(url) as store:
        for _ in range(5):
            await store.audit.append(entry())
        pages = [await store.audit.entries(EVERYTHING, after=after, limit=2) for after in (0, 2, 4, 5)]

    assert [[record.seq for record in page] for page in pages] == [[1, 2], [3, 4], [5], []]


async def test_newest_moves_with_what_is_appended(url: str, entry: Make) -> None:
    async with open_store(url) as store:
        before = await store.audit.newest()
        await store.audit.append(entry())
        after = await store.audit.newest()

    assert (before, after) == (0, 1)


@pytest.mark.parametrize(
    "odd",
    [
        {"duration_ms": 5},
        {"duration_ms": -0.0},
        {"duration_ms": 0.1 + 0.2},
        {"caller": "nul\0, emoji 🦉, quote ' \" \\"},
        {"caller": "\0\x1a\x1a0\x1a1\0"},
        {"tool": ""},
        {"schema_version": 2**62},
        {"code": ErrorCode.INTERNAL},
    ],
)
async def test_odd_values_keep_the_chain_whole(url: str, entry: Make, odd: dict[str, Any]) -> None:
    async with open_store(url) as store:
        await store.audit.append(entry(**odd))
        await store.audit.append(entry())
        verdict = await store.audit.verify()

    assert verdict.is_intact, verdict


@pytest.mark.parametrize(
    "malformed",
    [
        {"caller": None},
        {"caller": 7},
        {"caller": b"ada"},
        {"caller": "\ud800"},
        {"schema_version": True},
        {"schema_version": 2**63},
        {"outcome": "perhaps"},
        {"duration_ms": float("nan")},
        {"duration_ms": float("inf")},
        {"duration_ms": -1.0},
    ],
)
async def test_a_malformed_entry_is_refused_and_harms_no_other(
    url: str, entry: Make, malformed: dict[str, Any]
) -> None:
    async with open_store(url) as store:
        one, bad, other = (store.audit.append(entry(**changes)) for changes in ({}, malformed, {"caller": "bob"}))
        await one
        with pytest.raises((GatewayError, UnicodeError, OverflowError)):
            await bad
        await other
        verdict = await store.audit.verify()

    assert verdict.is_intact
    assert verdict.checked == 2
