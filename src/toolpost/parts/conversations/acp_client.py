"""What an agent is told when it asks: its updates are passed on, its questions answered by policy, anything else refused."""

import asyncio
import logging
import re
from typing import Any, Final

import pydantic
from acp import schema

from toolpost.base.events import event
from toolpost.base.turns import AgentEvent, TextChunk, ThoughtChunk, ToolUsed
from toolpost.parts.conversations.agent import Permissions
from toolpost.parts.conversations.gateway_server import PREFIX

_log = logging.getLogger("toolpost.parts.conversations")

_LOOKING: Final = frozenset({"read", "search", "think"})
_OURS: Final = re.compile(re.escape(PREFIX) + r"[A-Za-z0-9_-]+")
_STATES: Final = {"completed": "done", "failed": "failed"}


class AcpClient:
    """This side of a session."""

    def __init__(self, permissions: Permissions) -> None:
        self._permissions = permissions
        self._heard: asyncio.Queue[AgentEvent | None] | None = None
        self._tools: dict[str, str] = {}

    def listen(self) -> "asyncio.Queue[AgentEvent | None]":
        """Pass on what comes from now on; None is put by whoever knows of the end."""
        self._heard = asyncio.Queue()
        self._tools.clear()
        return self._heard

    def listen_no_more(self) -> None:
        """Let go of whatever still comes: it belongs to a turn that has ended."""
        self._heard = None

    def hear(self, params: Any) -> None:
        """Hear what the agent says and does. What this side does not know is passed over: the protocol grows."""
        if self._heard is None:
            return
        try:
            update = schema.SessionNotification.model_validate(params).update
        except pydantic.ValidationError as error:
            event(_log, logging.DEBUG, "agent told what is not known", reason=str(error.errors()[0]["msg"])[:500])
            return
        if (told := self._event(update)) is not None:
            self._heard.put_nowait(told)

    async def request_permission(
        self,
        session_id: str,  # noqa: ARG002 (one session only)
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **_: Any,
    ) -> schema.RequestPermissionResponse:
        """Answer by policy, for this one time."""
        wanted = "allow_once" if self._may(tool_call) else "reject_once"
        choice = next((option for option in options if option.kind == wanted), None)
        if choice is None:
            choice = next(
                (option for option in options if option.kind.split("_")[0] == wanted.split("_", maxsplit=1)[0]), None
            )
        if choice is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        chosen = schema.AllowedOutcome(outcome="selected", option_id=choice.option_id)
        return schema.RequestPermissionResponse(outcome=chosen)

    def _may(self, tool_call: schema.ToolCallUpdate) -> bool:
        if self._permissions == "allow":
            return True
        title = tool_call.title or self._tools.get(tool_call.tool_call_id, "")
        if tool_call.kind in (None, "other") and _OURS.fullmatch(title):
            return True  # The gateway asks who calls, and decides by itself.
        return self._permissions == "read" and tool_call.kind in _LOOKING

    def _event(self, update: Any) -> AgentEvent | None:
        if isinstance(update, schema.AgentMessageChunk | schema.AgentThoughtChunk):
            text = _text_of(update.content)
            if not text:
                return None
            return TextChunk(text=text) if isinstance(update, schema.AgentMessageChunk) else ThoughtChunk(text=text)
        if isinstance(update, schema.ToolCallStart | schema.ToolCallProgress):
            return self._tool(update)
        return None

    def _tool(self, update: schema.ToolCallStart | schema.ToolCallProgress) -> ToolUsed:
        name = self._tools.setdefault(update.tool_call_id, update.title or "tool")
        return ToolUsed(
            id=update.tool_call_id,
            tool=name,
            state=_STATES.get(update.status or "", "running"),  # type: ignore[arg-type]
            arguments=update.raw_input,
            result=_content_of(update),
        )


def _text_of(block: Any) -> str:
    if isinstance(block, schema.TextContentBlock):
        return block.text
    if isinstance(block, schema.ResourceContentBlock):
        return f"[{block.name}]({block.uri})"
    return ""


def _content_of(update: schema.ToolCallStart | schema.ToolCallProgress) -> str | None:
    texts = [
        _text_of(entry.content) for entry in update.content or () if isinstance(entry, schema.ContentToolCallContent)
    ]
    if texts:
        return "\n".join(texts)
    return update.raw_output if isinstance(update.raw_output, str) else None
