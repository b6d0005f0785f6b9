"""Every way into Toolpost: each transport in each era, with the official client, and raw peers for what no client sends."""

import importlib
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import msgspec
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import StreamableHTTPTransport

from tests.loaded import forked, loaded_toolpost
from toolpost import Plugin
from toolpost.app import App, open_app, open_http
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.manifest import bundled_plugins
from toolpost.settings import Config
from toolpost.settings.model import DiscoverySettings, HttpSettings, LimitSettings, PluginSettings, StoreSettings

ROOT = Path(__file__).parents[1]
TOOLPOST = str(Path(sys.executable).parent / "toolpost")
STATELESS = "2026-07-28"
RECEIVE_LIMIT_S = 60.0
"""How long a raw peer waits for one message."""
BEHAVIOURS = "tests.plugins.behaviours:plugin"
SHAPES = "tests.plugins.shapes:plugin"

OURS = PluginSettings(bundled=list(bundled_plugins()))
"""Every plugin that comes with Toolpost."""

IN_MEMORY = Config(store=StoreSettings(url="sqlite::memory:"), http=HttpSettings(listen="127.0.0.1:0"), plugins=OURS)


AUTOMATIC, BOTH = (
    msgspec.structs.replace(IN_MEMORY, discovery=DiscoverySettings(mode=mode)) for mode in ("automatic", "both")
)


def plugin_of(reference: str) -> Plugin:
    module, _, attribute = reference.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    assert isinstance(found, Plugin)
    return found


def limited(**limits: Any) -> Config:
    return msgspec.structs.replace(IN_MEMORY, limits=LimitSettings(**limits))


@dataclass(frozen=True)
class Way:
    """One transport in one era."""

    transport: str
    mode: str

    def __str__(self) -> str:
        return f"{self.transport}-{'modern' if self.mode == STATELESS else 'handshake'}"

    @asynccontextmanager
    async def client(self, *references: str, config: Config = IN_MEMORY) -> AsyncIterator[Client]:
        """Open a client on a Toolpost that serves these plugins."""
        if self.transport == "stdio":
            options = ("--mode", config.discovery.mode)
            with TemporaryDirectory() as folder:
                server = stdio_server(*references, cwd=Path(folder), arguments=options)
                async with Client(server, mode=self.mode) as client:
                    yield client
            return
        async with open_app(config, plugins=[plugin_of(r) for r in references], bundled=False) as app:
            async with self.client_of(app) as client:
                yield client

    @asynccontextmanager
    async def client_of(self, app: App) -> AsyncIterator[Client]:
        if self.transport == "memory":
            async with Client(open_memory_endpoint(app.call_handler, app.sdk), mode=self.mode) as client:
                yield client
        else:
            async with open_http(app) as url, Client(url, mode=self.mode) as client:
                yield client


async def _take_late(transport: StreamableHTTPTransport, *given: Any, **named: Any) -> None:
    """Take an answer, also where the client is closed: that of a call which it has cancelled would fail it all."""
    with suppress(anyio.BrokenResourceError):
        await _take(transport, *given, **named)


_take = StreamableHTTPTransport._handle_json_response
StreamableHTTPTransport._handle_json_response = _take_late  # type: ignore[assignment, method-assign]


WAYS = [Way(transport, mode) for transport in ("memory", "http", "stdio") for mode in ("legacy", STATELESS)]
QUICK_WAYS = [way for way in WAYS if way.transport != "stdio"]


def stdio_server(*references: str, cwd: Path, arguments: Sequence[str] = ()) -> StdioServerParameters:
    """Say how a server is started in a folder of its own, where its store is."""
    options = [part for reference in references for part in ("--plugin", reference)]
    arguments = ["serve", "--stdio", *options, *arguments]
    command, *rest = loaded_toolpost(*arguments)
    return StdioServerParameters(command=command, args=rest, env=server_environment(), cwd=cwd)


def server_environment() -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "XDG_DATA_HOME": os.environ["XDG_DATA_HOME"]}


ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class StdioPeer:
    """A client that sends whatever it likes, one line at a time."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self._ids = itertools.count(1000)

    def send(self, message: Any) -> None:
        self.send_raw(json.dumps(message).encode())

    def send_raw(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout is not None
        # An answer that never comes must fail its test, and not hang it: the read ends with the process.
        bound = threading.Timer(RECEIVE_LIMIT_S, self.process.kill)
        bound.start()
        try:
            line = self.process.stdout.readline()
        finally:
            bound.cancel()
        assert line, "the server closed its end, or sent nothing for too long"
        return json.loads(line)

    def request(self, method: str, params: dict[str, Any] | None = None, **options: Any) -> Any:
        """Ask in the stateless era and return the answer."""
        request_id = options.get("id", next(self._ids))
        self.start(method, params, id=request_id)
        return self.receive()

    def start(self, method: str, params: dict[str, Any] | None = None, **options: Any) -> None:
        meta = ENVELOPE | options.get("meta", {})
        params = {**(params or {}), "_meta": meta}
        self.send({"jsonrpc": "2.0", "id": options["id"], "method": method, "params": params})

    def call(self, name: str, **arguments: Any) -> Any:
        return self.request("tools/call", {"name": name, "arguments": arguments})

    def shake_hands(self, version: str = "2025-11-25") -> Any:
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "peer", "version": "0"}}
        self.send({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": params})
        answer = self.receive()
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer


@contextmanager
def stdio_peer(*references: str, cwd: Path, arguments: tuple[str, ...] = ()) -> Iterator[StdioPeer]:
    """Start a server on stdio and talk to it by hand."""
    options = [part for reference in references for part in ("--plugin", reference)]
    serve = ("serve", "--stdio", *options, *arguments)
    process = forked.start(
        (TOOLPOST, *serve),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=cwd,
        env=server_environment(),
    )
    try:
        yield StdioPeer(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
