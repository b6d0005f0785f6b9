"""Gossip: signed audit heads, rounds and votes, exchanged with gateways that have stores of their own.

Every event is signed with the gateway's key, which its peers have pinned, and so is every message: rounds and votes are for
peers, and other callers of the gateway get none. With each exchange a peer is sent the last head that it signed for us, and
answers with the hash of its audit chain at that place. The chain links every entry to the one before, so the answer is the same
as long as nothing was rewritten; if it is not, the two signed heads prove that to anyone. It answers only for heads with its own
signature: otherwise a peer could have it deny an entry that does not exist yet, and accuse it later.

Rounds and votes are numbered. The side that starts an exchange sends those past the last that the other has taken, and names the
last ones that it has itself: so both catch up, also where only one of them can reach the other.
"""

import base64
import binascii
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import anyio
import anyio.to_thread
import msgspec

from toolpost import Forbidden, QueueOverloaded, ToolpostError
from toolpost.audit import AuditFilter
from toolpost.base import Json, JsonObject, event, format_time, is_signed_by
from toolpost.contracts import InvalidRequest, canonical_digest
from toolpost.net import DIRECT, HttpClient, HttpFailed, Network
from toolpost.parts.approvals.records import COLUMNS_WITHOUT_SHOWN, VOTE_COLUMNS, parse_round
from toolpost.parts.approvals.rounds import Round
from toolpost.parts.approvals.service import PRUNE_S, SKEW_S, Approvals
from toolpost.parts.approvals.settings import PeerSettings, read_public_key
from toolpost.settings import read_secret
from toolpost.store import NOW, Row, Script, Statement, Store

_log = logging.getLogger("toolpost.approvals")

HEADER: Final = b"toolpost-event-v1\n"
MESSAGE_HEADER: Final = b"toolpost-gossip-v1\n"
BATCH: Final = 500
"""Rounds, and votes, of one exchange at most; the rest goes with the next."""
BATCH_BYTES: Final = 1024 * 1024
"""How large the events of one exchange may be: a peer refuses a body that is larger than its `http.body_limit`."""
EXCHANGE_S: Final = 60.0
"""How often events are exchanged with a peer."""
TIMEOUT_S: Final = 15.0
BODY_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""Of an answer, which has one batch: signatures are of the whole message, and verified on the event loop."""
HEADS_LIMIT: Final = 200
"""Heads of a peer that are kept, besides the furthest one, which is asked for."""
EVENTS_LIMIT: Final = 20_000
STORED_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""Rounds and votes of a peer that are kept, the newest, and how large all of them may be."""
EVENT_LIMIT_BYTES: Final = 512 * 1024
HEAD_LIMIT_BYTES: Final = 4 * 1024
PACE_BYTES: Final = 16 * 1024 * 1024
"""How much a peer may send between two removals of old events: one that has much to tell sends 1 MB at its interval."""
HEADS_IN_MESSAGE: Final = 2
"""The newest head, and that at the place that was asked for."""
PATH: Final = "/api/approvals/gossip"

_decode = msgspec.json.decode


@dataclass(frozen=True, kw_only=True)
class Exchanged:
    """The outcome of an exchange."""

    sent: int
    received: int
    peer: Literal["ok", "unknown", "unreachable", "forked", "evasive"]
    """`evasive`: it did not say what its chain has now at the place of the head that it was asked for."""
    fork: JsonObject | None = None


class UnusableAnswer(Exception):
    """A peer did not answer with a message."""


class PeerEvent(msgspec.Struct, frozen=True):
    """An event as it travels: JSON text, and the signature of the gateway that says so."""

    body: str
    sig_b64: str

    @property
    def id(self) -> str:
        """The digest of the text: the same event is stored once."""
        return canonical_digest(self.body)


class PeerMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A message from one gateway to another."""

    sender: str
    """The public key, base64."""
    receiver: str
    """The public key of the gateway that it is for."""
    at: str
    """When it was signed, ISO 8601."""
    asked: PeerEvent | None = None
    """The last head that the receiver has signed for the sender: what is the hash at this place now?"""
    since_round: int = 0
    since_vote: int = 0
    """The last round and vote of the receiver that the sender has."""
    events: list[PeerEvent] = []
    sig_b64: str = ""
    """The sender's signature of all the rest."""

    @property
    def signed(self) -> bytes:
        """The bytes that are signed."""
        unsigned = msgspec.structs.replace(self, sig_b64="")
        return MESSAGE_HEADER + msgspec.json.encode(unsigned, order="sorted")


