"""A slice of a file, with its lines numbered: bounded, whatever the file's size is."""

import os
from typing import Any, Final

from toolpost.contracts.errors import InvalidArguments, InvalidRequest
from toolpost.contracts.ids import JsonObject
from toolpost.workspace.languages import language_of, language_of_first_line
from toolpost.workspace.places import opened
from toolpost.workspace.reading import SNIFF_BYTES, decoded, is_binary
from toolpost.workspace.spec import Repository

LINES_LIMIT: Final = 2_000
CHARS_LIMIT: Final = 200_000
LINE_LIMIT: Final = 4_000
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
        data = file.read(READ_LIMIT)
    if is_binary(data[:SNIFF_BYTES]):
        raise InvalidRequest(
            f"`{relative}` is binary.", hint="only text can be shown", repo=repository.name, bytes=size
        )
    is_whole = len(data) >= size
    read = decoded(data, is_cut=not is_whole)
    lines = _lines(read.text)
    language = language_of(relative) or language_of_first_line(lines[0][:200] if lines else "")
    first = start or 1
    if first > max(1, len(lines)):
        issue: JsonObject = {
            "path": "/start",
            "keyword": "maximum",
            "message": f"the file has {len(lines)} lines",
            "received": first,
        }
        raise InvalidArguments(f"`{relative}` has no line {first}.", issues=[issue])
    shown, last = _slice(lines, first, min(end or len(lines), len(lines)))
    answer: JsonObject = {
        "repo": repository.name,
        "path": relative,
        "language": language.name,
        "encoding": read.encoding,
        "bytes": size,
        "totalLines": len(lines) if is_whole else None,
        "startLine": first,
        "endLine": last,
        "lines": shown,
        "truncated": last < min(end or len(lines), len(lines)) or (end is None and not is_whole),
    }
    if answer["truncated"] and last < len(lines):
        answer["nextStart"] = last + 1
    return answer


def _lines(text: str) -> list[str]:
    """Split as an editor counts: the end of the last line begins no other."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _slice(lines: list[str], first: int, last: int) -> tuple[list[dict[str, Any]], int]:
    shown: list[dict[str, Any]] = []
    room = CHARS_LIMIT
    for number in range(first, min(last, first + LINES_LIMIT - 1) + 1):
        text = lines[number - 1]
        cut = text if len(text) <= LINE_LIMIT else f"{text[:LINE_LIMIT]}…"
        room -= len(cut) + 1
        if room < 0 and shown:
            break
        shown.append({"line": number, "text": cut} | ({"cut": True} if cut is not text else {}))
    return shown, shown[-1]["line"] if shown else first - 1
