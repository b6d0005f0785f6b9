"""Gateways with stores of their own exchange heads, rounds and votes; one that rewrites its history is found out."""

import base64
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nacl.signing import VerifyKey

from tests.parts.approvals.bank import approvals_of, bank, cast, refused, requiring
from tests.ways import MODERN, Way
from toolpost.app import open_app, open_http
from toolpost.contracts.errors import BadConfiguration, Forbidden, InvalidRequest
from toolpost.parts.approvals.part import MIGRATIONS
from toolpost.parts.approvals.peers import HEADER, Event, Message, Peers, find_fork, is_signed_event
from toolpost.parts.approvals.service import Approvals
from toolpost.parts.approvals.settings import PEERS, PeerSettings, check_peer
from toolpost.running import App
from toolpost.store.part_migrations import open_part_store
from toolpost.testing import data_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

NOWHERE = "http://127.0.0.1:9"


async def key_of(url: str) -> str:
    async with open_part_store(url, "approvals", MIGRATIONS) as store:
        return base64.b64encode((await Approvals(store).gateway_key()).public).decode()


@asynccontextmanager
async def gateway(url: str, **peers: PeerSettings) -> AsyncIterator[App]:
    config = requiring(url=url)
    config = msgspec.structs.replace(config, parts={**config.parts, "peers": peers})
    async with open_app(config, plugins=[bank([])]) as app:
        yield app


@pytest.fixture
def other_url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'other.db'}"


def peers_of(app: App) -> Peers:
    return Peers(approvals_of(app), app.store, PEERS.of(app.config))


async def pay(app: App, amount: int) -> str:
    async with Way("memory", MODERN).client_of(app) as client:
        return str((await refused(client, amount=amount))["details"]["round_id"])


async def test_rounds_votes_and_heads_are_exchanged(url: str, other_url: str) -> None:
    ours, theirs = await key_of(url), await key_of(other_url)
    async with gateway(url, b=PeerSettings(url=NOWHERE, key=theirs)) as a, open_http(a) as a_url:
        await cast(a, await pay(a, 5))
        peer = PeerSettings(url=a_url.removesuffix("/mcp"), key=ours)
        async with gateway(other_url, a=peer) as b, Way("memory", MODERN).client_of(b) as client:
            await pay(b, 6)
            first = data_of(await client.call_tool("approvals__consensus_gossip", {"peer_id": "a"}))
            again = data_of(await client.call_tool("approvals__consensus_gossip", {"peer_id": "a"}))
            kept = await _events(b.store)
            taken = await _events(a.store)

    kinds = [json.loads(event.body)["kind"] for event in kept]
    assert first["peer"] == again["peer"] == "ok"
    assert (first["events_sent"], first["events_received"]) == (2, 3), "a round and a head; a round, a vote and a head"
    assert again["events_sent"] >= 1
    assert {kind: kinds.count(kind) for kind in ("round", "vote")} == {"round": 1, "vote": 1}
    assert {json.loads(event.body)["kind"] for event in taken} == {"round", "head"}
    for event in kept:
        VerifyKey(base64.b64decode(ours)).verify(HEADER + event.body.encode(), base64.b64decode(event.sig_b64))
    assert "amount" not in "".join(event.body for event in kept), "arguments stay where they are"


async def test_a_peer_that_was_unreachable_catches_up(tmp_path: Path, other_url: str) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    ours, theirs = await key_of(url), await key_of(other_url)
    async with gateway(other_url, a=PeerSettings(url=NOWHERE, key=ours)) as b:
        for amount in range(3):
            await cast(b, await pay(b, amount))
        missed = await peers_of(b).exchange("a")
        async with gateway(url, b=PeerSettings(url=NOWHERE, key=theirs)) as a, open_http(a) as a_url:
            reached = Peers(approvals_of(b), b.store, {"a": PeerSettings(url=a_url.removesuffix("/mcp"), key=ours)})
            late = await reached.exchange("a")
            kept = await _events(a.store)

    assert (missed.peer, missed.sent, missed.received) == ("unreachable", 0, 0)
    assert (late.peer, late.sent) == ("ok", 7)
    assert len(kept) == 7, "three rounds, three votes and a head"


