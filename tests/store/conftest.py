"""What the tests of the store share: the event loops they run on, the stores they are held to, and entries."""

import itertools
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from tests.postgres import Postgres
from toolpost.audit import AuditEntry
from toolpost.base.ids import CallerId, CallId, ToolName, TraceId

DIGEST = "sha256:" + "a" * 64


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
        pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return cast("tuple[str, dict[str, Any]]", request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, path: Path) -> str:
    """A new place in each kind of store."""
    return url_of(request.param, request, path)


def url_of(kind: str, request: pytest.FixtureRequest, path: Path) -> str:
    if kind == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        return server.new_url()
    return "sqlite::memory:" if kind == "memory" else f"sqlite:{path}"


@pytest.fixture
def entry() -> Callable[..., AuditEntry]:
    """Make entries that differ from each other, and where the test says so."""
    numbers = itertools.count(1)

    def make(**changes: Any) -> AuditEntry:
        usual: dict[str, Any] = {
            "at_utc": "2026-03-01T12:00:00.000Z",
            "call_id": CallId(f"call-{next(numbers)}"),
            "trace_id": TraceId("0123456789abcdef0123456789abcdef"),
            "caller": CallerId("ada"),
            "tool": ToolName("time__now"),
            "source": "time",
            "contract": DIGEST,
            "schema_version": 1,
            "tooling_version": "0.1.0",
            "arguments": DIGEST,
            "outcome": "ok",
            "code": None,
            "duration_ms": 1.25,
            "result": DIGEST,
        }
        return AuditEntry(**usual | changes)

    return make


@pytest.fixture
def tamper(url: str, request: pytest.FixtureRequest) -> Callable[..., None]:
    """Change what is stored behind the store's back, past the triggers."""

    def run(*statements: str) -> None:
        if url.startswith("postgresql:"):
            server: Postgres = request.getfixturevalue("postgres")
            server.sql(url, "ALTER TABLE audit DISABLE TRIGGER ALL", *statements)
            return
        with closing(sqlite3.connect(url.removeprefix("sqlite:"))) as connection, connection:
            connection.execute("DROP TRIGGER IF EXISTS audit_is_never_changed")
            connection.execute("DROP TRIGGER IF EXISTS audit_is_never_deleted")
            for statement in statements:
                connection.execute(statement)

    return run
