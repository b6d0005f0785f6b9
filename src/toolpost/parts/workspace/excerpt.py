"""A slice of a file, with its lines numbered: bounded, whatever the file's size is."""

import os
from dataclasses import dataclass, field
from typing import Any, Final, TextIO

from toolpost.base.credentials import Masker
from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import InvalidArguments, InvalidRequest
from toolpost.parts.workspace.languages import Language, language_of, language_of_first_line
from toolpost.parts.workspace.paths import opened, secret_refused
from toolpost.parts.workspace.secrets import is_private_key, style_of
from toolpost.parts.workspace.spec import Repository
from toolpost.parts.workspace.text import SNIFF_BYTES, encoding_of, is_binary, text_stream

LINES_LIMIT: Final = 2_000
CHARS_LIMIT: Final = 200_000
LINE_LIMIT: Final = 4_000
_PIECE: Final = 1 << 16
_AHEAD: Final = 4_096
"""Characters behind the end of a line that are read, so that a credential that goes over it is known as one."""
READ_LIMIT: Final = 64 * 1024 * 1024
"""Bytes that are read at most; of a larger file only the beginning can be shown."""


def show_slice(repository: Repository, wanted: str, start: int | None, end: int | None) -> JsonObject:
    """Return lines `start` to `end` of a file, or as many of them as fit."""
    if start is not None and end is not None and end < start:
        fault = {"path": "/end", "keyword": "minimum", "message": f"it is before `start`, which is {start}"}
        raise InvalidArguments("`end` is before `start`.", issues=[fault])
    relative, number = opened(repository, wanted)
    with open(number, "rb") as file:  # noqa: PTH123 (a descriptor)
        size = os.fstat(number).st_size
        head = file.read(SNIFF_BYTES)
        if is_private_key(head, relative) and not repository.allows(relative):
            raise secret_refused(repository, wanted, "it is a private key")
        if is_binary(head):
            raise InvalidRequest(
                f"`{relative}` is binary.", hint="only text can be shown", repo=repository.name, bytes=size
            )
        file.seek(0)
        encoding = encoding_of(file, READ_LIMIT)
        with text_stream(file, encoding, READ_LIMIT) as stream:
            read = _read(stream, start or 1, end, relative)
    if (first := start or 1) > max(1, read.total):
        raise _no_such_line(relative, first, read.total)
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
    """What was read of a file."""

    language: Language
    shown: list[dict[str, Any]] = field(default_factory=list)
    last: int = 0
    """The last line that is shown."""
    total: int = 0


def _read(stream: TextIO, start: int, end: int | None, path: str) -> _Slice:
    """Keep the lines that are asked for, as many as fit, with credentials masked, and count the others."""
    text = _line(stream)
    read = _Slice(language=language_of(path) or language_of_first_line((text or "")[:200]))
    room, masker = CHARS_LIMIT, Masker(style_of(path, read.language))
    until = start + LINES_LIMIT - 1 if end is None else min(end, start + LINES_LIMIT - 1)
    while text is not None:
        read.total += 1
        if read.total < start:
            masker.pass_by(text)
        else:
            shown = _shown(text, masker)
            room -= len(shown["text"]) + 1
            if room < 0 and read.shown:
                break
            read.shown.append({"line": read.total} | shown)
            read.last = read.total
        text = _line(stream) if read.total < until else None
    read.total += _lines_left(stream)
    return read


def _shown(text: str, masker: Masker) -> dict[str, Any]:
    """Mask a line and bound it. A credential may be cut in two where the line is, so a piece before that is left out too."""
    masked = masker.line(text)
    if len(text) <= LINE_LIMIT:
        return {"text": masked}
    return {"text": f"{masked[: max(0, min(LINE_LIMIT, len(masked) - _AHEAD))]}…", "cut": True}


def _line(stream: TextIO) -> str | None:
    """Read a line, of a long one but the beginning; None at the end of the file."""
    text = stream.readline(LINE_LIMIT + _AHEAD)
    if not text:
        return None
    is_whole = text.endswith("\n")
    while not is_whole and (more := stream.readline(_PIECE)):
        is_whole = more.endswith("\n")
        text += more if len(text) < LINE_LIMIT + _AHEAD else ""
    return text.removesuffix("\n")


def _lines_left(stream: TextIO) -> int:
    """Count lines as an editor does: the end of the last one begins no other."""
    count, piece = 0, "\n"
    while more := stream.read(_PIECE):
        count, piece = count + more.count("\n"), more
    return count + (not piece.endswith("\n"))


def _no_such_line(relative: str, line: int, total: int) -> InvalidArguments:
    issue: JsonObject = {
        "path": "/start",
        "keyword": "maximum",
        "message": f"the file has {total} lines",
        "received": line,
    }
    return InvalidArguments(f"`{relative}` has no line {line}.", issues=[issue])
