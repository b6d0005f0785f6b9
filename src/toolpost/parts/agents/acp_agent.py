"""Agents that speak the Agent Client Protocol, through its Python library; each session has a process of its own."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import msgspec
import pydantic
from acp import PROTOCOL_VERSION, RequestError, schema, text_block
from acp.client.connection import ClientSideConnection

from toolpost import CapabilityMissing, ToolFailed, __version__
from toolpost.base import META_KEY, JsonObject, event
from toolpost.contracts import InvalidRequest
from toolpost.parts.agents.acp_client import AcpClient
from toolpost.parts.agents.agent import AgentGone, AgentSpec, SessionOptions
from toolpost.parts.agents.agent_process import AgentProcess, open_agent_process
from toolpost.parts.agents.gateway_server import NAME, make_auth_headers, make_bridge_command
from toolpost.parts.agents.ids import AgentSessionId
from toolpost.parts.agents.turn_events import AgentEnd, AgentEvent, EndReason

_log = logging.getLogger("toolpost.parts.agents")

_REASONS: Final[dict[str, EndReason]] = {"end_turn": "done", "cancelled": "cancelled", "refusal": "refused"}
_AUTH_REQUIRED: Final = -32000
_UNWIND_S: Final = 1.0

_encode = msgspec.json.Encoder().encode


class _Transport:
    """Carries the library's messages on an agent's pipes."""

    def __init__(self, process: AgentProcess, client: AcpClient) -> None:
        self._process = process
        self._client = client

    async def send(self, message: JsonObject) -> None:
        self._process.send(_encode(message))

    async def receive(self) -> JsonObject | None:
        while (message := await self._process.receive()) is not None:
            # Most messages are updates. Handled here, they need no task each, and an unknown one is no error.
            if message.get("method") != "session/update" or "id" in message:
                return message
            self._client.handle_update(message.get("params"))
        return None

    async def close(self) -> None:
        """Do nothing: `open_agent_process` closes the process."""


class AcpAgent:
    """A program that implements the protocol on stdio."""

    def __init__(self, spec: AgentSpec) -> None:
        self._spec = spec

    @asynccontextmanager
    async def open(self, session_options: SessionOptions) -> AsyncIterator["AcpSession"]:
        """Start the program and open a session with it."""
        spec = self._spec
        async with open_agent_process(
            spec.name, spec.command, cwd=session_options.cwd, env=spec.env, on_gone=session_options.on_gone
        ) as process:
            client = AcpClient(session_options.permissions)
            connection = ClientSideConnection(client, _Transport(process, client))  # type: ignore[arg-type]
            try:
                yield await _open_session(spec.name, connection, client, process, session_options)
            finally:
                with anyio.CancelScope(shield=True):
                    await connection.close()


class AcpSession:
    """A session, and the process that it runs in."""

    def __init__(
        self,
        connection: ClientSideConnection,
        client: AcpClient,
        process: AgentProcess,
        *,
        name: str,
        id: AgentSessionId,  # noqa: A002 (as the interface calls it)
        can_resume: bool,
        is_resumed: bool,
    ) -> None:
        self._connection = connection
        self._client = client
        self._process = process
        self._name = name
        self._id = id
        self.id = id if can_resume else None
        self.is_resumed = is_resumed

    async def prompt(self, text: str) -> AsyncGenerator[AgentEvent, None]:
        if self._process.reason is not None:
            raise self._process.make_error()
        events = self._client.start_turn()
        request = asyncio.create_task(self._connection.prompt(self._id, [text_block(text)]))
        request.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (agent_event := await events.get()) is not None:
                yield agent_event
            yield self._make_end(request)
        finally:
            self._client.end_turn()
            if not request.done():
                request.cancel()
                with anyio.CancelScope(shield=True):
                    await asyncio.wait({request}, timeout=_UNWIND_S)

    async def cancel(self) -> None:
        await self._connection.cancel(self._id)

    async def ping(self) -> None:
        """Check that the process runs: the protocol has no ping."""
        if self._process.reason is not None or self._process.process.returncode is not None:
            raise self._process.make_error()

    def _make_end(self, request: "asyncio.Task[schema.PromptResponse]") -> AgentEnd:
        try:
            response = request.result()
        except Exception as error:
            raise _translate(error, self._name, self._process) from error
        usage = response.usage.model_dump(mode="json", by_alias=True, exclude_none=True) if response.usage else None
        return AgentEnd(reason=_REASONS.get(response.stop_reason, "limit"), usage=usage)


async def _open_session(
    name: str,
    connection: ClientSideConnection,
    client: AcpClient,
    process: AgentProcess,
    session_options: SessionOptions,
) -> AcpSession:
    try:
        initialized = await connection.initialize(
            PROTOCOL_VERSION,
            client_info=schema.Implementation(name="toolpost", title="Toolpost", version=__version__),
        )
        capabilities = initialized.agent_capabilities or schema.AgentCapabilities()
        session, options, is_resumed = await _resume_or_create(connection, session_options, capabilities)
        if session_options.model is not None:
            await _choose_model(connection, session, options, session_options.model, name)
    except (CapabilityMissing, InvalidRequest):
        raise
    except Exception as error:
        raise _translate(error, name, process) from error
    return AcpSession(
        connection,
        client,
        process,
        name=name,
        id=session,
        can_resume=_can_resume(capabilities) or bool(capabilities.load_session),
        is_resumed=is_resumed,
    )


async def _resume_or_create(
    connection: ClientSideConnection, session_options: SessionOptions, capabilities: schema.AgentCapabilities
) -> tuple[AgentSessionId, Any, bool]:
    """Resume the ordered session if the agent can and still has it, else create one; return id, options and whether resumed."""
    cwd, servers = str(session_options.cwd), _list_servers(session_options, capabilities)
    meta: dict[str, Any] = (
        {META_KEY: {"threadId": session_options.thread}} if session_options.thread is not None else {}
    )
    if session_options.resume is not None and (_can_resume(capabilities) or capabilities.load_session):
        resume = connection.resume_session if _can_resume(capabilities) else connection.load_session
        try:
            resumed = await resume(cwd=cwd, session_id=session_options.resume, mcp_servers=servers, **meta)
        except RequestError as refused:
            event(
                _log, logging.INFO, "session could not be resumed", thread=session_options.thread, reason=str(refused)
            )
        else:
            return session_options.resume, resumed.config_options, True
    opened = await connection.new_session(cwd=cwd, mcp_servers=servers, **meta)
    return AgentSessionId(opened.session_id), opened.config_options, False


def _can_resume(capabilities: schema.AgentCapabilities) -> bool:
    session = capabilities.session_capabilities
    return session is not None and session.resume is not None


def _list_servers(session_options: SessionOptions, capabilities: schema.AgentCapabilities) -> list[Any]:
    """Return the gateway as the agent's only MCP server; over stdio, if the agent knows no HTTP servers."""
    if (access := session_options.gateway) is None:
        return []
    if capabilities.mcp_capabilities is not None and capabilities.mcp_capabilities.http:
        headers = [schema.HttpHeader(name=name, value=value) for name, value in make_auth_headers(access).items()]
        return [schema.HttpMcpServer(type="http", name=NAME, url=access.url, headers=headers)]
    server = make_bridge_command(access)
    env = [schema.EnvVariable(name=name, value=value) for name, value in server.env.items()]
    return [schema.McpServerStdio(name=NAME, command=server.command, args=list(server.args), env=env)]


