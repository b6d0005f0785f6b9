"""Content blocks made smaller: long texts are cut, images and files that are too large become links to the kept result.

Blocks stay bytes: what is small enough is copied as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from toolpost.base import JsonObject
from toolpost.parts.results.cut import cut_string
from toolpost.parts.results.kept import uri_of
from toolpost.parts.results.records import ResultId
from toolpost.parts.results.scan import ARRAY, OBJECT, QUOTE, Scanner
from toolpost.parts.results.settings import SizeLimits

_encode = msgspec.json.Encoder().encode

PLACES_LIMIT: Final = 100
"""Texts of a result whose places are noted; others are found by walking through it."""
BLOCKS_LIMIT: Final = 1_000
"""Blocks that are looked at; what comes behind them is left out."""
_KEYS_LIMIT: Final = 32
_EXTRAS_LIMIT: Final = 4_096
"""How large everything but its text may be in a block that is cut; above that, it is left out."""
_LEAST_TEXT: Final = 200
"""With less room than this, a text is left out rather than cut."""
_TYPE_LIMIT: Final = 200

Span = tuple[int, int]


@dataclass(kw_only=True)
class ShortContent:
    """Content that fits, and its missing rest."""

    blocks: list[bytes] = field(default_factory=list)
    places: dict[str, Span] = field(default_factory=dict)
    """Where the texts are in the whole."""
    lacks_blocks: bool = False
    """Whether blocks were left out without a link."""
    links: int = 0
    rest: tuple[str, int] | None = None
    """The first text that is not there in full: its JSON pointer, and how many bytes of it are."""

    @property
    def is_whole(self) -> bool:
        return not self.lacks_blocks and not self.links and self.rest is None

    def note_rest(self, pointer: str, shown: int) -> None:
        self.rest = self.rest or (pointer, shown)


def shorten_content(
    scanner: Scanner, start: int, limits: SizeLimits, result: ResultId, *, has_links: bool
) -> ShortContent:
    """Make the array of blocks that begins here smaller. Without `has_links`, the client knows no links, and gets text instead.

    Raises `TooManySteps`.
    """
    short = ShortContent()
    if scanner.data[start] != ARRAY:
        return short
    writer = _BlockWriter(scanner.data, limits, result, short, has_links=has_links)
    for number, member in enumerate(scanner.members(start)):
        if number >= BLOCKS_LIMIT:
            short.lacks_blocks = True
            short.note_rest(f"/content/{number}", 0)
            break
        keys = _find_keys(scanner, member.start) if scanner.data[member.start] == OBJECT else {}
        inner = keys.get(b"resource")
        embedded = {} if inner is None or scanner.data[inner[0]] != OBJECT else _find_keys(scanner, inner[0])
        writer.add(number, (member.start, member.end), keys, embedded)
    return short


def _find_keys(scanner: Scanner, start: int) -> dict[bytes, Span]:
    found: dict[bytes, Span] = {}
    for member in scanner.members(start):
        assert member.key is not None
        if len(found) < _KEYS_LIMIT:
            found[scanner.data[member.key[0] + 1 : member.key[1] - 1]] = member.start, member.end
    return found


class _BlockWriter:
    def __init__(
        self, data: bytes, limits: SizeLimits, result: ResultId, short: ShortContent, *, has_links: bool
    ) -> None:
        self._data = data
        self._text_left = limits.text_bytes
        self._blob_left = limits.blob_bytes
        self._result = result
        self._short = short
        self._has_links = has_links

    def add(self, number: int, block: Span, keys: Mapping[bytes, Span], embedded: Mapping[bytes, Span]) -> None:
        """Add a block: whole, cut, as a link, or not at all."""
        size = block[1] - block[0]
        text, blob = keys.get(b"text"), keys.get(b"data") or embedded.get(b"blob")
        pointer = f"/content/{number}/text"
        if text is not None and self._data[text[0]] == QUOTE and len(self._short.places) < PLACES_LIMIT:
            self._short.places[pointer] = text
        if blob is not None and size <= self._blob_left:
            self._blob_left -= size
        elif blob is None and size <= self._text_left:
            self._text_left -= size
        elif text is not None and self._data[text[0]] == QUOTE:
            self._add_cut_text(pointer, block, text)
            return
        elif blob is not None or embedded:
            self._add_link(number, blob or embedded.get(b"text") or block, keys, embedded)
            return
        else:
            self._short.lacks_blocks = True
            return
        self._short.blocks.append(self._data[block[0] : block[1]])

    def _add_cut_text(self, pointer: str, block: Span, text: Span) -> None:
        room, extras = self._text_left, block[1] - block[0] - (text[1] - text[0])
        # Whatever comes behind it would have less room still.
        self._text_left = 0
        if room < _LEAST_TEXT:
            self._short.lacks_blocks = True
            self._short.note_rest(pointer, 0)
            return
        if extras > min(_EXTRAS_LIMIT, room // 2):
            cut, shown = cut_string(self._data, *text, room - len(b'{"type":"text","text":}'))
            made = b'{"type":"text","text":%b}' % cut
        else:
            cut, shown = cut_string(self._data, *text, room - extras)
            made = self._data[block[0] : text[0]] + cut + self._data[text[1] : block[1]]
        self._short.blocks.append(made)
        self._short.note_rest(pointer, shown - text[0] - 1)

    def _add_link(self, number: int, value: Span, keys: Mapping[bytes, Span], embedded: Mapping[bytes, Span]) -> None:
        kind = self._text(keys.get(b"type")) or "block"
        mime_type = self._text(keys.get(b"mimeType") or embedded.get(b"mimeType"))
        size = max(0, value[1] - value[0] - 2)
        if b"text" not in embedded:
            size = size * 3 // 4
        name = self._text(embedded.get(b"uri")) or f"{kind} {number + 1}"
        uri = uri_of(self._result, number)
        if not self._has_links:
            block: JsonObject = {
                "type": "text",
                "text": f"[{name}: {mime_type or kind}, {size} bytes, left out: {uri}]",
            }
        else:
            block = {"type": "resource_link", "uri": uri, "name": name, "size": size}
            if mime_type:
                block["mimeType"] = mime_type
        self._short.blocks.append(_encode(block))
        self._short.links += 1

    def _text(self, span: Span | None) -> str:
        """Decode a short string; empty for anything else."""
        if span is None or self._data[span[0]] != QUOTE or span[1] - span[0] > _TYPE_LIMIT:
            return ""
        try:
            return msgspec.json.decode(self._data[span[0] : span[1]], type=str)
        except msgspec.DecodeError:
            return ""
