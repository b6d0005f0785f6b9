"""What gateways exchange, without the network between them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tests.parts.approvals.test_service import caller, opened, subject
from toolpost.contracts.errors import Forbidden
from toolpost.parts.approvals import peers as peers_module
from toolpost.parts.approvals.peers import PeerEvent, PeerMessage, Peers
from toolpost.parts.approvals.service import Approvals
from toolpost.parts.approvals.settings import PeerSettings

pytestmark = pytest.mark.anyio


class LinkedPeers(Peers):
    """Peers that hand their messages over in this process."""

    other: Peers
    sizes: list[int]

    async def _post(self, name: str, message: PeerMessage) -> PeerMessage:
        raw = msgspec.json.encode(message)
        self.sizes.append(len(raw))
        return msgspec.json.decode(
            msgspec.json.encode(await self.other.receive(msgspec.json.decode(raw))), type=PeerMessage
        )


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[LinkedPeers, LinkedPeers]]:
    """Two gateways, `a` and `b`, of which each can reach the other."""
    async with opened("sqlite::memory:") as (a, a_store), opened("sqlite::memory:") as (b, b_store):
        found = [
            LinkedPeers(mine, store, {name: PeerSettings(key=await key_of(other))})
            for mine, store, name, other in ((a, a_store, "b", b), (b, b_store, "a", a))
        ]
        for one, other in (found, found[::-1]):
            one.other, one.sizes = other, []
        yield found[0], found[1]


async def key_of(approvals: Approvals) -> str:
    return await approvals.gateway_id()


async def bodies_of(peers: Peers, kind: str) -> list[Any]:
    from tests.parts.approvals.test_gossip import _events

    bodies = [msgspec.json.decode(one.body) for one in await _events(peers._store)]
    return [body for body in bodies if body["kind"] == kind]


async def test_large_rounds_do_not_hold_up_the_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "BATCH_BYTES", 20_000)
    async with linked() as (a, b):
        voters = ("ann", *(f"{number:0256}" for number in range(30)))
        for amount in range(8):
            made = await a._approvals.open_call(
                subject(arguments={"amount": amount}, voters=voters, needed=1), expires_s=60
            )
            await a._approvals.vote(made.round.id, "approve", by=caller("ann"))
        for _ in range(6):
            await a.exchange("b")
        rounds, votes = await bodies_of(b, "round"), await bodies_of(b, "vote")

    assert max(a.sizes) < 40_000, "the limit, and at most one event more with the heads"
    assert sorted(body["round"] for body in rounds) == list(range(1, 9))
    assert sorted(body["seq"] for body in votes) == list(range(1, 9))


async def add_entries(peers: Peers, count: int) -> None:
    """Have the audit of a gateway grow."""
    for number in range(count):
        made = await peers._approvals.open_call(
            subject(arguments={"of": str(await peers._store.audit.newest()), "number": number}, needed=1), expires_s=60
        )
        await peers._approvals.vote(made.round.id, "approve", by=caller("ann"))


async def head_of(peers: Peers, seq: int, digest: str) -> PeerEvent:
    return await peers._sign({"kind": "head", "seq": seq, "hash": digest})


async def test_the_furthest_head_of_a_peer_is_never_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "HEADS_LIMIT", 3)
    async with linked() as (a, b):
        await b._take("a", [await head_of(a, 9, "far")])
        for seq in range(1, 7):
            await b._take("a", [await head_of(a, seq, "near")])
        await b._store.scripts.run(lambda: peers_module.prune_events(3600))
        kept = sorted(body["seq"] for body in await bodies_of(b, "head"))
        with pytest.raises(Forbidden, match="more than 2 heads"):
            await b._take("a", [await head_of(a, seq, "more") for seq in range(11, 14)])

    assert kept == [4, 5, 6, 9]


async def test_a_peer_that_does_not_answer_for_a_head_is_evasive(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with linked() as (a, b):
        await add_entries(a, 1)
        first = await b.exchange("a")
        await add_entries(a, 1)
        honest = await b.exchange("a")

        async def look_away(_asked: PeerEvent | None) -> int:
            return 0

        await add_entries(a, 1)
        monkeypatch.setattr(a, "_seq_of_own", look_away)
        evasive = await b.exchange("a")

    assert (first.peer, honest.peer, evasive.peer) == ("ok", "ok", "evasive")
    assert "peer does not say what its history has now" in caplog.text


async def test_one_that_only_answers_asks_for_heads_too() -> None:
    """Only `a` starts exchanges; `b` still finds out that `a` has another history than before."""
    async with linked() as (a, b):
        await add_entries(a, 2)
        await b._take("a", [await head_of(a, 3, "of a history that is no more")])
        await a.exchange("b")
        before = await b.forks()
        await add_entries(a, 3)
        await a.exchange("b")
        after = await b.forks()

    assert before == []
    assert [fork["peer"] for fork in after] == ["a"]
