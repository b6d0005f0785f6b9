"""Ctrl-C and SIGTERM, as something to call on the event loop."""

import asyncio
import signal
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
