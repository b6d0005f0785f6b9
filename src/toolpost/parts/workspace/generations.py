"""Generations of an index: each in a folder of its own, and one small file that says which of them counts.

A build makes the next folder beside the one in use and then replaces the small file, which is atomic: whoever
searches meanwhile, and whoever comes after a build that was killed, sees the old generation whole.
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

from toolpost.base.own_folder import make_folder
from toolpost.contracts.errors import NoIndex
from toolpost.parts.workspace.engine import FORMAT

POINTER: Final = "current.json"
PREFIX: Final = "generation-"
_LOCK: Final = "build.lock"
_CHUNK: Final = 1 << 20


class Pointer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which generation counts, and what its files must be."""

    format: int
    generation: int
    built_at: float
    checked_at: float
    files: dict[str, str]
    """Checksum of each file of the generation, by name."""

    @property
    def folder_name(self) -> str:
        """Where it is."""
        return f"{PREFIX}{self.generation}"


class Damaged(NoIndex):
    """The index is damaged."""


_decoder = msgspec.json.Decoder(Pointer)


def read_pointer(home: Path) -> Pointer | None:
    """Return which generation counts; None if none was ever built."""
    try:
        encoded = (home / POINTER).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Damaged(f"The index cannot be read: {error.strerror}.") from error
    try:
        pointer = _decoder.decode(encoded)
    except msgspec.DecodeError as error:
        raise Damaged(f"The index is damaged: {POINTER} is not what a build writes.") from error
    if pointer.format != FORMAT:
        raise Damaged(f"The index has format {pointer.format}, and this version reads {FORMAT}.")
    return pointer


def write_pointer(home: Path, pointer: Pointer) -> None:
    """Replace the file, at once and for good."""
    waiting = home / f"{POINTER}.{os.getpid()}.new"
    with waiting.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(pointer)))
        file.flush()
        os.fsync(file.fileno())
    waiting.replace(home / POINTER)
    _sync_folder(home)


def check_generation(home: Path, pointer: Pointer) -> Path:
    """Return the folder of a generation after comparing every byte of it with what was built."""
    folder = home / pointer.folder_name
    for name, expected in pointer.files.items():
        try:
            found = checksum(folder / name)
        except OSError as error:
            raise Damaged(f"The index is damaged: {name} cannot be read ({error.strerror}).") from error
        if found != expected:
            raise Damaged(f"The index is damaged: {name} has changed since it was built.")
    return folder


def checksums(folder: Path) -> dict[str, str]:
    """Return the checksum of each file that belongs to a finished generation, after having it written to disk."""
    found = {}
    for path in sorted(folder.iterdir()):
        if not path.name.endswith(".lock"):
            with path.open("rb") as file:
                os.fsync(file.fileno())
            found[path.name] = checksum(path)
    _sync_folder(folder)
    return found


def checksum(path: Path) -> str:
    """Digest a file."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def next_folder(home: Path, base: Path | None) -> tuple[int, Path]:
    """Make the folder of the next generation; from a base it starts with the same files, linked, for they never change."""
    taken = [
        int(path.name.removeprefix(PREFIX)) for path in home.glob(f"{PREFIX}*") if path.name[len(PREFIX) :].isdigit()
    ]
    number = max(taken, default=0) + 1
    folder = home / f"{PREFIX}{number}"
    folder.mkdir(parents=True)
    for path in base.iterdir() if base is not None else ():
        if path.suffix == ".lock" or path.name == "files.db":
            continue
        try:
            (folder / path.name).hardlink_to(path)
        except OSError:
            shutil.copyfile(path, folder / path.name)
    return number, folder


def remove_others(home: Path, keep: int | None) -> None:
    """Remove every generation but one; what somebody still reads stays until they let go of it."""
    for path in home.glob(f"{PREFIX}*"):
        if path.name != f"{PREFIX}{keep}":
            shutil.rmtree(path, ignore_errors=True)
    for path in home.glob(f"{POINTER}.*.new"):
        path.unlink(missing_ok=True)


@contextmanager
def building_alone(home: Path, *, wait_s: float) -> Iterator[None]:
    """Hold what only one build of an index may hold, in whatever process; the system lets go of it for one that dies."""
    make_folder(home)
    try:
        connection = _locked(home / _LOCK, wait_s)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise
        # Nothing is kept in it: whatever it has become, another does as well.
        (home / _LOCK).unlink(missing_ok=True)
        connection = _locked(home / _LOCK, wait_s)
    try:
        yield
    finally:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        connection.close()


def _locked(path: Path, wait_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=wait_s, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except BaseException:
        connection.close()
        raise
    return connection


def size_of(folder: Path) -> int:
    """Return the bytes of a generation."""
    return sum(path.stat().st_size for path in folder.iterdir())


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
