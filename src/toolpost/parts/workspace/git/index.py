"""Read git's index: the tracked files with size, times, mode and id. Versions 2 to 4, split and sparse.

The format is at https://git-scm.com/docs/index-format: a header, the entries sorted by path, then extensions. Version 4 writes
a path as the number of bytes to drop from the previous one, and the text to append: after `src/a.py`, `src/b.py` is `4, "b.py"`.
A split index has only what changed since a shared one: two bitmaps in its `link` extension say which entries of that are
deleted, and which are replaced by entries without a name. The file is untrusted: lengths are checked before they are used, and
paths out of the work tree are refused.
"""

import hashlib
import heapq
import struct
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from toolpost.parts.workspace.git.files import Unreadable, read_file
from toolpost.parts.workspace.git.repository import GitRepository

SIZE_LIMIT: Final = 64 * 1024 * 1024
ENTRY_LIMIT: Final = 500_000
PATH_LIMIT: Final = 4_096
DEPTH_LIMIT: Final = 250
_ALL_PATHS_LIMIT: Final = 128 * 1024 * 1024
"""Limit of all paths together: version 4 writes a path as its difference from the previous one, so a small file can expand."""

FOLDER: Final = 0o040000
SUBMODULE: Final = 0o160000
LINK: Final = 0o120000

_HEADER: Final = struct.Struct(">4sII")
_STAT: Final = struct.Struct(">10I")
_EXTENDED: Final = 0x4000
_ASSUME_VALID: Final = 0x8000
_STAGE: Final = 0x3000
_SKIP_WORKTREE: Final = 0x4000
_INTENT_TO_ADD: Final = 0x2000

IndexEntry = tuple[int, int, int, int, bytes, int]
"""ctime and mtime in nanoseconds, mode, size, object id and flags.

A plain tuple, which the garbage collector stops tracking: an index may have half a million.
"""


@dataclass(frozen=True, kw_only=True)
class GitIndex:
    """The tracked files of a work tree."""

    entries: dict[str, IndexEntry]
    """By path from the top, in git's order. The path of a folder that a sparse index leaves out ends with `/`."""
    has_conflicts: bool = False
    mtime_ns: int = 0
    """When the index was written: a file written at that time or later may differ although its times are equal."""

    def close(self) -> None:
        """Free the entries one by one: freeing them all at once would block other threads."""
        while self.entries:
            self.entries.popitem()

    def tree_id(self, id_bytes: int) -> bytes:
        """Return the id of the tree that a commit of this index would have; computed from names, modes and ids.

        Folders are hashed from the innermost outward. The entries of an index are in the order in which its trees list them, so
        that one pass with a stack of open folders suffices.
        """
        folders: list[tuple[bytes, bytearray]] = [(b"", bytearray())]

        def close_last() -> bytes:
            name, content = folders.pop()
            digest = hash_object(b"tree %d\0" % len(content) + content, id_bytes)
            if folders:
                folders[-1][1].extend(b"40000 " + name + b"\0" + digest)
            return digest

        for name, entry in self.entries.items():
            mode, object_id, flags = entry[2], entry[4], entry[5]
            # Neither a conflict nor what `git add --intent-to-add` announced is part of a commit.
            if flags & _STAGE or (flags >> 16) & _INTENT_TO_ADD:
                continue
            *parents, last = name.encode("utf-8", "surrogateescape").rstrip(b"/").split(b"/")
            depth = 0
            while depth < len(parents) and depth + 1 < len(folders) and folders[depth + 1][0] == parents[depth]:
                depth += 1
            while len(folders) > depth + 1:
                close_last()
            folders.extend((parent, bytearray()) for parent in parents[depth:])
            folders[-1][1].extend(b"%o %s\0" % (mode, last) + object_id)
        while len(folders) > 1:
            close_last()
        return close_last()


