r"""The hand-over to uvicorn: requests that need ASGI, one at a time, on a connection that `connection` keeps.

uvicorn gets the head of a request, and its body without framing: where a request ends is decided here alone, so that it cannot be
read in two ways. For example, of `POST /mcp` with the body `5\r\nhello\r\n0\r\n\r\nGET /` uvicorn gets the head and
`hello`; `GET /` is what `feed` returns, and the beginning of the next request.
"""

import asyncio
from typing import Any, Protocol

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from toolpost.endpoints.http.framing import CountedBody, Framing, malformed
from toolpost.endpoints.http.refusal import Refused


class ForwardingConnection(Protocol):
    """The connection, as far as uvicorn's side of it needs it."""

    @property
    def is_leaving(self) -> bool:
        """Whether it will answer nothing more."""
        ...

    def refuse(self, refusal: Refused) -> None:
        """Answer a request that was not read to its end, and close."""
        ...

    def leave(self) -> None:
        """Close once all is written."""
        ...

    def finish_forwarded(self) -> None:
        """Continue after uvicorn has answered."""
        ...


class Forwarding:
    """The requests of one connection that uvicorn answers; made for the first of them."""

    def __init__(
        self,
        connection: ForwardingConnection,
        transport: asyncio.Transport,
        config: Any,
        state: Any,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._uvicorn = _UvicornProtocol(connection, transport, config, state, loop)
        self._framing: Framing = CountedBody(0)

    @property
    def has_whole_request(self) -> bool:
        """Whether all of the request was received."""
        return self._framing.is_complete

    @property
    def has_begun(self) -> bool:
        """Whether a part of the response has been written."""
        is_started: bool = self._uvicorn.cycle.response_started
        return is_started

    @property
    def is_reading_paused(self) -> bool:
        """Whether the handler has not read what it was given."""
        return self._uvicorn.flow.read_paused

    def begin(self, head: bytes, framing: Framing) -> None:
        """Start answering a request; `feed` or `complete` follows, unless uvicorn's parser has refused the head."""
        self._framing = framing
        self._uvicorn.begin(head)

    def feed(self, data: bytes) -> bytes | None:
        """Pass on the body, and return the bytes after it; None while it is incomplete. Raises `Refused` for malformed chunks."""
        body, rest = self._framing.feed(data)
        if body:
            self._uvicorn.on_body(body)
        if rest is not None:
            self._uvicorn.complete()
        return rest

    def complete(self) -> None:
        """Note that a request without a body has ended."""
        self._uvicorn.complete()

    def drop(self) -> None:
        """Tell the handler that the client has disconnected."""
        self._uvicorn.drop()

    def lose_connection(self, error: Exception | None) -> None:
        self._uvicorn.connection_lost(error)

    def pause_writing(self) -> None:
        self._uvicorn.pause_writing()

    def resume_writing(self) -> None:
        self._uvicorn.resume_writing()

    def shutdown(self) -> None:
        """Have uvicorn close after the answer that is due."""
        self._uvicorn.shutdown()


class _UvicornTransport:
    """The transport as uvicorn sees it: how the connection ends is decided by the connection."""

    def __init__(self, connection: ForwardingConnection, transport: asyncio.Transport) -> None:
        self._connection = connection
        self._transport = transport
        self.get_extra_info = transport.get_extra_info
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def is_closing(self) -> bool:
        """Whether anything written now would be lost."""
        return self._connection.is_leaving or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        if not self.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Close after what has been written."""
        self._connection.leave()


class _UvicornProtocol(HttpToolsProtocol):
    """uvicorn's own protocol, for one request at a time: it is given the head, and the body without its framing."""

    def __init__(
        self, connection: ForwardingConnection, transport: asyncio.Transport, config: Any, state: Any, loop: Any
    ) -> None:
        super().__init__(config, state, {}, loop)
        self._connection = connection
        self.connection_made(_UvicornTransport(connection, transport))  # type: ignore[arg-type]
        self.connections.discard(self)  # the connection itself is registered

    def begin(self, head: bytes) -> None:
        """Start answering a request; its body follows through `on_body` and `complete`."""
        # A new parser for each request: it never sees bodies, so it could not find the next head.
        self.parser = httptools.HttpRequestParser(self)
        try:
            self.parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            pass  # There is nothing to upgrade to: it is answered as if the header were not there.
        except httptools.HttpParserError:
            self._connection.refuse(malformed("The request is not HTTP/1.1"))

    def complete(self) -> None:
        """Note that the body has ended."""
        super().on_message_complete()

    def drop(self) -> None:
        """Tell the handler that the client has disconnected."""
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        self.flow.resume_writing()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["connection"] = self._connection  # type: ignore[typeddict-unknown-key]

    def on_message_complete(self) -> None:
        """Ignore the parser: `Forwarding` decides where a request ends."""

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            self._connection.finish_forwarded()
