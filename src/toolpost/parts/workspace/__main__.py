"""The build process: reads a `BuildOrder` from stdin, writes progress and the outcome to stdout as JSON lines."""

import errno
import os
import sqlite3
import sys
import time

from toolpost import ErrorCode, ToolpostError
from toolpost.parts.workspace.build import Build
from toolpost.parts.workspace.build_messages import (
    BuildFailure,
    BuildMessage,
    BuildOrder,
    BuildStep,
    decode_order,
    encode,
)
from toolpost.parts.workspace.generations import build_lock
from toolpost.parts.workspace.scan import scan

_PERMISSION_HINT = "let Toolpost write to `workspace.index_dir`, or set another one"
_HINTS = {
    sqlite3.SQLITE_BUSY: "another build is running; wait for it, or stop it",
    **dict.fromkeys((sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM), _PERMISSION_HINT),
}


def main() -> int:
    """Return the exit code: 0 if the index was built."""
    try:
        # A background build must not slow down the people who work on this machine.
        if hasattr(os, "nice"):
            os.nice(5)
        _build(decode_order(sys.stdin.buffer.read()))
    except ToolpostError as error:
        return _fail(error.code, error.message, error.hint)
    except sqlite3.Error as error:
        # The lowest byte of an extended result code is its primary code.
        hint = _HINTS.get(error.sqlite_errorcode & 0xFF) or _hint_for(None)
        return _fail(ErrorCode.HANDLER_ERROR, f"The index cannot be written: {error}.", hint)
    except OSError as error:
        return _fail(ErrorCode.HANDLER_ERROR, f"The index cannot be written: {error.strerror}.", _hint_for(error.errno))
    except ValueError as error:
        # tantivy raises it when it cannot write, for example on a full disk.
        return _fail(ErrorCode.HANDLER_ERROR, f"The index cannot be written: {error}.", _hint_for(None))
    return 0


def _build(order: BuildOrder) -> None:
    _send(BuildStep(phase="scan", done=0, message="waiting for another build"))
    with build_lock(order.repository.index_dir, wait_s=order.wait_s):
        _send(BuildStep(phase="scan", done=1, message="looking for files"))
        scanned_at = time.time()
        scanned = scan(order.repository, order.limits)
        _send(BuildStep(phase="scan", done=2, message=f"{len(scanned.files)} files"))
        _send(Build(order, scanned, {"scannedAt": scanned_at, "git": scanned.git}, _send).run())


def _send(message: BuildMessage) -> None:
    sys.stdout.buffer.write(encode(message) + b"\n")
    sys.stdout.buffer.flush()


def _fail(code: ErrorCode, message: str, hint: str | None) -> int:
    _send(BuildFailure(code=code.value, message=message, hint=hint))
    return 1


def _hint_for(error_number: int | None) -> str:
    if error_number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return _PERMISSION_HINT
    return "check that the disk has space; the previous index still answers"


if __name__ == "__main__":
    sys.exit(main())
