"""The decision trail of a store: sessions are started, added to, verified, sealed and proven."""

import base64
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any, Final

import anyio
import anyio.to_thread

from toolpost import Caller, CallerId, InvalidArguments, NotFound, ToolpostError
from toolpost.base import JsonObject, SigningKey, ThreadId, event, format_time
from toolpost.metrics import Counter, GaugeValues, Metrics
from toolpost.parts.trail import records
from toolpost.parts.trail.merkle import Peaks, consistency_path, inclusion_path
from toolpost.parts.trail.records import Draft, Opening, Record, ThoughtType, TrailSession
from toolpost.parts.trail.verify_trail import (
    Invalid,
    Walk,
    check_signature,
    commit,
    fold,
    hash_leaf,
    hash_of,
    verifies_consistency,
    verifies_inclusion,
)
from toolpost.store import Script, Store

_log = logging.getLogger("toolpost.parts.trail")

SIGNING_KEY: Final = "signing:trail"
CHUNK: Final = 1_000
"""How many records are read and verified at a time: between two chunks others get their turn."""
SESSIONS: Final = "trail sessions"
"""The wake-up topic of sessions that were started."""
REFRESH_S: Final = 30.0
"""After how long new sessions are looked for, whether or not something was rung."""
NAMES_LIMIT: Final = 100_000
"""How many names of sessions are known without a look at the store."""
OVERLAP: Final = 1_000
"""How many numbers are read again: PostgreSQL may commit a session after one with a higher number."""
REMOVED_AT_ONCE: Final = 5_000
"""Records that are removed in one transaction, which calls have to wait for."""
RETENTION_S: Final = 300.0
"""How often old records are looked for."""


@dataclass(frozen=True, kw_only=True)
class Thought:
    """Something that an agent plans, finds, decides or looks back on."""

    type: ThoughtType
    task_id: str | None
    agent_id: str
    content: str
    references: Sequence[str] = ()
    """Hashes of records, or ids of calls, that it is based on."""


@dataclass(frozen=True, kw_only=True)
class ChainVerdict:
    """The verdicts on verified sessions."""

    record_count: int = 0
    broken_count: int = 0
    first_broken_at: int | None = None
    """The seq of the first record that is not as it was written."""
    session_id: str | None = None
    """Its session."""
    reason: str | None = None
    removed_count: int = 0
    """Records that retention removed; of their sessions, header and seal were verified."""

    @property
    def is_valid(self) -> bool:
        return self.broken_count == 0

    def join(self, other: "ChainVerdict") -> "ChainVerdict":
        """Return the verdict on both; the first break is that of the first one that has any."""
        broken = self if self.broken_count else other
        return replace(
            broken,
            record_count=self.record_count + other.record_count,
            broken_count=self.broken_count + other.broken_count,
            removed_count=self.removed_count + other.removed_count,
        )


