"""The client side of an ACP session: turns updates of the agent into events, and answers its permission requests by policy."""

import asyncio
import logging
import re
from typing import Any, Final

import pydantic
from acp import schema

from toolpost.base import event
from toolpost.parts.agents.agent import Permissions
from toolpost.parts.agents.gateway_server import PREFIX
from toolpost.parts.agents.turn_events import AgentEvent, TextChunk, ThoughtChunk, ToolUsed

_log = logging.getLogger("toolpost.parts.agents")

_READ_ONLY_KINDS: Final = frozenset({"read", "search", "think"})
_GATEWAY_TOOL: Final = re.compile(re.escape(PREFIX) + r"[A-Za-z0-9_-]+")
_STATES: Final = {"completed": "done", "failed": "failed"}


class AcpClient:
    """Receives the updates and requests of one session."""

    def __init__(self, permissions: Permissions) -> None:
        self._permissions = permissions
        self._events: asyncio.Queue[AgentEvent | None] | None = None
        self._tools: dict[str, str] = {}

    def start_turn(self) -> "asyncio.Queue[AgentEvent | None]":
        """Return a queue of the events from now on; the caller puts None into it at the end of the turn."""
        self._events = asyncio.Queue()
        self._tools.clear()
        return self._events

    def end_turn(self) -> None:
        """Drop updates from now on: they belong to a turn that has ended."""
        self._events = None

    def handle_update(self, params: Any) -> None:
        """Queue the event of a `session/update`. Unknown updates are ignored: newer versions of ACP may add some."""
        if self._events is None:
            return
        try:
            update = schema.SessionNotification.model_validate(params).update
        except pydantic.ValidationError as error:
            event(_log, logging.DEBUG, "agent sent an unknown update", reason=str(error.errors()[0]["msg"])[:500])
            return
        if (agent_event := self._parse_update(update)) is not None:
            self._events.put_nowait(agent_event)

    async def request_permission(
        self,
        session_id: str,  # noqa: ARG002 (one session only)
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **_: Any,
    ) -> schema.RequestPermissionResponse:
        """Choose `allow_once` or `reject_once`, by policy; if that is not offered, `allow_always` or `reject_always`."""
        kind = "allow_once" if self._is_allowed(tool_call) else "reject_once"
        choice = next((option for option in options if option.kind == kind), None)
        if choice is None:
            prefix = kind.removesuffix("once")
            choice = next((option for option in options if option.kind.startswith(prefix)), None)
        if choice is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        chosen = schema.AllowedOutcome(outcome="selected", option_id=choice.option_id)
        return schema.RequestPermissionResponse(outcome=chosen)

    def _is_allowed(self, tool_call: schema.ToolCallUpdate) -> bool:
        if self._permissions == "allow":
            return True
        title = tool_call.title or self._tools.get(tool_call.tool_call_id, "")
        if tool_call.kind in (None, "other") and _GATEWAY_TOOL.fullmatch(title):
            return True  # The gateway checks the caller itself.
        return self._permissions == "read" and tool_call.kind in _READ_ONLY_KINDS

    def _parse_update(self, update: Any) -> AgentEvent | None:
        if isinstance(update, schema.AgentMessageChunk | schema.AgentThoughtChunk):
            text = _text_of(update.content)
            if not text:
                return None
            return TextChunk(text=text) if isinstance(update, schema.AgentMessageChunk) else ThoughtChunk(text=text)
        if isinstance(update, schema.ToolCallStart | schema.ToolCallProgress):
            return ToolUsed(
                id=update.tool_call_id,
                tool=self._tools.setdefault(update.tool_call_id, update.title or "tool"),
                state=_STATES.get(update.status or "", "running"),  # type: ignore[arg-type]
                arguments=update.raw_input,
                result=_result_of(update),
            )
        return None


def _text_of(block: Any) -> str:
    if isinstance(block, schema.TextContentBlock):
        return block.text
    if isinstance(block, schema.ResourceContentBlock):
        return f"[{block.name}]({block.uri})"
    return ""


def _result_of(update: schema.ToolCallStart | schema.ToolCallProgress) -> str | None:
    texts = [
        _text_of(entry.content) for entry in update.content or () if isinstance(entry, schema.ContentToolCallContent)
    ]
    if texts:
        return "\n".join(texts)
    return update.raw_output if isinstance(update.raw_output, str) else None
