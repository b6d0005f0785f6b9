"""Requests to a server, for an observer: each is sent with a `traceparent` of its own, below that of its call.

Nearly all requests are calls on the fast path, so as little as possible is done here: the `traceparent` is written straight into
the request, and nothing waits for the answer. The observer is told of the request (`note_sent`), and it ends with its call.
"""

from collections.abc import Awaitable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol

from toolpost.base.ids import CallerId, JsonObject
from toolpost.protocol.era import PROTOCOL_VERSION
from toolpost.upstreams.message import RequestWriter
from toolpost.upstreams.server_requests import ClientChannel
from toolpost.upstreams.transport import PendingRequest, Transport


class ServerRequest(dict[str, Any]):
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

    def begin(self, request: ServerRequest, /) -> None:
        """Note a request that is about to be sent: set its `traceparent` and `began_ns`."""
        ...

    def note_sent(self, request: ServerRequest, /) -> None:
        """Note a request of the fast path: it ends with its call, unless `end` is called before."""
        ...

    def end(self, request: ServerRequest, outcome: bytes | BaseException, /) -> None:
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
        inner.use(envelope={}, headers={})

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._observer.close()

    @property
    def protocol_errors(self) -> int:
        """As of the transport inside."""
        return getattr(self._inner, "protocol_errors", 0)

    def use(self, *, envelope: JsonObject, headers: Mapping[str, str]) -> None:
        self._observer.agree(headers.get("mcp-protocol-version") or envelope.get(PROTOCOL_VERSION))
        self._inner.use(envelope=envelope, headers=headers)

    async def request(
        self,
        method: str,
        fields: bytes = b"",
        *,
        meta: JsonObject | None = None,
        name: str | None = None,
        **options: Any,
    ) -> bytes:
        request = self._begin(method, name, meta)
        return await self._finish(request, self._inner.request(method, fields, meta=request, name=name, **options))

    def try_send(
        self,
        method: str,
        fields: bytes,
        *,
        name: str,
        meta: JsonObject,
        client_channel: ClientChannel | None,
        caller: CallerId,
    ) -> PendingRequest | None:
        request = self._begin(method, name, meta)
        pending = self._inner.try_send(
            method, fields, name=name, meta=request, client_channel=client_channel, caller=caller
        )
        if pending is not None:
            # For `wait_for`, if the call gets a task.
            pending.observed = request
            if request.parent is not None:
                self._observer.note_sent(request)
        return pending

    async def wait_for(self, pending: Any, /) -> bytes:
        return await self._finish(pending.observed, self._inner.wait_for(pending))

    async def notify(self, method: str, fields: bytes = b"") -> None:
        await self._inner.notify(method, fields)

    async def notify_roots_changed(self, client_channel: ClientChannel) -> None:
        await self._inner.notify_roots_changed(client_channel)

    def _begin(self, method: str, name: str | None, meta: JsonObject | None) -> ServerRequest:
        request = ServerRequest(meta or ())
        request.method = method
        request.target = name
        request.number = 0
        request.parent = request.get("traceparent")
        self._observer.begin(request)
        request["traceparent"] = request.traceparent
        return request

    async def _finish(self, request: ServerRequest, answering: Awaitable[bytes]) -> bytes:
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
        if isinstance(meta, ServerRequest):
            meta.number = number
            if len(meta) == 1 and fields and client_channel is None and not wants_progress:
                return b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":{%b,%b"traceparent":"%b"}}}' % (
                    number,
                    method.encode(),
                    fields,
                    self._before,
                    meta.traceparent.encode(),
                )
        return super().request(
            number, method, fields, meta=meta, client_channel=client_channel, wants_progress=wants_progress
        )
