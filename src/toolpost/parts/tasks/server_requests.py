"""Requests of a server during a task: kept until the client reads them with `tasks/get` and answers with `tasks/update`."""

from toolpost.base.ids import CallerId, JsonObject
from toolpost.endpoints.pending_channel import PendingChannel
from toolpost.protocol.era import CLIENT_CAPABILITIES
from toolpost.upstreams.server_requests import select_capabilities


class TaskClientChannel(PendingChannel):
    """Stands for a client that is not connected while its call runs, and polls."""

    def __init__(self, caller: CallerId, meta: JsonObject) -> None:
        super().__init__(caller, select_capabilities(meta.get(CLIENT_CAPABILITIES)))
