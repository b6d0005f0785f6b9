"""A client that is shown the requests of servers and answers them in requests of its own: a polling client, or a page."""

import itertools
import secrets
from collections.abc import Callable, Hashable

import msgspec

from toolpost.base.ids import CallerId, JsonObject
from toolpost.endpoints.client_session import OpenRequest
from toolpost.upstreams.transport import ServerRefused


class PolledChannel:
    """A `ClientChannel` that keeps the requests of servers until the client has answered them."""

    takes_input_required = False
    log_level: str | None = None
    can_tell = False

    def __init__(self, caller: CallerId, capabilities: JsonObject) -> None:
        """`capabilities` are those of a client, as in MCP."""
        self.client: Hashable = (caller, secrets.token_hex(8))
        self.capabilities = capabilities
        self._numbers = itertools.count(1)
        self._requests: dict[str, OpenRequest] = {}
        self.on_change: Callable[[], None] = lambda: None
        """Called when a request was added or removed."""

    @property
    def pending(self) -> JsonObject:
        """The requests that wait for an answer, by keys; those that are made here are never used again."""
        return {
            key: {"method": request.method, "params": msgspec.Raw(request.params)}
            for key, request in self._requests.items()
            if not request.answer.done()
        }

    @property
    def has_open_request(self) -> bool:
        """Whether a request waits for the client."""
        return bool(self._requests)

    def take(self, responses: JsonObject) -> None:
        """Take answers by key; those to requests that do not wait are ignored."""
        for key, response in responses.items():
            request = self._requests.get(key)
            if request is not None and not request.answer.done() and isinstance(response, dict):
                request.answer.set_result(msgspec.json.encode(response))

    def refuse(self, key: str, refusal: ServerRefused) -> None:
        """Answer a request with an error; one that does not wait is ignored."""
        request = self._requests.get(key)
        if request is not None and not request.answer.done():
            request.answer.set_exception(refusal)

    async def ask(self, method: str, params: bytes, *, key: str | None = None) -> bytes:
        """Show a request to the client, and wait for its answer as long as the call may take."""
        if key is None or key in self._requests:
            key = f"{method.partition('/')[0]}-{next(self._numbers)}"
        request = self._requests[key] = OpenRequest(method, params)
        self.on_change()
        try:
            return await request.answer
        finally:
            del self._requests[key]
            self.on_change()

    def wants_log(self, level: str) -> bool:  # noqa: ARG002
        """Return False: such a client gets no log messages."""
        return False

    def tell(self, method: str, params: bytes) -> None:
        """Drop a notification, for the same reason."""
