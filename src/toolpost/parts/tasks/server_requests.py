"""Requests of a server during a task: kept until the client reads them with `tasks/get` and answers with `tasks/update`."""

import asyncio
import itertools
import secrets
from collections.abc import Callable, Hashable

import msgspec

from toolpost.base.ids import CallerId, JsonObject
from toolpost.protocol.era import CLIENT_CAPABILITIES
from toolpost.upstreams.server_requests import select_capabilities


class _PendingRequest:
    def __init__(self, method: str, params: bytes) -> None:
        self.method = method
        self.params = params
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()


class TaskClientChannel:
    """Stands for a client that is not connected while its call runs, and polls."""

    takes_input_required = False
    log_level: str | None = None

    def __init__(self, caller: CallerId, meta: JsonObject) -> None:
        self.client: Hashable = (caller, secrets.token_hex(8))
        self.capabilities = select_capabilities(meta.get(CLIENT_CAPABILITIES))
        self._numbers = itertools.count(1)
        self._requests: dict[str, _PendingRequest] = {}
        self.on_change: Callable[[], None] = lambda: None
        """Called when a request was added or removed."""

    @property
    def pending(self) -> JsonObject:
        """The requests that wait for an answer, by keys that are never used again."""
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

    async def ask(self, method: str, params: bytes) -> bytes:
        """Show a request to the client, and wait for its answer as long as the call may take."""
        key = f"{method.partition('/')[0]}-{next(self._numbers)}"
        request = self._requests[key] = _PendingRequest(method, params)
        self.on_change()
        try:
            return await request.answer
        finally:
            del self._requests[key]
            self.on_change()

    def wants_log(self, level: str) -> bool:  # noqa: ARG002
        """Return False: a client that is not connected gets no log messages."""
        return False

    def tell(self, method: str, params: bytes) -> None:
        """Drop a notification, for the same reason."""
