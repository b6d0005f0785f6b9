"""Internals of other packages that we use, each with what to do when it changes.

A package may change what it does not document in any release, so each of these is bounded in `pyproject.toml` to the releases
that were read. Raise a bound with this file open: pin the new release in `constraints.txt`, run this file and the tests that a
failure names, and only then move the bound.
"""

import ast
import hashlib
import inspect
import re
import sys
import textwrap
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/toolpost"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


@dataclass(frozen=True, kw_only=True)
class Internal:
    """Something of a package that its documentation does not promise."""

    package: str
    what: str
    seen_as: str
    """A pattern that finds the modules of ours that use it."""
    remedy: str
    holds: Callable[[], object]
    """Raises, or returns what is wrong with it; None if all is well."""

    def __str__(self) -> str:
        return f"{self.package}: {self.what}"

    @property
    def modules(self) -> list[str]:
        """The modules of ours that use it."""
        return [
            str(path.relative_to(ROOT))
            for path in sorted(SOURCE.rglob("*.py"))
            if re.search(self.seen_as, path.read_text(encoding="utf-8"))
        ]


def mcp_server() -> Any:
    from mcp.server.mcpserver import MCPServer

    return MCPServer("any")


def has_attributes(make: Callable[[], object], *names: str) -> Callable[[], object]:
    """Hold an object to having these attributes."""

    def holds() -> object:
        made = make()
        missing = [name for name in names if not hasattr(made, name)]
        return f"it has no {', '.join(missing)}" if missing else None

    return holds


def takes(function: Callable[[], Callable[..., Any]], *names: str) -> Callable[[], object]:
    """Hold a function to its parameters."""

    def holds() -> object:
        found = tuple(inspect.signature(function()).parameters)
        return f"it takes {found}, and we give it {names}" if found != names else None

    return holds


def reads(function: Callable[[], Callable[..., Any]], digest: str) -> Callable[[], object]:
    """Hold a function to what it did when ours was written to take its place, comments and layout aside."""

    def holds() -> object:
        source = textwrap.dedent(inspect.getsource(function()))
        found = hashlib.sha256(re.sub(r"#.*|\s+", "", source).encode()).hexdigest()[:12]
        return None if found == digest else f"it does something else now (digest {found}, not {digest}):\n\n{source}"

    return holds


def uvicorn_protocol() -> Any:
    """Make uvicorn's protocol as it is before any connection."""
    import asyncio

    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    from uvicorn.server import ServerState

    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    loop = asyncio.new_event_loop()
    try:
        config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None)
        return HttpToolsProtocol(config, ServerState(), {}, loop)
    finally:
        loop.close()


def protocol_class() -> Any:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    return HttpToolsProtocol


def cycle_class() -> Any:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    return RequestResponseCycle


def server_state() -> Any:
    from uvicorn.server import ServerState

    return ServerState()


def sdk_session() -> Any:
    """Make a session of the SDK as a handler is given one."""
    from mcp.server.connection import Connection
    from mcp.server.session import ServerSession

    return ServerSession(object(), Connection(object(), protocol_version="2025-11-25"))  # type: ignore[arg-type]


def event_store_is_asked_for_by_session() -> object:
    """The manager's attribute is read once for each session that is opened, and set in the constructor alone."""
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    source = inspect.getsource(StreamableHTTPSessionManager)
    used = re.findall(r"self\.event_store.*", source)
    return None if [line.split()[0] for line in used] == ["self.event_store", "self.event_store,"] else f"it has {used}"


def listening_needs_two_attributes() -> object:
    """`ListenHandler` is given a context of ours, which has a request id and a session."""
    from mcp.server.subscriptions import ListenHandler

    used = set(re.findall(r"ctx\.[\w.]+", inspect.getsource(ListenHandler.__call__)))
    return None if used == {"ctx.request_id", "ctx.session.send_notification"} else f"it uses {sorted(used)}"


def acp_takes_three_methods() -> object:
    """`ClientSideConnection` is given a transport of ours in the place of a stream."""
    from acp._transport import Transport

    methods = {name for name in vars(Transport) if not name.startswith("_")}
    return None if methods == {"send", "receive", "close"} else f"a transport has {sorted(methods)}"


def claude_takes_six_methods() -> object:
    """`ClaudeSDKClient` is given a transport of ours, of a class that the SDK says may change in any release."""
    from claude_agent_sdk import Transport

    methods = Transport.__abstractmethods__
    known = {"connect", "write", "read_messages", "close", "is_ready", "end_input"}
    return None if methods == known else f"a transport has {sorted(methods)}"


def claude_comes_with_its_program() -> object:
    """The program that the SDK starts is in a private folder of it, in the wheels of most platforms."""
    import claude_agent_sdk

    folder = Path(str(claude_agent_sdk.__file__)).parent
    program = folder / "_bundled" / ("claude.exe" if sys.platform == "win32" else "claude")
    return None if program.is_file() else f"there is no {program}"


