"""Claude through its own SDK: the program runs in a process tree of ours, the SDK speaks to it."""

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

from toolpost.base.events import event
from toolpost.base.ids import AgentSessionId, JsonObject
from toolpost.base.turns import AgentEnd, AgentEvent, TextChunk, ThoughtChunk, ToolUsed
from toolpost.contracts.errors import ToolFailed
from toolpost.parts.conversations.agent import AgentGone, AgentSpec, Permissions, SessionOrder
from toolpost.parts.conversations.agent_process import AgentProcess, open_agent_process
from toolpost.parts.conversations.gateway_server import NAME, PREFIX, headers_of

_log = logging.getLogger("toolpost.parts.conversations")

_FLAGS: Final = (
    *("--output-format", "stream-json", "--input-format", "stream-json", "--verbose", "--include-partial-messages"),
    *("--permission-prompt-tool", "stdio"),
)
_LOOKING: Final = frozenset({"Read", "Glob", "Grep", "LS", "NotebookRead", "TodoRead", "TodoWrite"})
_CLOSE_S: Final = 2.0


class ClaudeAgent:
    """Claude Code, or a program that speaks as it does."""

    def __init__(self, spec: AgentSpec) -> None:
        self._spec = spec

    @asynccontextmanager
    async def open(self, order: SessionOrder) -> AsyncIterator["ClaudeSession"]:
        """Start the program; a session that it does not have any more is opened anew."""
        async with AsyncExitStack() as stack:
            session: ClaudeSession | None = None
            if order.resume is not None:
                try:
                    session = await stack.enter_async_context(self._opened(order))
                except (AgentGone, ToolFailed) as error:
                    event(_log, logging.INFO, "session could not be resumed", thread=order.thread, reason=error.message)
            if session is None:
                session = await stack.enter_async_context(self._opened(replace(order, resume=None)))
            yield session

    @asynccontextmanager
    async def _opened(self, order: SessionOrder) -> AsyncIterator["ClaudeSession"]:
        spec = self._spec
        connecting = anyio.CancelScope()
        is_open = False

        def gone(reason: str) -> None:
            # The SDK would wait for an answer for a minute, whether anybody is there or not.
            connecting.cancel()
            if is_open:
                order.on_gone(reason)

        with _server_file(order) as servers:
            command = (*(spec.command or (_find_program(),)), *_FLAGS, *_arguments(order, servers))
            async with open_agent_process(spec.name, command, cwd=order.cwd, env=spec.env, on_gone=gone) as process:
                options = ClaudeAgentOptions(can_use_tool=_make_policy(order.permissions), cwd=order.cwd)
                client = ClaudeSDKClient(options, transport=_PipeTransport(process))
                try:
                    with connecting:
                        await _connect(client, process, spec.name)
                    if process.reason is not None:
                        raise process.error()
                    is_open = True
                    yield ClaudeSession(client, process, name=spec.name, resumed=order.resume)
                finally:
                    is_open = False
                    with anyio.move_on_after(_CLOSE_S, shield=True):
                        await client.disconnect()


class ClaudeSession:
    """One session."""

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
        """Ask, and pass on what comes until the result."""
        self._is_cancelled = False
        reading = _MessageReader()
        try:
            await self._client.query(text)
            async for message in self._client.receive_response():
                for heard in reading.events(message):
                    yield heard
                if isinstance(message, ResultMessage):
                    yield self._end(message)
        except ClaudeSDKError as error:
            raise self._process.error() from error
        if self._process.reason is not None:
            raise self._process.error()

    async def cancel(self) -> None:
        """Tell the agent to stop."""
        self._is_cancelled = True
        await self._client.interrupt()

    async def ping(self) -> None:
        """Return if the process runs."""
        if self._process.reason is not None or self._process.process.returncode is not None:
            raise self._process.error()

    def _end(self, result: ResultMessage) -> AgentEnd:
        self.id = AgentSessionId(result.session_id)
        if self._is_cancelled:
            return AgentEnd(reason="cancelled", session=self.id, usage=result.usage)
        if result.subtype == "error_max_turns":
            return AgentEnd(reason="limit", session=self.id, usage=result.usage)
        if result.is_error:
            raise ToolFailed(f"The agent `{self._name}` failed: {result.result or result.subtype}.")
        return AgentEnd(session=self.id, usage=result.usage)


