"""Texts that a model can decode and a person does not read: base64, hex, escapes, ROT13, backwards."""

import base64
import binascii
import codecs
import html
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote_to_bytes

SHORTEST: Final = 8
"""Shorter decoded texts are ignored: they hold no instruction."""

_DEPTH: Final = 2
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{16,}")
_HEX: Final = re.compile(r"(?<![0-9A-Za-z])(?:0x)?((?:[0-9A-Fa-f]{2}){10,}|(?:[0-9A-Fa-f]{2}[ :,]){9,}[0-9A-Fa-f]{2})")
_ESCAPE: Final = re.compile(r"\\x([0-9A-Fa-f]{2})|\\u\{?([0-9A-Fa-f]{4,5})\}?|\\([0-7]{3})")
_PERCENT: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})")
_ENTITY: Final = re.compile(r"&#x?[0-9A-Fa-f]{2,5};")
# A few escapes are ordinary; an encoded sentence has more.
_MANY: Final = 6
# Words that nearly every injected instruction has: decoding is tried where their ROT13 or reversed form occurs.
_TELLTALE: Final = (
    *("ignore", "previous", "instructions", "disregard", "system", "prompt", "password", "credentials", "secret"),
    *("reveal", "forward", "user", "conversation"),
)
_ROT13: Final = re.compile("|".join(codecs.encode(word, "rot13") for word in _TELLTALE), re.IGNORECASE)
_BACKWARDS: Final = re.compile("|".join(word[::-1] for word in _TELLTALE), re.IGNORECASE)


def decode_hidden(text: str, depth: int = _DEPTH) -> Iterator[tuple[str, str]]:
    """Yield how a text, or a run in it, may be decoded, and the decoded text; only results that are text again."""
    for how, decoded in _decode_candidates(text):
        if len(decoded) >= SHORTEST:
            yield how, decoded
            if depth > 1 and how not in {"backwards", "ROT13"}:
                yield from decode_hidden(decoded, depth - 1)


def _decode_candidates(text: str) -> Iterator[tuple[str, str]]:
    for found in _BASE64.finditer(text):
        if (plain := _decode_base64(found[0])) is not None:
            yield "base64", plain
    for found in _HEX.finditer(text):
        digits = re.sub(r"[ :,]", "", found[1])
        if (plain := _decode_utf8(bytes.fromhex(digits))) is not None:
            yield "hex", plain
    if "\\" in text and _has_many(_ESCAPE, text):
        yield "escapes", _ESCAPE.sub(_unescape, text)
    if "%" in text and _has_many(_PERCENT, text):
        yield "percent-encoding", unquote_to_bytes(text).decode(errors="replace")
    if "&#" in text and _has_many(_ENTITY, text):
        yield "character references", html.unescape(text)
    if _ROT13.search(text):
        yield "ROT13", codecs.encode(text, "rot13")
    if _BACKWARDS.search(text):
        yield "backwards", text[::-1]


def _has_many(pattern: re.Pattern[str], text: str) -> bool:
    return sum(1 for _, _ in zip(pattern.finditer(text), range(_MANY), strict=False)) == _MANY


def _unescape(found: re.Match[str]) -> str:
    number = int(found[3], 8) if found[3] else int(found[1] or found[2], 16)
    return chr(number)


def _decode_base64(run: str) -> str | None:
    standard = run.replace("-", "+").replace("_", "/")
    # A run may begin with characters of the word before it, or be cut in the middle of a group of four.
    for start in range(4):
        rest = standard[start : start + (len(standard) - start) // 4 * 4 + 4]
        padded = rest + "=" * (-len(rest) % 4)
        try:
            text = _decode_utf8(base64.b64decode(padded)) or _decode_utf8(base64.b64decode(rest[: len(rest) // 4 * 4]))
        except (binascii.Error, ValueError):
            continue
        if text is not None:
            return text
    return None


def _decode_utf8(data: bytes) -> str | None:
    """Return bytes as text if they are printable UTF-8, otherwise None."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    # `isprintable` is false for line breaks and tabs.
    is_text = bool(text) and "".join(text.split()).isprintable()
    return text if is_text else None
