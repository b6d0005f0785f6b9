"""Agents that speak the Agent Client Protocol: one process for each session, spoken to through the protocol's own library."""

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

from toolpost.base.events import event
from toolpost.base.ids import META_KEY, AgentSessionId, JsonObject
from toolpost.base.turns import AgentEnd, AgentEvent, EndReason
from toolpost.base.version import __version__
from toolpost.contracts.errors import CapabilityMissing, InvalidRequest, ToolFailed
from toolpost.parts.conversations.acp_client import AcpClient
from toolpost.parts.conversations.agent import AgentGone, AgentSpec, SessionOrder
from toolpost.parts.conversations.agent_process import AgentProcess, open_agent_process
from toolpost.parts.conversations.gateway_server import NAME, headers_of, stdio_server_of

_log = logging.getLogger("toolpost.parts.conversations")

_REASONS: Final[dict[str, EndReason]] = {"end_turn": "done", "cancelled": "cancelled", "refusal": "refused"}
_AUTH_REQUIRED: Final = -32000
_UNWIND_S: Final = 1.0

_encode = msgspec.json.Encoder().encode


class _Transport:
    """The library's messages on an agent's pipes."""

    def __init__(self, process: AgentProcess, client: AcpClient) -> None:
        self._process = process
        self._client = client

    async def send(self, message: JsonObject) -> None:
        self._process.send(_encode(message))

    async def receive(self) -> JsonObject | None:
        while (message := await self._process.receive()) is not None:
            # Updates are most of what comes: heard here, they need no task each, and one that is not known is no error.
            if message.get("method") != "session/update" or "id" in message:
                return message
            self._client.hear(message.get("params"))
        return None

    async def close(self) -> None:
        """Whoever opened the process closes it."""


class AcpAgent:
    """Any program that speaks the protocol on stdio."""

    def __init__(self, spec: AgentSpec) -> None:
        self._spec = spec

    @asynccontextmanager
    async def open(self, order: SessionOrder) -> AsyncIterator["AcpSession"]:
        """Start the program and open a session with it."""
        spec = self._spec
        async with open_agent_process(
            spec.name, spec.command, cwd=order.cwd, env=spec.env, on_gone=order.on_gone
        ) as process:
            client = AcpClient(order.permissions)
            connection = ClientSideConnection(client, _Transport(process, client))  # type: ignore[arg-type]
            try:
                yield await _open_session(spec.name, connection, client, process, order)
            finally:
                with anyio.CancelScope(shield=True):
                    await connection.close()


class AcpSession:
    """One session with such a program."""

    def __init__(
        self,
        connection: ClientSideConnection,
        client: AcpClient,
        process: AgentProcess,
        *,
        name: str,
        id: AgentSessionId,  # noqa: A002 (as it is called)
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
        """Ask, and pass on what comes until the answer has ended."""
        if self._process.reason is not None:
            raise self._process.error()
        heard = self._client.listen()
        asking = asyncio.create_task(self._connection.prompt(self._id, [text_block(text)]))
        asking.add_done_callback(lambda _: heard.put_nowait(None))
        try:
            while (event_ := await heard.get()) is not None:
                yield event_
            yield self._end(asking)
        finally:
            self._client.listen_no_more()
            if not asking.done():
                asking.cancel()
                with anyio.CancelScope(shield=True):
                    await asyncio.wait({asking}, timeout=_UNWIND_S)

    async def cancel(self) -> None:
        """Tell the agent to stop."""
        await self._connection.cancel(self._id)

    async def ping(self) -> None:
        """Return if the process runs; the protocol has no question for it."""
        if self._process.reason is not None or self._process.process.returncode is not None:
            raise self._process.error()

    def _end(self, asking: "asyncio.Task[schema.PromptResponse]") -> AgentEnd:
        try:
            response = asking.result()
        except Exception as error:
            raise _translate(error, self._name, self._process) from error
        usage = response.usage.model_dump(mode="json", by_alias=True, exclude_none=True) if response.usage else None
        return AgentEnd(reason=_REASONS.get(response.stop_reason, "limit"), usage=usage)


async def _open_session(
    name: str, connection: ClientSideConnection, client: AcpClient, process: AgentProcess, order: SessionOrder
) -> AcpSession:
    try:
        told = await connection.initialize(
            PROTOCOL_VERSION,
            client_info=schema.Implementation(name="toolpost", title="Toolpost", version=__version__),
        )
        able = told.agent_capabilities or schema.AgentCapabilities()
        session, options, is_resumed = await _resume_or_create(connection, order, able)
        if order.model is not None:
            await _choose_model(connection, session, options, order.model, name)
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
        can_resume=_can_resume(able) or bool(able.load_session),
        is_resumed=is_resumed,
    )