class ExchangeCursor(NamedTuple):
    """How far an exchange with a peer has come: the last round and the last vote, by number."""

    round: int = 0
    vote: int = 0


class Peers:
    """The peers of this gateway."""

    def __init__(
        self,
        approvals: Approvals,
        store: Store,
        settings: Mapping[str, PeerSettings],
        network: Network = DIRECT,
        *,
        keep_s: float = 90 * 86_400.0,
        project: Path = Path(),
    ) -> None:
        """`keep_s` is for how long rounds and votes of peers are kept, `project` where files of their tokens are."""
        self._project = project
        self._network = network
        self._approvals = approvals
        self._keep_s = keep_s
        self._store = store
        self._settings = settings
        self._asked_by: dict[str, PeerEvent] = {}
        """Heads that peers have asked for in their answers: they are sent what we have there with the next exchange."""
        self._received: Counter[str] = Counter()
        """Bytes of events by peer, since old events were last removed."""
        self._keys = {name: read_public_key(peer.key, f"peers.{name}.key") for name, peer in settings.items()}

    @property
    def background(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """What runs in the background: an exchange with each peer at its interval, and the removal of what is old."""
        if not self._settings:
            return []
        return [
            self._prune_often,
            *(partial(self._exchange_often, name) for name in self._settings),
        ]

    async def exchange(self, name: str) -> Exchanged:
        """Send a peer what it has not got, and take what it has for us. A peer that is not configured gets nothing."""
        if name not in self._settings:
            return Exchanged(sent=0, received=0, peer="unknown")
        sent, got = await self._store.scripts.read(lambda: _cursors(name))
        outgoing, reached = await self._collect(sent, asked=self._asked_by.get(name))
        asked = await self._store.scripts.read(lambda: _last_head(name))
        message = await self._write(name, outgoing, asked=asked, since=got)
        try:
            answer = await self._post(name, message)
        except (HttpFailed, TimeoutError, UnusableAnswer, msgspec.MsgspecError) as error:
            event(
                _log,
                logging.WARNING,
                "peer not reached",
                peer=name,
                reason=f"{type(error).__name__}: {error}",
                hint=f"check peers.{name}.url and token; it gets what it missed with the next exchange",
            )
            return Exchanged(sent=0, received=0, peer="unreachable")
        # First: what someone else answers in its place is no sign that the peer has them.
        await self._check_message(name, answer)
        await self._store.scripts.run(lambda: _advance(name, "sent", reached), durable=False)
        received, bodies = await self._take(name, answer.events)
        if answer.asked is not None:
            self._asked_by[name] = answer.asked
        fork = await self._find_fork(name)
        if any(body.get("sealed") is True for body in bodies):
            event(
                _log,
                logging.WARNING,
                "peer has removed the history that it signed before",
                peer=name,
                hint="if its `audit.days` is not shorter than your peers are apart, its history may be rewritten",
            )
        state: Literal["ok", "forked", "evasive"] = "ok" if fork is None else "forked"
        answered = {body.get("seq") for body in bodies if body.get("kind") == "head"}
        if fork is None and asked is not None and _decode(asked.body)["seq"] not in answered:
            state = "evasive"
            event(
                _log,
                logging.ERROR,
                "peer does not say what its history has now",
                peer=name,
                head=asked.body,
                hint="it signed this head before, and an honest gateway answers for it: its history may be rewritten",
            )
        return Exchanged(sent=len(outgoing), received=received, peer=state, fork=fork)

    async def receive(self, raw: Json) -> Json:
        """Take the message of a peer, and answer with what we have for it. Raises for anyone who is no peer."""
        try:
            message = msgspec.convert(raw, PeerMessage)
        except msgspec.ValidationError as error:
            raise InvalidRequest(
                f"This is no message of a peer: {error}.", hint="only gateways of [peers] use this path"
            ) from error
        name = next((name for name, key in self._keys.items() if _b64(key) == message.sender), None)
        if name is None:
            raise Forbidden("The key of this sender belongs to no peer.", hint="add it to [peers.NAME]")
        await self._check_message(name, message)
        await self._take(name, message.events)
        # What the sender has, it says itself: our own cursor is about what it has taken when we started the exchange.
        outgoing, _ = await self._collect(ExchangeCursor(message.since_round, message.since_vote), asked=message.asked)
        await self._find_fork(name)
        # Asked here too: a peer that cannot be reached from here would never have to answer for its history.
        last = await self._store.scripts.read(lambda: _last_head(name))
        return msgspec.to_builtins(await self._write(name, outgoing, asked=last))

    async def forks(self) -> list[JsonObject]:
        """Return what is known of peers that have rewritten their history, each with both signed heads."""

        def select() -> Script[list[Row]]:
            return (yield Statement("SELECT peer, fork FROM approval_peers WHERE fork IS NOT NULL ORDER BY peer"))

        return [{"peer": peer, **_decode(fork)} for peer, fork in await self._store.scripts.read(select)]

    async def report(self) -> list[JsonObject]:
        """Return how far the exchange with each peer has come: the last round and vote, by number, sent and received."""
        found: list[JsonObject] = []
        for name, peer in self._settings.items():
            sent, got = await self._store.scripts.read(partial(_cursors, name))
            found.append({"peer": name, "url": peer.url, "sent": sent._asdict(), "received": got._asdict()})
        return found

    async def _prune_often(self) -> None:
        while True:
            try:
                await self._store.scripts.run(lambda: prune_events(self._keep_s), durable=False)
            except ToolpostError as error:
                event(_log, logging.WARNING, "events of peers not pruned", exception=error)
            self._received.clear()
            await anyio.sleep(PRUNE_S)

    async def _exchange_often(self, name: str) -> None:
        while True:
            await anyio.sleep(EXCHANGE_S)
            try:
                await self.exchange(name)
            except Exception as error:  # noqa: BLE001 (what a peer sends must not end the gateway)
                event(_log, logging.WARNING, "gossip failed", peer=name, exception=error)

    async def _post(self, name: str, message: PeerMessage) -> PeerMessage:
        peer = self._settings[name]
        headers = {"content-type": "application/json"}
        if peer.token is not None:
            token = read_secret(peer.token, project=self._project, place=f"peers.{name}.token")
            headers["authorization"] = f"Bearer {token}"
        async with HttpClient(
            peer.url.rstrip("/") + PATH,
            headers=headers,
            connect_timeout_s=TIMEOUT_S,
            body_limit=BODY_LIMIT_BYTES,
            network=self._network,
        ) as client:
            with anyio.fail_after(TIMEOUT_S):
                answer = await client.post(msgspec.json.encode(message))
        if answer.status != 200:
            raise UnusableAnswer(f"it answered with status {answer.status}")
        # Thousands of events may take long to read.
        return await anyio.to_thread.run_sync(lambda: msgspec.json.decode(answer.body, type=PeerMessage))

    async def _write(
        self, name: str, events: list[PeerEvent], *, asked: PeerEvent | None = None, since: ExchangeCursor | None = None
    ) -> PeerMessage:
        """Make a signed message for a peer."""
        key = await self._approvals.gateway_key()
        message = PeerMessage(
            sender=_b64(key.public),
            receiver=_b64(self._keys[name]),
            at=format_time(time.time()),
            asked=asked,
            since_round=since.round if since else 0,
            since_vote=since.vote if since else 0,
            events=events,
        )
        return msgspec.structs.replace(message, sig_b64=_b64(key.sign(message.signed)))

    async def _check_message(self, name: str, message: PeerMessage) -> None:
        """Raise `Forbidden` unless a peer has signed this message for us, just now."""
        if message.sender != _b64(self._keys[name]) or not is_signed_by(
            self._keys[name], message.signed, _decode_signature(message.sig_b64)
        ):
            raise Forbidden(
                f"A message of the peer `{name}` is not signed with its key.",
                hint=f"compare peers.{name}.key with what `toolpost approvals peers` prints there",
            )
        if message.receiver != await self._approvals.gateway_id():
            raise Forbidden(
                f"A message of the peer `{name}` is for another gateway.",
                hint="its [peers] has another key: `toolpost approvals peers` prints ours",
            )
        try:
            apart_s = abs(datetime.fromisoformat(message.at).timestamp() - time.time())
        except ValueError:
            apart_s = float("inf")
        if apart_s > SKEW_S:
            raise Forbidden(
                f"A message of the peer `{name}` was signed too long ago, or in the future.",
                hint="set the clocks of both gateways",
            )

    async def _collect(
        self, since: ExchangeCursor, *, asked: PeerEvent | None = None
    ) -> tuple[list[PeerEvent], ExchangeCursor]:
        """Sign the rounds and votes past a cursor, and heads of the audit: the newest, and that at an earlier head.

        Returns the events, and how far they reach.
        """
        rounds, votes = await self._store.scripts.read(lambda: _events_since(since))
        bodies: list[JsonObject] = [
            # Without what voters see: arguments stay in their gateway, their digest is in the subject.
            {
                "kind": "round",
                "round": one.id,
                "subject": _decode(one.subject),
                "subject_digest": one.subject_digest,
                "voters": list(one.voters),
                "needed": one.needed,
                "created_at": format_time(one.created_at),
            }
            for one in rounds
        ]
        bodies += [{"kind": "vote", **vote} for vote in votes]
        events: list[PeerEvent] = []
        reached, size = since, 0
        for body in bodies:
            signed = await self._sign(body)
            size += len(msgspec.json.encode(signed))
            # One goes in any case: otherwise a large one would hold up all that come after it.
            if events and size > BATCH_BYTES:
                break
            events.append(signed)
            reached = (
                reached._replace(round=body["round"]) if body["kind"] == "round" else reached._replace(vote=body["seq"])
            )
        # The newest, which we can be held to from now on, and what is now at the place that we were held to before.
        for seq in {await self._seq_of_own(asked), await self._store.audit.newest()} - {0}:
            found = await self._store.audit.entries(AuditFilter(), after=seq - 1, limit=1)
            is_there = bool(found) and found[0].seq == seq
            head: JsonObject = {"kind": "head", "seq": seq, "hash": found[0].hash if is_there else None}
            if not is_there and any(each.first <= seq <= each.last for each in await self._store.audit.segments()):
                # Retention has removed it: what it was is no longer known here, which proves nothing against us.
                head["sealed"] = True
            events.append(await self._sign(head))
        return events, reached

    async def _seq_of_own(self, asked: PeerEvent | None) -> int:
        """Return the place of a head that we have signed; 0 for anything else."""
        if asked is None or not is_signed_event(asked, (await self._approvals.gateway_key()).public):
            return 0
        body = _decode(asked.body)
        seq = body.get("seq") if isinstance(body, dict) and body.get("kind") == "head" else None
        return seq if isinstance(seq, int) and body.get("hash") is not None else 0

    async def _sign(self, body: JsonObject) -> PeerEvent:
        key = await self._approvals.gateway_key()
        text = msgspec.json.encode({"gateway": _b64(key.public), **body}, order="sorted").decode()
        return PeerEvent(text, _b64(key.sign(HEADER + text.encode())))

    async def _take(self, name: str, events: list[PeerEvent]) -> tuple[int, list[JsonObject]]:
        """Store events that the peer has signed; returns how many are new, and what they say. Others are refused, all of them."""
        # Bounded before any signature is verified; a peer of ours sends at most two batches, and two heads. In a thread: two
        # thousand signatures take a quarter of a second.
        events = events[: 4 * BATCH]
        self._received[name] += sum(len(one.body) for one in events)
        if self._received[name] > PACE_BYTES:
            raise QueueOverloaded(
                f"The peer `{name}` sends more than {PACE_BYTES >> 20} MB of events in a minute.",
                hint="it gets further with the next exchange; look at why it has so many rounds",
                retry_s=PRUNE_S,
            )
        verified = await anyio.to_thread.run_sync(_verify_events, name, events, self._keys[name])
        bodies = [body for _, body in verified]
        if sum(body.get("kind") == "head" for body in bodies) > HEADS_IN_MESSAGE:
            # Many would push the heads out that it is held to.
            raise Forbidden(
                f"The peer `{name}` sends more than {HEADS_IN_MESSAGE} heads at once.",
                hint="it must run Toolpost, in a version that exchanges events with this one",
            )
        return await self._store.scripts.run(lambda: _keep(name, verified), durable=False), bodies

    async def _find_fork(self, name: str) -> JsonObject | None:
        """Look for two heads of a peer that contradict each other; report them once."""
        heads = await self._store.scripts.read(lambda: _heads(name))
        fork = find_fork(heads)
        if fork is None:
            return None
        found = {"peer": name, "heads": [{"body": body, "sig_b64": signature} for body, signature in fork]}
        if await self._store.scripts.run(lambda: _note_fork(name, msgspec.json.encode(found).decode()), durable=False):
            event(
                _log,
                logging.ERROR,
                "peer has rewritten its history",
                peer=name,
                heads=[body for body, _ in fork],
                hint="both heads are signed by it: `toolpost approvals peers --json` has them",
            )
        return found


def _verify_events(name: str, events: list[PeerEvent], key: bytes) -> list[tuple[PeerEvent, JsonObject]]:
    """Return events with their decoded bodies. Raises `Forbidden` for one that the peer has not signed, or not as its own."""
    bodies = []
    for one in events:
        if not is_signed_event(one, key):
            raise Forbidden(
                f"An event of the peer `{name}` is not signed with its key.",
                hint=f"compare peers.{name}.key with what `toolpost approvals peers` prints there",
            )
        # Before it is decoded: a thread that decodes megabytes has the interpreter for as long.
        if len(one.body) > EVENT_LIMIT_BYTES:
            raise _make_size_error(name, one)
        try:
            body = _decode(one.body)
        except (msgspec.MsgspecError, RecursionError):
            body = None
        if not isinstance(body, dict) or body.get("gateway") != _b64(key):
            raise Forbidden(
                f"An event of the peer `{name}` names another gateway.", hint="it must sign its own events alone"
            )
        if body.get("kind") == "head" and len(one.body) > HEAD_LIMIT_BYTES:
            raise _make_size_error(name, one)
        bodies.append((one, body))
    return bodies


def _make_size_error(name: str, one: PeerEvent) -> Forbidden:
    return Forbidden(
        f"An event of the peer `{name}` has {len(one.body):,} characters.",
        hint="it must run Toolpost, in a version that exchanges events with this one",
    )


def is_signed_event(one: PeerEvent, key: bytes) -> bool:
    """Whether an event was signed with this key."""
    return is_signed_by(key, HEADER + one.body.encode(), _decode_signature(one.sig_b64))


def _decode_signature(text: str) -> bytes:
    """Read a signature; what is no base64 is none that is valid."""
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return b""


def find_fork(heads: list[tuple[str, str]]) -> tuple[tuple[str, str], tuple[str, str]] | None:
    """Return two signed heads, `(body, signature)`, that say different things of one place in the chain."""
    known: dict[int, tuple[str | None, tuple[str, str]]] = {}
    for signed in heads:
        body = _decode(signed[0])
        seq, digest = body.get("seq"), body.get("hash")
        if not isinstance(seq, int) or (digest is None and body.get("sealed") is True):
            continue
        # A digest of None says that the chain is shorter than it was: also a contradiction.
        if seq in known and known[seq][0] != digest:
            return known[seq][1], signed
        known.setdefault(seq, (digest, signed))
    return None


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _cursors(peer: str) -> Script[tuple[ExchangeCursor, ExchangeCursor]]:
    """Return how far the exchange with a peer has come: what it was sent, and what we got."""
    rows = yield Statement(
        "SELECT sent_round, sent_vote, got_round, got_vote FROM approval_peers WHERE peer = ?1", (peer,)
    )
    sent_round, sent_vote, got_round, got_vote = rows[0] if rows else (0, 0, 0, 0)
    return ExchangeCursor(sent_round, sent_vote), ExchangeCursor(got_round, got_vote)


def _add_peer(peer: str) -> Statement:
    return Statement(
        "INSERT INTO approval_peers (peer, sent_round, sent_vote, got_round, got_vote, fork)"
        " VALUES (?1, 0, 0, 0, 0, NULL) ON CONFLICT DO NOTHING",
        (peer,),
    )


def _advance(peer: str, which: Literal["sent", "got"], reached: ExchangeCursor) -> Script[None]:
    """Move a cursor forward; an older exchange that ends later does not move it back."""
    yield _add_peer(peer)
    yield Statement(
        f"UPDATE approval_peers SET {which}_round = ?1 WHERE peer = ?2 AND {which}_round < ?1", (reached.round, peer)
    )
    yield Statement(
        f"UPDATE approval_peers SET {which}_vote = ?1 WHERE peer = ?2 AND {which}_vote < ?1", (reached.vote, peer)
    )


def _events_since(since: ExchangeCursor) -> Script[tuple[list[Round], list[dict[str, Any]]]]:
    rows = yield Statement(
        f"SELECT {COLUMNS_WITHOUT_SHOWN} FROM approval_rounds WHERE id > ?1 ORDER BY id LIMIT {BATCH}", (since.round,)
    )
    names = ["seq", "round", *VOTE_COLUMNS.split(", ")]
    votes = yield Statement(
        f"SELECT seq, round, {VOTE_COLUMNS} FROM approval_votes WHERE seq > ?1 ORDER BY seq LIMIT {BATCH}",
        (since.vote,),
    )
    return [parse_round(row) for row in rows], [dict(zip(names, row, strict=True)) for row in votes]


def _keep(peer: str, events: list[tuple[PeerEvent, JsonObject]]) -> Script[int]:
    """Store events, each once, and how far they reach; returns how many are new."""
    ((now,),) = yield NOW
    new = 0
    for one, body in events:
        rows = yield Statement("SELECT 1 FROM approval_peer_events WHERE peer = ?1 AND id = ?2", (peer, one.id))
        if not rows:
            new += 1
            yield Statement(
                "INSERT INTO approval_peer_events (peer, id, kind, body, signature, received_at)"
                " VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING",
                (peer, one.id, str(body.get("kind")), one.body, one.sig_b64, now),
            )
    bodies = [body for _, body in events]
    yield from _advance(
        peer, "got", ExchangeCursor(_highest(bodies, "round", "round"), _highest(bodies, "vote", "seq"))
    )
    return new


def _highest(bodies: list[JsonObject], kind: str, name: str) -> int:
    numbers = [body.get(name) for body in bodies if body.get("kind") == kind]
    return max((number for number in numbers if isinstance(number, int) and 0 < number < 2**53), default=0)


def prune_events(keep_s: float) -> Script[None]:
    """Remove events of peers that are older than `keep_s` or too many, and of heads all but the newest and the furthest."""
    ((now,),) = yield NOW
    yield Statement("DELETE FROM approval_peer_events WHERE kind <> 'head' AND received_at < ?1", (now - keep_s,))
    peers = yield Statement("SELECT DISTINCT peer FROM approval_peer_events")
    for (peer,) in peers:
        # Events of one message have one time, and stay or go together.
        yield Statement(
            "DELETE FROM approval_peer_events WHERE peer = ?1 AND kind <> 'head' AND received_at < (SELECT received_at FROM"
            " approval_peer_events WHERE peer = ?1 AND kind <> 'head' ORDER BY received_at DESC LIMIT 1 OFFSET ?2)",
            (peer, EVENTS_LIMIT - 1),
        )
        yield Statement(
            "DELETE FROM approval_peer_events WHERE peer = ?1 AND id IN (SELECT id FROM (SELECT id, sum(length(body)) OVER"
            " (ORDER BY received_at DESC, id) AS size FROM approval_peer_events WHERE peer = ?1 AND kind <> 'head') AS sized"
            " WHERE size > ?2)",
            (peer, STORED_LIMIT_BYTES),
        )
        rows = yield Statement(
            "SELECT id FROM approval_peer_events WHERE peer = ?1 AND kind = 'head' ORDER BY received_at DESC, id",
            (peer,),
        )
        furthest = yield from _last_head(peer)
        for (old,) in rows[HEADS_LIMIT:]:
            if furthest is None or old != furthest.id:
                yield Statement("DELETE FROM approval_peer_events WHERE peer = ?1 AND id = ?2", (peer, old))


def _heads(peer: str) -> Script[list[tuple[str, str]]]:
    rows = yield Statement(
        "SELECT body, signature FROM approval_peer_events WHERE peer = ?1 AND kind = 'head' ORDER BY received_at",
        (peer,),
    )
    return [(str(body), str(signature)) for body, signature in rows]


def _last_head(peer: str) -> Script[PeerEvent | None]:
    """Return the furthest head that a peer has signed for us."""
    heads = yield from _heads(peer)
    furthest, found = 0, None
    for text, signature in heads:
        body = _decode(text)
        if isinstance(seq := body.get("seq"), int) and body.get("hash") is not None and seq > furthest:
            furthest, found = seq, PeerEvent(text, signature)
    return found


def _note_fork(peer: str, fork: str) -> Script[bool]:
    yield _add_peer(peer)
    rows = yield Statement("SELECT fork FROM approval_peers WHERE peer = ?1 /*lock*/", (peer,))
    if rows[0][0] is not None:
        return False
    yield Statement("UPDATE approval_peers SET fork = ?1 WHERE peer = ?2", (fork, peer))
    return True
