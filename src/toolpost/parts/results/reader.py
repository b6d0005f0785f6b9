"""Reads kept results: pages of a text or of JSON, lines that match a pattern, and values by JSON pointer.

A *document* is the text to read: a string in the result, as text, or any other value, as JSON. Offsets are bytes of the document
as it is stored, escapes included, so that a page of a text of 50 MB is read without the rest of it.
"""

import importlib
import json
import re
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
from anyio import CapacityLimiter, to_thread

from toolpost import CallerId, CapabilityMissing, InvalidArguments, NotFound
from toolpost.base import Json, JsonObject
from toolpost.contracts import InvalidRequest
from toolpost.parts.results.kept import KeptResults
from toolpost.parts.results.records import KeptResult, ResultId
from toolpost.parts.results.scan import ARRAY, OBJECT, QUOTE, Scanner, TooManySteps, end_of_characters

PAGE_BYTES: Final = 32 * 1024
PAGE_LIMIT_BYTES: Final = 1024 * 1024
SEARCHED_BYTES: Final = 32 * 1024 * 1024
"""How much one search goes through; it says where the next one goes on."""
_BLOCK_BYTES: Final = 256 * 1024
_LINE_BYTES: Final = 4 * 1024
"""A longer line is searched in parts of this size, each of which begins before the end of the one in front of it."""
_OVERLAP_BYTES: Final = 512
_AROUND: Final = 200
"""Characters that are shown before and after a match in a long line."""
_SHOWN: Final = 1_000
_MATCH_BYTES: Final = 32
"""What a shorter match counts as: an answer of a million empty lines would hold up every other call."""
_LONGEST_CHARACTER: Final = 12
"""Two halves of a surrogate pair, escaped."""
_SELECTED_LIMIT: Final = 8 * 1024 * 1024
_KEYS_SHOWN: Final = 20
_DIGITS_LIMIT: Final = 9
EVERY: Final = "*"
"""Stands for every item of an array, and every value of an object."""

