"""One client of the handshake era as servers may turn to it: what it can be asked, what it wants to hear, what it was asked."""

import asyncio
import itertools
from collections.abc import Callable, Hashable

from toolpost.base.ids import Json, JsonObject
from toolpost.protocol.rpc import Message, encode
from toolpost.upstreams.message import IncomingMessage, parse_error, parse_message
from toolpost.upstreams.notifications import LOG_LEVELS, is_level_at_least
from toolpost.upstreams.server_requests import select_capabilities
from toolpost.upstreams.transport import ServerRefused

Send = Callable[[bytes], None]


class Conversation:
    """Our requests to one client, from its `initialize` to its end."""

    def __init__(self, client: Hashable, capabilities: Json) -> None:
        self.client = client
        self.capabilities = select_capabilities(capabilities)
        self.log_level: str | None = None
        self._ids = itertools.count(1)
        self._asked: dict[str, asyncio.Future[IncomingMessage]] = {}

    @property
    def is_open(self) -> bool:
        """Whether a server may have anything to say to this client."""
        return bool(self.capabilities) or self.log_level is not None

    @property
    def has_open_request(self) -> bool:
        """Whether the client has a question to answer."""
        return bool(self._asked)

    def note_level(self, params: JsonObject) -> None:
        """Take what the client says with `logging/setLevel`."""
        if (level := params.get("level")) in LOG_LEVELS:
            self.log_level = level

    def take(self, message: Message) -> bool:
        """Take an answer; False for one that none of our requests asked for."""
        asked = self._asked.get(message.key)
        answer = parse_message(message.raw)
        if asked is None or answer is None:
            return False
        if not asked.done():
            asked.set_result(answer)
        return True

    async def ask(self, method: str, params: bytes, send: Send) -> bytes:
        """Send a request of ours and return the JSON of its result; given up, the client is told."""
        # A string, so that it is never one of the numbers that the SDK gives to its own.
        key = f"toolpost-{next(self._ids)}"
        asked = self._asked[key] = asyncio.get_running_loop().create_future()
        request_id = encode(key)
        send(b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}' % (request_id, encode(method), params))
        try:
            answer = await asked
        except asyncio.CancelledError:
            send(_notification("notifications/cancelled", b'{"requestId":%b}' % request_id))
            raise
        finally:
            del self._asked[key]
        if error := answer.refusal:
            raise parse_error(error)
        if not answer.result:
            raise ServerRefused(-32603, "The client's answer is not a valid response")
        return bytes(answer.result)


class Correspondent:
    """A client of the handshake era during a call: asked and told by `send`."""

    takes_input_required = False

    def __init__(self, conversation: Conversation, send: Send) -> None:
        self._conversation = conversation
        self._send = send

    @property
    def client(self) -> Hashable:
        """Whose calls these are."""
        return self._conversation.client

    @property
    def capabilities(self) -> JsonObject:
        """What the client said that it can."""
        return self._conversation.capabilities

    @property
    def log_level(self) -> str | None:
        """From which level on the client wants to hear logs."""
        return self._conversation.log_level

    @property
    def has_open_request(self) -> bool:
        """Whether a question is with the client."""
        return self._conversation.has_open_request

    def wants_log(self, level: str) -> bool:
        """Whether a log message of this level is wanted; a client that has set none leaves it to the server."""
        return self._conversation.log_level is None or is_level_at_least(level, self._conversation.log_level)

    async def ask(self, method: str, params: bytes) -> bytes:
        """Put a question to the client."""
        return await self._conversation.ask(method, params, self._send)

    def tell(self, method: str, params: bytes) -> None:
        """Pass a notification on."""
        self._send(_notification(method, params))


def _notification(method: str, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (encode(method), params)
