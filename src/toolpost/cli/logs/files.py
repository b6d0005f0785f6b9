"""Writes the log on disk: what `toolpost serve` logs and what its servers write to stderr. `base/log_files.py` reads it.

Each process has its own file, one JSON object a line, in the folder `…-log` beside the store: two processes that rotate one file
would lose lines. A client that starts the gateway on stdio often does not show its stderr, and then the file is the only log.
"""

import logging
import os
import sys
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

import psutil

from toolpost.base.events import SERVER_OUTPUT
from toolpost.base.log_files import ENDINGS, PREFIX, list_log_files
from toolpost.base.state_folder import make_folder
from toolpost.terminal.failures import warn
from toolpost.terminal.logging import JsonFormatter

FILES: Final = 20
"""Files of ended processes that are kept at most; `log.keep_mb` is shared by all."""


class LogFileHandler(RotatingFileHandler):
    """Writes to the file of this process. A full disk is reported once and stops no call."""

    def __init__(self, folder: Path, *, limit_bytes: int) -> None:
        make_folder(folder, mode=0o700)
        path = folder / f"{PREFIX}{os.getpid()}{ENDINGS[-1]}"
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


def _remove_old_files(folder: Path, *, limit_bytes: int) -> None:
    """Remove the oldest files of ended processes until few enough and little enough are left."""
    ended: list[tuple[float, int, Path]] = []
    for path in list_log_files(folder):
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
    number = path.name.removeprefix(PREFIX).partition(".")[0]
    # A process of another program may have got its number: then the file stays until that one ends.
    return number.isdigit() and int(number) != os.getpid() and psutil.pid_exists(int(number))
