"""Whether JSON can be decoded in a short time: how deep it nests, how many values it holds, how long its numbers are.

A few bytes of JSON can cost far more than their size: `[],` makes an object of 56 bytes out of three, a number of 4,000 digits
takes longer to read than a page of text, and recursion has an end. All of that is seen in the bytes, in one linear pass that
consists of a few operations on large slices; nothing here looks at single bytes in Python. It judges shape, not syntax: what is
no JSON at all may pass, and is refused by the decoder, which stops at the first wrong byte.
"""

from itertools import accumulate
from typing import Any, Final

import msgspec

DEPTH_LIMIT: Final = 256
SMALL_BYTES: Final = 2 * DEPTH_LIMIT
"""What is smaller breaks no limit: each level has two brackets, and each value but the first has a comma."""
VALUE_LIMIT: Final = 50_000
"""Decoded, redacted and written again within 50 ms. An empty object or array counts as two."""
SDK_VALUE_LIMIT: Final = 10_000
"""How many values a message may hold that the SDK reads, which takes it several times as long as it takes us."""
DECODE_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""What is larger is passed on in bytes, or not at all."""
DIGIT_LIMIT: Final = 400
"""Enough for any double that is written out; whole numbers are read and written in quadratic time, and Python writes none of
more than 4,300 digits: a tool that adds one to a longer argument could not return the sum."""

_SLICE_BYTES: Final = 256 * 1024
_OTHERS: Final = bytes(set(range(256)) - set(b"[]{},"))
_STEPS: Final = bytes.maketrans(b"[{]},", b"\x01\x01\xff\xff\x00")
"""Brackets as signed bytes that add up to the depth."""
_DIGITS: Final = bytes.maketrans(b"123456789", b"0" * 9)
_LONG_NUMBER: Final = b"0" * (DIGIT_LIMIT + 1)
_STRIDE: Final = 50
_SAMPLED_NUMBER: Final = b"0" * (len(_LONG_NUMBER) // _STRIDE)


class BadShape(ValueError):
    """The JSON would take too long to decode, or nests too deep; the message says which limit it breaks."""


def decode(raw: bytes, *, value_limit: int = VALUE_LIMIT) -> Any:
    """Decode JSON that a server sent, on the event loop; raise `BadShape` if that would take long."""
    if len(raw) > DECODE_LIMIT_BYTES:
        raise BadShape(f"has more than {DECODE_LIMIT_BYTES} bytes")
    check_shape(raw, value_limit=value_limit)
    return msgspec.json.decode(raw)


def check_shape(raw: bytes, *, value_limit: int = VALUE_LIMIT) -> None:
    """Raise `BadShape` unless this JSON nests, holds and counts within the limits."""
    size = len(raw)
    if size < SMALL_BYTES:
        return
    opened = raw.count(b"[") + raw.count(b"{")
    if (
        opened <= DEPTH_LIMIT
        and (size < 2 * value_limit or opened + raw.count(b",") <= value_limit)
        and not _has_long_number(raw)
    ):
        return
    # What stands in strings has been counted too: only now is it worth taking them out.
    _check_exactly(raw, value_limit)


def _check_exactly(raw: bytes, value_limit: int) -> None:
    values = quotes = depth = start = 0
    is_in_string = False
    while start < len(raw):
        # In slices, so that in a thread the interpreter lock changes hands in between.
        piece = raw[start : start + _SLICE_BYTES]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2 and len(piece) == _SLICE_BYTES:
            piece = piece[:-1]  # This backslash escapes the first byte of the next slice.
        start += len(piece)
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        outside = b'"'.join(parts[is_in_string::2])
        is_in_string ^= len(parts) % 2 == 0
        quotes += len(parts) - 1
        if _has_long_number(outside):
            raise BadShape(f"holds a number of more than {DIGIT_LIMIT} digits")
        steps = outside.translate(_STEPS, _OTHERS)
        closed = steps.count(b"\xff")
        opened = steps.count(b"\x01")
        values += len(steps) - closed
        if values > value_limit:
            raise BadShape(f"holds more than {value_limit:,} values")
        if closed > opened + depth or quotes > 4 * values + 8:
            # Not JSON: more is closed than was opened, or strings follow each other without a comma.
            return
        if max(accumulate(memoryview(steps).cast("b"), initial=depth)) > DEPTH_LIMIT:
            raise BadShape(f"nests deeper than {DEPTH_LIMIT} levels")
        depth += opened - closed


def _has_long_number(text: bytes) -> bool:
    # Every 50th byte first, of which a long number has eight in a row: to look at each would triple the time for a plain call.
    return _SAMPLED_NUMBER in text[::_STRIDE].translate(_DIGITS) and _LONG_NUMBER in text.translate(_DIGITS)