async def _choose_model(
    connection: ClientSideConnection, session: AgentSessionId, options: Any, model: str, name: str
) -> None:
    """Set the model; raises `InvalidRequest` with the known models if the agent does not have it, or offers no choice."""
    choice = next((option for option in options or () if option.category == "model" and option.type == "select"), None)
    if choice is None:
        raise InvalidRequest(
            f"The agent `{name}` does not let its model be chosen.",
            hint="set it with the agent's own arguments",
            model=model,
        )
    known = [entry.value for option in choice.options for entry in getattr(option, "options", [option])]
    if model not in known:
        raise InvalidRequest(
            f"The agent `{name}` has no model `{model}`.", hint=f"known: {', '.join(known)}", model=model
        )
    if choice.current_value != model:
        await connection.set_config_option(config_id=choice.id, session_id=session, value=model)


def _translate(error: Exception, name: str, process: AgentProcess) -> Exception:
    """Convert an error of the library to one with a public code; returns others as they are."""
    if isinstance(error, AgentGone):
        return error
    if isinstance(error, RequestError):
        if error.code == _AUTH_REQUIRED:
            return CapabilityMissing(
                f"The agent `{name}` is not logged in: {error}.", hint="log in with its own command"
            )
        details = {} if error.data is None else {"data": error.data}
        return ToolFailed(f"The agent `{name}` failed: {error}.", **details)
    if isinstance(error, pydantic.ValidationError):
        return ToolFailed(
            f"The agent `{name}` violates the Agent Client Protocol.",
            faults=[
                ": ".join(filter(None, (".".join(map(str, issue["loc"])), issue["msg"])))
                for issue in error.errors()[:5]
            ],
        )
    if isinstance(error, ConnectionError):
        return process.make_error()
    return error
