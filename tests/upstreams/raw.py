"""A client that sends and compares plain JSON, in either era, over stdio and HTTP: no model loses a field on the way."""

import itertools
import json
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio.to_thread

from tests.ways import ENVELOPE, ROOT, STATELESS
from toolpost.net.client import HttpClient

Json = Any


@dataclass(frozen=True)
class Ask:
    """Asks, and returns the whole answer; what else was said meanwhile is in `heard`."""

    _ask: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
    heard: list[dict[str, Any]] = field(default_factory=list)

    async def __call__(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.heard.clear()
        return await self._ask(method, params)


_INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}


@asynccontextmanager
async def raw_stdio(command: Sequence[str], *, is_stateless: bool, cwd: Path | None = None) -> AsyncIterator[Ask]:
    """Talk to a server on stdio."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "XDG_DATA_HOME") if name in os.environ}
    environment["PYTHONPATH"] = _paths()
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, cwd=cwd
    )
    ids = itertools.count(1)
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def send(message: Json) -> None:
        stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        stdin.flush()

    async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
        number = next(ids)
        send({"id": number, "method": method, "params": _enveloped(params, is_stateless=is_stateless)})
        while True:
            message: dict[str, Any] = json.loads(await anyio.to_thread.run_sync(stdout.readline))
            if message.get("id") == number and "method" not in message:
                return message
            asked.heard.append(message)

    asked = Ask(ask)
    try:
        if not is_stateless:
            await asked("initialize", _INITIALIZE)
            send({"method": "notifications/initialized"})
        yield asked
    finally:
        stdin.close()
        try:
            await anyio.to_thread.run_sync(lambda: process.wait(60))
        finally:
            process.kill()
            process.wait()
            stdout.close()


@asynccontextmanager
async def raw_http(url: str, *, is_stateless: bool) -> AsyncIterator[Ask]:
    """Talk to a server over HTTP."""
    ids = itertools.count(1)
    headers: list[tuple[bytes, bytes]] = []
    async with HttpClient(url) as client:

        async def post(message: Json, extra: Sequence[tuple[bytes, bytes]] = ()) -> tuple[Any, dict[str, Any]]:
            events: list[bytes] = []
            body = json.dumps({"jsonrpc": "2.0", **message}).encode()
            response = await client.post(body, [*headers, *extra], on_event=events.append)
            for data in [response.body, *events]:
                if not data:
                    continue
                received = json.loads(data)
                if received.get("id") == message.get("id") and "method" not in received:
                    return response, received
                asker.heard.append(received)
            return response, {}

        async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
            extra = (
                [(b"mcp-protocol-version", STATELESS.encode()), (b"mcp-method", method.encode())]
                if is_stateless
                else []
            )
            if is_stateless and (named := params.get("name") or params.get("uri")):
                extra.append((b"mcp-name", named.encode()))
            asked = {"id": next(ids), "method": method, "params": _enveloped(params, is_stateless=is_stateless)}
            return (await post(asked, extra))[1]

        asker = Ask(ask)
        if not is_stateless:
            response, _ = await post({"id": 0, "method": "initialize", "params": _INITIALIZE})
            headers.append((b"mcp-session-id", response.headers[b"mcp-session-id"]))
            headers.append((b"mcp-protocol-version", b"2025-11-25"))
            await post({"method": "notifications/initialized"})
        yield asker
        if not is_stateless:
            await client.request("DELETE", headers=headers)


def _enveloped(params: dict[str, Any], *, is_stateless: bool) -> dict[str, Any]:
    return {**params, "_meta": ENVELOPE | params.get("_meta", {})} if is_stateless else params


def _paths() -> str:
    return os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))
