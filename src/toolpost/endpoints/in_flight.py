"""The unanswered calls of one client, by their request ids.

A two-way channel has one `InFlight`, and so has a session over HTTP, for calls that the connection answers itself and for
those that pass ASGI. In the stateless era over HTTP there is none: a call ends with its response.
"""

from typing import Final

from toolpost.middleware.call import Call
from toolpost.protocol import rpc
from toolpost.protocol.rpc import INVALID_REQUEST, ProtocolError, RpcMessage

CANCELLED: Final = "notifications/cancelled"
"""MCP's cancellation, which is a notification and takes no answer."""
CANCEL_REQUEST: Final = "$/cancelRequest"
"""The older one of JSON-RPC: the call that it stops is answered with `CANCELLED`."""

REASON_LIMIT: Final = 200
"""Characters of a client's reason that are kept, for the audit and for the server that runs the call."""


class InFlight:
    """Calls by request id. The code that adds a call removes it, however the call ended."""

    __slots__ = ("_calls", "_unwanted")

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}
        self._unwanted: set[str] = set()

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, key: str) -> bool:
        return key in self._calls

    def check_new(self, key: str) -> None:
        """Refuse a request whose id is in flight already, before anything is done for it.

        The refusal has no id: on a channel the client would take it for the answer of the other request.
        """
        if key in self._calls:
            raise ProtocolError(INVALID_REQUEST, f"A request with the id {key} is in flight already", data={"id": key})

    def add(self, key: str, call: Call) -> None:
        """Add a call, so that cancellations find it; the id must be new."""
        self._calls[key] = call

    def remove(self, key: str) -> bool:
        """Remove a call; return whether its client still wants the answer."""
        del self._calls[key]
        if key not in self._unwanted:
            return True
        self._unwanted.discard(key)
        return False

    def cancel(self, message: RpcMessage) -> bool:
        """Stop the call that a cancellation names; return False if it is not here."""
        params = rpc.params_object(message)
        key = rpc.id_key(params.get("requestId" if message.method == CANCELLED else "id"))
        call = self._calls.get(key)
        if call is None:
            return False
        if message.method == CANCELLED:
            self._unwanted.add(key)
        reason = params.get("reason")
        call.cancel(reason[:REASON_LIMIT] if isinstance(reason, str) and reason else "the client asked for it")
        return True

    def cancel_all(self, reason: str) -> None:
        """Stop every call; each is removed when it has ended."""
        for call in tuple(self._calls.values()):
            call.cancel(reason)
