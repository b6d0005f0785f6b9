"""What every test may ask for."""

import functools
import gc
import inspect
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import hypothesis
import psutil
import pytest

from tests import distribution, shared_schemas, tiers
from tests.plugins import behaviours
from tests.postgres import NoPostgres, Postgres, open_postgres

LONGEST_S = 300.0
"""What takes half a minute on a machine that does nothing else has taken ten times as long on one that does much."""

TASK_AFTER_S = 60.0
"""How long a test's own HTTP client waits, unless it says something else: five seconds are few on a busy machine."""

# An example that takes long has failed nothing: on a busy machine any of them takes more than Hypothesis' 200 ms.
hypothesis.settings.register_profile("toolpost", deadline=None)
hypothesis.settings.load_profile("toolpost")


def pytest_configure(config: pytest.Config) -> None:
    """Keep what commands remember without a configuration out of the home of whoever runs the tests."""
    shared_schemas.install()
    _be_patient()
    _show_nested_groups()
    guard = tiers.Guard()
    guard.install()
    config.pluginmanager.register(guard, "tiers")
    if config.getoption("--record") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(distribution.Recorder(), "recorder")
    folder = tempfile.TemporaryDirectory(prefix="toolpost-data-")
    os.environ["XDG_DATA_HOME"] = folder.name
    config.add_cleanup(folder.cleanup)


def _be_patient() -> None:
    patience = inspect.signature(httpx2.AsyncClient).parameters["timeout"].default
    patience.connect = patience.read = patience.write = patience.pool = TASK_AFTER_S


def _show_nested_groups() -> None:
    """An open gateway has more than ten task groups, one in the other: the default hides what failed inside them."""
    defaults = traceback.TracebackException.__init__.__kwdefaults__
    assert defaults is not None
    defaults["max_group_depth"] = 40


def pytest_collection_finish() -> None:
    """Leave what is loaded and collected out of every later collection of garbage: none of it is ever freed."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--unit", action="store_true", help="run the unit tests alone: no process, no socket")
    parser.addoption("--soak", action="store_true", help="run the long tests too: torture, floods, fuzzing")
    parser.addoption("--record", action="store_true", help="write how long each file takes into tests/durations.json")


@pytest.hookimpl(tryfirst=True)  # before `-m` looks for the markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test its tier, leave out the tiers and outside data that are not there, and bound the time of a test.

    pytest-timeout ends the whole worker, and then pytest-xdist hangs: an async test therefore fails by itself.
    """
    tiers.assign(items)
    chosen = {"unit"} if config.getoption("--unit") else {"unit", "wire"}
    chosen |= {"soak"} if config.getoption("--soak") else set()
    kept = [item for item in items if tiers.tier_of(item) in chosen and _has_its_data(item)]
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    items[:] = kept
    distribution.put_in_order(items)
    for item in items:
        timeout = item.get_closest_marker("timeout")
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj) and timeout is None:
            item.obj = _limited(item.obj)


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    """Give the next test the root logger as this one found it: a command that runs in this process sets it up for itself."""
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    yield
    root.handlers, root.level = before


def _has_its_data(item: pytest.Item) -> bool:
    """Whether the data from outside the repository that a test is about is there: it is run in addition, and not missed."""
    return all(path.exists() for mark in item.iter_markers("outside") for path in mark.args)


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


@pytest.fixture
def keychain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A real backend of keyring that keeps its entries in a file."""
    import keyring
    from keyrings.alt.file import PlaintextKeyring

    monkeypatch.setattr(PlaintextKeyring, "file_path", str(tmp_path / "keychain.cfg"))
    before = keyring.get_keyring()
    keyring.set_keyring(PlaintextKeyring())
    yield
    keyring.set_keyring(before)


@pytest.fixture
def left() -> Callable[[], set[psutil.Process]]:
    """Find the children that are here since the test began: what a failed test left behind is its own fault alone."""
    before = set(psutil.Process().children())
    return lambda: set(psutil.Process().children()) - before


@pytest.fixture(scope="session")
def empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(monkeypatch: pytest.MonkeyPatch, empty_folder: Path) -> None:
    """Keep a gateway without a project from the repository's own files: reading its lock is two thirds of opening a gateway."""
    monkeypatch.chdir(empty_folder)


@pytest.fixture(autouse=True)
def _stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a command that a test runs in process from ending it: the threads that it would not wait for are other tests'."""
    monkeypatch.setattr("toolpost.terminal.group.exit_process", sys.exit)


@pytest.fixture(autouse=True)
def _fresh_behaviours() -> None:
    """Forget what the test tools saw in the test before."""
    for seen in (behaviours.PRESENT, behaviours.MET, behaviours.STARTED):
        seen.clear()
