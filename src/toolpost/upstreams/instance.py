"""One running server: the wire to it, what it said about itself, who is using it."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import anyio
import psutil

from toolpost.upstreams.greeting import Greeting
from toolpost.upstreams.http_wire import open_http_server
from toolpost.upstreams.spec import ServerSpec
from toolpost.upstreams.sse_wire import open_sse_server
from toolpost.upstreams.stdio_wire import StdioServer, open_stdio_server
from toolpost.upstreams.wire import Notice, Wire


@dataclass(kw_only=True, eq=False)
class Instance:
    """A server while it lives. Callers hold it through `used`."""

    key: str
    wire: Wire | None = None
    greeting: Greeting | None = None
    process: StdioServer | None = None
    settled: anyio.Event = field(default_factory=anyio.Event)
    """Set when it is known whether it started."""
    failure: Exception | None = None
    stopping: anyio.Event = field(default_factory=anyio.Event)
    stop_reason: str = ""
    in_flight: int = 0
    used_at: float = field(default_factory=time.monotonic)
    ready_at: float | None = None

    @contextmanager
    def used(self) -> Iterator[None]:
        """Count a call, so that nobody stops the server under it."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
            self.used_at = time.monotonic()

    def stop(self, reason: str) -> None:
        """Ask it to end."""
        if not self.stopping.is_set():
            self.stop_reason = reason
            self.stopping.set()

    @property
    def pid(self) -> int | None:
        """The process, for a server that is one of ours."""
        return self.process.process.pid if self.process else None

    @property
    def memory_bytes(self) -> int | None:
        """What the process and its children hold."""
        if self.pid is None:
            return None
        try:
            root = psutil.Process(self.pid)
            return sum(p.memory_info().rss for p in (root, *root.children(recursive=True)))
        except psutil.Error:
            return None

    def children_since(self, wall_time: float) -> list[int]:
        """Processes that the server has started since then and that still run."""
        if self.pid is None:
            return []
        try:
            children = psutil.Process(self.pid).children(recursive=True)
            return [child.pid for child in children if child.create_time() >= wall_time]
        except psutil.Error:
            return []


@asynccontextmanager
async def open_wire(
    spec: ServerSpec, instance: Instance, *, on_notice: Notice, on_gone: Callable[[str], None]
) -> AsyncIterator[Wire]:
    """Reach the server by whatever transport it has."""
    if spec.command is not None:
        async with open_stdio_server(spec, on_notice=on_notice, on_gone=on_gone) as server:
            instance.process = server
            yield server.peer
    elif spec.transport == "sse":
        async with open_sse_server(spec, on_notice=on_notice, on_gone=on_gone) as wire:
            yield wire
    else:
        async with open_http_server(spec, on_notice=on_notice, on_gone=on_gone) as wire:
            yield wire
