"""Gossip: signed audit heads, rounds and votes, exchanged with gateways that have stores of their own.

Every event is signed with the gateway's key, which its peers have pinned. With each exchange a peer is asked for the hash of its
audit chain at the place of the last head that it signed for us. The chain links every entry to the one before, so the answer
is the same as long as nothing was rewritten; if it is not, the two signed heads prove that to anyone.

An event leaves a cursor behind only once the peer has taken it: one that was unreachable catches up with the next exchange.
"""

import base64
import binascii
import logging
import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

import anyio
import msgspec

from toolpost.base.events import event
from toolpost.base.ids import Json, JsonObject
from toolpost.base.signing import is_signed_by
from toolpost.contracts.digest import canonical_digest
from toolpost.contracts.errors import Forbidden, InvalidRequest, ToolpostError
from toolpost.parts.approvals.records import ROUND_COLUMNS, VOTE_COLUMNS, parse_round
from toolpost.parts.approvals.rounds import Round
from toolpost.parts.approvals.service import Approvals, format_moment
from toolpost.parts.approvals.settings import PeerSettings, read_public_key
from toolpost.store import AuditFilter, Store
from toolpost.store.scripts import NOW, Script, Statement
from toolpost.upstreams.http.client import HttpClient, HttpFailed

_log = logging.getLogger("toolpost.approvals")

HEADER: Final = b"toolpost-event-v1\n"
BATCH: Final = 500
"""Events of one exchange; what is left goes with the next."""
TIMEOUT_S: Final = 15.0
BODY_LIMIT_BYTES: Final = 16 * 1024 * 1024
PATH: Final = "/api/approvals/gossip"

_decode = msgspec.json.decode


@dataclass(frozen=True, kw_only=True)
class Exchanged:
    """What an exchange came to."""

    sent: int
    received: int
    peer: Literal["ok", "unknown", "unreachable", "forked"]
    fork: JsonObject | None = None


class UnusableAnswer(Exception):
    """A peer did not answer with a message."""


class Event(msgspec.Struct, frozen=True):
    """An event as it travels: JSON text, and the signature of the gateway that says so."""

    body: str
    sig_b64: str

    @property
    def id(self) -> str:
        """The digest of the text: the same event is stored once."""
        return canonical_digest(self.body)


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one gateway sends another."""

    sender: str
    """The public key, base64."""
    asked_seq: int = 0
    """Where in the receiver's audit chain the sender wants to know the hash; 0 for nowhere."""
    events: list[Event] = []


@dataclass(frozen=True, kw_only=True)
class _Outgoing:
    events: list[Event]
    round: int
    vote_at: float