_escape: Final = re.compile(rb"\\(.)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class KeptDocument:
    """The text to read: a part of a kept result, or bytes that were selected from it."""

    kept: KeptResult
    start: int
    end: int
    is_text: bool
    data: bytes | None = None
    """The bytes that `start` and `end` refer to; None for those in the store."""

    @property
    def size(self) -> int:
        return self.end - self.start


class ResultReader:
    """Reads the results of a store, each for its owner alone."""

    def __init__(self, kept: KeptResults) -> None:
        self._kept = kept
        # A selection has the whole value in memory.
        self._threads = CapacityLimiter(1)

    async def read_page(self, caller: CallerId, request: "ReadRequest") -> JsonObject:
        """Return a page of a document, and where the next one begins."""
        document = await self._open(caller, request)
        raw = await self._slice(document, request.offset, request.offset + request.limit + _LONGEST_CHARACTER)
        skipped = _continuation_bytes(raw)
        end = _end_of_page(raw, skipped, skipped + request.limit, is_text=document.is_text)
        after = request.offset + end
        return {
            "text": _decode_text(raw[skipped:end]) if document.is_text else raw[skipped:end].decode("utf-8", "replace"),
            "type": "text" if document.is_text else "json",
            "size": document.size,
            "next_offset": after if after < document.size else None,
        }

    async def search(self, caller: CallerId, request: "ReadRequest") -> JsonObject:
        """Return the lines of a document that match, and where to go on."""
        pattern = _compile(request.grep)
        document = await self._open(caller, request)
        at, stop = request.offset, min(document.size, request.offset + SEARCHED_BYTES)
        matches: list[JsonObject] = []
        room = request.limit
        while at < stop and room > 0:
            raw = await self._slice(document, at, at + _BLOCK_BYTES + _LONGEST_CHARACTER)
            is_last = at + len(raw) >= document.size
            search = partial(_search_block, pattern, raw, is_text=document.is_text, is_last=is_last, room=room)
            found, searched, room = await to_thread.run_sync(search, limiter=self._threads)
            matches += [{"offset": at + offset, "text": text} for offset, text in found]
            at += searched
        return {"matches": matches, "size": document.size, "next_offset": at if at < document.size else None}

    async def read_block(self, caller: CallerId, name: ResultId, number: int) -> JsonObject:
        """Return a block of the content of a result. Raises `NotFound`."""
        request = ReadRequest(id=name, select=f"/content/{number}")
        document = await self._open(caller, request)
        block: Json = msgspec.json.decode(await self._slice(document, 0, document.size))
        if not isinstance(block, dict):
            raise NotFound("This is no block of content.")
        return block

    async def read_whole(self, caller: CallerId, name: ResultId) -> bytes:
        """Return a result as the audit has digested it. Raises `NotFound`."""
        kept = await self._kept.find(name, caller)
        return await self._kept.read(kept, 0, kept.bytes)

    async def _open(self, caller: CallerId, request: "ReadRequest") -> KeptDocument:
        kept = await self._kept.find(request.id, caller)
        select = next(iter(kept.places)) if request.select is None else request.select
        if (place := kept.places.get(select)) is not None:
            first = await self._kept.read(kept, place[0], place[0] + 1)
            return _document(kept, *place, is_text=first == b'"')
        tokens = _parse_pointer(select)
        root = next(
            (
                known
                for length in range(len(tokens), -1, -1)
                if (known := _write_pointer(tokens[:length])) in kept.places
            ),
            None,
        )
        if root is None:
            raise NotFound(
                f"There is nothing at `{select[:200]}`.", hint=f"pointers begin with {' or '.join(kept.places)}"[:500]
            )
        data = await self._kept.read(kept, *kept.places[root])
        rest = tokens[len(_parse_pointer(root)) :]
        selected = await to_thread.run_sync(partial(_select, data, rest, select), limiter=self._threads)
        return _document(kept, 0, len(selected), is_text=selected[:1] == b'"', data=selected)

    async def _slice(self, document: KeptDocument, start: int, end: int) -> bytes:
        start, end = document.start + start, min(document.end, document.start + end)
        if document.data is not None:
            return document.data[start:end]
        return await self._kept.read(document.kept, start, end)


@dataclass(frozen=True, kw_only=True)
class ReadRequest:
    """The request of a caller."""

    id: ResultId
    select: str | None = None
    """A JSON pointer; None for what the result has most of."""
    grep: str = ""
    offset: int = 0
    limit: int = PAGE_BYTES


def _document(kept: KeptResult, start: int, end: int, *, is_text: bool, data: bytes | None = None) -> KeptDocument:
    quotes = 1 if is_text else 0
    return KeptDocument(kept=kept, start=start + quotes, end=end - quotes, is_text=is_text, data=data)


def _continuation_bytes(raw: bytes) -> int:
    """Return how many bytes at the beginning belong to a character before: an offset may be any number."""
    count = 0
    while count < min(3, len(raw)) and raw[count] & 0xC0 == 0x80:
        count += 1
    return count


def _end_of_page(raw: bytes, start: int, end: int, *, is_text: bool) -> int:
    if end >= len(raw):
        return len(raw)
    if is_text:
        found = end_of_characters(raw, start, end)
    else:
        found = end
        while found > start and raw[found] & 0xC0 == 0x80:
            found -= 1
    # Bytes that are no characters must not stop the reader forever.
    return max(found, start + 1)


def _decode_text(raw: bytes) -> str:
    """Return the text of the inside of a JSON string; what is not valid in it is replaced."""
    try:
        return msgspec.json.decode(b'"%b"' % raw, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # Half of a surrogate pair, or bytes that are no UTF-8: the slower decoder replaces them.
    try:
        text: str = json.loads(f'"{raw.decode("utf-8", "replace")}"', strict=False)
    except ValueError:
        text = raw.decode("utf-8", "replace")
    return text.encode("utf-8", "replace").decode()


# -- search


def _compile(pattern: str) -> Any:
    try:
        re2 = importlib.import_module("re2")
    except ImportError as error:
        raise CapabilityMissing(
            "The pattern engine, `re2`, is not installed.", hint="pip install 'toolpost[results]'", module="re2"
        ) from error
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 16 << 20
    try:
        # Compiled alone first: `a)(b` would become valid inside the group, and an error message would quote the group.
        re2.compile(pattern, options)
        return re2.compile(f"(?m:{pattern})", options)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
        issue = {"path": "/grep", "keyword": "regex", "message": reason, "received": pattern[:200]}
        raise InvalidArguments(
            f"`grep` is not a valid regular expression: {reason}.",
            hint="the syntax is RE2: no look-around and no back-references",
            issues=[issue],
        ) from error


def _search_block(
    pattern: Any, raw: bytes, *, is_text: bool, is_last: bool, room: int
) -> tuple[list[tuple[int, str]], int, int]:
    """Return what matches in a block, how much of it was searched, and the room that is left.

    It is searched up to its last line break, so that no line is torn, or up to the line for which there is no room: a block of
    empty lines may have a hundred thousand matches, and one answer a few.
    """
    decode = _decode_text if is_text else partial(str, encoding="utf-8", errors="replace")
    end = len(raw) if is_last else _end_of_page(raw, 0, len(raw) - _LONGEST_CHARACTER, is_text=is_text)
    breaks = _line_breaks(raw, end, is_text=is_text)
    if not is_last and breaks:
        end = breaks[-1][1]
    searched = end
    if not is_last and not breaks:
        # A line that is longer than a block: a match may lie across its end.
        searched = _end_of_page(raw, 0, max(1, end - _OVERLAP_BYTES), is_text=is_text)
    found: list[tuple[int, str]] = []
    # The whole block first: most blocks do not match at all.
    if pattern.search(decode(raw[:end])) is None:
        return found, searched, room
    start = 0
    for line_end, after in [*breaks, (end, end)]:
        if start < line_end <= end:
            for match in _search_line(pattern, raw, start, line_end, decode, is_text=is_text):
                if room <= 0:
                    return found, match[0], room
                found.append(match)
                room -= max(_MATCH_BYTES, len(match[1].encode("utf-8", "replace")))
        start = after
    return found, searched, room


def _line_breaks(raw: bytes, end: int, *, is_text: bool) -> list[tuple[int, int]]:
    """Return where lines end, and where the next ones begin."""
    if not is_text:
        return [(found.start(), found.end()) for found in re.finditer(rb"\n", raw[:end])]
    # One escape after the other: in `\\n` the `n` is a letter.
    return [(found.start(), found.end()) for found in _escape.finditer(raw, 0, end) if found[1] == b"n"]


def _search_line(
    pattern: Any, raw: bytes, start: int, end: int, decode: Any, *, is_text: bool
) -> list[tuple[int, str]]:
    found = []
    while start < end:
        part_end = end
        if end - start > _LINE_BYTES:
            part_end = start + _end_of_page(raw[start : start + _LINE_BYTES + 1], 0, _LINE_BYTES, is_text=is_text)
        text = decode(raw[start:part_end])
        if (match := pattern.search(text)) is not None:
            if len(text) > _SHOWN:
                text = text[max(0, match.start() - _AROUND) : match.end() + _AROUND][:_SHOWN]
            found.append((start, text))
        if part_end == end:
            break
        start += _end_of_page(raw[start:part_end], 0, part_end - start - _OVERLAP_BYTES, is_text=is_text)
    return found


# -- selection


def _parse_pointer(pointer: str) -> list[str]:
    """Split a JSON pointer. Raises `InvalidArguments`."""
    if pointer and not pointer.startswith("/"):
        issue = {
            "path": "/select",
            "keyword": "format",
            "message": "a JSON pointer begins with /",
            "received": pointer[:200],
        }
        raise InvalidArguments(
            "`select` is no JSON pointer.",
            hint="write it as in `/data/items/0/name`; `*` stands for every item",
            issues=[issue],
        )
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _write_pointer(tokens: list[str]) -> str:
    return "".join(f"/{token.replace('~', '~0').replace('/', '~1')}" for token in tokens)


def _select(data: bytes, tokens: list[str], pointer: str) -> bytes:
    """Return the JSON of a value; of several, if there is a `*`, an array of them. Raises `NotFound`."""
    scanner = Scanner(data)
    start = scanner.after_space(0)
    try:
        spans = [(start, scanner.skip(start))]
        is_many = EVERY in tokens
        for token in tokens:
            spans = [inner for span in spans for inner in _find_inside(scanner, span[0], token)]
            if not spans or sum(end - at for at, end in spans) > len(data):
                break
    except TooManySteps as error:
        raise InvalidRequest(
            f"`{pointer[:200]}` cannot be selected: the result has too many values.",
            hint="read it page by page, or search it with `grep`",
        ) from error
    if not is_many:
        if not spans:
            raise NotFound(f"There is nothing at `{pointer[:200]}`.", hint=_hint(data, tokens))
        return data[spans[0][0] : spans[0][1]]
    if sum(end - at for at, end in spans) > _SELECTED_LIMIT:
        raise InvalidRequest(f"`{pointer[:200]}` selects more than {_SELECTED_LIMIT} bytes.", hint="select less")
    return b"[%b]" % b",".join(data[at:end] for at, end in spans)


def _find_inside(scanner: Scanner, start: int, token: str) -> list[tuple[int, int]]:
    kind = scanner.data[start]
    if kind not in (OBJECT, ARRAY):
        return []
    if token == EVERY:
        return [(member.start, member.end) for member in scanner.members(start)]
    if kind == ARRAY:
        if not token.isdecimal() or not token.isascii() or len(token) > _DIGITS_LIMIT:
            return []
        wanted = int(token)
        members = (member for number, member in enumerate(scanner.members(start)) if number == wanted)
    else:
        members = (
            member for member in scanner.members(start) if member.key and _is_key(scanner.data, member.key, token)
        )
    return [(member.start, member.end) for member in members][:1]


def _is_key(data: bytes, span: tuple[int, int], key: str) -> bool:
    raw = data[span[0] + 1 : span[1] - 1]
    return raw == key.encode("utf-8", "replace") or (b"\\" in raw and _decode_text(raw) == key)


def _hint(data: bytes, tokens: list[str]) -> str:
    """Name what there is instead, at the last place on the way that exists."""
    scanner = Scanner(data)
    at, found = scanner.after_space(0), 0
    try:
        for token in tokens:
            inside = _find_inside(scanner, at, token)
            if not inside:
                break
            at, found = inside[0][0], found + 1
        where = _write_pointer(tokens[:found]) or "it"
        if data[at] == OBJECT:
            keys = [_decode_text(data[m.key[0] + 1 : m.key[1] - 1]) for m in scanner.members(at) if m.key]
            return f"{where} has {', '.join(keys[:_KEYS_SHOWN])}"[:500]
        if data[at] == ARRAY:
            return f"{where} has {sum(1 for _ in scanner.members(at))} items"
    except TooManySteps:
        return "read it page by page"
    return f"{where} is {'a text' if data[at] == QUOTE else 'a single value'}"
