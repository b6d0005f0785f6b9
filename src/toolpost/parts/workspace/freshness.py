"""The disk as it is now: a file of a hit is read, compared with what was indexed, and its lines are found again."""

import hashlib
import os
import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from toolpost.base.credentials import mask
from toolpost.contracts.errors import ToolpostError
from toolpost.parts.workspace.chunks import chunks_of
from toolpost.parts.workspace.engine import Stored, stored_of
from toolpost.parts.workspace.languages import BY_NAME
from toolpost.parts.workspace.manifest import FileRow, Stamp
from toolpost.parts.workspace.paths import opened
from toolpost.parts.workspace.secrets import is_private_key, style_of
from toolpost.parts.workspace.spec import Limits, Repository
from toolpost.parts.workspace.text import decoded, is_binary


class State(StrEnum):
    """How a file is, compared with what was indexed."""

    FRESH = "fresh"
    CHANGED = "changed"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class OnDisk:
    """A file as it is now."""

    state: State
    lines: list[str]


GONE = OnDisk(State.GONE, [])


_PLAIN: Final = BY_NAME["text"]
PARSED_BYTES: Final = 256 * 1024
LEAST_SHARE: Final = 0.06


def _may_be_parsed(text: str) -> bool:
    """Say whether a text looks like something to parse here: a parser cannot be called off, and others wait meanwhile.

    What takes a parser for ever repeats itself, as nothing does that anybody wrote.
    """
    data = text.encode("utf-8", "replace")
    return len(data) < 4096 or (len(data) <= PARSED_BYTES and len(zlib.compress(data, 1)) > LEAST_SHARE * len(data))


class Disk:
    """Reads each file once for one search."""

    def __init__(self, repository: Repository, limits: Limits) -> None:
        self._repository = repository
        self._limits = limits
        self._known: dict[str, OnDisk] = {}
        self._moved: dict[str, dict[tuple[str, str, str], list[Stored]]] = {}

    def look(self, row: FileRow) -> OnDisk:
        """Read a file and say whether it is what was indexed."""
        if row.path not in self._known:
            self._known[row.path] = self._read(row)
        return self._known[row.path]

    def forget(self, path: str) -> None:
        """Let go of a file that is not looked at again."""
        self._known.pop(path, None)

    def relocated(self, row: FileRow, stored: Stored) -> Stored | None:
        """Find a symbol again in a file that has changed; None if it is not there any more."""
        if row.path not in self._moved:
            self._moved[row.path] = self._symbols_now(row)
        found = self._moved[row.path].get((stored.kind, stored.scope, stored.name), [])
        return min(found, key=lambda now: abs(now.start - stored.start), default=None)

    def chunks_now(self, row: FileRow) -> list[Stored]:
        """Take a file that has changed apart as it is now."""
        text = "\n".join(self.look(row).lines)
        chunks = chunks_of(text, BY_NAME[row.language] if _may_be_parsed(text) else _PLAIN)
        return sorted(map(stored_of, chunks), key=lambda one: (one.start, -one.end))

    def _read(self, row: FileRow) -> OnDisk:
        try:
            _, number = opened(self._repository, row.path)
        except ToolpostError:
            return GONE
        with open(number, "rb") as file:  # noqa: PTH123 (a descriptor)
            found = os.fstat(number)
            try:
                data = file.read(self._limits.file_bytes + 1)
            except OSError:
                return GONE
        if len(data) > self._limits.file_bytes or is_binary(data):
            return GONE
        if is_private_key(data, row.path) and not self._repository.allows(row.path):
            return GONE
        is_same = hashlib.blake2b(data, digest_size=16).digest() == row.hash
        text = decoded(data).text
        if row.masked or not is_same:
            text = mask(text, style_of(row.path, BY_NAME[row.language]))
        stamp = Stamp(found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        return OnDisk(State.FRESH if is_same or stamp == row.stamp else State.CHANGED, text.split("\n"))

    def _symbols_now(self, row: FileRow) -> dict[tuple[str, str, str], list[Stored]]:
        found: dict[tuple[str, str, str], list[Stored]] = {}
        for now in self.chunks_now(row):
            if now.name:
                found.setdefault((now.kind, now.scope, now.name), []).append(now)
        return found
