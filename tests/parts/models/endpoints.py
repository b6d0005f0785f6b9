"""A model endpoint on a real socket that behaves as the model's name says: well, or in one of many bad ways."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from tests.parts.models.behaviors import BEHAVIORS


class FakeEndpoint:
    """Answers chat completions and responses; `requests` has the bodies, `headers` the request heads."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[dict[str, Any]] = []
        self.heads: list[bytes] = []
        self.closed = 0
        """Connections that the client closed while an answer was due."""

    def count(self, model: str) -> int:
        return sum(request["model"] == model for request in self.requests)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(
                    next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))[15:]
                )
                body = json.loads(await reader.readexactly(length))
                self.heads.append(head)
                self.requests.append(body)
                answer = BEHAVIORS[body["model"].partition("@")[0]]
                api = "responses" if b"/responses" in head.split(b"\r\n")[0] else "chat"
                if not await answer(self, body, api, reader, writer):
                    break
        writer.close()


@asynccontextmanager
async def open_endpoint() -> AsyncIterator[FakeEndpoint]:
    endpoint = FakeEndpoint()
    server = await asyncio.start_server(endpoint.handle, "127.0.0.1", 0)
    endpoint.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield endpoint
    finally:
        server.close()
