"""Dependencies by type: opened with the plugin or made for each call, handed to tools, resources and prompts."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import anyio
import pytest

from toolpost import Context, Plugin, tool
from toolpost.testing import client_of, data_of, error_of, open_test_app

pytestmark = pytest.mark.anyio


@dataclass
class Database:
    rows: list[str] = field(default_factory=list)
    is_open: bool = True


@dataclass
class Session:
    database: Database
    caller: str
    is_closed: bool = False


@dataclass
class Log:
    session: Session


def make_plugin(sessions: list[Session], databases: list[Database]) -> Plugin:
    plugin = Plugin("notes", version="1")

    @plugin.lifespan
    async def open_database() -> AsyncIterator[Database]:
        databases.append(Database())
        # A task group has to be left in the task that entered it.
        async with anyio.create_task_group():
            yield databases[-1]
        databases[-1].is_open = False

    @plugin.provide
    async def open_session(database: Database, ctx: Context) -> AsyncIterator[Session]:
        sessions.append(Session(database, ctx.caller.id))
        yield sessions[-1]
        sessions[-1].is_closed = True

    @plugin.provide
    def log(session: Session) -> Log:
        return Log(session)

    @plugin.tool
    async def add(session: Session, text: str, database: Database, log: Log) -> int:
        """Add a note."""
        assert session.database is database
        assert log.session is session
        database.rows.append(text)
        return len(database.rows)

    @plugin.tool
    def count(database: Database) -> int:
        """Count the notes, in a thread."""
        return len(database.rows)

    @plugin.resource("notes://{number}")
    async def note(number: int, database: Database) -> str:
        return database.rows[number]

    @plugin.prompt
    def summarize(database: Database) -> str:
        return " ".join(database.rows)

    return plugin


async def test_values_of_a_plugin_and_of_a_call_reach_its_functions_by_type() -> None:
    sessions: list[Session] = []
    databases: list[Database] = []
    async with client_of(make_plugin(sessions, databases), mode="legacy") as client:
        listed = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        assert list(listed["notes__add"]["properties"]) == ["text"]
        assert listed["notes__count"].get("properties", {}) == {}
        assert data_of(await client.call_tool("notes__add", {"text": "milk"})) == 1
        assert data_of(await client.call_tool("notes__add", {"text": "tea"})) == 2
        assert data_of(await client.call_tool("notes__count", {})) == 2
        assert (await client.read_resource("notes://1")).contents[0].text == "tea"  # type: ignore[union-attr]
        prompt = await client.get_prompt("notes__summarize")
        assert prompt.messages[0].content.text == "milk tea"  # type: ignore[union-attr]
        assert databases[0].is_open
        refused = error_of(await client.call_tool("notes__add", {"text": "x", "session": {}}))
        assert refused["code"] == "INVALID_PARAMS"

    assert [database.is_open for database in databases] == [False]
    assert len(sessions) == 2, "one for each call"
    assert all(session.is_closed for session in sessions)


async def test_a_test_replaces_what_is_provided() -> None:
    databases: list[Database] = []
    plugin = make_plugin([], databases)
    with plugin.override(Database, Database(rows=["here already"])):
        async with client_of(plugin) as client:
            assert data_of(await client.call_tool("notes__add", {"text": "milk"})) == 2
    assert databases == [], "the lifespan was not started"
    count = plugin._tools[1]
    assert count(Database(rows=["a"])) == 1, "a direct call takes all parameters"


async def test_a_lifespan_that_fails_is_named_and_the_rest_closed() -> None:
    plugin = Plugin("notes")
    closed: list[str] = []

    @plugin.lifespan
    def first() -> Iterator[Database]:
        try:
            yield Database()
        finally:
            closed.append("first")

    @plugin.lifespan
    async def second(database: Database) -> Session:
        raise OSError("no disk")

    async with open_test_app(plugin, (other := Plugin("other"))) as app:
        states = {each.name: each for each in app.plugins.plugins}
        [problem] = states["notes"].problems
        assert problem.startswith("plugin `notes` could not be started: OSError: no disk (")
        assert __file__ in problem
        assert states[other.name].state == "healthy"
        assert closed == ["first"]


def test_what_cannot_be_provided_is_refused_where_it_is_declared() -> None:
    plugin = Plugin("notes")
    with pytest.raises(TypeError, match="`untyped`: hint what it returns"):

        @plugin.lifespan
        async def untyped():  # type: ignore[no-untyped-def]
            yield 1

    with pytest.raises(TypeError, match="nothing provides its parameter `database`"):

        @plugin.provide
        def early(database: Database) -> Session:
            return Session(database, "")

    @plugin.provide
    async def database() -> Database:
        return Database()

    with pytest.raises(TypeError, match="outlives a call, so it cannot take `Database`, made"):

        @plugin.lifespan
        def late(database: Database) -> Session:
            return Session(database, "")

    with pytest.raises(TypeError, match="`count` is synchronous, and `Database` is provided by an `async def`"):

        @plugin.tool
        def count(database: Database) -> int:
            return len(database.rows)


def test_a_function_without_dependencies_is_left_as_it_is() -> None:
    plugin = make_plugin([], [])

    def plain(text: str) -> str:
        """Return the text."""
        return text

    assert plugin._dependencies.inject(plain) is plain


async def test_methods_of_a_class_are_tools_of_one_instance() -> None:
    plugin = Plugin("counter")
    made: list[object] = []

    @plugin.lifespan
    def rows() -> Database:
        return Database(rows=["first"])

    @plugin.tool_class
    class Counter:
        def __init__(self, database: Database) -> None:
            self.rows = database.rows
            made.append(self)

        async def __aenter__(self) -> "Counter":
            self.rows.append("entered")
            return self

        async def __aexit__(self, *_: object) -> None:
            self.rows.clear()

        @tool
        async def add(self, text: str) -> int:
            """Add a row."""
            self.rows.append(text)
            return len(self.rows)

        @tool(annotations={"readOnlyHint": True})
        def last(self, ctx: Context) -> str:
            """Return the last row."""
            assert ctx.tool == "counter__last"
            return self.rows[-1]

    async with client_of(plugin) as client:
        assert data_of(await client.call_tool("counter__add", {"text": "third"})) == 3
        assert data_of(await client.call_tool("counter__last", {})) == "third"
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(listed["counter__add"].input_schema["properties"]) == ["text"]
    assert len(made) == 1
    assert await Counter(Database()).add("direct") == 1, "the method of an instance is the method"
