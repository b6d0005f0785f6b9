"""Writes requests to one server; the part that all of them share is encoded once."""

from toolpost.base.ids import JsonObject
from toolpost.upstreams.server_requests import ClientChannel, make_meta
from toolpost.upstreams.transport import write_params


class RequestWriter:
    """The `_meta` that the agreed revision puts into every request; empty in the handshake era."""

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
        """Write the JSON of a request. With `wants_progress`, its id is its progress token too."""
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