class Peers:
    """The peers of this gateway."""

    def __init__(self, approvals: Approvals, store: Store, settings: Mapping[str, PeerSettings]) -> None:
        self._approvals = approvals
        self._store = store
        self._settings = settings
        self._keys = {name: read_public_key(peer.key, f"peers.{name}.key") for name, peer in settings.items()}

    @property
    def exchanges(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """What runs in the background: an exchange with each peer at its interval."""
        return [partial(self._exchange_often, name, peer.interval_s) for name, peer in self._settings.items()]

    async def exchange(self, name: str) -> Exchanged:
        """Send a peer what it has not got, and take what it has for us. A peer that is not configured gets nothing."""
        if name not in self._settings:
            return Exchanged(sent=0, received=0, peer="unknown")
        outgoing = await self._collect(name, asked_seq=0)
        asked = await self._store.scripts.read(lambda: _last_head(name))
        message = Message(await self._own_key(), asked["seq"] if asked else 0, outgoing.events)
        try:
            answer = await self._post(self._settings[name], message)
        except (HttpFailed, TimeoutError, UnusableAnswer, msgspec.MsgspecError) as error:
            event(_log, logging.WARNING, "peer not reached", peer=name, reason=f"{type(error).__name__}: {error}")
            return Exchanged(sent=0, received=0, peer="unreachable")
        await self._store.scripts.run(lambda: _advance(name, outgoing.round, outgoing.vote_at), full=False)
        received = await self._take(name, answer.events)
        fork = await self._find_fork(name)
        return Exchanged(
            sent=len(outgoing.events), received=received, peer="forked" if fork is not None else "ok", fork=fork
        )

    async def receive(self, raw: Json) -> Json:
        """Take the message of a peer, and answer with what we have for it. Raises for anyone who is no peer."""
        try:
            message = msgspec.convert(raw, Message)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"This is no message of a peer: {error}.") from error
        name = next((name for name, key in self._keys.items() if _b64(key) == message.sender), None)
        if name is None:
            raise Forbidden("The key of this sender is not that of a peer.", hint="add it to [peers.NAME]")
        await self._take(name, message.events)
        outgoing = await self._collect(name, asked_seq=message.asked_seq)
        # The sender has these once it has read the answer. If it does not, it asks again, and gets what it lacks from the
        # exchange that we start ourselves: the cursor moves with that one alone.
        await self._find_fork(name)
        return msgspec.to_builtins(Message(await self._own_key(), 0, outgoing.events))

    async def forks(self) -> list[JsonObject]:
        """Return what is known of peers that have rewritten their history, each with both signed heads."""
        found = await self._store.scripts.read(_forks)
        return [{"peer": peer, **_decode(fork)} for peer, fork in found]

    async def _exchange_often(self, name: str, interval_s: float) -> None:
        while True:
            await anyio.sleep(interval_s)
            try:
                await self.exchange(name)
            except ToolpostError as error:
                event(_log, logging.WARNING, "gossip failed", peer=name, exception=error)

    async def _post(self, peer: PeerSettings, message: Message) -> Message:
        headers = {"content-type": "application/json"}
        if peer.token_env is not None:
            headers["authorization"] = f"Bearer {os.environ.get(peer.token_env, '')}"
        async with HttpClient(
            peer.url.rstrip("/") + PATH, headers=headers, connect_timeout_s=TIMEOUT_S, body_limit=BODY_LIMIT_BYTES
        ) as client:
            with anyio.fail_after(TIMEOUT_S):
                answer = await client.post(msgspec.json.encode(message))
        if answer.status != 200:
            raise UnusableAnswer(f"it answered with status {answer.status}")
        return msgspec.json.decode(answer.body, type=Message)

    async def _collect(self, name: str, *, asked_seq: int) -> _Outgoing:
        """Sign what a peer has not got: its cursor says where to go on."""
        since_round, since_vote = await self._store.scripts.read(lambda: _cursor(name))
        rounds, votes = await self._store.scripts.read(lambda: _events_since(since_round, since_vote))
        bodies: list[JsonObject] = [_tell_round(one) for one in rounds]
        bodies += [{"kind": "vote", **vote} for vote in votes]
        for seq in {asked_seq, await self._store.audit.newest()} - {0}:
            if (found := await self._store.audit.entries(AuditFilter(), after=seq - 1, limit=1)) and found[
                0
            ].seq == seq:
                bodies.append({"kind": "head", "seq": seq, "hash": found[0].hash})
            else:
                bodies.append({"kind": "head", "seq": seq, "hash": None})
        events = [await self._sign(body) for body in bodies]
        return _Outgoing(
            events=events,
            round=max((one.id for one in rounds), default=since_round),
            vote_at=max((vote["at"] for vote in votes), default=since_vote),
        )

    async def _sign(self, body: JsonObject) -> Event:
        key = await self._approvals.gateway_key()
        text = msgspec.json.encode({"gateway": _b64(key.public), **body}, order="sorted").decode()
        return Event(text, _b64(key.sign(HEADER + text.encode())))

    async def _take(self, name: str, events: list[Event]) -> int:
        """Store events that the peer has signed; returns how many are new. Others are refused, all of them."""
        bodies = []
        for one in events[: 4 * BATCH]:
            if not is_signed_event(one, self._keys[name]):
                raise Forbidden(f"An event of the peer `{name}` is not signed with its key.")
            body = _decode(one.body)
            if not isinstance(body, dict) or body.get("gateway") != _b64(self._keys[name]):
                raise Forbidden(f"An event of the peer `{name}` names another gateway.")
            bodies.append((one, str(body.get("kind"))))
        return await self._store.scripts.run(lambda: _keep(name, bodies), full=False)

    async def _find_fork(self, name: str) -> JsonObject | None:
        """Look for two heads of a peer that contradict each other; report them once."""
        heads = await self._store.scripts.read(lambda: _heads(name))
        fork = find_fork(heads)
        if fork is None:
            return None
        found = {"peer": name, "heads": [{"body": body, "sig_b64": signature} for body, signature in fork]}
        if await self._store.scripts.run(lambda: _note_fork(name, msgspec.json.encode(found).decode()), full=False):
            event(
                _log,
                logging.ERROR,
                "peer has rewritten its history",
                peer=name,
                heads=[body for body, _ in fork],
                hint="both heads are signed by it: `toolpost approvals peers --json` has them",
            )
        return found

    async def _own_key(self) -> str:
        return _b64((await self._approvals.gateway_key()).public)


