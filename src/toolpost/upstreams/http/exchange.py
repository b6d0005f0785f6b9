"""Interprets the answer of one HTTP request: events as they arrive, then the response as a result or an error. No I/O."""

import logging
from collections.abc import Callable

from toolpost.base.events import event
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.net.client import Response
from toolpost.upstreams.mask import NO_MASK, Mask
from toolpost.upstreams.message import IncomingMessage, parse_error, parse_message
from toolpost.upstreams.transport import ProgressListener, ServerRefused

_log = logging.getLogger("toolpost.upstreams")

_NEGOTIATION_METHODS = frozenset({"server/discover", "initialize"})


class NotStreamable(ServerRefused):
    """The HTTP status suggests that the server does not speak streamable HTTP."""


class Exchange:
    """The events of one request: passes on notifications and requests, and keeps the answer."""

    def __init__(
        self,
        number: int,
        *,
        on_progress: ProgressListener | None,
        on_notification: ProgressListener,
        on_request: Callable[[IncomingMessage], None],
        mask: Mask = NO_MASK,
    ) -> None:
        self.answer: IncomingMessage | None = None
        self.number = number
        self._on_progress = on_progress
        self._on_notification = on_notification
        self._on_request = on_request
        self.mask = mask

    def take(self, data: bytes) -> bool:
        """Handle one event; True once the answer has arrived."""
        data = self.mask.apply(data)
        message = parse_message(data)
        if message is None:
            if data:
                text = data[:200].decode(errors="replace")
                event(_log, logging.WARNING, "server sent something that is not JSON-RPC", text=text)
        elif message.method is None:
            if self.answer is None and is_answer_to(self.number, message):
                self.answer = message
        elif message.id is not None:
            self._on_request(message)
        elif message.method != "notifications/progress":
            self._on_notification(message.method, bytes(message.params))
        elif self._on_progress is not None and self.answer is None:
            self._on_progress(message.method, bytes(message.params))
        return self.answer is not None


def is_answer_to(number: int, message: IncomingMessage) -> bool:
    """Whether a message answers this request; some servers send the id back as text."""
    return message.method is None and message.id in (number, str(number))


def result_of(message: IncomingMessage) -> bytes:
    """Return the JSON of the result, or raise the error as `ServerRefused`."""
    if error := message.refusal:
        raise parse_error(error)
    return bytes(message.result) or b"{}"


def find_plain_result(response: Response, exchange: Exchange) -> bytes | None:
    """Return the JSON of a result without complications; None for everything else, which `parse_result` explains."""
    message = exchange.answer
    if message is None and response.status == 200 and response.body:
        message = parse_message(exchange.mask.apply(response.body))
    if message is None or message.refusal or not is_answer_to(exchange.number, message):
        return None
    return bytes(message.result) or b"{}"


def parse_result(response: Response, *, method: str, number: int, mask: Mask = NO_MASK) -> bytes:
    """Return the JSON of the result in the body of a response, or raise `ServerRefused` or `UpstreamUnavailable`."""
    message = parse_message(mask.apply(response.body)) if response.body else None
    if message is not None and message.method is None:
        if message.refusal and (is_answer_to(number, message) or message.id is None):
            raise parse_error(message.refusal)
        if response.status == 200 and is_answer_to(number, message):
            return result_of(message)
    raise make_response_error(response, method=method)


def make_response_error(response: Response, *, method: str) -> Exception:
    """Make the error for a response that is no answer; `method` is that of the request."""
    status = response.status
    if status in (401, 403):
        return UpstreamUnavailable(
            f"it refused access (HTTP {status})", hint="check the `headers` of this server: a token may be missing"
        )
    if 300 <= status < 400:
        where = response.headers.get(b"location", b"").decode("latin-1")
        return UpstreamUnavailable(f"it has moved (HTTP {status})", hint=f"set its `url` to where it is now: {where}")
    if method in _NEGOTIATION_METHODS and 400 <= status < 600:
        return _make_negotiation_error(status, method)
    if status >= 400:
        return UpstreamUnavailable(f"it answered with HTTP {status}")
    if response.headers.get(b"content-type", b"").startswith(b"text/event-stream"):
        return UpstreamUnavailable("it ended its event stream without an answer")
    return UpstreamUnavailable(f"it answered with something that is not MCP (HTTP {status})")


def _make_negotiation_error(status: int, method: str) -> Exception:
    if status in (400, 404, 405, 406, 415):
        return NotStreamable(-32600, f"HTTP {status}")
    if method == "server/discover":
        # Older servers fail on methods that they do not know; the handshake shows whether they work.
        return ServerRefused(-32600, f"HTTP {status}")
    return UpstreamUnavailable(f"it answered with HTTP {status}")


def is_session_expired(response: Response) -> bool:
    """Whether the response says that the session is unknown; some servers use 400 for that."""
    return response.status == 404 or (response.status == 400 and b"session" in response.body[:2000].lower())