async def test_a_rewritten_history_is_found_out_with_both_signed_heads(tmp_path: Path, other_url: str) -> None:
    file = tmp_path / "a.db"
    url = f"sqlite:{file}"
    ours, theirs = await key_of(url), await key_of(other_url)
    b_settings = PeerSettings(url=NOWHERE, key=theirs)
    async with gateway(other_url) as b:

        async def exchange(amounts: list[int]) -> Any:
            async with gateway(url, b=b_settings) as a, open_http(a) as a_url:
                for amount in amounts:
                    await pay(a, amount)
                peer = PeerSettings(url=a_url.removesuffix("/mcp"), key=ours)
                return await Peers(approvals_of(b), b.store, {"a": peer}).exchange("a")

        honest = await exchange([1])
        backup = tmp_path / "backup.db"
        shutil.copy(file, backup)
        more = await exchange([2, 3])
        for left in tmp_path.glob("a.db*"):
            left.unlink()
        shutil.copy(backup, file)
        forked = await exchange([4, 5, 6, 7])
        told = await Peers(approvals_of(b), b.store, {}).forks()

    assert (honest.peer, more.peer, forked.peer) == ("ok", "ok", "forked")
    assert told[0]["peer"] == "a"
    heads = told[0]["heads"]
    bodies = [json.loads(head["body"]) for head in heads]
    assert bodies[0]["seq"] == bodies[1]["seq"]
    assert bodies[0]["hash"] != bodies[1]["hash"]
    for head in heads:
        assert is_signed_event(Event(head["body"], head["sig_b64"]), base64.b64decode(ours))


async def test_a_history_that_was_cut_is_found_out(tmp_path: Path, other_url: str) -> None:
    file = tmp_path / "a.db"
    url = f"sqlite:{file}"
    ours, theirs = await key_of(url), await key_of(other_url)
    shutil.copy(file, tmp_path / "backup.db")
    last = None
    async with gateway(other_url) as b:
        for amounts in ([1, 2], []):
            async with gateway(url, b=PeerSettings(url=NOWHERE, key=theirs)) as a, open_http(a) as a_url:
                for amount in amounts:
                    await pay(a, amount)
                peer = PeerSettings(url=a_url.removesuffix("/mcp"), key=ours)
                last = await Peers(approvals_of(b), b.store, {"a": peer}).exchange("a")
            for left in tmp_path.glob("a.db*"):
                left.unlink()
            shutil.copy(tmp_path / "backup.db", file)

    assert last is not None
    assert last.peer == "forked"


async def test_strangers_and_changed_events_are_refused(url: str, other_url: str) -> None:
    ours, theirs = await key_of(url), await key_of(other_url)
    async with (
        gateway(url, b=PeerSettings(url=NOWHERE, key=theirs)) as a,
        gateway(other_url, a=PeerSettings(url=NOWHERE, key=ours)) as b,
    ):
        await pay(a, 2)
        await pay(b, 1)
        good = await peers_of(b)._collect("a", asked_seq=0)
        event = good.events[0]
        receive = peers_of(a).receive
        with pytest.raises(Forbidden, match="not that of a peer"):
            await receive(msgspec.to_builtins(Message(ours, 0, good.events)))
        for position in range(0, len(event.body), 7):
            changed = event.body[:position] + chr(ord(event.body[position]) ^ 1) + event.body[position + 1 :]
            with pytest.raises(Forbidden, match="not signed"):
                await receive(msgspec.to_builtins(Message(theirs, 0, [Event(changed, event.sig_b64)])))
        own = await peers_of(a)._collect("b", asked_seq=0)
        with pytest.raises(Forbidden):
            await receive(msgspec.to_builtins(Message(theirs, 0, own.events)))
        for nonsense in (None, 7, {}, {"sender": 7}, {"sender": theirs, "events": "x"}):
            with pytest.raises(InvalidRequest):
                await receive(nonsense)
        assert await _events(a.store) == []
        await receive(msgspec.to_builtins(Message(theirs, 0, good.events)))
        await receive(msgspec.to_builtins(Message(theirs, 0, good.events)))
        assert len(await _events(a.store)) == len(good.events), "the same event is kept once"


def test_a_fork_needs_two_heads_at_one_place() -> None:
    def head(seq: int, digest: str | None) -> tuple[str, str]:
        return json.dumps({"kind": "head", "seq": seq, "hash": digest}), "sig"

    assert find_fork([head(1, "a"), head(2, "b"), head(1, "a")]) is None
    assert find_fork([head(1, "a"), head(2, "b"), head(1, "c")]) == (head(1, "a"), head(1, "c"))
    assert find_fork([head(2, "b"), head(2, None)]) == (head(2, "b"), head(2, None))


@pytest.mark.parametrize("peer", [{"url": "http://example.com"}, {"url": "https://example.com", "key": "x"}, {}])
def test_peers_must_be_reachable_safely_and_pinned(peer: dict[str, Any]) -> None:
    with pytest.raises(BadConfiguration):
        check_peer("b", PeerSettings(**{"key": base64.b64encode(bytes(32)).decode()} | peer))


async def _events(store: Any) -> list[Event]:
    from toolpost.store.scripts import Statement

    def read() -> Any:
        rows = yield Statement("SELECT body, signature FROM approval_peer_events ORDER BY received_at, id")
        return [Event(body, signature) for body, signature in rows]

    found: list[Event] = await store.scripts.read(read)
    return found