def is_signed_event(one: Event, key: bytes) -> bool:
    """Whether an event was signed with this key."""
    try:
        signature = base64.b64decode(one.sig_b64, validate=True)
    except (ValueError, binascii.Error):
        return False
    return is_signed_by(key, HEADER + one.body.encode(), signature)


def find_fork(heads: list[tuple[str, str]]) -> tuple[tuple[str, str], tuple[str, str]] | None:
    """Return two signed heads, `(body, signature)`, that say different things of one place in the chain."""
    known: dict[int, tuple[str | None, tuple[str, str]]] = {}
    for signed in heads:
        body = _decode(signed[0])
        seq, digest = body.get("seq"), body.get("hash")
        if not isinstance(seq, int):
            continue
        if seq in known and known[seq][0] != digest:
            return known[seq][1], signed
        known.setdefault(seq, (digest, signed))
    return None


def _tell_round(one: Round) -> JsonObject:
    # Without what voters see: arguments stay in their gateway, their digest is in the subject.
    return {
        "kind": "round",
        "round": one.id,
        "subject": _decode(one.subject),
        "subject_digest": one.subject_digest,
        "voters": list(one.voters),
        "needed": one.needed,
        "created_at": format_moment(one.created_at),
    }


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _cursor(peer: str) -> Script[tuple[int, float]]:
    rows = yield Statement("SELECT sent_round, sent_vote_at FROM approval_peers WHERE peer = ?1", (peer,))
    return (int(rows[0][0]), float(rows[0][1])) if rows else (0, 0.0)


def _advance(peer: str, sent_round: int, sent_vote_at: float) -> Script[None]:
    yield Statement(
        "INSERT INTO approval_peers (peer, sent_round, sent_vote_at, fork) VALUES (?1, ?2, ?3, NULL)"
        " ON CONFLICT (peer) DO UPDATE SET sent_round = excluded.sent_round, sent_vote_at = excluded.sent_vote_at",
        (peer, sent_round, sent_vote_at),
    )


def _events_since(since_round: int, since_vote: float) -> Script[tuple[list[Round], list[dict[str, Any]]]]:
    rows = yield Statement(
        f"SELECT {ROUND_COLUMNS} FROM approval_rounds WHERE id > ?1 ORDER BY id LIMIT {BATCH}", (since_round,)
    )
    names = ["round", *VOTE_COLUMNS.split(", ")]
    votes = yield Statement(
        f"SELECT round, {VOTE_COLUMNS} FROM approval_votes WHERE at > ?1 ORDER BY at LIMIT {BATCH}", (since_vote,)
    )
    return [parse_round(row) for row in rows], [dict(zip(names, row, strict=True)) for row in votes]


def _keep(peer: str, events: list[tuple[Event, str]]) -> Script[int]:
    ((now,),) = yield NOW
    new = 0
    for one, kind in events:
        rows = yield Statement("SELECT 1 FROM approval_peer_events WHERE peer = ?1 AND id = ?2", (peer, one.id))
        if not rows:
            new += 1
            yield Statement(
                "INSERT INTO approval_peer_events (peer, id, kind, body, signature, received_at)"
                " VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING",
                (peer, one.id, kind, one.body, one.sig_b64, now),
            )
    return new


def _heads(peer: str) -> Script[list[tuple[str, str]]]:
    rows = yield Statement(
        "SELECT body, signature FROM approval_peer_events WHERE peer = ?1 AND kind = 'head' ORDER BY received_at",
        (peer,),
    )
    return [(str(body), str(signature)) for body, signature in rows]


def _last_head(peer: str) -> Script[JsonObject | None]:
    heads = yield from _heads(peer)
    told = [_decode(body) for body, _ in heads]
    real = [head for head in told if head.get("hash") is not None]
    return max(real, key=lambda head: int(head["seq"])) if real else None


def _note_fork(peer: str, fork: str) -> Script[bool]:
    yield Statement(
        "INSERT INTO approval_peers (peer, sent_round, sent_vote_at, fork) VALUES (?1, 0, 0, NULL) ON CONFLICT DO NOTHING",
        (peer,),
    )
    rows = yield Statement("SELECT fork FROM approval_peers WHERE peer = ?1 /*lock*/", (peer,))
    if rows[0][0] is not None:
        return False
    yield Statement("UPDATE approval_peers SET fork = ?1 WHERE peer = ?2", (fork, peer))
    return True


def _forks() -> Script[list[tuple[str, str]]]:
    rows = yield Statement("SELECT peer, fork FROM approval_peers WHERE fork IS NOT NULL ORDER BY peer")
    return [(str(peer), str(fork)) for peer, fork in rows]
