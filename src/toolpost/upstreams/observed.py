"""Requests to a server, for an observer: each is sent with a `traceparent` of its own, below that of its call.

Nearly all requests are calls on the fast path, so as little as possible is done here: the `traceparent` is written straight into
the request, and nothing waits for the answer. The observer is told of the request (`note_sent`), and it ends with its call.
"""

from collections.abc import Awaitable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol

from msgspec.structs import replace

from toolpost.base.ids import JsonObject
from toolpost.protocol.era import PROTOCOL_VERSION
from toolpost.upstreams.message import RequestWriter
from toolpost.upstreams.server_requests import ClientChannel
from toolpost.upstreams.transport import PendingRequest, Transport, UpstreamRequest


class ObservedRequest(dict[str, Any]):
    """A request to a server that is not over yet, and at the same time the `_meta` that names its span.

    One object, because there is one for each call.
    """

    __slots__ = ("began_ns", "method", "number", "parent", "target", "traceparent")
    method: str
    target: str | None
    """The name of a tool or a prompt, or the URI of a resource."""
    parent: str | None
    """The `traceparent` of the call that it is made for; None for a request of the gateway itself."""
    traceparent: str
    """What the server is sent; made by `begin`."""
    number: int
    """The id of the request, known when it is written."""
    began_ns: int
    """Set by `begin`, of the monotonic clock."""


class ServerObserver(Protocol):
    """Called for the requests to one instance of a server."""

    def agree(self, version: str | None, /) -> None:
        """Note the agreed revision of MCP; None before there is one."""
        ...

    def begin(self, request: ObservedRequest, /) -> None:
        """Note a request that is about to be sent: set its `traceparent` and `began_ns`."""
        ...

    def note_sent(self, request: ObservedRequest, /) -> None:
        """Note a request of the fast path: it ends with its call, unless `end` is called before."""
        ...

    def end(self, request: ObservedRequest, outcome: bytes | BaseException, /) -> None:
        """Note the result of a request, as JSON, or what was raised in its place."""
        ...

    def close(self) -> None:
        """Note the end of the instance."""
        ...


class ObservedTransport(AbstractContextManager[Transport]):
    """A `Transport` that tells an observer of its requests, and of its own end."""

    def __init__(self, inner: Transport, observer: ServerObserver) -> None:
        self._inner = inner
        self._observer = observer
        inner.writer_type = _TracingWriter  # type: ignore[attr-defined]
        inner.use(request_meta={}, headers={})

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._observer.close()

    @property
    def protocol_errors(self) -> int:
        """As of the transport inside."""
        return getattr(self._inner, "protocol_errors", 0)

    def use(self, *, request_meta: JsonObject, headers: Mapping[str, str]) -> None:
        self._observer.agree(headers.get("mcp-protocol-version") or request_meta.get(PROTOCOL_VERSION))
        self._inner.use(request_meta=request_meta, headers=headers)

    async def request(self, request: UpstreamRequest, /) -> bytes:
        observed = self._begin(request)
        return await self._finish(observed, self._inner.request(replace(request, meta=observed)))

    def try_send(self, request: UpstreamRequest, /) -> PendingRequest | None:
        observed = self._begin(request)
        pending = self._inner.try_send(replace(request, meta=observed))
        if pending is not None:
            # For `wait_for`, if the call gets a task.
            pending.observed = observed
            if observed.parent is not None:
                self._observer.note_sent(observed)
        return pending

    async def wait_for(self, pending: Any, /) -> bytes:
        return await self._finish(pending.observed, self._inner.wait_for(pending))

    async def notify(self, method: str, fields: bytes = b"") -> None:
        await self._inner.notify(method, fields)

    async def notify_roots_changed(self, client_channel: ClientChannel) -> None:
        await self._inner.notify_roots_changed(client_channel)

    def _begin(self, request: UpstreamRequest) -> ObservedRequest:
        observed = ObservedRequest(request.meta or ())
        observed.method = request.method
        observed.target = request.name
        observed.number = 0
        observed.parent = observed.get("traceparent")
        self._observer.begin(observed)
        observed["traceparent"] = observed.traceparent
        return observed

    async def _finish(self, request: ObservedRequest, answering: Awaitable[bytes]) -> bytes:
        try:
            result = await answering
        except BaseException as error:
            self._observer.end(request, error)
            raise
        self._observer.end(request, result)
        return result


class _TracingWriter(RequestWriter):
    """Writes requests, and notes their numbers in what the observer knows of them."""

    __slots__ = ("_before",)

    def __init__(self, carried: JsonObject) -> None:
        super().__init__(carried)
        # Where there is nothing else to say, `traceparent` is appended to what all requests carry: to encode `_meta` again would
        # cost more than everything else that telemetry does to a request.
        self._before = b"%b," % self._plain[:-1] if self._plain else b'"_meta":{'

    def write(self, number: int, request: UpstreamRequest) -> bytes:
        meta = request.meta
        if isinstance(meta, ObservedRequest):
            meta.number = number
            is_plain = request.client_channel is None and request.on_progress is None
            if len(meta) == 1 and request.fields and is_plain:
                return b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":{%b,%b"traceparent":"%b"}}}' % (
                    number,
                    request.method.encode(),
                    request.fields,
                    self._before,
                    meta.traceparent.encode(),
                )
        return super().write(number, request)
