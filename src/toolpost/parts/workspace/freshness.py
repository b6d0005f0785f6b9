"""Files as they are on disk now, compared with what was indexed, so that a hit shows present lines."""

import hashlib
import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from toolpost import ToolpostError
from toolpost.parts.workspace.engine import ChunkInfo, chunk_info_of
from toolpost.parts.workspace.indexed_files import FileRow
from toolpost.parts.workspace.languages import BY_NAME
from toolpost.parts.workspace.masking import mask
from toolpost.parts.workspace.paths import open_file
from toolpost.parts.workspace.secrets import is_private_key, style_of
from toolpost.parts.workspace.spec import Repository, WorkspaceLimits
from toolpost.parts.workspace.symbols import chunks_of
from toolpost.parts.workspace.text import decode, is_binary


class FileState(StrEnum):
    """A file on disk compared with the index."""

    FRESH = "fresh"
    CHANGED = "changed"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class CurrentFile:
    """A file as it is now; without lines if it is gone."""

    state: FileState
    lines: list[str]


GONE = CurrentFile(FileState.GONE, [])


_PLAIN: Final = BY_NAME["text"]
MAX_PARSED_BYTES: Final = 256 * 1024
MIN_COMPRESSED_SHARE: Final = 0.06


def _may_be_parsed(text: str) -> bool:
    """Whether a text may be parsed during a search: a parser cannot be cancelled, and the search waits for it.

    Text that takes a parser minutes is extremely repetitive, so it compresses far better than any source code does.
    """
    data = text.encode("utf-8", "replace")
    return len(data) < 4096 or (
        len(data) <= MAX_PARSED_BYTES and len(zlib.compress(data, 1)) > MIN_COMPRESSED_SHARE * len(data)
    )


class CurrentFiles:
    """Reads each file at most once during one search."""

    def __init__(self, repository: Repository, limits: WorkspaceLimits) -> None:
        self._repository = repository
        self._limits = limits
        self._files: dict[str, CurrentFile] = {}
        self._symbols: dict[str, dict[tuple[str, str, str], list[ChunkInfo]]] = {}

    def read(self, row: FileRow) -> CurrentFile:
        """Return a file with credentials masked; `GONE` if it is missing, unreadable, binary, too large or secret."""
        if row.path not in self._files:
            self._files[row.path] = self._read_file(row)
        return self._files[row.path]

    def forget(self, path: str) -> None:
        """Free the lines of a file that is not needed again."""
        self._files.pop(path, None)

    def relocate(self, row: FileRow, stored: ChunkInfo) -> ChunkInfo | None:
        """Find a symbol in a file that has changed, the nearest if there are several; None if it is gone."""
        if row.path not in self._symbols:
            symbols = self._symbols[row.path] = {}
            for chunk in self.parse_chunks(row):
                if chunk.name:
                    symbols.setdefault((chunk.kind, chunk.scope, chunk.name), []).append(chunk)
        candidates = self._symbols[row.path].get((stored.kind, stored.scope, stored.name), [])
        return min(candidates, key=lambda chunk: abs(chunk.start - stored.start), default=None)

    def parse_chunks(self, row: FileRow) -> list[ChunkInfo]:
        """Split a file that has changed into chunks, sorted by line, outer ones first."""
        text = "\n".join(self.read(row).lines)
        chunks = chunks_of(text, BY_NAME[row.language] if _may_be_parsed(text) else _PLAIN)
        return sorted(map(chunk_info_of, chunks), key=lambda chunk: (chunk.start, -chunk.end))

    def _read_file(self, row: FileRow) -> CurrentFile:
        try:
            _, descriptor = open_file(self._repository, row.path)
        except ToolpostError:
            return GONE
        with open(descriptor, "rb") as file:  # noqa: PTH123 (a descriptor)
            try:
                data = file.read(self._limits.file_bytes + 1)
            except OSError:
                return GONE
        if len(data) > self._limits.file_bytes or is_binary(data):
            return GONE
        if is_private_key(data, row.path) and not self._repository.allows(row.path):
            return GONE
        # By hash: a file that was only touched is fresh, and one that was changed within the same tick of the clock is not.
        is_same = hashlib.blake2b(data, digest_size=16).digest() == row.hash
        text = decode(data).text
        # Masking is slow, and a file that had no credentials and has not changed needs none.
        if row.masked or not is_same:
            text = mask(text, style_of(row.path, BY_NAME[row.language]))
        return CurrentFile(FileState.FRESH if is_same else FileState.CHANGED, text.split("\n"))
