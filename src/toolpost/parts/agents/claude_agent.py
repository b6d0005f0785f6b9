"""Claude through the Claude Agent SDK.

The SDK speaks the protocol, and `agent_process` runs the program instead of the SDK, so that its whole process tree ends with the
session and its output is limited.
"""

import logging
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    StreamEvent,
    TextBlock,
    ThinkingBlock,
    ToolPermissionContext,
    ToolResultBlock,
    ToolUseBlock,
    Transport,
    UserMessage,
)

from toolpost import ToolFailed
from toolpost.base import JsonObject, event
from toolpost.parts.agents.agent import AgentGone, AgentSpec, Permissions, SessionOptions
from toolpost.parts.agents.agent_process import AgentProcess, open_agent_process
from toolpost.parts.agents.gateway_server import NAME, PREFIX, make_auth_headers
from toolpost.parts.agents.ids import AgentSessionId
from toolpost.parts.agents.turn_events import AgentEnd, AgentEvent, TextChunk, ThoughtChunk, ToolUsed

_log = logging.getLogger("toolpost.parts.agents")

_FLAGS: Final = (
    *("--output-format", "stream-json", "--input-format", "stream-json", "--verbose", "--include-partial-messages"),
    *("--permission-prompt-tool", "stdio"),
)
_READ_ONLY_TOOLS: Final = frozenset({"Read", "Glob", "Grep", "LS", "NotebookRead", "TodoRead", "TodoWrite"})
_CLOSE_S: Final = 2.0


class ClaudeAgent:
    """Claude Code, or a program with the same protocol."""

    def __init__(self, spec: AgentSpec) -> None:
        self._spec = spec

    @asynccontextmanager
    async def open(self, session_options: SessionOptions) -> AsyncIterator["ClaudeSession"]:
        """Start the program; if it cannot resume the session, start it again with a new one."""
        # A stack, because the `yield` may not be inside the `try`: it would catch errors of the turn.
        async with AsyncExitStack() as stack:
            session: ClaudeSession | None = None
            if session_options.resume is not None:
                try:
                    session = await stack.enter_async_context(self._open(session_options))
                except (AgentGone, ToolFailed) as error:
                    event(
                        _log,
                        logging.INFO,
                        "session could not be resumed",
                        thread=session_options.thread,
                        reason=error.message,
                    )
            if session is None:
                session = await stack.enter_async_context(self._open(replace(session_options, resume=None)))
            yield session

    @asynccontextmanager
    async def _open(self, session_options: SessionOptions) -> AsyncIterator["ClaudeSession"]:
        spec = self._spec
        connecting = anyio.CancelScope()
        is_open = False

        def handle_gone(reason: str) -> None:
            # The SDK would wait a minute for the answer of a process that has ended.
            connecting.cancel()
            if is_open:
                session_options.on_gone(reason)

        with _open_server_file(session_options) as servers:
            command = (*(spec.command or (_find_program(),)), *_FLAGS, *_make_arguments(session_options, servers))
            async with open_agent_process(
                spec.name, command, cwd=session_options.cwd, env=spec.env, on_gone=handle_gone
            ) as process:
                options = ClaudeAgentOptions(
                    can_use_tool=_make_policy(session_options.permissions), cwd=session_options.cwd
                )
                client = ClaudeSDKClient(options, transport=_PipeTransport(process))
                try:
                    with connecting:
                        await _connect(client, process, spec.name)
                    if process.reason is not None:
                        raise process.make_error()
                    is_open = True
                    yield ClaudeSession(client, process, name=spec.name, resumed=session_options.resume)
                finally:
                    is_open = False
                    with anyio.move_on_after(_CLOSE_S, shield=True):
                        await client.disconnect()


class ClaudeSession:
    """A session, and the process that it runs in."""

    def __init__(
        self, client: ClaudeSDKClient, process: AgentProcess, *, name: str, resumed: AgentSessionId | None
    ) -> None:
        self._client = client
        self._process = process
        self._name = name
        self._is_cancelled = False
        self.id = resumed
        self.is_resumed = resumed is not None

    async def prompt(self, text: str) -> AsyncGenerator[AgentEvent, None]:
        self._is_cancelled = False
        reader = _MessageReader()
        try:
            await self._client.query(text)
            async for message in self._client.receive_response():
                for agent_event in reader.parse(message):
                    yield agent_event
                if isinstance(message, ResultMessage):
                    yield self._make_end(message)
        except (ClaudeSDKError, anyio.ClosedResourceError) as error:
            # The pool closes the session once the process is gone, which may be before the rest of the answer is read.
            raise self._process.make_error() from error
        if self._process.reason is not None:
            raise self._process.make_error()

    async def cancel(self) -> None:
        self._is_cancelled = True
        await self._client.interrupt()

    async def ping(self) -> None:
        """Check that the process runs: the SDK has no ping."""
        if self._process.reason is not None or self._process.process.returncode is not None:
            raise self._process.make_error()

    def _make_end(self, result: ResultMessage) -> AgentEnd:
        self.id = AgentSessionId(result.session_id)
        if self._is_cancelled:
            return AgentEnd(reason="cancelled", session=self.id, usage=result.usage)
        if result.subtype == "error_max_turns":
            return AgentEnd(reason="limit", session=self.id, usage=result.usage)
        if result.is_error:
            raise ToolFailed(f"The agent `{self._name}` failed: {result.result or result.subtype}.")
        return AgentEnd(session=self.id, usage=result.usage)


