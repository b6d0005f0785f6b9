"""An HTTP API on a real socket. It answers as it is told to, and otherwise with what it was sent."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from toolpost.app import App, open_app
from toolpost.parts.openapi.settings import APIS, ApiSettings
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    head: bytes


@dataclass(frozen=True, kw_only=True)
class Reply:
    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0


class FakeApi:
    def __init__(self) -> None:
        self.url = ""
        self.seen: list[Seen] = []
        self.replies: dict[str, Reply | Callable[[Seen], Reply]] = {}
        """What is answered, by method and path without the query: `GET /pets`."""
        self.lost = 0
        """Connections that the client closed while an answer was due."""

    @property
    def last(self) -> Seen:
        return self.seen[-1]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                first, *lines = head[:-4].decode("latin-1").split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                method, target, _ = first.split(" ")
                seen = Seen(method=method, target=target, headers=headers, body=body, head=head)
                self.seen.append(seen)
                told = self.replies.get(f"{method} {target.partition('?')[0]}", Reply(body={"target": target}))
                reply = told(seen) if callable(told) else told
                if not await self._wait(reader, reply.delay_s):
                    break
                writer.write(_write(reply, is_head=method == "HEAD"))
                await writer.drain()
        writer.close()

    async def _wait(self, reader: asyncio.StreamReader, delay_s: float) -> bool:
        if not delay_s:
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                if not await reader.read(1):
                    self.lost += 1
                    return False
        return True


def _write(reply: Reply, *, is_head: bool) -> bytes:
    body = (
        reply.body if isinstance(reply.body, bytes) else b"" if reply.body is None else json.dumps(reply.body).encode()
    )
    headers = {"content-type": "application/json", "content-length": str(len(body)), **reply.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {reply.status} X\r\n{lines}\r\n".encode("latin-1") + (b"" if is_head else body)


@asynccontextmanager
async def open_fake_api() -> AsyncIterator[FakeApi]:
    api = FakeApi()
    server = await asyncio.start_server(api.handle, "127.0.0.1", 0)
    api.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield api
    finally:
        server.close()


def describe(*operations: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Make a document; each operation has `method` and `path` besides what documents have."""
    paths: dict[str, Any] = {}
    for operation in operations:
        own = {"responses": {"200": {"description": "done"}}, **operation}
        paths.setdefault(own.pop("path"), {})[own.pop("method")] = own
    return {"openapi": "3.0.3", "info": {"title": "Pets", "version": "1.2"}, "paths": paths, **more}


def takes(place: str, name: str, schema: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Make a parameter."""
    required = {"required": True} if place == "path" else {}
    return {"in": place, "name": name, "schema": schema or {"type": "string"}, **required, **more}


def answers(schema: dict[str, Any], status: str = "200") -> dict[str, Any]:
    return {status: {"description": "done", "content": {"application/json": {"schema": schema}}}}


@asynccontextmanager
async def open_gateway(
    described: dict[str, Any], base: str, folder: Path, *, store: str = "sqlite::memory:", **settings: Any
) -> AsyncIterator[App]:
    """Open a gateway with one API, `pets`; `api_contracts` are its own `contracts`."""
    (folder / "pets.json").write_text(json.dumps(described))
    extra = {
        key: settings.pop(key) for key in ("callers", "contracts", "limits", "network", "servers") if key in settings
    }
    config = Config(store=StoreSettings(url=store), project=str(folder), **extra)
    settings |= {"contracts": settings.pop("api_contracts")} if "api_contracts" in settings else {}
    api = msgspec.convert({"document": "pets.json", "base": base, **settings}, ApiSettings)
    async with open_app(APIS.put(config, {"pets": api})) as app:
        yield app
