"""The three tiers of the tests, and the guard that keeps a unit test one.

- **unit**: no process and no socket: values, the in-memory client, SQLite. What says nothing else is this.
- **wire**: real transports, processes, PostgreSQL, a browser. A file or a test says `pytest.mark.wire`; a test is it too by
  what it is given: one of the fixtures in `STARTING`, the parameter `postgres`, a `Way` over HTTP or stdio.
- **soak**: what takes long: `pytest.mark.soak`; and of a test that is given several variants, those that other tests cover:
  - of both eras over a transport one is wire (`CORE`): an era is read before what most promises are about;
  - beside memory a transport is wire only in `tests/wire`, and where a file says `pytest.mark.every_way`, as those do in which
    servers talk back: transports end before the gateway begins;
  - beside SQLite, PostgreSQL is wire only in `tests/store`, and where a file says `pytest.mark.every_store`: for each part those
    of its records and one from end to end, and what depends on the clock of the database. Scripts are written once for both.

`scripts/test --unit` runs the first, `scripts/test` the first two, `scripts/test --soak` all.
"""

import functools
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.ways import STATELESS, Way

TIERS = ("unit", "wire", "soak")

STARTING = {"postgres", "run", "start", "serve", "browser"}
"""Fixtures that start a process; the names of those in tests/cli/conftest.py and tests/browser/conftest.py are kept for them."""

CORE = {Way("http", STATELESS), Way("stdio", "legacy")}
"""The era of each transport whose tests are wire, if a test is given both."""

_EVENTS = {
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "socket.bind",
    "socket.connect",
    "subprocess.Popen",
}
_METHODS = (
    "create_connection",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "sock_connect",
    "subprocess_exec",
    "subprocess_shell",
)
"""What uvloop does without Python's audit events."""


class NotUnit(AssertionError):
    """A unit test started a process or used a socket."""


def assign(items: list[pytest.Item]) -> None:
    """Mark each test with its tier, if it does not say one itself."""
    variants: defaultdict[str, set[Any]] = defaultdict(set)
    for item in items:
        variants[_function(item)].update(_variants(item))
    for item in items:
        item.add_marker(_tier(item, variants[_function(item)]))


def tier_of(item: pytest.Item) -> str:
    """Return the heaviest tier that a test is marked with."""
    return next(tier for tier in reversed(TIERS) if item.get_closest_marker(tier))


def _tier(item: pytest.Item, variants: set[Any]) -> str:
    if item.get_closest_marker("soak") or any(_has_twin(item, value, variants) for value in _variants(item)):
        return "soak"
    given = {value for value in _parameters(item) if isinstance(value, str)}
    is_wire = (
        item.get_closest_marker("wire")
        or STARTING & set(getattr(item, "fixturenames", ())) - set(_given(item))
        or "postgres" in given
        or any(way.transport != "memory" for way in _ways(item))
    )
    return "wire" if is_wire else "unit"


def _has_twin(item: pytest.Item, value: Way | str, variants: set[Any]) -> bool:
    """Whether another variant of this test is enough outside of soak."""
    if not isinstance(value, Way):
        return value == "postgres" and "sqlite" in variants and not _is_about(item, "store")
    others = {other for other in variants if isinstance(other, Way)} - {value}
    if value not in CORE and any(other in CORE and other.transport == value.transport for other in others):
        return True
    is_far = value.transport != "memory" and any(other.transport == "memory" for other in others)
    return is_far and not _is_about(item, "way")


def _is_about(item: pytest.Item, kind: str) -> bool:
    folder = {"store": "tests/store/", "way": "tests/wire/"}[kind]
    return item.nodeid.startswith(folder) or item.get_closest_marker(f"every_{kind}") is not None


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _variants(item: pytest.Item) -> list[Any]:
    return [value for value in _parameters(item) if isinstance(value, Way | str)]


def _ways(item: pytest.Item) -> list[Way]:
    return [value for value in _parameters(item) if isinstance(value, Way)]


def _parameters(item: pytest.Item) -> Iterator[Any]:
    for value in _given(item).values():
        yield from value if isinstance(value, tuple) else (value,)


def _given(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


class Guard:
    """Refuses processes and sockets while a unit test runs.

    What is refused is raised where it happens, and fails the test in the end too: the gateway may have made an answer of it.
    """

    def __init__(self) -> None:
        self._is_on = False
        self._refused: list[str] = []

    def install(self) -> None:
        """Watch this process for good: an audit hook cannot be taken back. Windows makes its event loops' pipes of sockets."""
        if sys.platform == "win32":
            return
        import uvloop

        sys.addaudithook(lambda event, _: self._refuse(event) if event in _EVENTS else None)
        for name in _METHODS:
            setattr(uvloop.Loop, name, self._refusing(getattr(uvloop.Loop, name)))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        yield from self._watched(item)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        yield from self._watched(item)

    def _watched(self, item: pytest.Item) -> Iterator[None]:
        self._is_on = tier_of(item) == "unit"
        self._refused.clear()
        try:
            yield
        finally:
            self._is_on = False
        if self._refused:
            raise NotUnit(_explain(", ".join(sorted(set(self._refused)))))

    def _refusing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def refusing(*arguments: Any, **options: Any) -> Any:
            self._refuse(method.__name__)
            return method(*arguments, **options)

        return refusing

    def _refuse(self, event: str) -> None:
        if self._is_on:
            self._refused.append(event)
            raise NotUnit(_explain(event))


def _explain(event: str) -> str:
    return f"a unit test may not start processes or use sockets ({event}): mark it with pytest.mark.wire"