class TrailMetrics:
    """Counters since the start of the process."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        metrics = metrics or Metrics()
        self.records = metrics.add(
            Counter("toolpost_trail_records_total", "Records written to the decision trail, by kind.", label="kind")
        )
        self.seals = metrics.add(Counter("toolpost_trail_seals_total", "Sessions of the trail that were sealed."))


class Trail:
    """The sessions of one store."""

    def __init__(self, store: Store, key: SigningKey, metrics: TrailMetrics | None = None) -> None:
        self._store = store
        self._key = key
        self._metrics = metrics or TrailMetrics()
        self._names: dict[tuple[str, str], None] = {}
        """Owner and name of sessions, the one noted last at the end; at most `NAMES_LIMIT`."""
        self._is_partial = False
        """Whether there are more names than that: what is not among them may still be in the store."""
        self._read_up_to = 0
        """The highest number of a session that was read."""

    @classmethod
    async def open(cls, store: Store, metrics: TrailMetrics | None = None) -> "Trail":
        """Make the trail of a store, with the key that its gateways share."""
        trail = cls(store, SigningKey(await store.keys.of(SIGNING_KEY)), metrics)
        await trail._read_names()
        return trail

    @property
    def public_key(self) -> str:
        """The key that seals are signed with, as hexadecimal digits."""
        return self._key.public.hex()

    @asynccontextmanager
    async def open_following(self, *, keep_s: float | None = None) -> AsyncIterator[None]:
        """Follow the sessions that other gateways of the store start; remove records after `keep_s`, if that is given."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow)
            if keep_s is not None:
                tasks.start_soon(self._run_retention, keep_s)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    @property
    def is_used(self) -> bool:
        """Whether there is any session."""
        return bool(self._names)

    def may_have_session(self, owner: CallerId, name: str) -> bool:
        """Whether a session of this name was started, as far as this gateway has heard; True also if only the store knows."""
        return self._is_partial or (owner, name) in self._names

    async def has_session(self, owner: CallerId, name: str) -> bool:
        """Whether a session of this name was started, as far as this gateway has heard."""
        if (owner, name) in self._names or not self._is_partial:
            return (owner, name) in self._names
        found = await self._store.scripts.read(lambda: records.find_newest(owner, name))
        if found is not None:
            self._remember(owner, name)
        return found is not None

    def read_gauges(self) -> GaugeValues:
        """Return what `/metrics` shows of this moment."""
        return {
            "toolpost_trail_sessions": ("Sessions of the decision trail, successors not counted.", len(self._names))
        }

    async def start(self, owner: CallerId, name: str | None, intent: str, task_id: str | None) -> TrailSession:
        """Start a session; one of this name that is open goes on."""
        salt = secrets.token_hex(16)
        opening = Opening(name=name or f"s-{secrets.token_hex(8)}", intent=intent, task_id=task_id, salt=salt)
        at = self._now()
        session = await self._store.scripts.run(lambda: records.open_session(owner, opening, at))
        self._note(session)
        return session

    async def find(self, owner: CallerId | None, session_id: str) -> TrailSession:
        """Return a session by its id; raises NotFound."""
        return await self._store.scripts.read(lambda: records.require_session(owner, session_id))

    async def find_of_call(self, owner: CallerId | None, call_id: str) -> TrailSession:
        """Return the session that has recorded a call; raises NotFound."""
        found = await self._store.scripts.read(lambda: records.find_session_of_call(owner, call_id))
        if found is None:
            raise NotFound(
                f"No session has recorded the call `{call_id[:128]}`.",
                hint='calls are recorded in sessions that were started, or in all of them with trail.sessions = "all"',
            )
        return found

    async def find_current(self, caller: Caller, session_id: str | None) -> TrailSession:
        """Return the session that a caller means: the one it names, that of its conversation or MCP session, or its last one."""
        if session_id is not None:
            return await self.find(caller.id, session_id)
        name = context_name(caller)
        found = None
        if name is not None:
            found = await self._store.scripts.read(lambda: records.find_newest(caller.id, name))
        if found is None:
            found = await self._store.scripts.read(lambda: records.find_last_open(caller.id))
        if found is None:
            raise NotFound("You have no open session.", hint="audit_session_start starts one")
        return found

    async def record(self, caller: Caller, thought: Thought, session_id: str | None) -> tuple[TrailSession, Record]:
        """Add a thought to the session that the caller means, or to a new one. Raises NotFound, InvalidArguments."""
        if session_id is not None:
            name = (await self.find(caller.id, session_id)).name
        else:
            name = context_name(caller) or ""
            if not name:
                last = await self._store.scripts.read(lambda: records.find_last_open(caller.id))
                name = last.name if last is not None else "main"
        referred = await self._store.scripts.read(
            lambda: records.resolve_references(caller.id, thought.references, "references")
        )
        salt = secrets.token_hex(16)
        draft = Draft(
            once=salt,
            body={
                "kind": "thought",
                "type": thought.type,
                "author": caller.id,
                "agent_id": thought.agent_id,
                "task_id": thought.task_id,
                "content": commit(thought.content, salt),
                "references": [each.hash for each in referred],
            },
            content=thought.content,
            salt=salt,
        )
        return await self.append(caller.id, name, draft, intent="", task_id=thought.task_id)

    async def append(
        self,
        owner: CallerId,
        name: str,
        draft: Draft,
        *,
        intent: str = "",
        task_id: str | None = None,
        durable: bool = True,
    ) -> tuple[TrailSession, Record]:
        """Add a record to the open session of this name; a new one is started if there is none, or it is sealed."""
        opening = Opening(name=name, intent=intent, task_id=task_id, salt=secrets.token_hex(16))
        at = self._now()

        def write() -> Script[tuple[TrailSession, Record]]:
            while True:
                session = yield from records.open_session(owner, opening, at)
                # None: sealed by another gateway since it was found, so that the next look finds or starts its successor.
                if (written := (yield from records.append(session.number, [draft], at))) is not None:
                    return session, written[0]

        session, record = await self._store.scripts.run(write, is_short=True, durable=durable)
        self._metrics.records.add(of=record.kind)
        self._note(session)
        return session, record

    async def end_call(self, session: int, owner: CallerId, name: str, draft: Draft) -> None:
        """Add the result of a call to its session; to the next one, if it was sealed while the call ran."""
        at = self._now()
        written = await self._store.scripts.run(
            lambda: records.append(session, [draft], at), is_short=True, durable=False
        )
        if written is None:
            await self.append(owner, name, draft, durable=False)
        else:
            self._metrics.records.add(of="result")

    async def close_lost_calls(self) -> int:
        """Add the results of calls whose gateway was killed, as the audit has them; return how many."""
        count = 0
        while ended := await self._store.scripts.read(lambda: records.list_ended_calls(CHUNK)):
            for call in ended:
                draft = draft_result(
                    call.owner,
                    call.call_id,
                    call.hash,
                    outcome=call.outcome,
                    code=call.code,
                    duration_ms=call.duration_ms,
                    result=call.result,
                )
                await self.end_call(call.session, call.owner, call.name, draft)
            count += len(ended)
        return count

    async def list(
        self,
        owner: CallerId,
        *,
        session_id: str | None,
        task_id: str | None,
        kinds: Sequence[str],
        after: tuple[int, int],
        limit: int,
    ) -> Sequence[tuple[str, Record]]:
        """Return records of an owner in order, each with the id of its session; past `after`, at most `limit`.

        Raises NotFound for a session that is not there, or whose records were removed.
        """
        session = None
        if session_id is not None:
            found = await self.find(owner, session_id)
            records.require_kept(found)
            session = found.number
        return await self._store.scripts.read(
            lambda: records.list_records(owner, session, task_id, kinds, after, limit)
        )

    async def sessions(self, owner: CallerId | None = None, *, limit: int = 100) -> Sequence[TrailSession]:
        """Return the newest sessions, the newest first."""
        return await self._store.scripts.read(lambda: records.list_sessions(owner, limit))

    async def verify_all(self, owner: CallerId | None, task_id: str | None) -> ChainVerdict:
        """Verify the sessions of an owner, or of all owners: all, or those with records of a task."""
        verdict, after = ChainVerdict(), 0
        while True:
            found = await self._store.scripts.read(partial(records.list_of_task, owner, task_id, after, 100))
            if not found:
                return verdict
            for session in found:
                verdict = verdict.join(await self.verify(session))
            after = found[-1].number

    async def verify(self, session: TrailSession) -> ChainVerdict:
        """Follow the chain of a session from its header to its head; compare its tree, its seal and its contents.

        Of a session whose records were removed, the header and the seal are left to verify.
        """
        check = _Check(session)
        if session.removed_at is not None:
            return check.end_removed(self._check_key)
        async for chunk in self.read(session):
            expected = await anyio.to_thread.run_sync(check.follow, chunk)
            stored = await self._store.scripts.read(partial(records.read_stored_nodes, session.number, list(expected)))
            check.compare_nodes(expected, stored)
        # In a thread like the rest: the tree of a million records takes seconds.
        verdict = await anyio.to_thread.run_sync(check.end, self._check_key)
        if not verdict.is_valid and session.seal is not None:
            # Retention may have removed records since the session was looked up.
            current = await self.find(session.owner, session.id)
            return verdict if current.removed_at is None else await self.verify(current)
        return verdict

    async def read(self, session: TrailSession) -> AsyncIterator[Sequence[Record]]:
        """Yield the records of a session, in order, up to the size that it had when it was looked up.

        Raises NotFound if they were removed.
        """
        records.require_kept(session)
        after = 0
        while after < session.size:
            chunk = await self._store.scripts.read(
                partial(records.read_records, session.number, after, CHUNK, session.size)
            )
            if not chunk:
                return
            yield chunk
            after = chunk[-1].seq

    async def read_page(self, session: TrailSession, *, after: int, limit: int) -> Sequence[Record]:
        """Return records of a session past a seq, at most `limit`."""
        return await self._store.scripts.read(lambda: records.read_records(session.number, after, limit, session.size))

    async def seal(self, session: TrailSession) -> TrailSession:
        """Seal a session; one that is sealed stays as it is."""
        at = self._now()
        sealed = await self._store.scripts.run(lambda: records.seal(session.number, at, self._sign))
        if sealed.seal_json is not None and sealed.seal_json["sealed_at"] == at:
            self._metrics.seals.add()
        return sealed

    async def apply_retention(self, keep_s: float) -> int:
        """Remove the records of sessions that were sealed more than `keep_s` ago; return how many sessions.

        Header, size, root and signature stay, so that exports and proofs that were made before can be verified. A session that
        is broken is evidence, and stays whole.
        """
        removed, after = 0, 0
        while expired := await self._store.scripts.read(partial(records.find_expired, keep_s, after, 100)):
            for session in expired:
                after = session.number
                about: JsonObject = {"session": session.id, "caller": session.owner}
                if not (verdict := await self.verify(session)).is_valid:
                    event(_log, logging.ERROR, "records not removed: broken", **about, reason=verdict.reason)
                    continue
                at = self._now()
                while await self._store.scripts.run(
                    partial(records.remove_records, session.number, at, REMOVED_AT_ONCE), durable=False
                ):
                    pass
                event(_log, logging.INFO, "records removed", **about, records=session.size, root=session.root)
                removed += 1
        return removed

    async def prove_inclusion(self, session: TrailSession, record: str | int, size: int | None = None) -> JsonObject:
        """Prove that a record, named by its seq, its hash or its call, is in a session, or was when it had `size` records."""
        records.require_kept(session)
        found = await self._find_record(session, record)
        size = session.size if size is None else size
        if not found.seq <= size <= session.size:
            raise _out_of_range("size", f"the session has {session.size} records, and this is record {found.seq}")
        path = inclusion_path(found.seq - 1, size)
        proof = await self._store.scripts.read(lambda: records.read_nodes(session.number, path))
        root = await self._root_of(session, size)
        leaf = hash_leaf(bytes.fromhex(found.hash))
        # Verified before it is given out: a proof that fails elsewhere would speak against the record, not the store.
        if not verifies_inclusion(leaf, found.seq - 1, size, proof, bytes.fromhex(root)):
            raise records.damaged_tree()
        return {
            "kind": "inclusion",
            "session_id": session.id,
            "seq": found.seq,
            "record_hash": found.hash,
            "size": size,
            "root": root,
            "proof": [each.hex() for each in proof],
        }

    async def prove_consistency(self, session: TrailSession, first: int, size: int | None = None) -> JsonObject:
        """Prove that the first records of a session are still what they were when there were so many."""
        records.require_kept(session)
        size = session.size if size is None else size
        if not 0 < first <= size <= session.size:
            raise _out_of_range("first", f"the session has {session.size} records")
        path = consistency_path(first, size)
        proof = await self._store.scripts.read(lambda: records.read_nodes(session.number, path))
        first_root, root = await self._root_of(session, first), await self._root_of(session, size)
        if not verifies_consistency(first, size, proof, bytes.fromhex(first_root), bytes.fromhex(root)):
            raise records.damaged_tree()
        return {
            "kind": "consistency",
            "session_id": session.id,
            "first": first,
            "first_root": first_root,
            "size": size,
            "root": root,
            "proof": [each.hex() for each in proof],
        }

    async def read_record(self, session: TrailSession, record: str | int) -> Record:
        """Return a record of a session, by its seq, its hash or its call; raises NotFound."""
        return await self._find_record(session, record)

    async def has_decision(self, owner: CallerId, task_id: str) -> bool:
        """Whether an owner has recorded a decision for a task."""
        return await self._store.scripts.read(lambda: records.has_decision(owner, task_id))

    async def find_last_decision(self, owner: CallerId, name: str) -> tuple[int, int]:
        """Return the place of the last decision in the sessions of a name, which only grows; (0, 0) if there is none."""
        return await self._store.scripts.read(lambda: records.find_last_decision(owner, name))

    async def find_decision(self, owner: CallerId, name: str) -> Record:
        """Return the record that a call follows from; raises InvalidArguments if it is no decision of the owner's."""
        (found,) = await self._store.scripts.read(lambda: records.resolve_references(owner, [name], "follows"))
        if found.type != "decision":
            raise InvalidArguments(
                f"`follows` names `{name}`, which is no decision.", hint="name the hash of a record of type `decision`"
            )
        return found

    async def _find_record(self, session: TrailSession, record: str | int) -> Record:
        if isinstance(record, int) or (record.isascii() and record.isdigit()):
            seq = int(record)
            rows = []
            if 0 < seq <= session.size:
                rows = await self._store.scripts.read(lambda: records.read_records(session.number, seq - 1, 1))
            found = rows[0] if rows and rows[0].seq == seq else None
        else:
            by_name = await self._store.scripts.read(lambda: records.find_records(None, session.number, [str(record)]))
            found = by_name.get(record)
        if found is None:
            raise NotFound(
                f"There is no record `{record}` in the session `{session.id}`.",
                hint="name its seq, its hash or the id of a call",
            )
        return found

    async def _root_of(self, session: TrailSession, size: int) -> str:
        if size == session.size:
            return session.root
        peaks = await self._store.scripts.read(lambda: records.read_nodes(session.number, [(0, size)]))
        return fold(peaks).hex()

    def _check_key(self, session: TrailSession) -> None:
        if session.public_key != self.public_key:
            # An attacker who rewrites a session can seal it again, with a key of their own.
            raise Invalid("it is sealed with another key than that of this store")

    def _sign(self, message: bytes) -> tuple[str, str]:
        return base64.b64encode(self._key.sign(message)).decode(), self.public_key

    def _now(self) -> str:
        return format_time(time.time())

    def _note(self, session: TrailSession) -> None:
        if (session.owner, session.name) not in self._names:
            self._remember(session.owner, session.name)
            self._store.wakeups.ring(SESSIONS)

    def _remember(self, owner: str, name: str) -> None:
        self._names.pop((owner, name), None)
        self._names[owner, name] = None
        if len(self._names) > NAMES_LIMIT:
            self._is_partial = True
            del self._names[next(iter(self._names))]

    async def _follow(self) -> None:
        async with self._store.wakeups.open_listener(SESSIONS) as listener:
            while True:
                with anyio.move_on_after(REFRESH_S):
                    await listener.wait()
                try:
                    await self._read_names()
                except ToolpostError as error:
                    event(_log, logging.WARNING, "sessions of the trail not read", reason=error.message)

    async def _run_retention(self, keep_s: float) -> None:
        while True:
            try:
                await self.apply_retention(keep_s)
            except ToolpostError as error:
                event(_log, logging.WARNING, "records of the trail not removed", exception=error)
            await anyio.sleep(RETENTION_S)

    async def _read_names(self) -> None:
        """Read the names of new sessions; of the newest ones, at the start."""
        after = max(0, self._read_up_to - OVERLAP)
        found = await self._store.scripts.read(lambda: records.list_names(after, NAMES_LIMIT))
        self._is_partial = self._is_partial or len(found) == NAMES_LIMIT
        for number, owner, name in reversed(found):
            self._remember(owner, name)
            self._read_up_to = max(self._read_up_to, number)


