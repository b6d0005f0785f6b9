"""Gateways with stores of their own exchange heads, rounds and votes; one that rewrites its history is found out."""

import base64
import json
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nacl.signing import VerifyKey

from tests.hostile.attacks import attack, longest_stretch
from tests.parts.approvals.bank import approvals_of, bank, cast, refused, requiring
from tests.proofs import proves
from tests.ways import STATELESS, Way
from toolpost.app import App, open_app, open_http
from toolpost.contracts.errors import BadConfiguration, Forbidden, InvalidRequest, QueueOverloaded
from toolpost.parts.approvals import PART
from toolpost.parts.approvals import peers as peers_module
from toolpost.parts.approvals.peers import HEADER, ExchangeCursor, PeerEvent, Peers, find_fork, is_signed_event
from toolpost.parts.approvals.service import Approvals
from toolpost.parts.approvals.settings import PEERS, PeerSettings, check_peer
from toolpost.store.part_migrations import open_part_store
from toolpost.testing import data_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

NOWHERE = "http://127.0.0.1:9"


async def key_of(url: str) -> str:
    async with open_part_store(url, PART.name, PART.migrations) as store:
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
    async with Way("memory", STATELESS).client_of(app) as client:
        return str((await refused(client, amount=amount))["details"]["round_id"])


@proves("approvals__consensus_gossip", "peer_id")
async def test_rounds_votes_and_heads_are_exchanged(url: str, other_url: str) -> None:
    ours, theirs = await key_of(url), await key_of(other_url)
    async with gateway(url, b=PeerSettings(url=NOWHERE, key=theirs)) as a, open_http(a) as a_url:
        await cast(a, await pay(a, 5))
        peer = PeerSettings(url=a_url.removesuffix("/mcp"), key=ours)
        async with gateway(other_url, a=peer) as b, Way("memory", STATELESS).client_of(b) as client:
            await pay(b, 6)
            first = data_of(await client.call_tool("approvals__consensus_gossip", {"peer_id": "a"}))
            again = data_of(await client.call_tool("approvals__consensus_gossip", {"peer_id": "a"}))
            unknown = data_of(await client.call_tool("approvals__consensus_gossip", {"peer_id": "z"}))
            kept = await _events(b.store)
            taken = await _events(a.store)
            report = await peers_of(b).report()

    (reported,) = report
    assert reported["url"] == peer.url
    assert (reported["sent"], reported["received"]) == ({"round": 1, "vote": 0}, {"round": 1, "vote": 1})
    kinds = [json.loads(event.body)["kind"] for event in kept]
    assert first["peer"] == again["peer"] == "ok"
    assert (unknown["peer"], unknown["events_sent"]) == ("unknown", 0)
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
        assert is_signed_event(PeerEvent(head["body"], head["sig_b64"]), base64.b64decode(ours))


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
        writer, receive = peers_of(b), peers_of(a).receive
        good = (await writer._collect(ExchangeCursor()))[0]

        async def message(sent: list[PeerEvent], **changed: Any) -> Any:
            made = await writer._write("a", sent)
            return msgspec.to_builtins(msgspec.structs.replace(made, **changed))

        event = good[0]
        with pytest.raises(Forbidden, match="belongs to no peer"):
            await receive(await message(good, sender=ours))
        forged: list[dict[str, Any]] = [
            {"sig_b64": ""},
            {"sig_b64": "x"},
            {"since_round": 1},
            {"events": []},
            {"at": "2020-01-01T00:00:00Z"},
        ]
        for changed in forged:
            with pytest.raises(Forbidden, match="message of the peer `b` is not signed"):
                await receive(await message(good, **changed))
        for position in range(0, len(event.body), 7):
            flipped = event.body[:position] + chr(ord(event.body[position]) ^ 1) + event.body[position + 1 :]
            with pytest.raises(Forbidden, match="event of the peer `b` is not signed"):
                await receive(await message([PeerEvent(flipped, event.sig_b64)]))
        own = (await peers_of(a)._collect(ExchangeCursor()))[0]
        with pytest.raises(Forbidden):
            await receive(await message(own))
        for nonsense in (None, 7, {}, {"sender": 7}, {"sender": theirs, "events": "x"}):
            with pytest.raises(InvalidRequest):
                await receive(nonsense)
        assert await _events(a.store) == []
        await receive(await message(good))
        await receive(await message(good))
        assert len(await _events(a.store)) == len(good), "the same event is kept once"


