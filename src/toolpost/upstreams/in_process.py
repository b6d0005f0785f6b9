"""MCP servers that are objects of this process: `MCPServer` and `Server` of the SDK, and FastMCP's `FastMCP`.

Their own request loop runs as a task here, between two streams that carry message objects; everything above, from `Peer` on, is
the same as for a server on stdio. A request is decoded once, a result encoded once, and no task only carries messages.

Unlike a pipe, the loop says which request a message of the server is about, so that two callers can be asked or sent log
messages at the same time (see `peer`).

There is one instance of an object at a time, shared by all sessions, and its lifespan is that of the instance.
"""

import asyncio
import importlib
import logging
import math
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio
import msgspec

from toolpost.base.author_code import place_of_error
from toolpost.base.events import event
from toolpost.upstreams.notifications import NotificationListener
from toolpost.upstreams.peer import MESSAGE_LIMIT, Peer
from toolpost.upstreams.transport import encode

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp.shared.message import SessionMessage

_log = logging.getLogger("toolpost.upstreams")

_WRAPPED: Final = (
    ("mcp.server.lowlevel.server", "Server", None),
    ("mcp.server.mcpserver.server", "MCPServer", "_lowlevel_server"),
    ("fastmcp.server.server", "FastMCP", "_mcp_server"),
)
"""The classes that are accepted, and the attribute with the `Server` that does the work."""

LEAVE_S: Final = 5.0
"""How long a lifespan may take to end before it is cancelled."""

_GIVEN_NAMES: Final = ("mcp-server",)
"""What `MCPServer` calls itself unless its author names it."""


class ServerObject(Protocol):
    """A `Server` or `MCPServer` of the SDK, or a `FastMCP`; others are refused when they are loaded."""

    @property
    def name(self) -> str: ...


class InProcessServer:
    """A server object that was loaded; instances of it are opened by `open_in_process_server`."""

    def __init__(self, server: "Server[Any]") -> None:
        self._server = server
        self._serving = asyncio.Lock()
        if _contain_exit not in server.middleware:
            server.middleware.insert(0, _contain_exit)

    async def serve(self, requests: Any, output: "_ServerOutput") -> None:
        """Answer requests until their stream is closed, in the handshake era."""
        from mcp.server.runner import serve_loop

        # Not `serve_dual_era_loop`: in the stateless era a handler can neither elicit nor sample. The gateway turns requests of
        # the handshake era into rounds for clients of the stateless one, so that both work for all clients.
        # A new instance waits for the end of the one before: a lifespan often sets what is global, and closes it at its end.
        async with self._serving, self._server.lifespan(self._server) as state:
            await serve_loop(self._server, requests, output, lifespan_state=state)


def find_in_process_server(found: object) -> InProcessServer | None:
    """Wrap a server object of the SDK or FastMCP; None for anything else."""
    for module, name, attribute in _WRAPPED:
        # An object of a class whose module was never imported does not exist, and the SDK's server takes long to import.
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(found, kind):
            return InProcessServer(found if attribute is None else getattr(found, attribute))
    return None


def find_given_name(found: ServerObject) -> str | None:
    """Return the name that its author gave to a server object; None for one that its class made up."""
    name = found.name
    # FastMCP appends four random digits to the name of the class, so that nothing could be locked under it.
    is_random = name.startswith(f"{type(found).__name__}-") and len(name) == len(type(found).__name__) + 5
    return None if is_random or name in _GIVEN_NAMES else name


async def _contain_exit(ctx: "ServerRequestContext[Any, Any]", call_next: "CallNext") -> "HandlerResult":
    """Make an error of `sys.exit()` in a handler, which would end the gateway with all other servers."""
    try:
        return await call_next(ctx)
    except SystemExit as exit_:
        raise RuntimeError(f"it tried to exit with code {exit_.code}") from exit_


class _ServerOutput:
    """The stream that a server writes to: each message goes to the peer at once."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._types: Any = importlib.import_module("mcp_types")

    async def send(self, item: "SessionMessage", /) -> None:
        message: Any = item.message
        if isinstance(message, self._types.JSONRPCResponse):
            self._send_result(message.id, message.result)
            return
        raw = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        self._peer.take(raw, about=getattr(item.metadata, "related_request_id", None))

    def _send_result(self, number: int | str, result: object) -> None:
        try:
            raw = encode(result)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            # A handler of `Server` may return any dict.
            refusal = {"code": -32603, "message": f"the result is not JSON: {error}"}
            self._peer.take(encode({"jsonrpc": "2.0", "id": number, "error": refusal}))
            return
        if len(raw) > MESSAGE_LIMIT:
            self._peer.take_too_long(b'{"id":%b' % encode(number), MESSAGE_LIMIT)
        else:
            self._peer.take_result(number, raw)

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> "_ServerOutput":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def _make_feed(requests: Any) -> Callable[[bytes], None]:
    """Return the function that passes a message to the server, as the object that its loop expects."""
    import mcp_types as types
    from mcp.shared.message import SessionMessage

    def feed(raw: bytes) -> None:
        # The constructors check no shape: these messages are written by `Peer`.
        fields = msgspec.json.decode(raw)
        message: Any
        if "method" not in fields:
            kind = types.JSONRPCError if "error" in fields else types.JSONRPCResponse
            message = kind.model_validate(fields)
        elif "id" in fields:
            message = types.JSONRPCRequest.model_construct(**fields)
        else:
            message = types.JSONRPCNotification.model_construct(**fields)
        # After the loop has ended, what is in flight is about to fail for that.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            requests.send_nowait(SessionMessage(message))

    return feed


@asynccontextmanager
async def open_in_process_server(
    name: str, server: InProcessServer, *, on_notification: NotificationListener, on_gone: Callable[[str], None]
) -> AsyncIterator[Peer]:
    """Run an instance of the server; leaving ends it. `on_gone` is called once, if it ends before that."""
    sending, receiving = anyio.create_memory_object_stream[Any](math.inf)
    peer = Peer(name, _make_feed(sending), on_notification=on_notification)

    # Only ended below: if the gateway is cancelled, what a lifespan does after its `yield` is still done.
    serving = anyio.CancelScope(shield=True)
    ended = anyio.Event()
    is_leaving = False

    async def run() -> None:
        reason = "it ended"
        try:
            with serving:
                await server.serve(receiving, _ServerOutput(peer))
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 (an author's code may raise anything)
            event(_log, logging.ERROR, "server failed", server=name, exception=error)
            reason = f"it failed: {describe_error(error)}"
        finally:
            ended.set()
        if not is_leaving:
            peer.lose(reason)
            on_gone(reason)

    with sending, receiving:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            try:
                yield peer
            finally:
                is_leaving = True
                peer.lose("it was stopped")
                sending.close()  # The loop ends with its input.
                with anyio.move_on_after(LEAVE_S, shield=True):
                    await ended.wait()
                serving.cancel()


def describe_error(error: BaseException) -> str:
    """Describe an error by its type and text, and the line of the author's code; of a group, the first one."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    place = place_of_error(error)
    return f"{type(error).__name__}: {error}" + (f" ({place})" if place else "")
