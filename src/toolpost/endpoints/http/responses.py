"""Responses that the connection writes itself, as bytes."""

import http
from typing import Final

from toolpost.endpoints.http.refusal import Refused

_EVENTS: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache, no-transform\r\n"
    b"x-accel-buffering: no\r\nx-request-id: %b\r\ntransfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK: Final = b"0\r\n\r\n"
_RESPONSE: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: %b\r\ncontent-length: %d\r\n\r\n%b"
)
_OTHER_RESPONSE: Final = (
    b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\nx-request-id: %b\r\ncontent-length: %d\r\n\r\n%b"
)
_REFUSAL: Final = (
    b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n%b\r\n%b"
)


def write_response(status: int, request_id: str, body: bytes) -> bytes:
    """Write a response in JSON."""
    if status == 200:
        return _RESPONSE % (request_id.encode(), len(body), body)
    return _OTHER_RESPONSE % (status, _phrase(status), request_id.encode(), len(body), body)


def write_stream_head(request_id: str) -> bytes:
    """Write the head of a response that is a stream of events, in chunks."""
    return _EVENTS % request_id.encode()


def write_refusal(refusal: Refused) -> bytes:
    """Write a refusal as the last response of a connection."""
    more = b"".join(b"%b: %b\r\n" % field for field in refusal.headers or ())
    return _REFUSAL % (refusal.status, _phrase(refusal.status), len(refusal.body), more, refusal.body)


def write_event(raw: bytes) -> bytes:
    return b"event: message\r\ndata: %b\r\n\r\n" % raw


def write_chunk(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


def _phrase(status: int) -> bytes:
    return http.HTTPStatus(status).phrase.encode()
