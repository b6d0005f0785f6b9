"""Sessions and their records: the hashed bytes and the transactions, for both databases.

A session is a chain: its header has a hash, each record has the hash of what stands before it, and its author, within its own.
The bodies are JSON of strings and whole numbers, written in one canonical form (`verify_trail.encode`). Contents are not in
them, only commitments: an export without contents can be verified all the same.

    header {owner, session, started_at, …}  <- record 1 {prev, seq, author, …}  <- record 2 …  ->  seal {root, size, head}, signed
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from toolpost import CallerId, InvalidArguments, NotFound
from toolpost.base import JsonObject
from toolpost.contracts import InvalidRequest
from toolpost.parts.trail.merkle import Peaks, Range, TreeNode, hashes_over, nodes_over
from toolpost.parts.trail.verify_trail import FORMAT, commit, encode, hash_leaf, hash_of
from toolpost.store import NOW, Many, Row, Script, Statement, lock_name, marks

ThoughtType = Literal["plan", "analysis", "decision", "reflection"]

_SESSION: Final = (
    "number, owner, id, name, task_id, header, intent, salt, size, head, peaks, changed_at, seal, signature, public_key,"
    " removed_at"
)
_RECORD: Final = "session, seq, kind, type, task_id, call_id, once, body, hash, content, salt"


@dataclass(frozen=True, kw_only=True, slots=True)
class TrailSession:
    """A session as it is stored."""

    number: int
    owner: CallerId
    id: str
    name: str
    task_id: str | None
    header: str
    intent: bytes
    salt: str
    size: int
    head: str
    peaks: bytes
    changed_at: float
    seal: str | None
    signature: str | None
    public_key: str | None
    removed_at: str | None
    """When retention removed its records; the intent went with them."""

    @property
    def start(self) -> str:
        """The hash of the header, which the first record continues."""
        return hash_of(self.header_json)

    @property
    def header_json(self) -> JsonObject:
        found: JsonObject = msgspec.json.decode(self.header)
        return found

    @property
    def seal_json(self) -> JsonObject | None:
        return None if self.seal is None else msgspec.json.decode(self.seal)

    @property
    def root(self) -> str:
        """The Merkle root of the records that there are, sealed or not."""
        return Peaks(self.size, self.peaks).root.hex()


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A record as it is stored."""

    session: int
    seq: int
    kind: str
    type: str | None
    task_id: str | None
    call_id: str | None
    once: str
    body: str
    hash: str
    content: bytes | None
    salt: str | None

    @property
    def body_json(self) -> JsonObject:
        found: JsonObject = msgspec.json.decode(self.body)
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A record that is to be written: all of its body but its place."""

    once: str
    """The same for the same record, written a second time."""
    body: Mapping[str, Any]
    content: str | None = None
    salt: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """The arguments of a session that is started if there is none."""

    name: str
    intent: str
    task_id: str | None
    salt: str


def open_session(owner: CallerId, opening: Opening, at: str) -> Script[TrailSession]:
    """Return the open session of this name; a new one if there is none, or the last one is sealed."""
    if (found := (yield from find_newest(owner, opening.name))) is not None and found.seal is None:
        return found
    # Two gateways must not both find none.
    yield lock_name(f"trail {owner} {opening.name}")
    before = yield from find_newest(owner, opening.name)
    if before is not None and before.seal is None:
        return before
    return (yield from _insert_session(owner, opening, at, before))


def _insert_session(owner: CallerId, opening: Opening, at: str, before: TrailSession | None) -> Script[TrailSession]:
    ((now,),) = yield NOW
    name = before.name if before is not None else opening.name
    ((count,),) = yield Statement("SELECT count(*) FROM trail_sessions WHERE owner = ?1 AND name = ?2", (owner, name))
    session = name
    while (yield from find_session(owner, session)) is not None:
        count += 1
        session = f"{name}.{count}"
    continues = None if before is None else {"session": before.id, "root": before.root}
    header = {
        "v": FORMAT,
        "kind": "session",
        "session": session,
        "owner": owner,
        "task_id": opening.task_id,
        "started_at": at,
        "intent": commit(opening.intent, opening.salt),
        "continues": continues,
    }
    rows = yield Statement(
        "INSERT INTO trail_sessions (owner, id, name, task_id, header, intent, salt, size, head, peaks, changed_at)"
        f" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, ?9, ?10) RETURNING {_SESSION}",
        (
            owner,
            session,
            name,
            opening.task_id,
            encode(header).decode(),
            opening.intent.encode(),
            opening.salt,
            hash_of(header),
            b"",
            now,
        ),
    )
    return _session_of(rows[0])


def append(session: int, drafts: Sequence[Draft], at: str) -> Script[list[Record] | None]:
    """Add records to an open session, those that are not there yet; None, with nothing done, if it is sealed."""
    found = yield from _lock(session)
    written: dict[str, Record] = {}
    for draft in drafts:
        rows = yield Statement(
            f"SELECT {_RECORD} FROM trail_records WHERE session = ?1 AND once = ?2", (session, draft.once)
        )
        if rows:
            written[draft.once] = _record_of(rows[0])
    missing = [draft for draft in drafts if draft.once not in written]
    if missing and found.seal is not None:
        # Only for what is missing: a script that is run again after its commit finds its records, sealed since or not.
        return None
    peaks = Peaks(found.size, found.peaks)
    head, nodes = found.head, list[tuple[int, int, bytes]]()
    for draft in missing:
        body = {**draft.body, "v": FORMAT, "seq": peaks.size + 1, "prev": head, "at": at}
        head = hash_of(body)
        written[draft.once] = Record(
            session=session,
            seq=peaks.size + 1,
            kind=body["kind"],
            type=body.get("type"),
            task_id=body.get("task_id"),
            call_id=body.get("call_id"),
            once=draft.once,
            body=encode(body).decode(),
            hash=head,
            content=None if draft.content is None else draft.content.encode(),
            salt=draft.salt,
        )
        nodes += [(session, node.number, digest) for node, digest in peaks.append(hash_leaf(bytes.fromhex(head)))]
    if missing:
        rows = [tuple(getattr(written[draft.once], name) for name in _RECORD.split(", ")) for draft in missing]
        yield Many(f"INSERT INTO trail_records ({_RECORD}) VALUES ({marks(11)})", rows)
        if nodes:
            yield Many("INSERT INTO trail_nodes (session, number, hash) VALUES (?1, ?2, ?3)", nodes)
        ((now,),) = yield NOW
        yield Statement(
            "UPDATE trail_sessions SET size = ?2, head = ?3, peaks = ?4, changed_at = ?5 WHERE number = ?1",
            (session, peaks.size, head, peaks.encode(), now),
        )
    return [written[draft.once] for draft in drafts]


def seal(session: int, at: str, sign: Callable[[bytes], tuple[str, str]]) -> Script[TrailSession]:
    """Seal a session, once; a session that is sealed stays as it is. `sign` returns the signature and the public key."""
    found = yield from _lock(session)
    if found.seal is not None:
        return found
    if not found.size:
        raise InvalidRequest(f"The session `{found.id}` has no records.", hint="record something first: thought_record")
    message = encode(
        {
            "v": FORMAT,
            "kind": "seal",
            "session": found.id,
            "owner": found.owner,
            "start": found.start,
            "size": found.size,
            "head": found.head,
            "root": found.root,
            "sealed_at": at,
        }
    )
    signature, public = sign(message)
    ((now,),) = yield NOW
    rows = yield Statement(
        "UPDATE trail_sessions SET seal = ?2, signature = ?3, public_key = ?4, changed_at = ?5 WHERE number = ?1"
        f" RETURNING {_SESSION}",
        (session, message.decode(), signature, public, now),
    )
    return _session_of(rows[0])


def find_expired(keep_s: float, after: int, limit: int) -> Script[list[TrailSession]]:
    """Return sessions past a number that were sealed more than `keep_s` ago and still have records, the oldest first."""
    ((now,),) = yield NOW
    rows = yield Statement(
        f"SELECT {_SESSION} FROM trail_sessions WHERE seal IS NOT NULL AND changed_at < ?1 AND number > ?2"
        # Those of a gateway that was killed halfway are found again.
        " AND (removed_at IS NULL OR EXISTS (SELECT 1 FROM trail_records WHERE session = number))"
        f" ORDER BY number LIMIT {int(limit)}",
        (now - keep_s, after),
    )
    return [_session_of(row) for row in rows]


def remove_records(session: int, at: str, batch: int) -> Script[bool]:
    """Remove the oldest records of a sealed session, at most `batch`, and what is above them; whether some are left.

    The session says from the first batch on that its records were removed: what reads it halfway must not call it broken.
    """
    yield Statement(
        # With the intent, which is a content like those of the records.
        "UPDATE trail_sessions SET removed_at = ?2, intent = ?3, salt = '' WHERE number = ?1 AND removed_at IS NULL",
        (session, at, b""),
    )
    ((first,),) = yield Statement("SELECT min(seq) FROM trail_records WHERE session = ?1", (session,))
    if first is None:
        return False
    yield Statement("DELETE FROM trail_records WHERE session = ?1 AND seq < ?2", (session, first + batch))
    # Nodes are numbered from left to right, with leaf i at 2i: about as many go as records.
    yield Statement("DELETE FROM trail_nodes WHERE session = ?1 AND number < ?2", (session, 2 * (first + batch)))
    return True


def require_kept(session: TrailSession) -> None:
    """Raise NotFound if the records of a session were removed."""
    if session.removed_at is not None:
        raise NotFound(
            f"The {session.size} records of the session `{session.id}` were removed at {session.removed_at} (trail.keep_days).",
            hint="merkle_root has its root, size and signature: exports and proofs that were made before are verified by them",
        )


def find_session(owner: CallerId | None, session: str) -> Script[TrailSession | None]:
    """Return a session by its id; the newest one of any owner, if none is given."""
    rows = yield Statement(
        f"SELECT {_SESSION} FROM trail_sessions WHERE id = ?1 AND (owner = ?2 OR CAST(?2 AS TEXT) IS NULL)"
        " ORDER BY number DESC LIMIT 1",
        (session, owner),
    )
    return _session_of(rows[0]) if rows else None


def find_newest(owner: CallerId, name: str) -> Script[TrailSession | None]:
    """Return the newest session of a name: the one that is open, or the one that was sealed last."""
    rows = yield Statement(
        f"SELECT {_SESSION} FROM trail_sessions WHERE owner = ?1 AND name = ?2 ORDER BY number DESC LIMIT 1",
        (owner, name),
    )
    return _session_of(rows[0]) if rows else None


def find_last_open(owner: CallerId) -> Script[TrailSession | None]:
    """Return the open session of an owner that was started last."""
    rows = yield Statement(
        f"SELECT {_SESSION} FROM trail_sessions WHERE owner = ?1 AND seal IS NULL ORDER BY number DESC LIMIT 1",
        (owner,),
    )
    return _session_of(rows[0]) if rows else None


def list_sessions(owner: CallerId | None, limit: int) -> Script[list[TrailSession]]:
    """Return the newest sessions, the newest first."""
    rows = yield Statement(
        f"SELECT {_SESSION} FROM trail_sessions WHERE (owner = ?1 OR CAST(?1 AS TEXT) IS NULL)"
        f" ORDER BY number DESC LIMIT {int(limit)}",
        (owner,),
    )
    return [_session_of(row) for row in rows]


def list_names(after: int, limit: int) -> Script[list[tuple[int, str, str]]]:
    """Return number, owner and name of the newest sessions past a number, the newest first."""
    rows = yield Statement(
        f"SELECT number, owner, name FROM trail_sessions WHERE number > ?1 ORDER BY number DESC LIMIT {int(limit)}",
        (after,),
    )
    return [(number, owner, name) for number, owner, name in rows]


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedCall:
    """A call whose result is in the audit and not in its session: its gateway was killed."""

    session: int
    owner: CallerId
    name: str
    hash: str
    call_id: str
    outcome: str
    code: str | None
    duration_ms: float
    result: str | None


def list_ended_calls(limit: int) -> Script[list[EndedCall]]:
    """Return calls without a result, of which the audit knows what became of them."""
    rows = yield Statement(
        "SELECT r.session, s.owner, s.name, r.hash, r.call_id, a.outcome, a.code, a.duration_ms, a.result"
        " FROM trail_records r JOIN trail_sessions s ON s.number = r.session JOIN audit a ON a.call_id = r.call_id"
        # By the index alone: there may be millions, and this runs at every start. Each attempt of a call has two records, so
        # that one without a result makes their number odd.
        " WHERE r.kind = 'call' AND r.call_id IN (SELECT call_id FROM trail_records WHERE call_id IS NOT NULL"
        " GROUP BY call_id HAVING (count(*) & 1) = 1)"
        f" ORDER BY r.session, r.seq LIMIT {int(limit)}"
    )
    names = EndedCall.__dataclass_fields__
    found = [EndedCall(**dict(zip(names, row, strict=True))) for row in rows]
    answered: set[str] = set()
    if found:
        calls = sorted({call.call_id for call in found})
        rows = yield Statement(
            f"SELECT body FROM trail_records WHERE kind = 'result' AND call_id IN ({marks(len(calls))})", tuple(calls)
        )
        answered = {msgspec.json.decode(body)["call"] for (body,) in rows}
    return [call for call in found if call.hash not in answered]


def list_of_task(owner: CallerId | None, task: str | None, after: int, limit: int) -> Script[list[TrailSession]]:
    """Return the sessions of an owner, all or those with records of a task, past a session, the oldest first."""
    rows = yield Statement(
        f"SELECT {_SESSION} FROM trail_sessions WHERE (owner = ?1 OR CAST(?1 AS TEXT) IS NULL) AND number > ?2"
        " AND (CAST(?3 AS TEXT) IS NULL OR task_id = ?3 OR EXISTS (SELECT 1 FROM trail_records r"
        " WHERE r.session = number AND r.task_id = ?3))"
        f" ORDER BY number LIMIT {int(limit)}",
        (owner, after, task),
    )
    return [_session_of(row) for row in rows]


def read_records(session: int, after: int, limit: int, upto: int | None = None) -> Script[list[Record]]:
    """Return records of a session past a seq, in order."""
    rows = yield Statement(
        f"SELECT {_RECORD} FROM trail_records WHERE session = ?1 AND seq > ?2 AND seq <= ?3 ORDER BY seq LIMIT {int(limit)}",
        (session, after, 2**62 if upto is None else upto),
    )
    return [_record_of(row) for row in rows]


def list_records(
    owner: CallerId, session: int | None, task: str | None, kinds: Sequence[str], after: tuple[int, int], limit: int
) -> Script[list[tuple[str, Record]]]:
    """Return records of an owner in order, each with the id of its session."""
    columns = ", ".join(f"r.{name}" for name in _RECORD.split(", "))
    rows = yield Statement(
        f"SELECT s.id, {columns} FROM trail_records r JOIN trail_sessions s ON s.number = r.session"
        " WHERE s.owner = ?1 AND (CAST(?2 AS BIGINT) IS NULL OR r.session = ?2)"
        " AND (CAST(?3 AS TEXT) IS NULL OR r.task_id = ?3)"
        " AND (r.session > ?4 OR (r.session = ?4 AND r.seq > ?5))"
        f" AND r.kind IN ({marks(len(kinds), after=5)})"
        f" ORDER BY r.session, r.seq LIMIT {int(limit)}",
        (owner, session, task, *after, *kinds),
    )
    return [(row[0], _record_of(row[1:])) for row in rows]


def find_records(owner: CallerId | None, session: int | None, names: Sequence[str]) -> Script[dict[str, Record]]:
    """Return the records that these names mean: hashes of records, or ids of calls; those that are not there are left out."""
    if not names:
        return {}
    columns = ", ".join(f"r.{name}" for name in _RECORD.split(", "))
    found: dict[str, Record] = {}
    for column in ("hash", "call_id"):
        rows = yield Statement(
            f"SELECT {columns} FROM trail_records r JOIN trail_sessions s ON s.number = r.session"
            f" WHERE r.{column} IN ({marks(len(names), after=2)}) AND (CAST(?1 AS TEXT) IS NULL OR s.owner = ?1)"
            " AND (CAST(?2 AS BIGINT) IS NULL OR r.session = ?2) AND r.kind <> 'result'",
            (owner, session, *names),
        )
        for row in rows:
            record = _record_of(row)
            name = record.hash if column == "hash" else record.call_id
            assert name is not None
            found[name] = record
    return found


def find_session_of_call(owner: CallerId | None, call_id: str) -> Script[TrailSession | None]:
    """Return the session that has recorded a call; None if none has."""
    rows = yield Statement(
        "SELECT s.id, s.owner FROM trail_records r JOIN trail_sessions s ON s.number = r.session"
        " WHERE r.call_id = ?1 AND r.kind = 'call' AND (CAST(?2 AS TEXT) IS NULL OR s.owner = ?2) LIMIT 1",
        (call_id, owner),
    )
    return (yield from find_session(CallerId(rows[0][1]), rows[0][0])) if rows else None


def has_decision(owner: CallerId, task: str) -> Script[bool]:
    """Whether an owner has recorded a decision for a task."""
    rows = yield Statement(
        "SELECT 1 FROM trail_records r JOIN trail_sessions s ON s.number = r.session"
        " WHERE r.task_id = ?1 AND r.type = 'decision' AND r.kind = 'thought' AND s.owner = ?2 LIMIT 1",
        (task, owner),
    )
    return bool(rows)


def find_last_decision(owner: CallerId, name: str) -> Script[tuple[int, int]]:
    """Return session and seq of the last decision in the sessions of a name; (0, 0) if there is none."""
    rows = yield Statement(
        "SELECT r.session, r.seq FROM trail_records r JOIN trail_sessions s ON s.number = r.session"
        " WHERE s.owner = ?1 AND s.name = ?2 AND r.kind = 'thought' AND r.type = 'decision'"
        " ORDER BY r.session DESC, r.seq DESC LIMIT 1",
        (owner, name),
    )
    return (rows[0][0], rows[0][1]) if rows else (0, 0)


def read_nodes(session: int, path: Sequence[Range]) -> Script[list[bytes]]:
    """Return the hashes of a proof; raises InvalidRequest if some of what it needs is not in the store."""
    needed = {node for leaves in path for node in nodes_over(leaves)}
    known = yield from read_stored_nodes(session, [node.number for node in needed if node.level])
    leaves_needed = [node.position + 1 for node in needed if not node.level]
    if leaves_needed:
        rows = yield Statement(
            f"SELECT seq, hash FROM trail_records WHERE session = ?1 AND seq IN ({marks(len(leaves_needed), after=1)})",
            (session, *leaves_needed),
        )
        known |= {TreeNode(0, seq - 1).number: hash_leaf(bytes.fromhex(digest)) for seq, digest in rows}
    try:
        return hashes_over(path, known)
    except KeyError as error:
        raise damaged_tree() from error


def read_stored_nodes(session: int, numbers: Sequence[int]) -> Script[dict[int, bytes]]:
    """Return the hashes of nodes above the leaves, by number; those that are not there are left out."""
    if not numbers:
        return {}
    rows = yield Statement(
        f"SELECT number, hash FROM trail_nodes WHERE session = ?1 AND number IN ({marks(len(numbers), after=1)})",
        (session, *numbers),
    )
    return {number: bytes(digest) for number, digest in rows}


def damaged_tree() -> InvalidRequest:
    """Make the error of a proof for which the store has not got what it needs."""
    return InvalidRequest(
        "The proof cannot be made: the Merkle tree in the store does not match the records.",
        hint="run `toolpost trail verify`",
    )


def require_session(owner: CallerId | None, session: str) -> Script[TrailSession]:
    """Return a session by its id; raises NotFound."""
    found = yield from find_session(owner, session)
    if found is None:
        raise NotFound(
            f"There is no session `{session}`.",
            hint="audit_session_start starts one; leave session_id out for your own",
        )
    return found


def resolve_references(owner: CallerId, names: Sequence[str], place: str) -> Script[list[Record]]:
    """Return the records that names refer to, in their order; raises InvalidArguments for one that is not the owner's."""
    found = yield from find_records(owner, None, names)
    for name in names:
        if name not in found:
            raise InvalidArguments(
                f"`{place}` names `{name}`, which is no record and no call of your sessions.",
                hint="name hashes or call ids that thought_record_list shows",
                issues=[{"path": f"/{place}", "keyword": "reference", "message": f"`{name}` is not known"}],
            )
    return [found[name] for name in names]


def _lock(session: int) -> Script[TrailSession]:
    # Writers of a session wait for each other here: each record needs the hash of the one before it.
    rows = yield Statement(f"SELECT {_SESSION} FROM trail_sessions WHERE number = ?1 /*lock*/", (session,))
    if not rows:
        raise NotFound("The session is not in the store any more.", hint="start another one: audit_session_start")
    return _session_of(rows[0])


def _session_of(row: Row) -> TrailSession:
    values = dict(zip(_SESSION.split(", "), row, strict=True))
    return TrailSession(**values | {"peaks": bytes(values["peaks"]), "intent": bytes(values["intent"])})


def _record_of(row: Row) -> Record:
    values = dict(zip(_RECORD.split(", "), row, strict=True))
    content = values["content"]
    return Record(**values | {"content": None if content is None else bytes(content)})
