"""How tests wait: for a condition, and never for a time.

`until` and `wait_until` wait for what comes from outside: a process, a thread, a file. What the tasks of this event loop still do
is over when `anyio.wait_all_tasks_blocked()` returns. That something does *not* happen is shown by something that comes after it.
"""

import inspect
import time
from collections.abc import Callable
from typing import Any, Final

import anyio

LIMIT_S: Final = 90.0
EVERY_S: Final = 0.01


async def until(holds: Callable[[], Any], *, limit_s: float = LIMIT_S, every_s: float = EVERY_S) -> Any:
    """Wait until a function, or the coroutine that it returns, has a true result, and return it; raises `TimeoutError`."""
    with anyio.fail_after(limit_s):
        while True:
            result = holds()
            if inspect.isawaitable(result):
                result = await result
            if result:
                return result
            await anyio.sleep(every_s)


def wait_until(holds: Callable[[], Any], *, limit_s: float = LIMIT_S, every_s: float = EVERY_S) -> Any:
    """The same in a test without an event loop."""
    give_up_at = time.monotonic() + limit_s
    while not (result := holds()):
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"not so after {limit_s:g} s")
        time.sleep(every_s)
    return result
