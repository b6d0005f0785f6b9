"""Requests as they go out: what all of them to one server carry is written once."""

from toolpost.base.ids import JsonObject
from toolpost.upstreams.server_requests import ClientChannel, make_meta
from toolpost.upstreams.transport import write_params


class Envelope:
    """What the agreed revision puts into the `_meta` of every request; nothing in the handshake era."""

    __slots__ = ("_carried", "_plain")

    def __init__(self, carried: JsonObject) -> None:
        self._carried = carried
        self._plain = write_params(b"", carried)[1:-1]

    def request(
        self,
        number: int,
        method: str,
        fields: bytes,
        *,
        meta: JsonObject | None = None,
        client_channel: ClientChannel | None = None,
        wants_progress: bool = False,
    ) -> bytes:
        """Write a request; one whose caller wants nothing of it but the answer costs least."""
        if meta or wants_progress or client_channel is not None:
            carried = make_meta(client_channel, self._carried, meta)
            if wants_progress:
                carried["progressToken"] = number
            inside = write_params(fields, carried)
        elif fields and self._plain:
            inside = b"{%b,%b}" % (fields, self._plain)
        else:
            inside = b"{%b}" % (fields or self._plain)
        return b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}' % (number, method.encode(), inside)
