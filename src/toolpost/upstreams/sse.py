"""Servers of the older HTTP+SSE transport, through the client of the MCP SDK: they are rare, so it need not be fast."""

import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import anyio
import msgspec

from toolpost.base.events import event
from toolpost.base.late_import import import_in_thread
from toolpost.contracts.errors import BadConfiguration, ToolpostError, UpstreamUnavailable
from toolpost.credentials.server_tokens import ServerToken
from toolpost.upstreams.mask import Mask
from toolpost.upstreams.message import IncomingMessage
from toolpost.upstreams.notifications import NotificationListener
from toolpost.upstreams.peer import Peer
from toolpost.upstreams.spec import ServerSpec

_log = logging.getLogger("toolpost.upstreams")


@asynccontextmanager
async def open_sse_server(
    spec: ServerSpec,
    *,
    on_notification: NotificationListener,
    on_gone: Callable[[str], None],
    server_token: ServerToken | None = None,
) -> AsyncIterator[Peer]:
    """Connect; leaving closes the connection."""
    # Imported here: the SDK takes over a second to load, and few servers need it.
    await import_in_thread("mcp.client.sse")
    import mcp_types
    from mcp.shared.message import SessionMessage

    assert spec.url is not None
    to_server, outbox = anyio.create_memory_object_stream[bytes](math.inf)

    def send(raw: bytes) -> None:
        # After the connection was closed, what is in flight is about to fail for that.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            to_server.send_nowait(raw)

    peer = Peer(spec.name, send, on_notification=on_notification)
    peer.mask = Mask(spec.secrets)

    unsent: list[bytes] = []

    def refuse(error: ToolpostError, refused: bytes) -> None:
        # The others in flight were accepted and may have run: a login must not have them sent again.
        message = msgspec.json.decode(refused or b"{}", type=IncomingMessage)
        peer.refuse(message.id if message.method is not None else None, error)
        # The SDK's client sends one message after the other, and nothing after a failed request.
        with suppress(anyio.WouldBlock):
            while True:
                unsent.append(outbox.receive_nowait())
        peer.lose(error.message, unsent=unsent)
        on_gone(error.message)

    async def read(stream: Any) -> None:
        async for item in stream:
            if isinstance(item, Exception):
                event(_log, logging.WARNING, "invalid message from server", server=spec.name, reason=str(item)[:200])
            else:
                if server_token is not None:
                    peer.mask.use_token(server_token.header)
                peer.take(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode())
        reason = "it closed its event stream"
        peer.lose(reason)
        on_gone(reason)

    async def write(stream: Any) -> None:
        async for raw in outbox:
            unsent.append(raw)
            await stream.send(SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(raw, by_name=False)))
            unsent.clear()

    async with (
        to_server,
        outbox,
        _connect(_open_client(spec.url, spec, _make_auth(server_token, refuse) if server_token else None)) as (
            reader,
            writer,
        ),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(read, reader)
        tasks.start_soon(write, writer)
        try:
            yield peer
        finally:
            peer.lose("it was stopped")
            tasks.cancel_scope.cancel()


def _open_client(url: str, spec: ServerSpec, token_auth: Any) -> AbstractAsyncContextManager[Any]:
    import httpx2
    from mcp.client.sse import sse_client

    proxy = spec.network.find_proxy(url)
    if proxy is not None and proxy.startswith("socks4:"):
        raise BadConfiguration(
            "A server of the older HTTP+SSE transport cannot be reached through a SOCKS4 proxy.",
            hint="set a socks5:// or http:// proxy, in `network` of this server if need be",
        )

    def make(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers=headers,
            timeout=timeout if timeout is not None else httpx2.Timeout(30.0, read=300.0),
            auth=auth,
            # As for all other connections: what the environment says counts only if the settings say so.
            trust_env=False,
            verify=spec.network.make_ssl_context() if url.startswith("https:") else True,
            # With SOCKS5 the proxy resolves names, also where the scheme leaves that to this machine.
            proxy=proxy,
            event_hooks={"response": [_read_as_utf8]},
        )

    return sse_client(url, headers=dict(spec.headers), httpx_client_factory=make, auth=token_auth)


async def _read_as_utf8(response: Any) -> None:
    # Events are UTF-8, whatever the server says: `punycode` decodes in quadratic time.
    response.encoding = "utf-8"


def _make_auth(server_token: ServerToken, on_refused: Callable[[ToolpostError, bytes], None]) -> Any:
    """Make what adds the access token to each request of the SDK's client."""
    import httpx2

    class TokenAuth(httpx2.Auth):
        async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            try:
                if time.time() >= server_token.fresh_until:
                    await server_token.prepare()
                used = _set_token(request, server_token)
                response = yield request
                challenge = response.headers.get("www-authenticate", "")
                if response.status_code not in (401, 403) or not await server_token.handle_refusal(
                    response.status_code, challenge, used=used
                ):
                    return
                _set_token(request, server_token)
                response = yield request
                if response.status_code == 401:
                    raise server_token.make_repeated_error()
            except ToolpostError as error:
                on_refused(error, request.content)
                raise

    return TokenAuth()


def _set_token(request: Any, server_token: ServerToken) -> str | None:
    request.headers.pop("authorization", None)
    if server_token.header is not None:
        request.headers["authorization"] = server_token.header
    return server_token.header


@asynccontextmanager
async def _connect(connecting: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
    """Connect, and translate errors of the connection, but not those of the body."""
    async with AsyncExitStack() as stack:
        try:
            streams = await stack.enter_async_context(connecting)
        except Exception as error:
            raise _translate_error(error) from error
        yield streams


def _translate_error(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return UpstreamUnavailable(
            f"it refused access (HTTP {status})", hint="check the `headers` of this server: a token may be missing"
        )
    if status is not None or type(error).__name__ == "SSEError":
        suffix = f" (HTTP {status})" if status is not None else ""
        return UpstreamUnavailable(
            f"there is no MCP server at this address{suffix}", hint="check the `url` of this server, and the path in it"
        )
    return error
