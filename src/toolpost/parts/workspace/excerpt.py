"""Show numbered lines of a file with credentials masked, in bounded time and memory whatever its size."""

import os
from dataclasses import dataclass, field
from typing import Any, Final, TextIO

from toolpost import InvalidArguments
from toolpost.base import JsonObject
from toolpost.contracts import InvalidRequest
from toolpost.parts.workspace.languages import Language, language_of, language_of_first_line
from toolpost.parts.workspace.masking import Masker
from toolpost.parts.workspace.paths import open_file, secret_refusal
from toolpost.parts.workspace.secrets import is_private_key, style_of
from toolpost.parts.workspace.spec import Repository
from toolpost.parts.workspace.text import SNIFF_BYTES, encoding_of, is_binary, text_stream

LINES_LIMIT: Final = 2_000
CHARS_LIMIT: Final = 200_000
LINE_LIMIT: Final = 4_000
_BLOCK_CHARS: Final = 1 << 16
_LOOKAHEAD: Final = 4_096
"""Characters that are read beyond `LINE_LIMIT`, so that a credential across the cut is recognized."""
READ_LIMIT: Final = 64 * 1024 * 1024
"""Only this much of a larger file can be shown."""


def show_slice(repository: Repository, wanted: str, start: int | None, end: int | None) -> JsonObject:
    """Return lines `start` to `end` of a file, or as many as fit, with `nextStart` if there are more.

    Raises `InvalidArguments` for lines that do not exist, `InvalidRequest` for binary files, and what `open_file` raises.
    """
    if start is not None and end is not None and end < start:
        issue = {"path": "/end", "keyword": "minimum", "message": f"it is before `start`, which is {start}"}
        raise InvalidArguments("`end` is before `start`.", issues=[issue])
    relative, descriptor = open_file(repository, wanted)
    with open(descriptor, "rb") as file:  # noqa: PTH123 (a descriptor)
        size = os.fstat(descriptor).st_size
        head = file.read(SNIFF_BYTES)
        if is_private_key(head, relative) and not repository.allows(relative):
            raise secret_refusal(repository, wanted, "it is a private key")
        if is_binary(head):
            raise InvalidRequest(
                f"`{relative}` is binary.", hint="only text can be shown", repo=repository.name, bytes=size
            )
        file.seek(0)
        encoding = encoding_of(file, READ_LIMIT)
        with text_stream(file, encoding, READ_LIMIT) as stream:
            read = _read_slice(stream, start or 1, end, relative)
    if (first := start or 1) > max(1, read.total):
        message = f"the file has {read.total} lines"
        raise InvalidArguments(
            f"`{relative}` has no line {first}.",
            issues=[{"path": "/start", "keyword": "maximum", "message": message, "received": first}],
        )
    is_whole = size <= READ_LIMIT
    last = read.total if end is None else min(end, read.total)
    answer: JsonObject = {
        "repo": repository.name,
        "path": relative,
        "language": read.language.name,
        "encoding": encoding.removesuffix("-sig"),
        "bytes": size,
        "totalLines": read.total if is_whole else None,
        "startLine": first,
        "endLine": read.last,
        "lines": read.shown,
        "truncated": read.last < last or (end is None and not is_whole),
    }
    if answer["truncated"] and read.last < read.total:
        answer["nextStart"] = read.last + 1
    return answer


@dataclass(kw_only=True)
class _Slice:
    """The shown lines of a file, and how many it has."""

    language: Language
    shown: list[dict[str, Any]] = field(default_factory=list)
    last: int = 0
    """The number of the last shown line."""
    total: int = 0


def _read_slice(stream: TextIO, start: int, end: int | None, path: str) -> _Slice:
    """Collect the requested lines, as many as fit, and count all lines."""
    text = _read_line(stream)
    read = _Slice(language=language_of(path) or language_of_first_line((text or "")[:200]))
    room, masker = CHARS_LIMIT, Masker(style_of(path, read.language))
    until = start + LINES_LIMIT - 1 if end is None else min(end, start + LINES_LIMIT - 1)
    while text is not None:
        read.total += 1
        if read.total < start:
            # Also lines before the slice: a private key may have begun there.
            masker.pass_by(text)
        else:
            masked = _mask_line(text, masker)
            room -= len(masked["text"]) + 1
            if room < 0 and read.shown:
                break
            read.shown.append({"line": read.total} | masked)
            read.last = read.total
        text = _read_line(stream) if read.total < until else None
    read.total += _count_remaining_lines(stream)
    return read


def _mask_line(text: str, masker: Masker) -> dict[str, Any]:
    """Mask a line and cut it; a credential may be cut in two at the end of what was read, so that end is never shown."""
    masked = masker.line(text)
    if len(text) <= LINE_LIMIT:
        return {"text": masked}
    return {"text": f"{masked[: max(0, min(LINE_LIMIT, len(masked) - _LOOKAHEAD))]}…", "cut": True}


def _read_line(stream: TextIO) -> str | None:
    """Read a line, of a long one only the beginning; None at the end of the file."""
    text = stream.readline(LINE_LIMIT + _LOOKAHEAD)
    if not text:
        return None
    is_whole = text.endswith("\n")
    while not is_whole and (more := stream.readline(_BLOCK_CHARS)):
        is_whole = more.endswith("\n")
        text += more if len(text) < LINE_LIMIT + _LOOKAHEAD else ""
    return text.removesuffix("\n")


def _count_remaining_lines(stream: TextIO) -> int:
    """Count lines as editors do: a newline at the end of the file starts no further line."""
    count, piece = 0, "\n"
    while more := stream.read(_BLOCK_CHARS):
        count, piece = count + more.count("\n"), more
    return count + (not piece.endswith("\n"))