class _Check:
    """Follows a chain past its breaks, so as to count them."""

    def __init__(self, session: TrailSession) -> None:
        self._session = session
        self._verdict = ChainVerdict(session_id=session.id)
        self._walk: Walk | None = None
        self._peaks = Peaks()
        try:
            self._walk = Walk(session.header_json, hash_of(session.header_json))
            if (session.header_json["owner"], session.header_json["session"]) != (session.owner, session.id):
                raise Invalid("the header belongs to another session")
            is_kept = session.removed_at is None
            if is_kept and commit(session.intent.decode(), session.salt) != session.header_json["intent"]:
                raise Invalid("the intent was changed")
        except (Invalid, ValueError, KeyError, TypeError) as error:
            self._break(0, str(error))

    def follow(self, chunk: Sequence[Record]) -> dict[int, bytes]:
        """Follow some records; return the nodes above them that the Merkle tree must have, by number."""
        nodes: dict[int, bytes] = {}
        for record in chunk:
            with contextlib.suppress(ValueError):  # no hash: the record breaks the chain below
                leaf = hash_leaf(bytes.fromhex(record.hash))
                nodes.update((node.number, digest) for node, digest in self._peaks.append(leaf))
            self._verdict = replace(self._verdict, record_count=self._verdict.record_count + 1)
            if self._walk is None:
                self._break(record.seq, "the header is not valid")
                continue
            try:
                _follow_record(self._walk, record)
            except (Invalid, ValueError, KeyError, TypeError) as error:
                self._break(record.seq, str(error))
                # Go on behind it, so that one changed record is one break and not all that follow.
                self._walk.size, self._walk.head = record.seq, record.hash
                self._walk.note_hash(record.hash)
        return nodes

    def compare_nodes(self, expected: Mapping[int, bytes], stored: Mapping[int, bytes]) -> None:
        """Break unless the stored nodes are these; not behind another break, which changes them."""
        if not self._verdict.broken_count and expected != stored:
            self._break(self._verdict.record_count, "a node of the Merkle tree does not match the records")

    def end(self, check_key: Callable[[TrailSession], None]) -> ChainVerdict:
        """Compare what was followed with the session and its seal, and return the verdict."""
        session, walk = self._session, self._walk
        if walk is not None and not self._verdict.broken_count:
            if (walk.size, walk.head) != (session.size, session.head):
                self._break(walk.size + 1, f"it is missing: the session has {session.size} records")
            elif walk.root() != session.root:
                self._break(session.size, "the Merkle tree does not match the records")
            elif (seal := session.seal_json) is not None:
                try:
                    check_key(session)
                    walk.check_seal(seal, session.signature or "", session.public_key or "")
                except (Invalid, ValueError, KeyError, TypeError) as error:
                    self._break(session.size, str(error))
        return self._verdict

    def end_removed(self, check_key: Callable[[TrailSession], None]) -> ChainVerdict:
        """Verify a session without its records: its seal is signed, and belongs to this session."""
        session, seal = self._session, self._session.seal_json or {}
        try:
            check_key(session)
            check_signature(seal, session.signature or "", session.public_key or "")
            kept = (session.id, session.owner, session.start, session.size, session.head, session.root)
            if tuple(map(seal.get, ("session", "owner", "start", "size", "head", "root"))) != kept:
                raise Invalid("the seal belongs to another session")
        except (Invalid, ValueError, KeyError, TypeError) as error:
            self._break(0, str(error))
        return replace(self._verdict, removed_count=session.size)

    def _break(self, seq: int, reason: str) -> None:
        first = self._verdict.broken_count == 0
        self._verdict = replace(self._verdict, broken_count=self._verdict.broken_count + 1)
        if first:
            self._verdict = replace(self._verdict, first_broken_at=seq, reason=reason)


