"""Where a request ends."""

import pytest

from tests.hostile.attacks import assert_linear, thread_cpu_s
from toolpost.endpoints.http.framing import (
    HEADER_LIMIT,
    LINE_LIMIT,
    SMALL_CHUNKS,
    TRAILER_LIMIT,
    ChunkedBody,
    CountedBody,
    Framing,
    read_framing,
)
from toolpost.endpoints.http.refusal import Refused


def head(*lines: str, first: str = "POST /mcp HTTP/1.1") -> bytes:
    return "\r\n".join((first, *lines, "", "")).encode("latin-1")


def fed(framing: Framing, data: bytes, size: int) -> tuple[bytes, bytes | None]:
    """Feed data in pieces, and return the body and what came after it."""
    body, rest = b"", None
    for start in range(0, len(data), size):
        part, rest = framing.feed(data[start : start + size])
        body += part
        if rest is not None:
            return body, rest + data[start + size :]
    return body, rest


CHUNKS = b"5;name=value\r\nhello\r\n6\r\n world\r\n0\r\nx-sum: 1\r\n\r\nGET /"


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(CHUNKS)])
def test_a_chunked_body_is_the_same_in_any_pieces(size: int) -> None:
    framing = read_framing(head("Host: a", "Transfer-Encoding:  Chunked "))

    assert fed(framing, CHUNKS, size) == (b"hello world", b"GET /")
    assert framing.is_complete


@pytest.mark.parametrize("size", [1, 3, 20])
def test_a_counted_body_ends_where_its_length_says(size: int) -> None:
    framing = read_framing(head("content-length: 5"))

    assert isinstance(framing, CountedBody)
    assert fed(framing, b"helloGET /", size) == (b"hello", b"GET /")
    assert read_framing(head("host: a")).is_complete


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (head("content-length: 1", "content-length: 1"), 400),
        (head("content-length: 1", "Transfer-Encoding: chunked"), 400),
        (head("transfer-encoding: chunked", "transfer-encoding: chunked"), 400),
        (head("transfer-encoding: gzip, chunked"), 400),
        (head("transfer-encoding: identity"), 400),
        (head("transfer-encoding: chunked", first="POST / HTTP/1.0"), 400),
        (head("content-length: +1"), 400),
        (head("content-length: 1, 1"), 400),
        (head("content-length: -1"), 400),
        (head("content-length: 0x10"), 400),
        (head("content-length:"), 400),
        (head("content-length: " + "9" * 5000), 400),
        (head("content-length : 1"), 400),
        (head(" content-length: 1"), 400),
        (head("host: a", " folded"), 400),
        (head("host: a\x00b"), 400),
        (head("host: a\nx: b"), 400),
        (head("host: a\rx: b"), 400),
        (head("no colon"), 400),
        (head(": no name"), 400),
        (head("host: a", first="GET  / HTTP/1.1"), 400),
        (head("host: a", first="GET /\x7f HTTP/1.1"), 400),
        (head("host: a", first="GET /\xe4 HTTP/1.1"), 400),
        (head("host: a", first="GET / HTTP/2.0"), 400),
        (head("host: a", first="GET /"), 400),
        (head(first=f"GET /{'a' * LINE_LIMIT} HTTP/1.1"), 414),
        (head(*["x: y"] * (HEADER_LIMIT + 1)), 431),
    ],
)
def test_a_malformed_head_is_refused(raw: bytes, status: int) -> None:
    with pytest.raises(Refused) as refused:
        read_framing(raw)

    assert refused.value.status == status


@pytest.mark.parametrize(
    "chunks",
    [
        b"g\r\n",
        b"\r\n",
        b"-1\r\n",
        b"0x1\r\n",
        b"+1\r\n",
        b" 1\r\na\r\n",
        b"1_0\r\n",
        b"1" * 13 + b"\r\n",
        b"1\nab",
        b"1\r\nab\r\n",
        b"1\r\na1\r\nb\r\n",
        b"1;" + b"x" * 2000 + b"\r\na\r\n",
        b"1;" + b"x" * 2000,
        b"0\r\nno colon\r\n\r\n",
        b"0\r\nx: \x00\r\n\r\n",
        b"0\r\n" + b"x: y\r\n" * (TRAILER_LIMIT // 6 + 1),
        b"1\r\na\r\n" * (SMALL_CHUNKS + 1),
    ],
)
def test_malformed_chunks_are_refused(chunks: bytes) -> None:
    for size in (1, len(chunks)):
        framing = ChunkedBody()
        with pytest.raises(Refused):
            fed(framing, chunks + b"\r\n", size)


def test_a_body_costs_what_its_bytes_cost() -> None:
    def in_single_bytes(size: int) -> float:
        extension = b"400;" + b"x" * 900 + b"\r\n" + b"a" * 1024 + b"\r\n"
        data = extension * (size // len(extension) + 1)
        return thread_cpu_s(lambda: fed_all(ChunkedBody(), data))

    def fed_all(framing: ChunkedBody, data: bytes) -> None:
        for at in range(len(data)):
            framing.feed(data[at : at + 1])

    assert_linear(in_single_bytes, small=8_000)


def test_a_head_costs_what_its_bytes_cost() -> None:
    for filler in (b"a" * 64, b"\t " * 32, b":" * 64):
        assert_linear(lambda size, f=filler: thread_cpu_s(lambda: _read(f * (size // 64))), small=8_000)  # type: ignore[misc]


def _read(value: bytes) -> None:
    try:
        read_framing(b"POST / HTTP/1.1\r\ncontent-length: " + value + b"\r\n\r\n")
    except Refused:
        return
