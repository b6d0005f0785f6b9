"""A file put on the disk by the kernel, which tells the loop when it is: asynchronous I/O of Linux, with no thread in between."""

import asyncio
import contextlib
import ctypes
import errno
import os
import platform
import sys
from typing import Final

from toolpost.store.sqlite.disk import Told

# io_setup, io_destroy, io_getevents, io_submit: the C library has no names for them.
_CALLS: Final = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
_FDSYNC: Final = 3
_TELLS: Final = 1


class _Request(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_int32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("file", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("length", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("told", ctypes.c_uint32),
    )


class _Outcome(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("more", ctypes.c_int64),
    )


class KernelDisk:
    """Asks the kernel, and is told through a file that the loop watches: no thread takes part."""

    def __init__(self, file: int) -> None:
        """Take over a file; an `OSError`, with the file left open, where the kernel or the loop cannot do this."""
        numbers = _CALLS.get(platform.machine()) if sys.platform == "linux" else None
        # The layout of what is asked depends on these two.
        if numbers is None or sys.byteorder != "little" or sys.maxsize < 1 << 32:
            raise OSError(errno.ENOSYS, "not on this machine")
        setup, self._destroy, self._get_events, self._submit = map(ctypes.c_long, numbers)
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        _check(self._call(setup, ctypes.c_long(1), ctypes.byref(self._context)))
        self._file = file
        self._told: Told | None = None
        self._outcome = _Outcome()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._request = _Request(opcode=_FDSYNC, file=file, flags=_TELLS, told=self._bell)
        self._requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._loop = asyncio.get_running_loop()
        try:
            self._loop.add_reader(self._bell, self._tell)
        except NotImplementedError as error:
            self._free()
            raise OSError(errno.ENOSYS, "not with this loop") from error

    def start(self, told: Told) -> None:
        """Have all that was written so far put on the disk; one at a time. An `OSError` if the kernel does not take it."""
        if self._call(self._submit, self._context, ctypes.c_long(1), self._requests) != 1:
            raise _error(ctypes.get_errno())
        self._told = told

    def release(self) -> int:
        """Give the file back; nothing may be under way."""
        self._loop.remove_reader(self._bell)
        self._free()
        return self._file

    def close(self) -> None:
        """Let go of the file; nothing may be under way."""
        os.close(self.release())

    def _free(self) -> None:
        self._call(self._destroy, self._context)
        os.close(self._bell)

    def _tell(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        one = ctypes.c_long(1)
        found = self._call(self._get_events, self._context, ctypes.c_long(0), one, ctypes.byref(self._outcome), None)
        if found < 0:
            self._end(_error(ctypes.get_errno()))
        elif found:
            self._end(None if self._outcome.result == 0 else _error(-self._outcome.result))

    def _end(self, error: OSError | None) -> None:
        told, self._told = self._told, None
        if told is not None:
            told(error)


def _check(result: int) -> None:
    if result < 0:
        raise _error(ctypes.get_errno())


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
