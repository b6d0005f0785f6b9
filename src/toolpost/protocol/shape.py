"""Whether JSON can be decoded in a short time: how deep it nests, how many values it has, how long its numbers are.

A few bytes of JSON can cost far more than their size: `[],` makes an object of 56 bytes out of three, a number of 4,000 digits
takes longer to read than a page of text, and recursion is limited. All of that can be seen in the bytes, in one linear pass of a
few operations on large slices; nothing here looks at single bytes in Python. It checks shape, not syntax: bytes that are not JSON
may pass, and are refused by the decoder, which stops at the first wrong byte.
"""

from itertools import accumulate
from typing import Any, Final

import msgspec

DEPTH_LIMIT: Final = 256
SMALL_BYTES: Final = 2 * DEPTH_LIMIT
"""Anything smaller is within all limits: each level has two brackets, and each value but the first has a comma."""
VALUE_LIMIT: Final = 50_000
"""Decoded, redacted and encoded again within 50 ms. An empty object or array counts as two."""
SDK_VALUE_LIMIT: Final = 10_000
"""The limit for messages that the SDK parses, which takes several times as long."""
DECODE_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""Larger messages are passed on as bytes, or refused."""
DIGIT_LIMIT: Final = 400
"""Enough for any double in full. Integers are read and written in quadratic time, and Python writes none of more than
4,300 digits: a tool that adds one to a longer argument could not return the sum.
"""

_SLICE_BYTES: Final = 256 * 1024
_OTHERS: Final = bytes(set(range(256)) - set(b"[]{},"))
_STEPS: Final = bytes.maketrans(b"[{]},", b"\x01\x01\xff\xff\x00")
"""Brackets as signed bytes that add up to the depth."""
_DIGITS: Final = bytes.maketrans(b"123456789", b"0" * 9)
_LONG_NUMBER: Final = b"0" * (DIGIT_LIMIT + 1)
_STRIDE: Final = 50
_SAMPLED_NUMBER: Final = b"0" * (len(_LONG_NUMBER) // _STRIDE)


class BadShape(ValueError):
    """JSON that would take too long to decode; the message says which limit it exceeds."""


def decode(raw: bytes, *, value_limit: int = VALUE_LIMIT) -> Any:
    """Decode JSON from a server on the event loop; raises `BadShape` if that would take too long."""
    if len(raw) > DECODE_LIMIT_BYTES:
        raise BadShape(f"has more than {DECODE_LIMIT_BYTES} bytes")
    check_shape(raw, value_limit=value_limit)
    return msgspec.json.decode(raw)


def check_shape(raw: bytes, *, value_limit: int = VALUE_LIMIT) -> None:
    """Raise `BadShape` unless JSON is within the limits of depth, values and digits."""
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
    # Brackets and commas in strings were counted too: only now is it worth removing the strings.
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
    # Every 50th byte first, of which a long number has eight in a row: checking each byte would triple the time of a plain call.
    return _SAMPLED_NUMBER in text[::_STRIDE].translate(_DIGITS) and _LONG_NUMBER in text.translate(_DIGITS)
