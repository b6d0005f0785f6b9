"""A client that sends plain JSON and says what it can, on a two-way channel (as on stdio) or over HTTP, in either era.

It answers every request of a server with `{"seen": params}`, in rounds where the era has them, and keeps what it is told.
"""

import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from tests.ways import ENVELOPE, STATELESS
from toolpost.app import App
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.discovery import EVERYTHING, View
from toolpost.endpoints.duplex import ClientConnection
from toolpost.net.client import HttpClient

Json = dict[str, Any]


@dataclass
class Wire:
    """One client."""

    is_stateless: bool
    capabilities: Json
    post: Callable[[Json], Awaitable[Json]] = field(init=False)
    """Sends a message, and returns the answer to a request."""
    greeting: Json = field(default_factory=dict)
    """The result of `initialize` or `server/discover`."""
    told: list[Json] = field(default_factory=list)
    asked: list[Json] = field(default_factory=list)
    ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    async def ask(self, method: str, params: Json | None = None, meta: Json | None = None) -> Json:
        """Send a request and return its answer, after as many rounds as it takes."""
        while True:
            answer = await self.post({"id": next(self.ids), "method": method, "params": self._fill(params, meta)})
            result = answer.get("result") or {}
            if result.get("resultType") != "input_required":
                return answer
            self.asked += result["inputRequests"].values()
            answers = {key: {"seen": asked["params"]} for key, asked in result["inputRequests"].items()}
            params = {**(params or {}), "inputResponses": answers, "requestState": result["requestState"]}

    async def notify(self, method: str, params: Json | None = None) -> None:
        await self.post({"method": method, "params": params or {}})

    def _fill(self, params: Json | None, meta: Json | None) -> Json:
        carried = {**(meta or {})}
        if self.is_stateless:
            carried = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": self.capabilities, **carried}
        return {**(params or {}), **({"_meta": carried} if carried else {})}

    async def greet(self) -> None:
        if self.is_stateless:
            self.greeting = (await self.ask("server/discover"))["result"]
            return
        info = {"name": "wire", "version": "0"}
        params = {"protocolVersion": "2025-11-25", "capabilities": self.capabilities, "clientInfo": info}
        self.greeting = (await self.ask("initialize", params))["result"]
        await self.notify("notifications/initialized")


@asynccontextmanager
async def duplex_wire(
    app: App, capabilities: Json, *, is_stateless: bool, name: str = "local", view: View = EVERYTHING
) -> AsyncIterator[Wire]:
    """Open a client on a two-way channel, as a caller of this name."""
    wire = Wire(is_stateless, capabilities)
    to_gateway, messages = anyio.create_memory_object_stream[bytes](100)
    answers: dict[Any, Json] = {}
    came: dict[Any, anyio.Event] = {}

    def receive(raw: bytes) -> None:
        message = json.loads(raw)
        if "method" not in message:
            answers[message["id"]] = message
            came[message["id"]].set()
        elif "id" in message:
            wire.asked.append(message)
            to_gateway.send_nowait(_write({"id": message["id"], "result": {"seen": message["params"]}}))
        else:
            wire.told.append(message)

    async def post(message: Json) -> Json:
        number = message.get("id")
        if number is not None:
            came[number] = anyio.Event()
        await to_gateway.send(_write(message))
        if number is None:
            return {}
        await came[number].wait()
        return answers.pop(number)

    wire.post = post
    caller = Caller(id=CallerId(name), transport="memory", session=f"{name}'s", is_admin=name == "local")
    connection = ClientConnection(app.call_handler, app.sdk, caller=caller, send=receive, view=view)
    async with to_gateway, messages, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: connection.serve(messages, grace_s=0.1))
        await wire.greet()
        yield wire
        to_gateway.close()


@asynccontextmanager
async def http_wire(
    url: str, capabilities: Json, *, is_stateless: bool, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> AsyncIterator[Wire]:
    """Open a client over HTTP."""
    wire = Wire(is_stateless, capabilities)
    own = list(headers)
    async with HttpClient(url) as client, anyio.create_task_group() as tasks:

        async def post(message: Json) -> Json:
            extra = list(own)
            if is_stateless:
                extra += [(b"mcp-protocol-version", STATELESS.encode())]
                if "method" in message:
                    extra += [(b"mcp-method", message["method"].encode())]
                if message.get("method") in ("tools/call", "resources/read", "prompts/get"):
                    named = message["params"].get("name") or message["params"].get("uri")
                    extra += [(b"mcp-name", named.encode())]
            found: list[Json] = []

            def take(raw: bytes) -> None:
                received = json.loads(raw or b"{}")
                if "method" not in received:
                    found.extend([received] if received else [])  # the first event of a stream is empty
                elif "id" in received:
                    wire.asked.append(received)
                    tasks.start_soon(post, {"id": received["id"], "result": {"seen": received["params"]}})
                else:
                    wire.told.append(received)

            response = await client.post(_write(message), extra, on_event=take)
            if message.get("method") == "initialize":
                own.extend([(b"mcp-session-id", response.headers[b"mcp-session-id"])])
                own.append((b"mcp-protocol-version", b"2025-11-25"))
            if response.body:
                take(response.body)
            return found[-1] if found else {}

        wire.post = post
        await wire.greet()
        yield wire
        tasks.cancel_scope.cancel()


def _write(message: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()
