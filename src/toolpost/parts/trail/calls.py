"""Calls in the trail: each is recorded before it is dispatched, and its outcome before it is answered.

A call belongs to the session that its `_meta` names, else to that of its conversation or its MCP session:

    "_meta": {"dev.toolpost/meta": {"session_id": "work", "follows": "<hash of a decision>"}}
"""

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from toolpost import Caller, CallRequest, CallResult, ErrorCode, InvalidArguments, Next
from toolpost.base import META_KEY, JsonObject, ToolName, redact
from toolpost.contracts import InvalidRequest, digest_of_bytes, quick_digest
from toolpost.parts.trail.records import Draft
from toolpost.parts.trail.service import Trail, context_name, draft_result
from toolpost.parts.trail.settings import TrailSettings

PLUGIN = "trail"


class CallRecorder:
    """A middleware that records calls, and refuses those that need a decision first."""

    def __init__(self, trail: Trail, settings: TrailSettings, *, chosen: Sequence[str] = ()) -> None:
        """`chosen` are plugins that are served alone, whose tools are then listed without their names."""
        self._trail = trail
        self._settings = settings
        self._decisions = settings.decisions
        for plugin in chosen:
            bare = {tool.removeprefix(f"{plugin}__"): argument for tool, argument in self._decisions.items()}
            self._decisions = {**bare, **self._decisions}

    def applies_to_call(self, caller: Caller, tool: ToolName, meta: Mapping[str, Any]) -> bool:
        """Whether a call is recorded, or may need a decision."""
        if tool in self._decisions or _facts(meta):
            return True
        if not self._trail.is_used and self._settings.sessions == "started":
            return False
        name = context_name(caller)
        return name is not None and (self._settings.sessions == "all" or self._trail.may_have_session(caller.id, name))

    async def __call__(self, call: CallRequest, proceed: Next) -> CallResult:
        """Record a call and its result. Raises InvalidRequest for a call that needs a decision and has none."""
        if call.provider == PLUGIN:
            return await proceed(call)
        await self._require_decision(call)
        name = await self._session_of(call)
        if name is None:
            return await proceed(call)
        owner = call.caller.id
        follows = _facts(call.meta).get("follows")
        decision = None if follows is None else await self._trail.find_decision(owner, _text(follows, "follows"))
        draft = Draft(
            # A middleware around this one may run a call again: each attempt is a record of its own.
            once=f"call {call.id} {secrets.token_hex(4)}",
            body={
                "kind": "call",
                "author": owner,
                "call_id": call.id,
                "tool": call.tool,
                "arguments": quick_digest(redact(call.arguments)),
                "follows": None if decision is None else decision.hash,
            },
        )
        # A cancellation waits for it: a record that is committed and not known here would never have a result.
        with anyio.CancelScope(shield=True):
            session, record = await self._trail.append(owner, name, draft, durable=False)
        began = time.monotonic()

        async def end(outcome: str, code: ErrorCode | None, result: str | None = None) -> None:
            draft = draft_result(
                owner,
                call.id,
                record.hash,
                outcome=outcome,
                code=None if code is None else code.value,
                duration_ms=(time.monotonic() - began) * 1000,
                result=result,
            )
            # Also for a call that is being cancelled: it has been recorded, and so has what became of it to be.
            with anyio.CancelScope(shield=True):
                await self._trail.end_call(session.number, owner, name, draft)

        try:
            result = await proceed(call)
        except (Exception, asyncio.CancelledError) as error:
            await end(*call.outcome_of(error))
            raise
        encoded = getattr(result.origin, "encoded", None)
        digest = digest_of_bytes(encoded) if encoded is not None else quick_digest(redact(result.data))
        await end("error" if result.is_error else "ok", ErrorCode.HANDLER_ERROR if result.is_error else None, digest)
        return result

    async def _session_of(self, call: CallRequest) -> str | None:
        if (given := _facts(call.meta).get("session_id")) is not None:
            return (await self._trail.find(call.caller.id, _text(given, "session_id"))).name
        name = context_name(call.caller)
        if name is None:
            return None
        is_recorded = self._settings.sessions == "all" or await self._trail.has_session(call.caller.id, name)
        return name if is_recorded else None

    async def _require_decision(self, call: CallRequest) -> None:
        if (argument := self._decisions.get(call.tool)) is None:
            return
        task = call.arguments.get(argument)
        if not isinstance(task, str):
            return  # the tool's own schema says what is wrong with it
        # Of this caller: for others its sessions do not exist, and what they decide does not speak for it.
        if not await self._trail.has_decision(call.caller.id, task):
            raise InvalidRequest(
                f"`{call.tool}` needs a decision for the task `{task}`, and you have recorded none.",
                hint=f"record why, then call it again: thought_record with type `decision` and task_id `{task}`",
            )


def _facts(meta: Mapping[str, Any]) -> JsonObject:
    found = meta.get(META_KEY)
    if not isinstance(found, dict) or not ("session_id" in found or "follows" in found):
        return {}
    return found


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value or len(value) > 256 or "\0" in value:
        raise InvalidArguments(
            f"`{name}` in `_meta` must be a text.",
            hint="name a session, or the hash of a decision, in at most 256 characters",
            issues=[{"path": f"/_meta/{META_KEY}/{name}", "keyword": "type", "message": "must be a text"}],
        )
    return value
