"""All servers of one gateway: kept running as they ask for, their tools remembered while they are down."""

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

import anyio

from toolpost.contracts.errors import ToolpostError
from toolpost.contracts.events import event
from toolpost.sources.servers import ServerSource
from toolpost.store import KnownTools
from toolpost.upstreams.spec import ServerSpec

_log = logging.getLogger("toolpost.servers")

LEARN_LIMIT_S: Final = 10.0
"""How long the start waits for servers whose tools nobody has seen yet; those that take longer are listed when they come."""

KEEP_READY_S: Final = 2.0


class ServerHost:
    """The servers behind one gateway."""

    def __init__(
        self,
        specs: Iterable[ServerSpec],
        *,
        known: KnownTools,
        default_timeout_s: float,
        on_change: Callable[[], None],
    ) -> None:
        self._known = known
        self._on_change = on_change
        self._seen = anyio.Event()
        self._unsaved: set[str] = set()
        self.sources = {
            spec.name: ServerSource(
                spec,
                default_timeout_s=default_timeout_s,
                on_seen=self._note_seen,
                on_change=lambda _source: self._on_change(),
            )
            for spec in specs
        }

    @asynccontextmanager
    async def open_running(self) -> AsyncIterator[None]:
        """Run every server's supervisor; leaving ends every server."""
        async with anyio.create_task_group() as tasks:
            for source in self.sources.values():
                await tasks.start(source.supervisor.run)
                remembered = await self._known.recall(source.name)
                if remembered is not None:
                    source.learn(remembered)
            self._unsaved.clear()
            tasks.start_soon(self._save_seen)
            await self._learn_missing()
            for source in self.sources.values():
                if source.spec.min_ready:
                    tasks.start_soon(self._keep_ready, source)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await self._save()

    async def _learn_missing(self) -> None:
        """Start the servers whose tools nobody has seen, side by side, and wait for them a while."""
        missing = [source for source in self.sources.values() if source.definitions is None]
        with anyio.move_on_after(LEARN_LIMIT_S):
            async with anyio.create_task_group() as tasks:
                for source in missing:
                    tasks.start_soon(self._learn, source)

    async def _start(self, source: ServerSource) -> str | None:
        """Start a server; returns why it cannot be, if it cannot."""
        try:
            await source.supervisor.ensure_ready()
        except ToolpostError as error:
            return error.message
        return None

    async def _learn(self, source: ServerSource) -> None:
        if (reason := await self._start(source)) is not None:
            event(_log, logging.WARNING, "server not available", server=source.name, reason=reason)

    async def _keep_ready(self, source: ServerSource) -> None:
        while True:
            await self._start(source)
            await anyio.sleep(KEEP_READY_S)

    def _note_seen(self, source: ServerSource) -> None:
        self._unsaved.add(source.name)
        self._seen.set()

    async def _save_seen(self) -> None:
        """Remember definitions for the next start, off the path of any call."""
        while True:
            await self._seen.wait()
            self._seen = anyio.Event()
            await self._save()

    async def _save(self) -> None:
        while self._unsaved:
            source = self.sources[self._unsaved.pop()]
            if source.definitions is not None:
                try:
                    await self._known.remember(source.name, source.definitions)
                except Exception as error:  # noqa: BLE001 (a list that is not kept costs one start, later)
                    event(_log, logging.WARNING, "tools not remembered", server=source.name, reason=str(error))
