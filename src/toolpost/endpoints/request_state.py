"""`requestState`: what a client of the stateless era carries for us from one round of a call to the next, signed.

It comes back through hands that we do not know. So it is bound to the caller and to what was asked for, has an end, and what
was changed in it is seen.
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
"""How long a server's own state may be on its way; whoever answers is a person."""

_MARK_BYTES: Final = 32


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is written into one."""

    caller: str
    tool: str
    """What was asked for: a tool by its name, a prompt or a resource by method and name."""
    until: float
    call: str = ""
    """A call that waits here for its answers."""
    round: int = 0
    theirs: str | None = None
    """The server's own state, for one that keeps nothing itself."""


_decoder = msgspec.json.Decoder(State)


class StateSeal:
    """Writes states and reads them back. Whoever has the same key can go on where another has left off."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def sealed(self, state: State) -> str:
        """Write a state so that it can be read here alone."""
        text = msgspec.json.encode(state)
        return base64.urlsafe_b64encode(self._mark(text) + text).decode()

    def opened(self, sealed: str, *, caller: Caller, tool: str, request_id: bytes) -> State:
        """Read a state that this caller was given for this tool, or say why it is not taken."""
        try:
            raw = base64.b64decode(sealed.encode(), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        text = raw[_MARK_BYTES:]
        if not hmac.compare_digest(raw[:_MARK_BYTES], self._mark(text)):
            raise refused("was not made here, or has been changed", "forged", request_id)
        state = _decoder.decode(text)
        if state.caller != principal(caller) or state.tool != tool:
            raise refused("was given to another caller, or for another tool", "foreign", request_id)
        if state.until < time.time():
            raise refused("has expired", "expired", request_id)
        return state

    def _mark(self, text: bytes) -> bytes:
        return hmac.digest(self._key, text, "sha256")


def principal(caller: Caller) -> str:
    """Name whose a state is: the caller, and of a caller's sessions the one that it was given to."""
    return f"{caller.id}\n{caller.session or ''}"


def refused(what: str, reason: str, request_id: bytes) -> ProtocolError:
    """Say what is wrong with a state."""
    data = {
        "code": ErrorCode.INVALID_REQUEST.value,
        "reason": reason,
        "hint": "make the call again, without requestState",
    }
    return ProtocolError(INVALID_PARAMS, f"The requestState {what}", data=data, request_id=request_id)