@dataclass(kw_only=True)
class _Parsed:
    """One index file; a split index refers to a shared one."""

    entries: dict[str, IndexEntry] = field(default_factory=dict)
    nameless: list[IndexEntry] = field(default_factory=list)
    """Entries that replace entries of the shared index."""
    has_conflicts: bool = False
    link: bytes | None = None


def hash_object(data: bytes, id_bytes: int) -> bytes:
    """Hash as git does: SHA-1 for ids of 20 bytes, SHA-256 for 32."""
    return (hashlib.sha1(data, usedforsecurity=False) if id_bytes == 20 else hashlib.sha256(data)).digest()


def is_unchecked(entry: IndexEntry) -> bool:
    """Whether git does not compare the file: assume-unchanged, skip-worktree, or a folder of a sparse index."""
    flags = entry[5]
    return bool(flags & _ASSUME_VALID or (flags >> 16) & _SKIP_WORKTREE) or entry[2] == FOLDER


def read_index(repository: GitRepository) -> GitIndex:
    """Read the index of a repository; without one, no file is tracked. Raises `Unreadable`."""
    data = read_file(repository.git_dir, "index", SIZE_LIMIT)
    if data is None:
        return GitIndex(entries={})
    try:
        mtime_ns = (repository.git_dir / "index").lstat().st_mtime_ns
    except OSError as error:
        raise Unreadable("`index` in it cannot be read") from error
    parsed = _parse(data, repository.id_bytes)
    entries = parsed.entries
    if parsed.link is not None:
        name = f"sharedindex.{parsed.link[: repository.id_bytes].hex()}"
        if (data := read_file(repository.git_dir, name, SIZE_LIMIT)) is None:
            raise Unreadable(f"`{name}` in it is missing")
        shared = _parse(data, repository.id_bytes)
        if shared.link is not None or shared.nameless or shared.has_conflicts:
            raise Unreadable(f"`{name}` in it is not a valid shared index")
        entries = _merge(parsed, shared.entries, repository.id_bytes)
    return GitIndex(entries=entries, has_conflicts=parsed.has_conflicts, mtime_ns=mtime_ns)


def _parse(data: bytes, id_bytes: int) -> _Parsed:
    try:
        signature, version, count = _HEADER.unpack_from(data)
        if signature != b"DIRC" or version not in (2, 3, 4):
            raise Unreadable("its index has an unknown format")
        if count > ENTRY_LIMIT or count * (_STAT.size + id_bytes) > len(data):
            raise Unreadable("its index claims more files than it can contain")
        return _parse_entries(data, version, count, id_bytes)
    except (struct.error, IndexError, ValueError) as error:
        raise Unreadable("its index is damaged") from error


