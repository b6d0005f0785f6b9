"""The part: one plugin, without settings or tables."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolpost.parts import Host


@asynccontextmanager
async def open_time(host: "Host") -> AsyncIterator[Sequence[object]]:
    """Provide the plugin where `plugins.bundled` names it."""
    if not host.wants_plugin("time"):
        yield ()
        return
    from toolpost.parts.time.plugin import plugin

    yield [plugin]