class _PipeTransport(Transport):
    """The SDK's messages on an agent's pipes. Whoever opened the process closes it."""

    def __init__(self, process: AgentProcess) -> None:
        self._process = process

    async def connect(self) -> None:
        """Be connected: the process runs."""

    async def write(self, data: str) -> None:
        self._process.send(data.strip().encode())

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        while (message := await self._process.receive()) is not None:
            yield message

    async def close(self) -> None:
        """Leave the process to whoever opened it."""

    def is_ready(self) -> bool:
        return self._process.reason is None

    async def end_input(self) -> None:
        """Leave its input open: there is more to ask."""


class _MessageReader:
    """What has come of one answer: pieces of it are followed by the whole, which is then no news."""

    def __init__(self) -> None:
        self._has_pieces = False
        self._tools: dict[str, str] = {}

    def events(self, message: Any) -> list[AgentEvent]:
        """Say what is new in a message."""
        if isinstance(message, StreamEvent):
            return self._piece(message.event)
        if isinstance(message, AssistantMessage):
            heard = [found for block in message.content if (found := self._whole(block)) is not None]
            self._has_pieces = False
            return heard
        if isinstance(message, UserMessage) and isinstance(message.content, list):
            return [self._result(block) for block in message.content if isinstance(block, ToolResultBlock)]
        return []

    def _piece(self, raw: JsonObject) -> list[AgentEvent]:
        delta = raw.get("delta") or {}
        if raw.get("type") != "content_block_delta":
            return []
        self._has_pieces = True
        if delta.get("type") == "text_delta":
            return [TextChunk(text=delta["text"])]
        return [ThoughtChunk(text=delta["thinking"])] if delta.get("type") == "thinking_delta" else []

    def _whole(self, block: Any) -> AgentEvent | None:
        if isinstance(block, ToolUseBlock):
            self._tools[block.id] = block.name.removeprefix(PREFIX)
            return ToolUsed(id=block.id, tool=self._tools[block.id], state="running", arguments=block.input)
        if self._has_pieces:
            return None
        if isinstance(block, TextBlock):
            return TextChunk(text=block.text)
        return ThoughtChunk(text=block.thinking) if isinstance(block, ThinkingBlock) else None

    def _result(self, block: ToolResultBlock) -> AgentEvent:
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
            raise process.error() from error
        raise ToolFailed(f"The agent `{name}` could not be opened: {error}.") from error


def _arguments(order: SessionOrder, servers: Path | None) -> list[str]:
    arguments = ["--allowedTools", f"mcp__{NAME}"]
    if servers is not None:
        arguments += ["--mcp-config", str(servers), "--strict-mcp-config"]
    if order.model is not None:
        arguments += [f"--model={order.model}"]
    # One word, so that an id can never be read as a flag.
    return [*arguments, f"--resume={order.resume}"] if order.resume is not None else arguments


@contextmanager
def _server_file(order: SessionOrder) -> Any:
    """Hand the gateway to the agent in a file that nobody else can read: arguments are seen by everybody."""
    if (door := order.door) is None:
        yield None
        return
    server = {"type": "http", "url": door.url, "headers": headers_of(door)}
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
        # The gateway asks who calls, and decides by itself.
        if permissions == "allow" or tool.startswith(PREFIX) or (permissions == "read" and tool in _LOOKING):
            return PermissionResultAllow()
        return PermissionResultDeny(message=f"This conversation may not use {tool}.")

    return decide


def _find_program() -> str:
    """Return the program that the SDK brings, else the one that is installed."""
    found = find_spec("claude_agent_sdk")
    folder = Path(found.origin).parent if found is not None and found.origin else Path()
    own = folder / "_bundled" / ("claude.exe" if os.name == "nt" else "claude")
    return str(own) if own.is_file() else "claude"


def _text_of(content: Any) -> str | None:
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else None