def _parse_entries(data: bytes, version: int, count: int, id_bytes: int) -> _Parsed:
    parsed = _Parsed()
    at, path, room = _HEADER.size, b"", _ALL_PATHS_LIMIT
    for _ in range(count):
        start = at
        ctime_s, ctime_ns, mtime_s, mtime_ns, _, _, mode, _, _, size = _STAT.unpack_from(data, at)
        at += _STAT.size
        object_id = data[at : at + id_bytes]
        at += id_bytes
        flags = data[at] << 8 | data[at + 1]
        at += 2
        if flags & _EXTENDED:
            flags |= (data[at] << 8 | data[at + 1]) << 16
            at += 2
        if version == 4:
            drop, at = read_varint(data, at)
            if drop > len(path):
                raise Unreadable("its index is damaged")
            path = path[: len(path) - drop]
        else:
            path = b""
        end = data.index(b"\0", at, at + PATH_LIMIT + 1)
        path += data[at:end]
        # Before version 4 an entry is padded to a multiple of eight, with one NUL at least.
        at = end + 1 if version == 4 else start + ((end - start) // 8 + 1) * 8
        room -= len(path)
        if len(path) > PATH_LIMIT or room < 0:
            raise Unreadable("its index has paths that are too long")
        if flags & _STAGE:
            parsed.has_conflicts = True
        name = path.decode("utf-8", "surrogateescape")
        if not _is_safe(name, mode):
            raise Unreadable("its index names files outside of the work tree")
        times = ctime_s * 1_000_000_000 + ctime_ns, mtime_s * 1_000_000_000 + mtime_ns
        entry = (*times, mode, size, object_id, flags)
        if name:
            parsed.entries[name] = entry
        else:
            parsed.nameless.append(entry)
    parsed.link = _find_link(data, at, id_bytes)
    return parsed


def _is_safe(name: str, mode: int) -> bool:
    """Whether git itself could have added this path: no `..`, not absolute, no `.git`. Split indexes have empty names."""
    parts = (name[:-1] if mode == FOLDER and name.endswith("/") else name).split("/")
    if len(parts) > DEPTH_LIMIT:
        raise Unreadable("its index has paths that are too deep")
    return not name or not any(part in ("", ".", "..") or part.lower() == ".git" for part in parts)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number of variable length, as indexes and packs write it; return it and the position after it.

    Seven bits in each byte, the highest first; one is added for each byte that follows, so that no number has two forms.
    Raises `IndexError` or `ValueError`.
    """
    byte = data[at]
    value, end = byte & 0x7F, at + 1
    while byte & 0x80:
        if end - at > 8:
            raise ValueError("a number of more than nine bytes")
        byte = data[end]
        value, end = ((value + 1) << 7) | (byte & 0x7F), end + 1
    return value, end


def _find_link(data: bytes, at: int, id_bytes: int) -> bytes | None:
    """Return the `link` extension of a split index, or None; raise for unknown extensions that git calls mandatory."""
    link = None
    while at + 8 <= len(data) - id_bytes:
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8])
        at += 8
        if name == b"link":
            link = data[at : at + size]
        elif name[:1].islower() and name != b"sdir":
            raise Unreadable("its index has an unknown format")
        at += size
    return link if link is not None and any(link[:id_bytes]) else None


def _merge(split: _Parsed, shared: dict[str, IndexEntry], id_bytes: int) -> dict[str, IndexEntry]:
    """Apply a split index to the shared one: delete entries, replace entries by position, add entries."""
    assert split.link is not None
    deleted, at = _read_bitmap(split.link, id_bytes, len(shared))
    replaced, _ = _read_bitmap(split.link, at, len(shared))
    if len(split.nameless) != len(replaced):
        raise Unreadable("its index is damaged")
    replacing = dict(zip(replaced, split.nameless, strict=True))
    gone = set(deleted)
    kept = (
        (name, replacing.get(position, entry))
        for position, (name, entry) in enumerate(shared.items())
        if position not in gone
    )
    # Merged lazily: sorting all names at once would block other threads.
    return dict(heapq.merge(kept, split.entries.items(), key=itemgetter(0)))


def _read_bitmap(data: bytes, at: int, limit: int) -> tuple[list[int], int]:
    """Read an EWAH bitmap; return the positions of its bits below `limit`, and where the bitmap ends."""
    if at == len(data):
        return [], at  # No bitmaps: nothing is deleted or replaced.
    try:
        _, count = struct.unpack_from(">II", data, at)
        at += 8
        words = struct.unpack_from(f">{count}Q", data, at) if count * 8 <= len(data) - at else None
    except struct.error as error:
        raise Unreadable("its index is damaged") from error
    if words is None:
        raise Unreadable("its index is damaged")
    found: list[int] = []
    bit = number = 0
    while number < count:
        marker = words[number]
        run, literals = (marker >> 1 & 0xFFFFFFFF) * 64, marker >> 33
        if marker & 1:
            found.extend(range(bit, min(bit + run, limit)))
        bit += run
        for word in words[number + 1 : number + 1 + literals]:
            if word and bit < limit:
                found.extend(bit + place for place in range(64) if word >> place & 1 and bit + place < limit)
            bit += 64
        number += 1 + literals
    # The last four bytes are the position of the last marker, which only writers need.
    return found, at + 8 * count + 4