async def test_a_message_is_for_one_gateway_and_for_now(
    tmp_path: Path, other_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    ours, theirs = await key_of(url), await key_of(other_url)
    third = base64.b64encode(bytes(VerifyKey(base64.b64decode(ours)))[::-1]).decode()
    async with (
        gateway(url, b=PeerSettings(url=NOWHERE, key=theirs)) as a,
        gateway(other_url, a=PeerSettings(url=NOWHERE, key=ours), c=PeerSettings(url=NOWHERE, key=third)) as b,
    ):
        old = msgspec.to_builtins(await peers_of(b)._write("a", []))
        with pytest.raises(Forbidden, match="for another gateway"):
            await peers_of(a).receive(msgspec.to_builtins(await peers_of(b)._write("c", [])))
        later = time.time() + 3600
        monkeypatch.setattr("toolpost.parts.approvals.peers.time.time", lambda: later)
        with pytest.raises(Forbidden, match="too long ago"):
            await peers_of(a).receive(old)


async def test_no_one_is_made_to_deny_what_is_yet_to_come(tmp_path: Path, other_url: str) -> None:
    """A gateway that was asked for an entry beyond its end, and has one there later, would look like a forger."""
    url = f"sqlite:{tmp_path / 'a.db'}"
    ours, theirs = await key_of(url), await key_of(other_url)
    async with (
        gateway(url, b=PeerSettings(url=NOWHERE, key=theirs)) as a,
        gateway(other_url, a=PeerSettings(url=NOWHERE, key=ours)) as b,
    ):
        await pay(a, 1)
        asked = await peers_of(b)._sign({"kind": "head", "seq": 1000, "hash": "sha256:1"})
        message = await peers_of(b)._write("a", [], asked=asked)
        answer: Any = await peers_of(a).receive(msgspec.to_builtins(message))

    heads = [json.loads(event["body"]) for event in answer["events"] if '"head"' in event["body"]]
    assert [head["seq"] for head in heads if head["hash"] is None] == []


async def test_one_that_can_only_ask_gets_everything(
    tmp_path: Path, other_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More rounds and votes than one exchange carries; the gateway that has them cannot reach the other one."""
    monkeypatch.setattr("toolpost.parts.approvals.peers.BATCH", 2)
    url = f"sqlite:{tmp_path / 'a.db'}"
    ours, theirs = await key_of(url), await key_of(other_url)
    async with gateway(url, b=PeerSettings(url=NOWHERE, key=theirs)) as a, open_http(a) as a_url:
        for amount in range(5):
            await cast(a, await pay(a, amount))
        peer = PeerSettings(url=a_url.removesuffix("/mcp"), key=ours)
        async with gateway(other_url, a=peer) as b:
            for _ in range(3):
                await peers_of(b).exchange("a")
            kinds = [json.loads(event.body)["kind"] for event in await _events(b.store)]

    assert (kinds.count("round"), kinds.count("vote")) == (5, 5)


async def test_what_peers_sent_is_pruned(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "HEADS_LIMIT", 3)
    async with gateway(url) as a:
        signer = peers_of(a)
        events = [await signer._sign({"kind": "head", "seq": number, "hash": "x"}) for number in range(1, 9)]
        events.append(await signer._sign({"kind": "round", "round": 1}))
        for one in events:
            await a.store.scripts.run(partial(peers_module._keep, "b", [(one, json.loads(one.body))]))
        await a.store.scripts.run(lambda: peers_module.prune_events(3600))
        some = [json.loads(one.body) for one in await _events(a.store)]
        await a.store.scripts.run(lambda: peers_module.prune_events(0.0))
        rest = [json.loads(one.body) for one in await _events(a.store)]

    assert [body["seq"] for body in some if body["kind"] == "head"] == [6, 7, 8]
    assert len(some) == 4
    assert [body["kind"] for body in rest] == ["head"] * 3, "heads do not age: the newest is asked for"


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


async def _events(store: Any) -> list[PeerEvent]:
    from toolpost.store.scripts import Statement

    def read() -> Any:
        rows = yield Statement("SELECT body, signature FROM approval_peer_events ORDER BY received_at, id")
        return [PeerEvent(body, signature) for body, signature in rows]

    found: list[PeerEvent] = await store.scripts.read(read)
    return found


async def test_what_a_stranger_answers_does_not_count_as_received(
    tmp_path: Path, other_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = await key_of(f"sqlite:{tmp_path / 'a.db'}"), await key_of(other_url)
    async with gateway(other_url, a=PeerSettings(url=NOWHERE, key=ours)) as b:
        await pay(b, 5)
        peers = peers_of(b)
        # Signed with the key of another gateway: that of the sender itself will do.
        forged = msgspec.structs.replace(await peers._write("a", []), receiver=theirs)

        async def answer(*_: Any) -> Any:
            return forged

        monkeypatch.setattr(Peers, "_post", answer)
        with pytest.raises(Forbidden, match="not signed with its key"):
            await peers.exchange("a")
        (report,) = await peers.report()

    assert report["sent"] == {"round": 0, "vote": 0}, "the peer gets it with the next exchange"


@attack(
    "server", "is a peer that sends two thousand signed events at once", "they are verified and stored beside the loop"
)
async def test_many_events_leave_the_loop_to_others(tmp_path: Path, other_url: str) -> None:
    theirs = await key_of(other_url)
    async with open_part_store(other_url, PART.name, PART.migrations) as store:
        peer = Peers(Approvals(store), store, {})
        rounds = [await peer._sign({"kind": "round", "round": number}) for number in range(2_000)]
    async with gateway(f"sqlite:{tmp_path / 'a.db'}", b=PeerSettings(url=NOWHERE, key=theirs)) as a:
        peers = peers_of(a)
        new, _ = await peers._take("b", rounds)
        assert new == 4 * peers_module.BATCH
        assert await longest_stretch(lambda: peers._take("b", rounds)) < 0.05


@attack(
    "server",
    "is a peer whose answer has megabytes of events over the limit",
    "they are not read: the exchange succeeds, and holds up no other call",
)
async def test_events_that_are_not_taken_are_not_read(
    tmp_path: Path, other_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers_module, "BATCH", 1)
    ours, theirs = await key_of(f"sqlite:{tmp_path / 'a.db'}"), await key_of(other_url)
    dense = PeerEvent(f"[{'[],' * (peers_module.BODY_LIMIT_BYTES // 4)}1]", "")
    async with (
        gateway(f"sqlite:{tmp_path / 'a.db'}", b=PeerSettings(url=NOWHERE, key=theirs)) as a,
        gateway(other_url, a=PeerSettings(url=NOWHERE, key=ours)) as b,
    ):
        taken = [await peers_of(b)._sign({"kind": "round", "round": number}) for number in range(1, 5)]
        answered = await peers_of(b)._write("a", [*taken, dense])

        async def answer(*_: Any) -> Any:
            return answered

        peers = peers_of(a)
        monkeypatch.setattr(peers, "_post", answer)
        first = await peers.exchange("b")
        held = await longest_stretch(lambda: peers.exchange("b"))

    assert (first.peer, first.received) == ("ok", 4)
    assert held < 0.05


@attack("server", "is a peer that sends one event after another", "the newest of them are kept, and no others")
async def test_events_of_a_peer_are_bounded(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "EVENTS_LIMIT", 3)
    async with gateway(url) as a:
        for number in range(1, 9):
            one = await peers_of(a)._sign({"kind": "round", "round": number})
            await a.store.scripts.run(partial(peers_module._keep, "b", [(one, json.loads(one.body))]))
        await a.store.scripts.run(lambda: peers_module.prune_events(3600))
        kept = sorted(json.loads(one.body)["round"] for one in await _events(a.store))

    assert kept == [6, 7, 8]


@attack(
    "server", "is a peer that sends large events, one after another", "64 MB of them are kept, 16 MB taken in a minute"
)
async def test_events_of_a_peer_are_bounded_by_size_and_have_a_pace(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "STORED_LIMIT_BYTES", 4_000)
    monkeypatch.setattr(peers_module, "EVENT_LIMIT_BYTES", 2_000)
    monkeypatch.setattr(peers_module, "PACE_BYTES", 6_000)
    async with gateway(url) as a:
        peers, key = peers_of(a), (await approvals_of(a).gateway_key()).public
        monkeypatch.setattr(peers, "_keys", {"b": key})
        large = [await peers._sign({"kind": "round", "round": number, "note": "x" * 1_000}) for number in range(1, 8)]
        for one in large[:5]:
            await peers._take("b", [one])
        with pytest.raises(QueueOverloaded, match="in a minute"):
            await peers._take("b", large[5:])
        peers._received.clear()
        await peers._take("b", large[5:])
        await a.store.scripts.run(lambda: peers_module.prune_events(3600))
        kept = sorted(json.loads(one.body)["round"] for one in await _events(a.store))
        for body in ({"kind": "round", "round": 9, "note": "x" * 2_000}, {"kind": "head", "note": "x" * 5_000}):
            peers._received.clear()
            with pytest.raises(Forbidden, match="characters"):
                await peers._take("b", [await peers._sign(body)])

    assert kept == [5, 6, 7]
