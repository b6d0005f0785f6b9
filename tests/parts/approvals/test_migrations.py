"""A store of an earlier version keeps its votes, in their order, and what it knows of peers."""

from typing import Any

import pytest

from tests.parts.approvals.test_service import opened
from toolpost.store import part_migrations
from toolpost.store.migrate import read_migrations
from toolpost.store.scripts import Statement

pytestmark = pytest.mark.anyio


async def test_votes_are_numbered_and_forks_are_kept(url: str, monkeypatch: pytest.MonkeyPatch) -> None:

    def fill() -> Any:
        for at, voter in ((1.0, "cleo"), (2.0, "ann"), (3.0, "ben")):
            yield Statement(
                "INSERT INTO approval_votes (round, voter, choice, signed_at, public_key, signature, at)"
                " VALUES (1, ?1, 'approve', '', '', '', ?2)",
                (voter, at),
            )
        yield Statement("INSERT INTO approval_peers (peer, sent_round, sent_vote_at, fork) VALUES ('b', 7, 2.0, '{}')")

    def read() -> Any:
        votes = yield Statement("SELECT voter FROM approval_votes ORDER BY seq")
        peers = yield Statement("SELECT peer, sent_round, sent_vote, got_round, got_vote, fork FROM approval_peers")
        return [row[0] for row in votes], [tuple(row) for row in peers]

    with monkeypatch.context() as earlier:
        earlier.setattr(part_migrations, "read_migrations", lambda folder: read_migrations(folder)[:1])
        async with opened(url) as (_, store):
            await store.scripts.run(fill)
    async with opened(url) as (_, store):
        votes, peers = await store.scripts.read(read)

    assert votes == ["cleo", "ann", "ben"]
    assert peers == [("b", 7, 0, 0, 0, "{}")]
