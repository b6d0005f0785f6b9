"""What every test may ask for."""

import functools
import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import anyio
import pytest

from tests import distribution
from tests.plugins import behaviours
from tests.postgres import NoPostgres, Postgres, open_postgres

LONGEST_S = 110.0


def pytest_configure(config: pytest.Config) -> None:
    """Keep what commands remember without a configuration out of the home of whoever runs the tests."""
    folder = tempfile.TemporaryDirectory(prefix="toolpost-data-")
    os.environ["XDG_DATA_HOME"] = folder.name
    config.add_cleanup(folder.cleanup)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the long tests too: torture, floods, fuzzing")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave soak tests out unless `--soak` asks for them, and bound the time of the others.

    pytest-timeout ends the whole worker, and then pytest-xdist hangs: an async test therefore fails by itself.
    """
    if not config.getoption("--soak"):
        soak = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=soak)
        items[:] = [item for item in items if item not in set(soak)]
    distribution.put_in_order(items)
    for item in items:
        timeout = item.get_closest_marker("timeout")
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj) and timeout is None:
            item.obj = _limited(item.obj)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return distribution.make_scheduler(config, log)


def _limited(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Coroutine[Any, Any, None]]:
    @functools.wraps(test)
    async def limited(**arguments: Any) -> None:
        with anyio.fail_after(LONGEST_S):
            await test(**arguments)

    return limited


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL that lives as long as the run."""
    try:
        with open_postgres() as server:
            yield server
    except NoPostgres as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def _stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a command that a test runs in process from ending it: the threads that it would not wait for are other tests'."""
    monkeypatch.setattr("toolpost.cli.group.leave", sys.exit)


@pytest.fixture(autouse=True)
def _fresh_behaviours() -> None:
    """Forget what the test tools saw in the test before."""
    for seen in (behaviours.PRESENT, behaviours.MET, behaviours.STARTED):
        seen.clear()