class _PipeTransport(Transport):
    """Carries the SDK's messages on an agent's pipes; `open_agent_process` opens and closes the process."""

    def __init__(self, process: AgentProcess) -> None:
        self._process = process

    async def connect(self) -> None:
        """Do nothing: the process runs already."""

    async def write(self, data: str) -> None:
        self._process.send(data.strip().encode())

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        while (message := await self._process.receive()) is not None:
            yield message

    async def close(self) -> None:
        """Do nothing: `open_agent_process` closes the process."""

    def is_ready(self) -> bool:
        return self._process.reason is None

    async def end_input(self) -> None:
        """Do nothing: later prompts need the input."""


class _MessageReader:
    """Converts the messages of one answer to events.

    The SDK streams pieces of a text and then sends the whole block again; a block is skipped if its pieces were passed on.
    """

    def __init__(self) -> None:
        self._has_pieces = False
        self._tools: dict[str, str] = {}

    def parse(self, message: Any) -> list[AgentEvent]:
        """Return the events of a message; empty if there is nothing new in it."""
        if isinstance(message, StreamEvent):
            return self._parse_piece(message.event)
        if isinstance(message, AssistantMessage):
            events = [found for block in message.content if (found := self._parse_block(block)) is not None]
            self._has_pieces = False
            return events
        if isinstance(message, UserMessage) and isinstance(message.content, list):
            return [self._parse_result(block) for block in message.content if isinstance(block, ToolResultBlock)]
        return []

    def _parse_piece(self, raw: JsonObject) -> list[AgentEvent]:
        delta = raw.get("delta") or {}
        if raw.get("type") != "content_block_delta":
            return []
        self._has_pieces = True
        if delta.get("type") == "text_delta":
            return [TextChunk(text=delta["text"])]
        return [ThoughtChunk(text=delta["thinking"])] if delta.get("type") == "thinking_delta" else []

    def _parse_block(self, block: Any) -> AgentEvent | None:
        if isinstance(block, ToolUseBlock):
            self._tools[block.id] = block.name.removeprefix(PREFIX)
            return ToolUsed(id=block.id, tool=self._tools[block.id], state="running", arguments=block.input)
        if self._has_pieces:
            return None
        if isinstance(block, TextBlock):
            return TextChunk(text=block.text)
        return ThoughtChunk(text=block.thinking) if isinstance(block, ThinkingBlock) else None

    def _parse_result(self, block: ToolResultBlock) -> AgentEvent:
        name = self._tools.get(block.tool_use_id, "tool")
        state: Any = "failed" if block.is_error else "done"
        return ToolUsed(id=block.tool_use_id, tool=name, state=state, result=_text_of(block.content))


async def _connect(client: ClaudeSDKClient, process: AgentProcess, name: str) -> None:
    try:
        await client.connect()
    except AgentGone:
        raise
    except Exception as error:
        if process.reason is not None:
            raise process.make_error() from error
        raise ToolFailed(f"The agent `{name}` could not be opened: {error}.") from error


def _make_arguments(session_options: SessionOptions, servers: Path | None) -> list[str]:
    arguments = ["--allowedTools", f"mcp__{NAME}"]
    if servers is not None:
        arguments += ["--mcp-config", str(servers), "--strict-mcp-config"]
    if session_options.model is not None:
        arguments += [f"--model={session_options.model}"]
    # One argument, so that an id that begins with `-` is not parsed as a flag.
    return [*arguments, f"--resume={session_options.resume}"] if session_options.resume is not None else arguments


@contextmanager
def _open_server_file(session_options: SessionOptions) -> Any:
    """Write the gateway's URL and token to a file that only this user can read; None without a gateway.

    Arguments would do too, but every user of the machine can see those of a process.
    """
    if (access := session_options.gateway) is None:
        yield None
        return
    server = {"type": "http", "url": access.url, "headers": make_auth_headers(access)}
    number, path = tempfile.mkstemp(prefix="toolpost-", suffix=".json")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(msgspec.json.encode({"mcpServers": {NAME: server}}))
        yield Path(path)
    finally:
        Path(path).unlink(missing_ok=True)


def _make_policy(permissions: Permissions) -> Any:
    async def decide(
        tool: str, arguments: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        del arguments, context
        # The gateway checks the caller of its own tools itself.
        if permissions == "allow" or tool.startswith(PREFIX) or (permissions == "read" and tool in _READ_ONLY_TOOLS):
            return PermissionResultAllow()
        return PermissionResultDeny(message=f"This conversation may not use {tool}.")

    return decide


def _find_program() -> str:
    """Return the program that is bundled with the SDK, else the one on the PATH."""
    found = find_spec("claude_agent_sdk")
    folder = Path(found.origin).parent if found is not None and found.origin else Path()
    bundled = folder / "_bundled" / ("claude.exe" if os.name == "nt" else "claude")
    return str(bundled) if bundled.is_file() else "claude"


def _text_of(content: Any) -> str | None:
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else None
