"""The log on disk: events of `toolpost serve` and the stderr of its servers, for `toolpost logs`.

Each process has its own file, one JSON object a line, in the folder `…-log` beside the store: two processes that rotate one file
would lose lines. A client that starts the gateway on stdio often does not show its stderr, and then the file is the only log.
"""

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

import psutil

from toolpost.base.events import SERVER_OUTPUT
from toolpost.base.state_folder import make_folder
from toolpost.terminal.failures import warn
from toolpost.terminal.logging import JsonFormatter

FILES: Final = 20
"""Files of ended processes that are kept at most; `log.keep_mb` is shared by all."""

_PREFIX: Final = "gateway-"
_ENDINGS: Final = (".jsonl.1", ".jsonl")
"""The older half of a file, and the newer one."""


class LogFileHandler(RotatingFileHandler):
    """Writes to the file of this process. A full disk is reported once and stops no call."""

    def __init__(self, folder: Path, *, limit_bytes: int) -> None:
        make_folder(folder, mode=0o700)
        path = folder / f"{_PREFIX}{os.getpid()}{_ENDINGS[-1]}"
        # One half is written while the other is kept.
        super().__init__(path, maxBytes=max(limit_bytes // 2, 65_536), backupCount=1, encoding="utf-8")
        self.setFormatter(JsonFormatter())
        self._has_failed = False

    def _open(self) -> Any:
        # Only for its owner: a server may write anything to stderr.
        return open(self.baseFilename, "a", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 (the name is logging's)
        if not self._has_failed:
            self._has_failed = True
            warn(f"the log cannot be written to {self.baseFilename}: {sys.exc_info()[1]}")


def write_log_files(folder: Path | None, *, keep_mb: int) -> None:
    """Write what is logged from now on to a file of this process as well, and remove files of ended ones that are too many."""
    if folder is None or keep_mb == 0:
        return
    try:
        _remove_old_files(folder, limit_bytes=keep_mb * 500_000)
        handler = LogFileHandler(folder, limit_bytes=keep_mb * 500_000)
    except OSError as error:
        warn(f"no log is kept on disk: {error}")
        return
    logging.getLogger().addHandler(handler)
    SERVER_OUTPUT.addHandler(handler)
    SERVER_OUTPUT.setLevel(logging.INFO)


class LogReader:
    """Reads the files of a folder: first all that they have, then what was added since."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[int, int] = {}
        """How many bytes were read, by inode: a file that is rotated gets another name."""

    def read_new(self) -> list[dict[str, Any]]:
        """Return the events since the last time, oldest first; a line that is not finished yet is left for the next."""
        events: list[dict[str, Any]] = []
        for path in _list_files(self._folder):
            with suppress(OSError), path.open("rb") as file:
                found = os.fstat(file.fileno())
                start = self._read.get(found.st_ino, 0)
                # Another file may have got the number of one that was removed.
                start = start if start <= found.st_size else 0
                file.seek(start)
                lines, newline, _ = file.read().rpartition(b"\n")
                self._read[found.st_ino] = start + len(lines) + len(newline)
                events += _read_events(lines)
        return sorted(events, key=lambda each: str(each.get("ts", "")))


def _read_events(raw: bytes) -> Iterator[dict[str, Any]]:
    for line in raw.splitlines():
        with suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, Mapping):
                yield dict(event)


def _list_files(folder: Path) -> list[Path]:
    return [path for ending in _ENDINGS for path in folder.glob(f"{_PREFIX}*{ending}")]


def _remove_old_files(folder: Path, *, limit_bytes: int) -> None:
    """Remove the oldest files of ended processes until few enough and little enough are left."""
    ended: list[tuple[float, int, Path]] = []
    for path in _list_files(folder):
        if not _is_running(path):
            with suppress(OSError):
                found = path.stat()
                ended.append((found.st_mtime, found.st_size, path))
    size = 0
    for count, (_, bytes_, path) in enumerate(sorted(ended, reverse=True)):
        size += bytes_
        if count >= FILES or size > limit_bytes:
            path.unlink(missing_ok=True)


def _is_running(path: Path) -> bool:
    number = path.name.removeprefix(_PREFIX).partition(".")[0]
    # A process of another program may have got its number: then the file stays until that one ends.
    return number.isdigit() and int(number) != os.getpid() and psutil.pid_exists(int(number))