FRONT = (
    "compare `_BackProtocol` there with the new `HttpToolsProtocol`;"
    " tests/wire/test_http_connection.py and tests/hostile/test_http_grammar.py show whether it still works"
)
SERVER = (
    "see what the new `HttpToolsProtocol` does with it, and `uvicorn.Server` at its end;"
    " tests/wire/test_shutdown.py and tests/hostile/test_connections.py show whether it still works"
)
SDK = (
    "look for a documented way first, such as a `connection` of the request's context;"
    " tests/upstreams/test_notifications.py and tests/upstreams/test_questions.py show whether it still works"
)

INTERNALS = [
    Internal(
        package="uvicorn",
        what="HttpToolsProtocol is made from a config, a state, the state of a lifespan, and a loop",
        seen_as=r"\(HttpToolsProtocol\)",
        remedy=FRONT,
        holds=takes(protocol_class, "config", "server_state", "app_state", "_loop"),
    ),
    Internal(
        package="uvicorn",
        what="attributes of HttpToolsProtocol",
        seen_as=r"\(HttpToolsProtocol\)",
        remedy=FRONT,
        holds=has_attributes(
            uvicorn_protocol,
            *("connections", "cycle", "flow", "parser", "scope", "server_state", "transport"),
            *("connection_made", "connection_lost", "pause_writing", "resume_writing", "shutdown"),
            *("on_message_begin", "on_body", "on_message_complete", "on_response_complete"),
        ),
    ),
    Internal(
        package="uvicorn",
        what="HttpToolsProtocol.on_response_complete, which ours replaces",
        seen_as=r"def on_response_complete",
        remedy=FRONT,
        holds=reads(lambda: protocol_class().on_response_complete, "bf257afb094e"),
    ),
    Internal(
        package="uvicorn",
        what="HttpToolsProtocol.on_message_complete, which ours calls when it has seen the end of a body",
        seen_as=r"super\(\)\.on_message_complete",
        remedy=FRONT,
        holds=reads(lambda: protocol_class().on_message_complete, "87e5be1faf50"),
    ),
    Internal(
        package="uvicorn",
        what="HttpToolsProtocol.on_body, which is given a body without its framing",
        seen_as=r"\.on_body\(",
        remedy=FRONT,
        holds=reads(lambda: protocol_class().on_body, "a02fa52bdf33"),
    ),
    Internal(
        package="uvicorn",
        what="HttpToolsProtocol.connection_lost, whose effect on a request `drop` has without closing the connection",
        seen_as=r"cycle\.disconnected = True",
        remedy=FRONT,
        holds=reads(lambda: protocol_class().connection_lost, "25fdeb43f2df"),
    ),
    Internal(
        package="uvicorn",
        what="attributes of RequestResponseCycle",
        seen_as=r"cycle\.message_event",
        remedy=FRONT,
        holds=lambda: next(
            (
                f"it sets no {name}"
                for name in ("disconnected", "response_started", "message_event")
                if f"self.{name}" not in inspect.getsource(cycle_class().__init__)
            ),
            None,
        ),
    ),
    Internal(
        package="uvicorn",
        what="ServerState, which is made without a server, and has the connections and the tasks of requests",
        seen_as=r"ServerState\(\)",
        remedy=SERVER,
        holds=has_attributes(server_state, "connections", "tasks", "default_headers", "total_requests"),
    ),
    Internal(
        package="mcp",
        what="MCPServer._lowlevel_server, the Server that does the work, with its lifespan and a list of middleware",
        seen_as=r"_lowlevel_server",
        remedy="see what MCPServer.run_stdio_async runs, and run tests/upstreams/test_in_process.py",
        holds=has_attributes(lambda: mcp_server()._lowlevel_server, "lifespan", "middleware", "name"),
    ),
    Internal(
        package="mcp",
        what="ServerSession._connection, with an exit stack, `notify` and `outbound`",
        seen_as=r"session\._connection",
        remedy=SDK,
        holds=has_attributes(lambda: sdk_session()._connection, "exit_stack", "notify", "outbound"),
    ),
    Internal(
        package="mcp",
        what="ServerSession._request_outbound, which sends a request without reading its result into a model",
        seen_as=r"session\._request_outbound",
        remedy=SDK,
        holds=has_attributes(sdk_session, "_request_outbound"),
    ),
    Internal(
        package="mcp",
        what="StreamableHTTPSessionManager.event_store is asked for whenever a session is opened",
        seen_as=r"\(StreamableHTTPSessionManager\)",
        remedy="find where the manager has its event store now: each session needs its own, as"
        " tests/wire/test_lost_connections.py shows",
        holds=event_store_is_asked_for_by_session,
    ),
    Internal(
        package="mcp",
        what="ListenHandler needs no more of a request than its id and its session's `send_notification`",
        seen_as=r"ListenHandler\(",
        remedy="give `_Context` and `_Session` what it needs now;"
        " tests/endpoints/tasks/test_task_notifications.py shows whether it still works",
        holds=listening_needs_two_attributes,
    ),
    Internal(
        package="mcp",
        what="mcp.shared.inbound.validate_mcp_param_headers, which the SDK does not document",
        seen_as=r"validate_mcp_param_headers",
        remedy="find what checks `Mcp-Param-*` headers now, as tests/wire/test_mirrored_arguments.py shows",
        holds=takes(
            lambda: __import__("mcp.shared.inbound").shared.inbound.validate_mcp_param_headers,
            *("input_schema", "arguments", "headers"),
        ),
    ),
    Internal(
        package="agent-client-protocol",
        what="ClientSideConnection takes a private kind of transport",
        seen_as=r"ClientSideConnection\(",
        remedy="give `_Transport` there what it needs now; tests/parts/agents/test_acp.py shows whether it still works",
        holds=acp_takes_three_methods,
    ),
    Internal(
        package="claude-agent-sdk",
        what="Transport, which the SDK says it may change in any release",
        seen_as=r"ClaudeSDKClient\(.*transport=",
        remedy="give `_Pipes` there what it needs now; tests/parts/agents/test_claude.py shows whether it still works",
        holds=claude_takes_six_methods,
    ),
    Internal(
        package="claude-agent-sdk",
        what="the program in its private folder `_bundled`",
        seen_as=r"/ \"_bundled\" /",
        remedy="find where the SDK has its program now; without it `claude` of the PATH is started",
        holds=claude_comes_with_its_program,
    ),
]