async def _resume_or_create(
    connection: ClientSideConnection, order: SessionOrder, able: schema.AgentCapabilities
) -> tuple[AgentSessionId, Any, bool]:
    """Go on with the ordered session, where the agent can and still has it; else open another one."""
    cwd, servers = str(order.cwd), _list_servers(order, able)
    meta: dict[str, Any] = {META_KEY: {"threadId": order.thread}} if order.thread is not None else {}
    if order.resume is not None and (_can_resume(able) or able.load_session):
        go_on = connection.resume_session if _can_resume(able) else connection.load_session
        try:
            resumed = await go_on(cwd=cwd, session_id=order.resume, mcp_servers=servers, **meta)
        except RequestError as refused:
            event(_log, logging.INFO, "session could not be resumed", thread=order.thread, reason=str(refused))
        else:
            return order.resume, resumed.config_options, True
    opened = await connection.new_session(cwd=cwd, mcp_servers=servers, **meta)
    return AgentSessionId(opened.session_id), opened.config_options, False


def _can_resume(able: schema.AgentCapabilities) -> bool:
    return able.session_capabilities is not None and able.session_capabilities.resume is not None


def _list_servers(order: SessionOrder, able: schema.AgentCapabilities) -> list[Any]:
    """Hand the gateway to the agent as its MCP server."""
    if (door := order.door) is None:
        return []
    if able.mcp_capabilities is not None and able.mcp_capabilities.http:
        headers = [schema.HttpHeader(name=name, value=value) for name, value in headers_of(door).items()]
        return [schema.HttpMcpServer(type="http", name=NAME, url=door.url, headers=headers)]
    server = stdio_server_of(door)
    env = [schema.EnvVariable(name=name, value=value) for name, value in server.env.items()]
    return [schema.McpServerStdio(name=NAME, command=server.command, args=list(server.args), env=env)]


async def _choose_model(
    connection: ClientSideConnection, session: AgentSessionId, options: Any, model: str, name: str
) -> None:
    """Set the model where the agent lets one be chosen; a model that it does not have is refused, with those that it has."""
    choice = next((option for option in options or () if option.category == "model" and option.type == "select"), None)
    if choice is None:
        raise InvalidRequest(
            f"The agent `{name}` does not let its model be chosen.", hint="choose it by its own arguments", model=model
        )
    known = [entry.value for option in choice.options for entry in getattr(option, "options", [option])]
    if model not in known:
        raise InvalidRequest(
            f"The agent `{name}` has no model `{model}`.", hint=f"known: {', '.join(known)}", model=model
        )
    if choice.current_value != model:
        await connection.set_config_option(config_id=choice.id, session_id=session, value=model)


def _translate(error: Exception, name: str, process: AgentProcess) -> Exception:
    """Say in our words what went wrong."""
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
            faults=[_render_issue(fault) for fault in error.errors()[:5]],
        )
    if isinstance(error, ConnectionError):
        return process.error()
    return error


def _render_issue(fault: Any) -> str:
    place = ".".join(str(part) for part in fault["loc"])
    return f"{place}: {fault['msg']}" if place else str(fault["msg"])
