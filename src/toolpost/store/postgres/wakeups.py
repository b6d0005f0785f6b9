"""Wake-ups through LISTEN and NOTIFY. One connection listens for the whole process, and is opened again when it is lost."""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import anyio

from toolpost.base.events import event
from toolpost.contracts.errors import ToolpostError
from toolpost.store.postgres.connection import CONNECT_S, DATABASE_ERRORS, Connection, Database, is_transient
from toolpost.store.wakeups import Listener, Listeners, encode_topic

_log = logging.getLogger("toolpost.store")

ALIVE_S: Final = 15.0
"""How often a silent connection is checked."""

_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
_NOTIFY: Final = "SELECT pg_notify($1, name) FROM unnest($2::text[]) AS name"

Read = Callable[[Callable[[Connection], Awaitable[Any]]], Awaitable[Any]]


class PostgresWakeups:
    """Sends rings in batches: the commit of a NOTIFY takes a lock on the whole database, so there should be few."""

    def __init__(self, database: Database, read: Read) -> None:
        self._database = database
        self._read = read
        self._channel = f"toolpost_{database.location.schema}"
        # To recognize the rings of this process, which the database sends back: their listeners were woken already.
        self._origin = uuid.uuid4().hex[:12]
        self._listeners = Listeners()
        self._outgoing: set[str] = set()
        self._sending: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._is_listening = asyncio.Event()

    def ring(self, topic: str) -> None:
        """Wake the listeners of a topic, here at once and in other processes soon."""
        name = encode_topic(topic)
        self._listeners.wake([name])
        self._outgoing.add(name)
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send(), name="toolpost-ring")

    @asynccontextmanager
    async def open_listener(self, *topics: str) -> AsyncGenerator[Listener]:
        """Listen to topics; if the database is unreachable, the listener is woken once it is back."""
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._listen(), name="toolpost-listen")
        names = [encode_topic(topic) for topic in topics]
        listener = self._listeners.join(names)
        try:
            if not self._is_listening.is_set():
                with anyio.move_on_after(CONNECT_S):
                    await self._is_listening.wait()
            yield listener
        finally:
            self._listeners.leave(names, listener)

    async def aclose(self) -> None:
        """Send queued rings, and stop listening."""
        if self._sending is not None:
            await self._sending
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def _send(self) -> None:
        try:
            while self._outgoing:
                names, self._outgoing = self._outgoing, set()
                await self._read(partial(self._notify, names=names))
        except ToolpostError as error:
            # Other gateways have lost the database as well: their listeners are woken when they have reconnected.
            event(_log, logging.WARNING, "could not ring", reason=error.message)
        finally:
            self._sending = None

    async def _notify(self, connection: Connection, *, names: set[str]) -> None:
        await connection.execute(_NOTIFY, self._channel, [f"{self._origin} {name}" for name in names])

    async def _listen(self) -> None:
        failures, has_missed = 0, False
        while True:
            try:
                await self._listen_once(has_missed=has_missed)
            except DATABASE_ERRORS as error:
                if not is_transient(error):
                    event(_log, logging.ERROR, "cannot listen", reason=str(error))
            # A connection that listened for a while is opened again at once; one that cannot be opened, more and more seldom.
            failures = 0 if self._is_listening.is_set() else failures + 1
            has_missed = True
            self._is_listening.clear()
            await asyncio.sleep(_PAUSES_S[min(failures, len(_PAUSES_S) - 1)])

    async def _listen_once(self, *, has_missed: bool) -> None:
        """Listen until the connection is lost."""
        connection = await self._database.connect()
        try:
            ended = asyncio.Event()
            connection.add_termination_listener(lambda _: ended.set())
            await connection.add_listener(self._channel, self._on_notification)
            self._is_listening.set()
            if has_missed:
                self._listeners.wake_all()
            while not ended.is_set():
                with anyio.move_on_after(ALIVE_S):
                    await ended.wait()
                # A connection whose other end vanished without a word looks open for as long as nothing is sent on it.
                if not ended.is_set():
                    await connection.fetchval("SELECT 1", timeout=CONNECT_S)
        finally:
            connection.terminate()

    def _on_notification(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        origin, _, name = str(payload).partition(" ")
        if origin != self._origin:
            self._listeners.wake([name])
