"""`requestState`: the signed state that a client of the stateless era returns with the next round of a call.

The client is not trusted with it. A state is bound to the caller and to the tool, expires, and any change to it is detected.
"""

import base64
import binascii
import hmac
import time
from typing import Final

import msgspec

from toolpost.base.caller import Caller
from toolpost.contracts.errors import ErrorCode
from toolpost.protocol.rpc import INVALID_PARAMS, ProtocolError

PASSED_TTL_S: Final = 600.0
"""How long a server's own state is valid; a person may have to answer in that time."""

_SIGNATURE_BYTES: Final = 32


class RequestState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a `requestState`."""

    caller: str
    tool: str
    """What was requested: a tool by its name, a prompt or a resource by method and name."""
    until: float
    call: str = ""
    """The id of a call that waits here for responses; empty if the server keeps its own state."""
    round: int = 0
    process: str = ""
    """The process in which that call waits."""
    theirs: str | None = None
    """The upstream server's own `requestState`, for one that keeps nothing itself."""


_decoder = msgspec.json.Decoder(RequestState)


class StateSeal:
    """Signs states and verifies them. Gateways with the same key accept each other's."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, state: RequestState) -> str:
        text = msgspec.json.encode(state)
        return base64.urlsafe_b64encode(self._sign(text) + text).decode()

    def open(self, sealed: str, *, caller: Caller, tool: str, request_id: bytes) -> RequestState:
        """Verify a state that this caller was given for this tool; raise `ProtocolError` if it is not valid."""
        try:
            raw = base64.b64decode(sealed.encode(), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        text = raw[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(raw[:_SIGNATURE_BYTES], self._sign(text)):
            raise reject_state("was not made here, or has been changed", "forged", request_id)
        state = _decoder.decode(text)
        if state.caller != principal(caller) or state.tool != tool:
            raise reject_state("was given to another caller, or for another tool", "foreign", request_id)
        if state.until < time.time():
            raise reject_state("has expired", "expired", request_id)
        return state

    def _sign(self, text: bytes) -> bytes:
        return hmac.digest(self._key, text, "sha256")


def principal(caller: Caller) -> str:
    """Name the owner of a state: the caller, and its session if it has one."""
    return f"{caller.id}\n{caller.session or ''}"


def reject_state(what: str, reason: str, request_id: bytes) -> ProtocolError:
    """Make the protocol error for a state that is not accepted."""
    data = {
        "code": ErrorCode.INVALID_REQUEST.value,
        "reason": reason,
        "hint": "make the call again, without requestState",
    }
    return ProtocolError(INVALID_PARAMS, f"The requestState {what}", data=data, request_id=request_id)
