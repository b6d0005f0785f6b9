"""A client of the handshake era that servers may ask: its capabilities, its log level, and our open requests to it."""

import asyncio
import itertools
from collections.abc import Callable, Hashable

from toolpost.base.ids import Json, JsonObject
from toolpost.protocol.rpc import RpcMessage, encode
from toolpost.upstreams.message import IncomingMessage, parse_error, parse_message
from toolpost.upstreams.notifications import LOG_LEVELS, is_level_at_least
from toolpost.upstreams.server_requests import select_capabilities
from toolpost.upstreams.transport import ServerRefused

Send = Callable[[bytes], None]


class OpenRequest:
    """A request of a server that the client reads, and answers with a request of its own."""

    __slots__ = ("answer", "method", "params")

    def __init__(self, method: str, params: bytes) -> None:
        self.method = method
        self.params = params
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()


class HandshakeClient:
    """Our requests to one client, from its `initialize` to its end."""

    def __init__(self, key: Hashable, capabilities: Json) -> None:
        self.client = key
        self.capabilities = select_capabilities(capabilities)
        self.log_level: str | None = None
        self._ids = itertools.count(1)
        self._requests: dict[str, asyncio.Future[IncomingMessage]] = {}

    @property
    def is_open(self) -> bool:
        """Whether server requests or log messages may have to be sent to this client."""
        return bool(self.capabilities) or self.log_level is not None

    @property
    def has_open_request(self) -> bool:
        """Whether a request to the client is unanswered."""
        return bool(self._requests)

    def set_log_level(self, params: JsonObject) -> None:
        """Apply `logging/setLevel`; an unknown level is ignored."""
        if (level := params.get("level")) in LOG_LEVELS:
            self.log_level = level

    def take_response(self, message: RpcMessage) -> bool:
        """Take a response; False if it belongs to none of our requests."""
        response = self._requests.get(message.key)
        answer = parse_message(message.raw)
        if response is None or answer is None:
            return False
        if not response.done():
            response.set_result(answer)
        return True

    async def ask(self, method: str, params: bytes, send: Send) -> bytes:
        """Send a request and return the JSON of its result. A cancelled one is cancelled at the client too.

        Raises `ServerRefused` with the client's error.
        """
        # A string: the SDK numbers its own requests on the same channel.
        key = f"toolpost-{next(self._ids)}"
        response = self._requests[key] = asyncio.get_running_loop().create_future()
        request_id = encode(key)
        send(b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}' % (request_id, encode(method), params))
        try:
            answer = await response
        except asyncio.CancelledError:
            send(write_notification("notifications/cancelled", b'{"requestId":%b}' % request_id))
            raise
        finally:
            del self._requests[key]
        if error := answer.refusal:
            raise parse_error(error)
        if not answer.result:
            raise ServerRefused(-32603, "The client's response has neither a result nor an error")
        return bytes(answer.result)


class HandshakeClientChannel:
    """A client of the handshake era during a call: `send` writes to the channel of that call."""

    takes_input_required = False
    can_tell = True

    def __init__(self, client: HandshakeClient, send: Send) -> None:
        self._client = client
        self._send = send

    @property
    def client(self) -> Hashable:
        return self._client.client

    @property
    def capabilities(self) -> JsonObject:
        return self._client.capabilities

    @property
    def log_level(self) -> str | None:
        """The least level of log messages that the client wants; None if it has set none."""
        return self._client.log_level

    @property
    def has_open_request(self) -> bool:
        return self._client.has_open_request

    def wants_log(self, level: str) -> bool:
        """Whether a log message of this level is sent; a client that has set no level leaves it to the server."""
        return self._client.log_level is None or is_level_at_least(level, self._client.log_level)

    async def ask(self, method: str, params: bytes, *, key: str | None = None) -> bytes:  # noqa: ARG002 (only rounds name requests)
        return await self._client.ask(method, params, self._send)

    def tell(self, method: str, params: bytes) -> None:
        self._send(write_notification(method, params))


def write_notification(method: str, params: bytes) -> bytes:
    """Write the JSON of a notification to a client."""
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (encode(method), params)
