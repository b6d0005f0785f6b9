"""Attributes of all requests of clients: the network, the caller, the id of the request."""

from typing import Final

import msgspec

from toolpost import Caller
from toolpost.parts.telemetry import conventions as names
from toolpost.parts.telemetry.spans import TextAttribute

NETWORK: Final[dict[str, dict[str, str]]] = {
    "stdio": {names.TRANSPORT: "pipe"},
    "http": {names.TRANSPORT: "tcp", names.NETWORK_PROTOCOL: "http"},
    "agent": {names.TRANSPORT: "tcp", names.NETWORK_PROTOCOL: "http"},
}
"""By the transport of a caller."""

_CALLERS_LIMIT: Final = 10_000

_write_caller: Final = TextAttribute(names.CALLER)
_write_session: Final = TextAttribute(names.SESSION_ID)


class CallerAttributes:
    """Writes the attributes of callers, each once."""

    def __init__(self) -> None:
        self._written: dict[tuple[str, str | None], bytes] = {}

    def write(self, caller: Caller) -> bytes:
        """Return the id and the session of a caller as attributes."""
        key = (caller.id, caller.session)
        if (written := self._written.get(key)) is None:
            if len(self._written) >= _CALLERS_LIMIT:
                self._written.clear()
            written = _write_caller(caller.id.encode())
            if caller.session is not None:
                written += _write_session(caller.session.encode())
            self._written[key] = written
        return written


def read_id(written: bytes) -> bytes:
    """Return a JSON-RPC id as text: without the quotes of a string."""
    return written if not written.startswith(b'"') else str(msgspec.json.decode(written)).encode()
