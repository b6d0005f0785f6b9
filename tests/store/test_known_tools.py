"""The last definitions of every server, in every kind of store."""

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.postgres import Postgres
from toolpost.store import open_store
from toolpost.store.known_tools import KnownServer

pytestmark = pytest.mark.anyio
TOOL: dict[str, Any] = {"name": "log", "description": "nul \0, 🦉, \\ and \x1a", "inputSchema": {"type": "object"}}


async def test_definitions_are_recalled_as_they_were(url: str) -> None:
    async with open_store(url) as store:
        await store.known_tools.remember("git", [])
        await store.known_tools.remember("git", [TOOL], "2.\0🦉", "all about \0 🦉")
        await store.known_tools.remember("odd \0 name", [TOOL, TOOL])
    async with open_store(url) as store:
        known = KnownServer(definitions=[TOOL], build="2.\0🦉", description="all about \0 🦉")
        assert await store.known_tools.recall("git") == known
        assert await store.known_tools.recall("odd \0 name") == KnownServer(definitions=[TOOL, TOOL])
        assert await store.known_tools.recall("unknown") is None


async def test_definitions_of_the_day_before_yesterday_are_forgotten(url: str, request: pytest.FixtureRequest) -> None:
    async with open_store(url) as store:
        await store.known_tools.remember("git", [TOOL])
        older = "UPDATE known_tools SET seen_at = seen_at - 90000"
        if url.startswith("postgresql"):
            server: Postgres = request.getfixturevalue("postgres")
            server.sql(url, older)
        else:
            with closing(sqlite3.connect(url.removeprefix("sqlite:"))) as connection, connection:
                connection.execute(older)

        assert await store.known_tools.recall("git") is None
