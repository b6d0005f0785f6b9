"""The event loop of commands."""

import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio

Result = TypeVar("Result")


def run_async(function: Callable[..., Awaitable[Result]], *arguments: Any) -> Result:
    """Run an async function on the event loop that the server uses too."""
    return anyio.run(function, *arguments, backend_options={"use_uvloop": sys.platform != "win32"})