OWN_PRIVATES = {
    *("_by_key", "_catalog", "_close", "_find_compiled", "_is_live", "_leaving"),
    *("_learning", "_params", "_pools", "_scripts", "_spec"),
}
"""Private attributes of our own classes that another function of the same module uses."""


@pytest.mark.parametrize("internal", INTERNALS, ids=str)
def test_an_internal_is_as_it_was_when_we_relied_on_it(internal: Internal) -> None:
    modules = internal.modules
    try:
        problem = internal.holds()
    except Exception as error:
        problem = f"it cannot be looked at: {error!r}"

    assert modules, (
        f"nothing of ours uses `{internal}` any more: remove it here, and see whether {internal.package} still needs a bound"
    )
    assert problem is None, (
        f"{internal.package} {version(internal.package)} has changed: {internal.what}: {problem}\n"
        f"{', '.join(modules)} relies on it. What to do: {internal.remedy}."
    )


@pytest.mark.parametrize("package", sorted({internal.package for internal in INTERNALS}))
def test_a_package_whose_internals_we_use_is_bounded_to_releases_that_were_read(package: str) -> None:
    declared = [*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)]
    requirement = next(r for r in map(Requirement, declared) if r.name == package)
    read = Version(version(package))
    next_minor = Version(f"{read.major}.{read.minor + 1}")

    assert read in requirement.specifier
    assert next_minor not in requirement.specifier, (
        f"pyproject.toml admits {package} {next_minor}, whose internals nobody has read: bound it below"
    )


def test_no_other_private_attribute_is_used() -> None:
    used = {
        (found, str(path.relative_to(ROOT)))
        for path in SOURCE.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "SLF001" in line
        for found in re.findall(r"(?<!self)\.(_[a-z]\w*)", line)
    }
    listed = {found for internal in INTERNALS for found in re.findall(r"_[a-z]\w+", internal.what)}

    assert {attribute for attribute, _ in used} <= OWN_PRIVATES | listed, (
        f"add what is new to INTERNALS, and bound its package: {sorted(used)}"
    )


def test_what_is_imported_is_declared() -> None:
    """A dependency of a dependency may go with any of its releases."""
    extras = [requirement for extra in EXTRAS.values() for requirement in extra]
    declared = {Requirement(text).name.lower().replace("_", "-") for text in [*PROJECT["dependencies"], *extras]}
    by_module = packages_distributions()
    undeclared = {
        f"{module} ({path.relative_to(ROOT)})"
        for path in SOURCE.rglob("*.py")
        for module in imports_of(path)
        - sys.stdlib_module_names
        - {"toolpost", "pytest"}  # pytest loads its plugin itself
        if not {name.lower().replace("_", "-") for name in by_module.get(COMES_WITH.get(module, module), ())} & declared
    }

    assert undeclared == set()


COMES_WITH = {"mcp_types": "mcp", "pydantic_core": "pydantic"}
"""Modules of packages that are released together with the one that needs them, in step."""


def imports_of(path: Path) -> set[str]:
    """Return the top-level modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            found.add(node.module.partition(".")[0])
    return found
