"""`trail__thought_record` and its siblings: the decision trail as tools."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from toolpost import Context, ErrorCode, InvalidArguments, Plugin, __version__
from toolpost.base import JsonObject
from toolpost.parts.trail.records import Record, TrailSession
from toolpost.parts.trail.service import ChainVerdict, Thought, Trail, context_name
from toolpost.parts.trail.turns import require_decisions

CONTENT_LIMIT: Final = 64 * 1024
LIST_LIMIT: Final = 50

_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 128, "pattern": r"^[^\x00-\x1f\x7f]+$"}
_SESSION: Final = _NAME | {
    "description": "The session; without it, that of your conversation or MCP session, else the one you started last"
}
_TASK: Final = {"type": "string", "minLength": 1, "maxLength": 256, "pattern": r"^[^\x00-\x1f\x7f]+$"}
_HASH: Final = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_MOMENT: Final = {"type": "string", "format": "date-time"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_SEQ: Final = {"type": "integer", "minimum": 1}
_OPTIONAL: Final = {"type": ["string", "null"]}
_TYPES: Final = ["plan", "analysis", "decision", "reflection"]
_LOOKS: Final = {"readOnlyHint": True, "openWorldHint": False}
_ADDS: Final = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}


def _object(required: list[str], **properties: Any) -> JsonObject:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_RECORD: Final = _object(
    ["session_id", "seq", "kind", "author", "at", "hash", "prev_hash"],
    session_id={"type": "string"},
    seq=_SEQ,
    kind={"enum": ["thought", "call", "result"]},
    author={"type": "string", "description": "the caller, as the gateway knows it"},
    at=_MOMENT,
    hash=_HASH,
    prev_hash=_HASH,
    type={"enum": _TYPES},
    task_id=_OPTIONAL,
    agent_id={"type": "string", "description": "the author, as it calls itself"},
    content={"type": "string"},
    references={"type": "array", "items": _HASH},
    call_id={"type": "string"},
    tool={"type": "string"},
    arguments={"type": "string", "description": "the digest of the arguments, as in the audit"},
    follows={"type": ["string", "null"], "description": "the hash of the decision that the call follows from"},
    outcome={"enum": ["ok", "error", "refused", "cancelled", "lost"]},
    code=_OPTIONAL,
    duration_ms=_COUNT,
    result={"type": ["string", "null"], "description": "the digest of the result, as in the audit"},
    call={"type": "string", "description": "the hash of the call that it is the result of"},
)
_SEAL: Final[JsonObject] = {
    "finalized_at": _MOMENT,
    "signature": {"type": "string", "description": "Ed25519 over the seal, in base64"},
    "public_key": _HASH,
    "seal": {"type": "string", "description": "what was signed, byte for byte"},
    "removed_at": _MOMENT | {"description": "when retention removed the records"},
}


def trail_plugin(trail: Trail, deciding_agents: Sequence[str] = ()) -> Plugin:
    """Make the plugin that runs the tools on the trail of a store; these agents must decide in each turn."""
    plugin = Plugin("trail", version=__version__, description="Decision trail: plans, decisions and calls, provable.")
    _add_records(plugin, trail)
    _add_proofs(plugin, trail)
    if deciding_agents:
        require_decisions(plugin, trail, deciding_agents)
    return plugin


def _add_records(plugin: Plugin, trail: Trail) -> None:
    @plugin.tool(
        title="Start a session",
        description="Start a session of the decision trail; thoughts and calls are recorded in it. One that is open goes on.",
        input_schema=_object(
            ["intent"],
            intent={"type": "string", "maxLength": 4096, "description": "What is to be done"},
            task_id=_TASK,
            session_id=_NAME | {"description": "A name of your own for it"},
        ),
        output_schema=_object(
            ["session_id", "intent", "task_id", "started_at"],
            session_id={"type": "string"},
            intent={"type": "string"},
            task_id=_OPTIONAL,
            started_at=_MOMENT,
            hash=_HASH,
            continues={"type": ["object", "null"]},
        ),
        annotations=_ADDS | {"idempotentHint": True},
        errors=[ErrorCode.INVALID_PARAMS],
    )
    async def audit_session_start(arguments: JsonObject, context: Context) -> JsonObject:
        name = arguments.get("session_id") or context_name(context.caller)
        session = await trail.start(context.caller.id, name, _text(arguments, "intent"), arguments.get("task_id"))
        header = session.header_json
        return {
            "session_id": session.id,
            "intent": session.intent.decode(),
            "task_id": session.task_id,
            "started_at": header["started_at"],
            "hash": session.start,
            "continues": header["continues"],
        }

    @plugin.tool(
        title="Record a thought",
        description=(
            "Record a plan, an analysis, a decision or a reflection, chained to what was recorded before. Name the calls that"
            " a decision is based on in `references`. After a session was finalized, the next one begins."
        ),
        input_schema=_object(
            ["type", "agent_id", "content"],
            type={"enum": _TYPES},
            task_id=_TASK,
            agent_id=_NAME | {"description": "What you call yourself"},
            content={"type": "string", "minLength": 1, "maxLength": CONTENT_LIMIT},
            references={
                "type": "array",
                "items": _NAME,
                "maxItems": 100,
                "uniqueItems": True,
                "description": "Hashes of records, or ids of calls, that it is based on",
            },
            session_id=_SESSION,
        ),
        output_schema=_RECORD,
        annotations=_ADDS | {"idempotentHint": False},
        errors=[ErrorCode.NOT_FOUND, ErrorCode.INVALID_PARAMS],
    )
    async def thought_record(arguments: JsonObject, context: Context) -> JsonObject:
        thought = Thought(
            type=arguments["type"],
            task_id=arguments.get("task_id"),
            agent_id=arguments["agent_id"],
            content=_text(arguments, "content"),
            references=tuple(arguments.get("references", ())),
        )
        session, record = await trail.record(context.caller, thought, arguments.get("session_id"))
        return render_record(session.id, record)

    @plugin.tool(
        title="List records",
        description="List what you have recorded, in order: thoughts, and with `kind` also calls and their results.",
        input_schema=_object(
            [],
            task_id=_TASK,
            session_id=_NAME,
            kind={"enum": ["thought", "call", "all"], "default": "thought"},
            limit={"type": "integer", "minimum": 1, "maximum": 500, "default": LIST_LIMIT},
            cursor={"type": "string", "maxLength": 100, "description": "the `next_cursor` of the last answer"},
        ),
        output_schema=_object(["records"], records={"type": "array", "items": _RECORD}, next_cursor={"type": "string"}),
        annotations=_LOOKS,
        errors=[ErrorCode.NOT_FOUND, ErrorCode.INVALID_PARAMS],
    )
    async def thought_record_list(arguments: JsonObject, context: Context) -> JsonObject:
        kinds = {"thought": ["thought"], "call": ["call", "result"], "all": ["thought", "call", "result"]}
        limit = arguments.get("limit", LIST_LIMIT)
        found = await trail.list(
            context.caller.id,
            session_id=arguments.get("session_id"),
            task_id=arguments.get("task_id"),
            kinds=kinds[arguments.get("kind", "thought")],
            after=_parse_cursor(arguments["cursor"]) if "cursor" in arguments else (0, 0),
            limit=limit,
        )
        answer: JsonObject = {"records": [render_record(session, record) for session, record in found]}
        if len(found) == limit:
            last = found[-1][1]
            answer["next_cursor"] = urlsafe_b64encode(msgspec.json.encode((last.session, last.seq))).decode()
        return answer


def _add_proofs(plugin: Plugin, trail: Trail) -> None:
    @plugin.tool(
        title="Verify the chain",
        description="Verify your sessions: every hash, every author, every link, every seal. One session, or those of a task.",
        input_schema=_object([], task_id=_TASK, session_id=_NAME),
        output_schema=_object(
            ["valid", "broken_count", "record_count"],
            valid={"type": "boolean"},
            broken_count=_COUNT,
            record_count=_COUNT,
            first_broken_at=_COUNT | {"description": "the seq of the first broken record; 0 is the session's header"},
            session_id={"type": "string", "description": "its session"},
            reason={"type": "string"},
            removed_count=_COUNT
            | {"description": "further records, which retention removed: their seals are verified"},
        ),
        annotations=_LOOKS,
        errors=[ErrorCode.NOT_FOUND],
    )
    async def audit_verify_chain(arguments: JsonObject, context: Context) -> JsonObject:
        owner = context.caller.id
        if "session_id" in arguments:
            verdict = await trail.verify(await trail.find(owner, arguments["session_id"]))
        else:
            verdict = await trail.verify_all(owner, arguments.get("task_id"))
        return render_verdict(verdict)

    @plugin.tool(
        title="Finalize a session",
        description="Seal a session for good: its Merkle root, size and time are signed. Later records begin a new one.",
        input_schema=_object([], session_id=_SESSION),
        output_schema=_object(
            ["session_id", "root", "size", "finalized_at", "signature", "public_key", "seal"],
            session_id={"type": "string"},
            root=_HASH,
            size=_SEQ,
            **_SEAL,
        ),
        annotations=_ADDS | {"idempotentHint": True},
        errors=[ErrorCode.NOT_FOUND, ErrorCode.INVALID_REQUEST],
    )
    async def merkle_finalize(arguments: JsonObject, context: Context) -> JsonObject:
        session = await trail.find_current(context.caller, arguments.get("session_id"))
        return render_root(await trail.seal(session))

    @plugin.tool(
        title="Merkle root",
        description="The Merkle root (RFC 6962) of a session as it is now; with its seal, if it was finalized.",
        input_schema=_object([], session_id=_SESSION),
        output_schema=_object(
            ["session_id", "root", "size"], session_id={"type": "string"}, root=_HASH, size=_COUNT, **_SEAL
        ),
        annotations=_LOOKS,
        errors=[ErrorCode.NOT_FOUND],
    )
    async def merkle_root(arguments: JsonObject, context: Context) -> JsonObject:
        return render_root(await trail.find_current(context.caller, arguments.get("session_id")))

    # Not `oneOf` in the schema: several models refuse a schema with that at its root, and all tools of the request with it.
    @plugin.tool(
        schema_version=2,
        title="Merkle proof",
        description=(
            "Prove that a `record` (its seq, its hash, or the id of a call) is in a session, or that the `first` records are"
            " still what they were when there were so many."
        ),
        input_schema=_object(
            [],
            session_id=_SESSION,
            record={"anyOf": [_SEQ, _NAME], "description": "either this"},
            first=_SEQ | {"description": "or this"},
            size=_SEQ | {"description": "in the tree of so many records; without it, of all"},
        ),
        output_schema=_object(
            ["kind", "session_id", "size", "root", "proof"],
            kind={"enum": ["inclusion", "consistency"]},
            session_id={"type": "string"},
            size=_SEQ,
            root=_HASH,
            proof={"type": "array", "items": _HASH},
            seq=_SEQ,
            record_hash=_HASH,
            first=_SEQ,
            first_root=_HASH,
        ),
        annotations=_LOOKS,
        errors=[ErrorCode.NOT_FOUND, ErrorCode.INVALID_PARAMS],
    )
    async def merkle_proof(arguments: JsonObject, context: Context) -> JsonObject:
        if ("record" in arguments) == ("first" in arguments):
            raise InvalidArguments(
                "Name a `record`, or how many `first` records: one of the two.",
                hint='send {"record": 7}, or {"first": 5}',
                issues=[{"path": "", "keyword": "oneOf", "message": "must have `record` or `first`, and not both"}],
            )
        session = await trail.find_current(context.caller, arguments.get("session_id"))
        if "record" in arguments:
            return await trail.prove_inclusion(session, arguments["record"], arguments.get("size"))
        return await trail.prove_consistency(session, arguments["first"], arguments.get("size"))


def render_record(session: str, record: Record) -> JsonObject:
    """Show a record: what was hashed, its hash, and its content instead of the commitment to it."""
    shown = record.body_json
    shown.pop("v")
    shown["prev_hash"] = shown.pop("prev")
    shown |= {"session_id": session, "hash": record.hash}
    if record.kind == "thought":
        shown["content"] = (record.content or b"").decode()
    return shown


def render_root(session: TrailSession) -> JsonObject:
    """Show the root of a session, and its seal."""
    shown: JsonObject = {"session_id": session.id, "root": session.root, "size": session.size}
    if (seal := session.seal_json) is not None:
        shown |= {
            "finalized_at": seal["sealed_at"],
            "signature": session.signature,
            "public_key": session.public_key,
            "seal": session.seal,
        }
    return shown if session.removed_at is None else shown | {"removed_at": session.removed_at}


def render_session(session: TrailSession) -> JsonObject:
    """Show a session, without its records."""
    return {
        **render_root(session),
        "caller": session.owner,
        "intent": session.intent.decode(),
        "task_id": session.task_id,
        "started_at": session.header_json["started_at"],
    }


def render_verdict(verdict: ChainVerdict) -> JsonObject:
    """Show what became of verifying sessions, and where the first break is."""
    shown: JsonObject = {
        "valid": verdict.is_valid,
        "broken_count": verdict.broken_count,
        "record_count": verdict.record_count,
    }
    if not verdict.is_valid:
        shown |= {
            "first_broken_at": verdict.first_broken_at,
            "session_id": verdict.session_id,
            "reason": verdict.reason,
        }
    return shown | {"removed_count": verdict.removed_count} if verdict.removed_count else shown


def _text(arguments: JsonObject, name: str) -> str:
    """Return a text; one that cannot be written as UTF-8 is refused, as it could not be hashed."""
    text: str = arguments[name]
    if re.search("[\ud800-\udfff]", text):
        raise InvalidArguments(
            f"`{name}` has half of a surrogate pair, which is no character.",
            hint="send the text as UTF-8, without escapes of single surrogates",
            issues=[{"path": f"/{name}", "keyword": "unicode", "message": "must be Unicode"}],
        )
    return text


def _parse_cursor(cursor: str) -> tuple[int, int]:
    try:
        session, seq = msgspec.json.decode(urlsafe_b64decode(cursor.encode()), type=tuple[int, int])
        if not (0 <= session < 2**62 and 0 <= seq < 2**62):
            raise ValueError("out of range")
    except (ValueError, msgspec.DecodeError) as error:
        raise InvalidArguments(
            "`cursor` is not one that `thought_record_list` gave.",
            hint="send the `next_cursor` of an answer as it is, or none to begin with the oldest",
            issues=[{"path": "/cursor", "keyword": "format", "message": "must be a `next_cursor`"}],
        ) from error
    return session, seq
