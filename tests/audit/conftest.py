"""What the tests of export and retention share: stores, entries, and a receiver that can fail."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.store.conftest import url_of
from toolpost.audit import AuditEntry
from toolpost.base.ids import CallerId, CallId, ToolName, TraceId
from toolpost.store import Store, open_store

OpenStore = Callable[[], AbstractAsyncContextManager[Store]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new place in each kind of store."""
    return url_of(request.param, request, tmp_path / "store.db")


@pytest.fixture
def open_export_store(url: str) -> OpenStore:
    """Open the store; several of them are several gateways."""
    return lambda: open_store(url)


_numbers = itertools.count(1)


async def add_entries(store: Store, count: int, at: str = "2026-03-01T12:00:00.000Z") -> None:
    """Add so many calls to the audit."""
    digest = "sha256:" + "a" * 64
    for _ in range(count):
        number = next(_numbers)
        await store.audit.append(
            AuditEntry(
                at_utc=at,
                call_id=CallId(f"call-{number}"),
                trace_id=TraceId(f"{number:032x}"),
                caller=CallerId("ada"),
                tool=ToolName("time__now"),
                source="time",
                contract=digest,
                schema_version=1,
                tooling_version="0.1.0",
                arguments=digest,
                outcome="ok" if number % 2 else "error",
                code=None if number % 2 else "HANDLER_ERROR",
                duration_ms=1.25,
                result=digest,
            )
        )


@dataclass
class Receiver:
    """Takes requests; answers the next ones with `statuses`, then with 200."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    answer: bytes = b"{}"
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    """Headers and bodies of those that were answered with 200."""
    attempts: list[str] = field(default_factory=list)
    """The `webhook-id` of every request."""

    @property
    def records(self) -> list[dict[str, Any]]:
        return [record for _, body in self.requests for record in json.loads(body)["records"]]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A real HTTP server on loopback."""
    state = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status = state.statuses.pop(0) if state.statuses else 200
            state.attempts.append(self.headers.get("webhook-id", ""))
            if status == 200:
                state.requests.append((dict(self.headers), body))
            self.send_response(status)
            self.send_header("content-length", str(len(state.answer)))
            self.end_headers()
            self.wfile.write(state.answer)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        state.url = f"http://127.0.0.1:{server.server_address[1]}/in"
        yield state
        server.shutdown()
