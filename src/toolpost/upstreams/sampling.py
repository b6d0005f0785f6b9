"""Sampling requests of servers whose client has no model: the path to the client, with something else that answers them."""

from collections.abc import Awaitable, Callable, Hashable
from typing import Final

from toolpost.base.caller import Caller
from toolpost.base.ids import JsonObject
from toolpost.upstreams.server_requests import METHOD_NOT_FOUND, SAMPLING, ClientChannel
from toolpost.upstreams.transport import ServerRefused

Sampler = Callable[[bytes, Caller], Awaitable[bytes]]
"""Takes the parameters of a `sampling/createMessage` and the caller; returns its result as JSON, or raises `ServerRefused`."""

_CAPABILITY: Final = "sampling"


def with_sampling(channel: ClientChannel | None, caller: Caller, sampler: Sampler) -> ClientChannel:
    """Return the channel of a call on which sampling is answered: by the client if it can, else by `sampler`."""
    if channel is not None and isinstance(channel.capabilities.get(_CAPABILITY), dict):
        return channel
    return SamplingChannel(channel, caller, sampler)


class SamplingChannel:
    """The channel to a client, if there is one, whose sampling requests are answered in its place."""

    takes_input_required = False
    """Such a result would ask the client for what it cannot answer, so its requests are answered one by one."""

    def __init__(self, channel: ClientChannel | None, caller: Caller, sampler: Sampler) -> None:
        self._channel = channel
        self._caller = caller
        self._sampler = sampler
        # Without a channel a client gets nothing of what a server sends, so that all of one caller may pass for one.
        self.client: Hashable = (caller.id, _CAPABILITY) if channel is None else channel.client
        self.capabilities: JsonObject = ({} if channel is None else channel.capabilities) | {_CAPABILITY: {}}

    @property
    def log_level(self) -> str | None:
        """The client's."""
        return None if self._channel is None else self._channel.log_level

    def wants_log(self, level: str) -> bool:
        """Whether the client wants log messages of this level."""
        return self._channel is not None and self._channel.wants_log(level)

    @property
    def can_tell(self) -> bool:
        """Whether the client can be told something."""
        return self._channel is not None and self._channel.can_tell

    @property
    def has_open_request(self) -> bool:
        """Whether a request waits for the client itself."""
        return self._channel is not None and self._channel.has_open_request

    async def ask(self, method: str, params: bytes, *, key: str | None = None) -> bytes:
        """Answer sampling; send anything else to the client."""
        if method == SAMPLING:
            return await self._sampler(params, self._caller)
        if self._channel is None:
            raise ServerRefused(METHOD_NOT_FOUND, f"There is no client to answer {method}")
        return await self._channel.ask(method, params, key=key)

    def tell(self, method: str, params: bytes) -> None:
        """Forward a notification to the client."""
        if self._channel is not None:
            self._channel.tell(method, params)
