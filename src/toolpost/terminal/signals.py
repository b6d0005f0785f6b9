"""Signal handlers that run on the event loop: SIGINT, SIGTERM and SIGHUP."""

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
    """Call `react` on each SIGINT or SIGTERM while the context is open."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _NUMBERS}
    for number in _NUMBERS:
        try:
            loop.add_signal_handler(number, react)
        except NotImplementedError:
            # The event loops of Windows cannot wait for signals.
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
    """Call `reload` on SIGHUP, or `end` if the terminal that started the process was closed. Does nothing on Windows."""
    if sys.platform == "win32":
        yield
        return
    had_terminal = _has_terminal()

    def react() -> None:
        # A closed terminal sends SIGHUP too: reloading would leave a server behind that Ctrl-C can no longer reach.
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
