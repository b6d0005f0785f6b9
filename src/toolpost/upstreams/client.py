"""A client of one MCP server over HTTP, in the stateless era: for requests of this program itself.

There is neither a session nor supervision, and requests of the server reach nobody unless a request brings a `ClientChannel`. The
servers behind the gateway have a `supervisor`.
"""

from typing import Self

from toolpost.base.ids import JsonObject
from toolpost.net.client import HttpClient
from toolpost.net.network import DIRECT, Network
from toolpost.protocol.era import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION, STATELESS
from toolpost.protocol.mirrored import Headers
from toolpost.upstreams.handshake import CLIENT
from toolpost.upstreams.http.transport import HttpTransport
from toolpost.upstreams.server_requests import ClientChannel
from toolpost.upstreams.transport import ProgressListener, UpstreamRequest, encode


class McpClient:
    """Sends requests to an MCP server at a URL. Nothing is sent before the first request."""

    def __init__(self, server: str, url: str, *, token: str | None = None, network: Network = DIRECT) -> None:
        """`server` names the server in errors; `token` is a bearer token."""
        self.url = url
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._http = HttpClient(url, headers=headers, network=network)
        self._transport = HttpTransport(server, self._http, on_notification=lambda *_: None)
        request_meta = {PROTOCOL_VERSION: STATELESS.version, CLIENT_INFO: CLIENT, CLIENT_CAPABILITIES: {}}
        self._transport.use(request_meta=request_meta, headers={"mcp-protocol-version": STATELESS.version})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection; the server cancels the calls on them."""
        await self._http.aclose()

    async def request(
        self,
        method: str,
        fields: bytes = b"",
        *,
        meta: JsonObject | None = None,
        name: str | None = None,
        mirrored: Headers = (),
        on_progress: ProgressListener | None = None,
        client_channel: ClientChannel | None = None,
    ) -> bytes:
        """Send a request and return the JSON of its result, as `Transport.request` does.

        Raises `ServerRefused` for an error of the server, and `ConnectionLost`, which says whether the request was sent.
        """
        return await self._transport.request(
            UpstreamRequest(
                method,
                fields,
                meta=meta,
                name=name,
                mirrored=mirrored,
                on_progress=on_progress,
                client_channel=client_channel,
            )
        )

    async def call_tool(self, name: str, arguments: JsonObject, *, meta: JsonObject | None = None) -> bytes:
        """Call a tool and return the JSON of its result; raises what `request` raises."""
        return await self.request("tools/call", write_call(name, arguments), name=name, meta=meta)


def write_call(name: str, arguments: JsonObject) -> bytes:
    """Return the inside of the parameters of `tools/call`."""
    return b'"name":%b,"arguments":%b' % (encode(name), encode(arguments))
