"""Find the tree of a commit, in a loose object or a pack. Objects of other repositories (alternates) are not read.

A commit is compressed text that begins with `tree ID`. It is a file of its own, `objects/ab/cdef…` for the id `abcdef…`, or in a
pack: `pack-X.idx` has the sorted ids with their offsets in `pack-X.pack`, where an object is whole, or a delta against an earlier
one (https://git-scm.com/docs/gitformat-pack). All of it is untrusted: every length is bounded before it is used.
"""

import os
import re
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, Final

from toolpost.parts.workspace.git.files import Unreadable, open_below, read_file
from toolpost.parts.workspace.git.index import read_varint
from toolpost.parts.workspace.git.repository import GitRepository

_COMMIT_LIMIT: Final = 1024 * 1024
"""The largest commit that is read, and the largest base of a delta."""
_PACKS_LIMIT: Final = 1_000
_DELTAS_LIMIT: Final = 60
_TREE: Final = re.compile(rb"tree ([0-9a-f]{40}(?:[0-9a-f]{24})?)\n")
_PACK_INDEX: Final = b"\xfftOc\0\0\0\x02"
_COMMIT, _BY_OFFSET = 1, 6


def tree_of(repository: GitRepository, commit: str) -> bytes | None:
    """Return the id of the tree of a commit, or None if the commit is not in this repository. Raises `Unreadable`."""
    objects = repository.common_dir / "objects"
    try:
        content = _read_loose(objects, commit) or _read_packed(objects, bytes.fromhex(commit))
    except (OSError, struct.error, IndexError, ValueError, zlib.error) as error:
        raise Unreadable("its objects are damaged or cannot be read") from error
    if content is None:
        return None
    found = _TREE.match(content)
    if found is None:
        raise Unreadable("HEAD does not point to a commit")
    return bytes.fromhex(found[1].decode())


def _read_loose(objects: Path, commit: str) -> bytes | None:
    data = read_file(objects, f"{commit[:2]}/{commit[2:]}", _COMMIT_LIMIT)
    if data is None:
        return None
    # Only the first line is needed, and the rest may inflate to any size.
    head, _, content = zlib.decompressobj().decompress(data, 4_096).partition(b"\0")
    return content if head.startswith(b"commit ") else b""


def _read_packed(objects: Path, wanted: bytes) -> bytes | None:
    if objects.is_symlink() or (objects / "pack").is_symlink():
        raise Unreadable("its objects are behind a symbolic link, which is not followed")
    try:
        names = [entry.name for entry, _ in zip(os.scandir(objects / "pack"), range(3 * _PACKS_LIMIT), strict=False)]
    except FileNotFoundError:
        return None
    for name in names:
        if name.endswith(".idx") and (offset := _find_offset(objects, f"pack/{name}", wanted)) is not None:
            with _open(objects, f"pack/{name[:-4]}.pack") as pack:
                return _read_object(pack, offset)
    return None


def _open(objects: Path, name: str) -> BinaryIO:
    return open(open_below(objects, name), "rb")  # noqa: PTH123 (a descriptor)


def _find_offset(objects: Path, name: str, wanted: bytes) -> int | None:
    """Find an object in a pack index by bisection: counts by first byte, then sorted ids, checksums, offsets."""
    with _open(objects, name) as file:
        head = file.read(8 + 1024)
        if not head.startswith(_PACK_INDEX):
            return None
        counts = struct.unpack_from(">256I", head, 8)
        low, high, total = counts[wanted[0] - 1] if wanted[0] else 0, counts[wanted[0]], counts[255]
        while low < high:
            middle = (low + high) // 2
            found = _read_at(file, len(head) + middle * len(wanted), len(wanted))
            if found == wanted:
                offsets = len(head) + total * (len(wanted) + 4)
                near = int.from_bytes(_read_at(file, offsets + middle * 4, 4))
                # In packs over 2 GiB the highest bit marks a row of the table of eight-byte offsets at the end.
                far = offsets + total * 4 + (near & 0x7FFFFFFF) * 8
                return int.from_bytes(_read_at(file, far, 8)) if near & 0x80000000 else near
            low, high = (middle + 1, high) if found < wanted else (low, middle)
    return None


def _read_at(file: BinaryIO, offset: int, count: int) -> bytes:
    file.seek(offset)
    found = file.read(count)
    if len(found) < count:
        raise Unreadable("its objects are damaged")
    return found


def _read_object(pack: BinaryIO, offset: int, depth: int = 0) -> bytes:
    """Return a commit from a pack, with its deltas applied; empty if the object is not a commit."""
    if depth > _DELTAS_LIMIT:
        raise Unreadable("its chain of deltas is too long")
    pack.seek(offset)
    head = pack.read(64)
    kind, at = head[0] >> 4 & 7, 1
    while head[at - 1] & 0x80:
        at += 1
    if kind == _COMMIT:
        return _inflate(pack, offset + at)
    if kind != _BY_OFFSET:  # Deltas by id occur only in packs in transit.
        return b""
    # The base is that many bytes before this object: always earlier in the pack, so that a chain of deltas ends.
    back, at = read_varint(head, at)
    if not 0 < back < offset:
        raise Unreadable("its objects are damaged")
    base = _read_object(pack, offset - back, depth + 1)
    return _apply_delta(base, _inflate(pack, offset + at))


def _inflate(pack: BinaryIO, offset: int) -> bytes:
    pack.seek(offset)
    return zlib.decompressobj().decompress(pack.read(_COMMIT_LIMIT), _COMMIT_LIMIT)


def _apply_delta(base: bytes, delta: bytes) -> bytes:
    """Apply a delta, which is made of copies from the base and literal bytes."""
    at = 0
    for _ in range(2):  # Skip the sizes of base and result.
        while delta[at] & 0x80:
            at += 1
        at += 1
    out = bytearray()
    while at < len(delta) and len(out) < _COMMIT_LIMIT:
        operation = delta[at]
        at += 1
        if operation & 0x80:
            # Copy: seven bits say which bytes of a four-byte offset and a three-byte size follow; the others are zero.
            fields = [0] * 7
            for bit in range(7):
                if operation >> bit & 1:
                    fields[bit] = delta[at]
                    at += 1
            start, size = int.from_bytes(fields[:4], "little"), int.from_bytes(fields[4:], "little") or 0x10000
            out += base[start : start + size]
        else:
            out += delta[at : at + operation]
            at += operation
            if not operation:
                raise Unreadable("its objects are damaged")
    return bytes(out)
