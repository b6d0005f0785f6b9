"""Generations of an index: each in a folder of its own, and a pointer file that names the current one.

A build writes the next folder beside the one in use, and then replaces the pointer, which is atomic. So searches during a
build, and after a build that was killed, use the previous generation, which is complete.

    .toolpost/workspace/shop-1a2b3c4d/
        current.json      {"generation": 7, "files": {"meta.json": "9f…", …}, …}
        generation-7/     the tantivy index and files.db, the manifest
"""

import contextlib
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from toolpost import NoIndex
from toolpost.base import make_folder
from toolpost.parts.workspace.engine import FORMAT

POINTER: Final = "current.json"
PREFIX: Final = "generation-"
_LOCK: Final = "build.lock"
_CHUNK: Final = 1 << 20


class GenerationPointer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of `current.json`."""

    format: int
    generation: int
    built_at: float
    checked_at: float
    files: dict[str, str]
    """The checksum of each file of the generation, by name."""

    @property
    def folder_name(self) -> str:
        return f"{PREFIX}{self.generation}"


class IndexDamaged(NoIndex):
    """The index is damaged, or has another format."""


_decoder = msgspec.json.Decoder(GenerationPointer)


def read_pointer(index_dir: Path) -> GenerationPointer | None:
    """Return the pointer, or None if no index was built. Raises `IndexDamaged`."""
    try:
        encoded = (index_dir / POINTER).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise IndexDamaged(f"The index cannot be read: {error.strerror}.") from error
    try:
        pointer = _decoder.decode(encoded)
    except msgspec.DecodeError as error:
        raise IndexDamaged(f"The index is damaged: {POINTER} cannot be parsed.") from error
    if pointer.format != FORMAT:
        raise IndexDamaged(f"The index has format {pointer.format}, and this version reads {FORMAT}.")
    return pointer


def write_pointer(index_dir: Path, pointer: GenerationPointer) -> None:
    """Replace the pointer atomically and durably."""
    temporary = index_dir / f"{POINTER}.{os.getpid()}.new"
    with temporary.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(pointer)))
        file.flush()
        os.fsync(file.fileno())
    # The content is on disk before the name is: after a power cut there is the old pointer or the new one, never an empty one.
    temporary.replace(index_dir / POINTER)
    _sync_folder(index_dir)


def check_generation(index_dir: Path, pointer: GenerationPointer) -> Path:
    """Return the folder of a generation. Reads every byte of it, and raises `IndexDamaged` if a checksum differs."""
    folder = index_dir / pointer.folder_name
    for name, expected in pointer.files.items():
        try:
            actual = checksum(folder / name)
        except OSError as error:
            raise IndexDamaged(f"The index is damaged: {name} cannot be read ({error.strerror}).") from error
        if actual != expected:
            raise IndexDamaged(f"The index is damaged: {name} has changed since it was built.")
    return folder


def checksums(folder: Path) -> dict[str, str]:
    """Flush the files of a finished generation to disk, and return their checksums."""
    digests = {}
    for path in sorted(folder.iterdir()):
        if not path.name.endswith(".lock"):
            with path.open("rb") as file:
                os.fsync(file.fileno())
            digests[path.name] = checksum(path)
    _sync_folder(folder)
    return digests


def checksum(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def make_generation_folder(index_dir: Path, base: Path | None) -> tuple[int, Path]:
    """Make the folder of the next generation and return its number; the files of `base` are hard-linked into it.

    Linking is safe because tantivy never changes a file. The manifest is a database and is written again.
    """
    numbers = [
        int(path.name.removeprefix(PREFIX))
        for path in index_dir.glob(f"{PREFIX}*")
        if path.name[len(PREFIX) :].isdigit()
    ]
    number = max(numbers, default=0) + 1
    folder = index_dir / f"{PREFIX}{number}"
    folder.mkdir(parents=True)
    for path in base.iterdir() if base is not None else ():
        if path.suffix == ".lock" or path.name == "files.db":
            continue
        try:
            (folder / path.name).hardlink_to(path)
        except OSError:  # A file system without hard links.
            shutil.copyfile(path, folder / path.name)
    return number, folder


def remove_others(index_dir: Path, keep: int | None) -> None:
    """Remove every generation except `keep`. Searches that have one open can still read it (POSIX)."""
    for path in index_dir.glob(f"{PREFIX}*"):
        if path.name != f"{PREFIX}{keep}":
            shutil.rmtree(path, ignore_errors=True)
    for path in index_dir.glob(f"{POINTER}.*.new"):
        path.unlink(missing_ok=True)


@contextmanager
def build_lock(index_dir: Path, *, wait_s: float) -> Iterator[None]:
    """Hold the build lock of an index, which is exclusive among all processes; the system releases it if this one dies.

    Raises `sqlite3.OperationalError` (busy) after `wait_s`. SQLite is used because its locks work on every platform.
    """
    make_folder(index_dir)
    try:
        connection = _acquire_lock(index_dir / _LOCK, wait_s)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise
        # The file contains nothing, so a damaged one can be replaced.
        (index_dir / _LOCK).unlink(missing_ok=True)
        connection = _acquire_lock(index_dir / _LOCK, wait_s)
    try:
        yield
    finally:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        connection.close()


def _acquire_lock(path: Path, wait_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=wait_s, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except BaseException:
        connection.close()
        raise
    return connection


def size_of(folder: Path) -> int:
    """Return the size of a generation in bytes."""
    return sum(path.stat().st_size for path in folder.iterdir())


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
