"""The tree of a commit, read from a loose object or a pack. Other repositories' objects (alternates) are left alone."""

import os
import re
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, Final

from toolpost.git.files import Unreadable, read_file
from toolpost.git.open_below import open_below
from toolpost.git.repository import GitRepository

_COMMIT_LIMIT: Final = 1024 * 1024
"""Bytes of a commit, and of anything that it is a delta of."""
_PACKS_LIMIT: Final = 1_000
_DELTAS_LIMIT: Final = 60
_TREE: Final = re.compile(rb"tree ([0-9a-f]{40}(?:[0-9a-f]{24})?)\n")
_PACK_INDEX: Final = b"\xfftOc\0\0\0\x02"
_COMMIT, _BY_OFFSET = 1, 6


def tree_of(repository: GitRepository, commit: str) -> bytes | None:
    """Return the id of a commit's tree; None if the commit is not here. Raises `Unreadable`."""
    objects = repository.common_dir / "objects"
    try:
        content = _loose(objects, commit) or _packed(objects, bytes.fromhex(commit))
    except (OSError, struct.error, IndexError, zlib.error) as error:
        raise Unreadable("its objects are damaged or cannot be read") from error
    if content is None:
        return None
    found = _TREE.match(content)
    if found is None:
        raise Unreadable("HEAD leads to something that is no commit")
    return bytes.fromhex(found[1].decode())


def _loose(objects: Path, commit: str) -> bytes | None:
    data = read_file(objects, f"{commit[:2]}/{commit[2:]}", _COMMIT_LIMIT)
    if data is None:
        return None
    # The first line is enough; what it unpacks to after that may be anything.
    head, _, content = zlib.decompressobj().decompress(data, 4_096).partition(b"\0")
    return content if head.startswith(b"commit ") else b""


def _packed(objects: Path, wanted: bytes) -> bytes | None:
    if objects.is_symlink() or (objects / "pack").is_symlink():
        raise Unreadable("its objects are behind a link, which is not followed")
    try:
        names = [entry.name for entry, _ in zip(os.scandir(objects / "pack"), range(3 * _PACKS_LIMIT), strict=False)]
    except FileNotFoundError:
        return None
    for name in names:
        if name.endswith(".idx") and (offset := _offset(objects, f"pack/{name}", wanted)) is not None:
            with _open(objects, f"pack/{name[:-4]}.pack") as pack:
                return _unpacked(pack, offset)
    return None


def _open(objects: Path, name: str) -> BinaryIO:
    return open(open_below(objects, name), "rb")  # noqa: PTH123 (a descriptor)


def _offset(objects: Path, name: str, wanted: bytes) -> int | None:
    """Find an object in the index of a pack: a table of counts by first byte, then ids in order, checksums, offsets."""
    with _open(objects, name) as file:
        head = file.read(8 + 1024)
        if not head.startswith(_PACK_INDEX):
            return None
        counts = struct.unpack_from(">256I", head, 8)
        low, high, total = counts[wanted[0] - 1] if wanted[0] else 0, counts[wanted[0]], counts[255]
        while low < high:
            middle = (low + high) // 2
            found = _at(file, len(head) + middle * len(wanted), len(wanted))
            if found == wanted:
                offsets = len(head) + total * (len(wanted) + 4)
                near = int.from_bytes(_at(file, offsets + middle * 4, 4))
                far = offsets + total * 4 + (near & 0x7FFFFFFF) * 8
                return int.from_bytes(_at(file, far, 8)) if near & 0x80000000 else near
            low, high = (middle + 1, high) if found < wanted else (low, middle)
    return None


def _at(file: BinaryIO, offset: int, count: int) -> bytes:
    file.seek(offset)
    found = file.read(count)
    if len(found) < count:
        raise Unreadable("its objects are damaged")
    return found


def _unpacked(pack: BinaryIO, offset: int, depth: int = 0) -> bytes:
    """Return an object of a pack, put together from its deltas; only commits, which have few and small ones."""
    if depth > _DELTAS_LIMIT:
        raise Unreadable("its objects are deltas of deltas without end")
    pack.seek(offset)
    head = pack.read(64)
    kind, at = head[0] >> 4 & 7, 1
    while head[at - 1] & 0x80:
        at += 1
    if kind == _COMMIT:
        return _inflate(pack, offset + at)
    if kind != _BY_OFFSET:  # By id occurs in packs that are sent, not in those that are kept.
        return b""
    back, at = _back(head, at)
    if not 0 < back < offset:
        raise Unreadable("its objects are damaged")
    base = _unpacked(pack, offset - back, depth + 1)
    return _patched(base, _inflate(pack, offset + at))


def _back(head: bytes, at: int) -> tuple[int, int]:
    value = head[at] & 0x7F
    while head[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (head[at] & 0x7F)
    return value, at + 1


def _inflate(pack: BinaryIO, offset: int) -> bytes:
    pack.seek(offset)
    return zlib.decompressobj().decompress(pack.read(_COMMIT_LIMIT), _COMMIT_LIMIT)


def _patched(base: bytes, delta: bytes) -> bytes:
    """Apply a delta: copies from its base, and bytes of its own."""
    at = 0
    for _ in range(2):  # The sizes before and after.
        while delta[at] & 0x80:
            at += 1
        at += 1
    out = bytearray()
    while at < len(delta) and len(out) < _COMMIT_LIMIT:
        operation = delta[at]
        at += 1
        if operation & 0x80:
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
