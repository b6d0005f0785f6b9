"""The process that builds: an order on stdin, progress and what came of it on stdout, one JSON object a line."""

import errno
import os
import sqlite3
import sys
import time

from toolpost.contracts.errors import ErrorCode, ToolpostError
from toolpost.parts.workspace.build import Build
from toolpost.parts.workspace.build_order import BuildOrder, Failed, Step, Told, decode_order, encode
from toolpost.parts.workspace.generations import building_alone
from toolpost.parts.workspace.scan import scan

_MAY_NOT = "let Toolpost write to `workspace.index_dir`, or set another one"
_HINTS = {
    sqlite3.SQLITE_BUSY: "another build has been running all the while",
    **dict.fromkeys((sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM), _MAY_NOT),
}


def main() -> int:
    """Build as ordered; the exit code says whether it worked."""
    try:
        # Whoever works on this machine goes first.
        if hasattr(os, "nice"):
            os.nice(5)
        _built(decode_order(sys.stdin.buffer.read()))
    except ToolpostError as error:
        return _failed(error.code, error.message, error.hint)
    except sqlite3.Error as error:
        # Extended codes have their kind in the lowest byte.
        hint = _HINTS.get(error.sqlite_errorcode & 0xFF) or _hint(None)
        return _failed(ErrorCode.HANDLER_ERROR, f"The index cannot be written: {error}.", hint)
    except OSError as error:
        return _failed(ErrorCode.HANDLER_ERROR, f"The index cannot be written: {error.strerror}.", _hint(error.errno))
    except ValueError as error:
        # What the engine raises when it cannot write, among others for a full disk.
        return _failed(ErrorCode.HANDLER_ERROR, f"The index cannot be written: {error}.", _hint(None))
    return 0


def _built(order: BuildOrder) -> None:
    _tell(Step(phase="scan", done=0, message="waiting for its turn"))
    with building_alone(order.repository.home, wait_s=order.wait_s):
        _tell(Step(phase="scan", done=1, message="looking for files"))
        scanned_at = time.time()
        found = scan(order.repository, order.limits)
        _tell(Step(phase="scan", done=2, message=f"{len(found.files)} files"))
        _tell(Build(order, found, {"scannedAt": scanned_at, "git": found.git}, _tell).run())


def _tell(told: Told) -> None:
    sys.stdout.buffer.write(encode(told) + b"\n")
    sys.stdout.buffer.flush()


def _failed(code: ErrorCode, message: str, hint: str | None) -> int:
    _tell(Failed(code=code.value, message=message, hint=hint))
    return 1


def _hint(number: int | None) -> str:
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return _MAY_NOT
    return "see that there is room on the disk; the index before still answers"


if __name__ == "__main__":
    sys.exit(main())
