"""Ctrl-C and SIGTERM, and SIGHUP, as something to call on the event loop."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def on_signals(react: Callable[[], None]) -> Iterator[None]:
    """Call this on each signal that asks the process to end, for as long as the context is open."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _NUMBERS}
    for number in _NUMBERS:
        try:
            loop.add_signal_handler(number, react)
        except NotImplementedError:
            # Windows has no signals that a loop could wait for.
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(react))
    try:
        yield
    finally:
        for number, handler in before.items():
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, handler)


@contextmanager
def on_hangup(reload: Callable[[], None], end: Callable[[], None]) -> Iterator[None]:
    """Call `reload` on SIGHUP; where the terminal that the process was started in is gone, call `end`. Not on Windows."""
    if sys.platform == "win32":
        yield
        return
    had_terminal = _has_terminal()

    def react() -> None:
        # A closed terminal sends the same signal: a server that nobody can stop any more would stay behind.
        (end if had_terminal and not _has_terminal() else reload)()

    loop, before = asyncio.get_running_loop(), signal.getsignal(signal.SIGHUP)
    loop.add_signal_handler(signal.SIGHUP, react)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, before)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
