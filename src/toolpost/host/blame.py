"""Failures of parts, told as theirs: what a part raises where the kernel calls it is no bug in Toolpost."""

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Generic, TypeVar

from toolpost.contracts.errors import PluginFailed, ToolpostError
from toolpost.providers.loaded_plugin import explain_author_error

T = TypeVar("T")


def make_part_failure(part: str, what: str, error: Exception) -> PluginFailed:
    """Return the error for a part that fails after it has opened: too late to leave it out."""
    # Task groups raise an only error as a group.
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return PluginFailed(f"the part `{part}` {what}: {explain_author_error(error)}")


class blame_part(AbstractAsyncContextManager[T], Generic[T]):  # noqa: N801 (used like a function)
    """A context manager of a part; an error of its own while it closes becomes a `PluginFailed` that names the part."""

    def __init__(self, part: str, what: str, opened: AbstractAsyncContextManager[T]) -> None:
        self._part = part
        self._what = what
        self._opened = opened

    async def __aenter__(self) -> T:
        return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        try:
            return await self._opened.__aexit__(kind, error, traceback)
        except Exception as failure:
            # What ends the gateway goes through all parts: it is not theirs.
            if isinstance(failure, ToolpostError) or isinstance(error, Exception):
                raise
            raise make_part_failure(self._part, self._what, failure) from failure