def _follow_record(walk: Walk, record: Record) -> None:
    """Follow one record; raise `Invalid` also if a column beside its body was changed."""
    body: dict[str, Any] = record.body_json
    walk.follow(body, record.hash)
    if record.kind == "thought" and commit((record.content or b"").decode(), record.salt or "") != body["content"]:
        raise Invalid(f"the content of record {record.seq} was changed")
    beside = (record.seq, record.kind, record.type, record.task_id, record.call_id)
    if beside != (body["seq"], body["kind"], body.get("type"), body.get("task_id"), body.get("call_id")):
        raise Invalid(f"record {record.seq} was changed: its columns differ from the hashed record")


def draft_result(
    author: CallerId,
    call_id: str,
    call_hash: str,
    *,
    outcome: str,
    code: str | None,
    duration_ms: float,
    result: str | None,
) -> Draft:
    """Draft the record of what became of a call."""
    return Draft(
        once=f"result {call_hash}",
        body={
            "kind": "result",
            "author": author,
            "call_id": call_id,
            "call": call_hash,
            "outcome": outcome,
            "code": code,
            "duration_ms": round(duration_ms),
            "result": result,
        },
    )


def conversation_name(thread: ThreadId) -> str:
    """Return the name of the session that belongs to a conversation."""
    return f"conversation:{thread}"


def context_name(caller: Caller) -> str | None:
    """Return the name of the session that belongs to a conversation or an MCP session; None if a caller has neither."""
    if caller.thread is not None:
        return conversation_name(caller.thread)
    if caller.session is not None:
        # The id of an MCP session is as good as a password: it is not written into a record.
        return f"mcp:{sha256(caller.session.encode()).hexdigest()[:24]}"
    return None


def _out_of_range(name: str, fact: str) -> InvalidArguments:
    return InvalidArguments(
        f"`{name}` is out of range: {fact}.",
        hint="merkle_root says how many records there are",
        issues=[{"path": f"/{name}", "keyword": "range", "message": fact}],
    )
