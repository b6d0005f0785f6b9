"""`pytest --toolpost-lock`: a test for every tool of a project, that it is what the lock says. Light until it is asked for."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from toolpost.contracts.lockfile import Drift

NEW: Final = "tools that are not in the lock"


class NotAsLocked(Exception):
    """A tool is not as it was locked."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the options."""
    group = parser.getgroup("toolpost")
    group.addoption(
        "--toolpost-lock",
        nargs="?",
        const="strict",
        choices=("strict", "check"),
        help="Test that every tool is what toolpost.lock says; with `check`, let changes pass that harm no caller.",
    )
    group.addoption("--toolpost-config", metavar="FILE", help="The configuration (default: toolpost.toml in the root).")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for every tool in the lock, and one for those that are not in it."""
    if config.getoption("toolpost_lock"):
        comparison = Comparison(config)
        items += [
            LockedTool.from_parent(session, name=name, nodeid=f"toolpost.lock::{name}", comparison=comparison)
            for name in (*comparison.names, NEW)
        ]


class Comparison:
    """The lock and what is live, compared once for all tests."""

    def __init__(self, config: pytest.Config) -> None:
        """Read the lock; what is live is looked at when the first test runs."""
        # Whoever does not ask for this does not load the gateway.
        from toolpost.cli.lock.files import LockFile
        from toolpost.settings import load_config

        named = config.getoption("toolpost_config")
        path = Path(named) if named else config.rootpath / "toolpost.toml"
        self._config = load_config(path if named or path.exists() else None)
        self._is_strict = config.getoption("toolpost_lock") == "strict"
        self._locked = LockFile.of(
            self._config, None if path.exists() else config.rootpath / self._config.lock
        ).required()
        self._drifts: Mapping[str, Drift] | None = None
        self.missing: Mapping[str, str] = {}

    @property
    def names(self) -> list[str]:
        """The tools in the lock."""
        return sorted(self._locked)

    def source_of(self, name: str) -> str | None:
        """Say which plugin or server a locked tool belongs to."""
        locked = self._locked.get(name)
        return locked.source if locked is not None else None

    def faults(self, name: str) -> Iterator["Drift"]:
        """Give what is wrong with a tool, or with those that are new."""
        for drift in self._compared().values():
            is_asked_for = drift.kind == "added" if name == NEW else drift.name == name and drift.kind != "added"
            if is_asked_for and (self._is_strict or drift.failure is not None):
                yield drift

    def _compared(self) -> Mapping[str, "Drift"]:
        if self._drifts is None:
            from toolpost.cli.gateway import run_async
            from toolpost.cli.lock.live import live_tools
            from toolpost.contracts.compatibility import judge
            from toolpost.contracts.lockfile import drifts

            live = run_async(live_tools, self._config)
            self.missing = live.missing
            known = {name: tool for name, tool in self._locked.items() if tool.source not in live.missing}
            self._drifts = {drift.name: drift for drift in drifts(known, live.tools, judge=judge)}
        return self._drifts


class LockedTool(pytest.Item):
    """One tool, compared with the lock."""

    def __init__(self, *, comparison: Comparison, **options: Any) -> None:
        super().__init__(**options)
        self._comparison = comparison

    def runtest(self) -> None:
        """Fail if it is not what was locked, or if nobody can tell."""
        found = list(self._comparison.faults(self.name))
        if (reason := self._comparison.missing.get(self._comparison.source_of(self.name) or "")) is not None:
            raise NotAsLocked(f"`{self.name}` could not be looked at: {reason}")
        if found:
            raise NotAsLocked("\n".join(line for drift in found for line in _lines(drift)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show what changed, without a traceback that leads nowhere."""
        return str(excinfo.value) if isinstance(excinfo.value, NotAsLocked) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Name the test."""
        return self.path, None, f"toolpost.lock: {self.name}"


def _lines(drift: "Drift") -> Iterator[str]:
    from toolpost.cli.lock.output import lines_about

    reason = f": {drift.failure.reason}" if drift.failure is not None else ""
    yield f"{drift.name} {drift.kind} ({drift.verdict.value}){reason}"
    for change in drift.judgement.changes:
        yield f"  {change.verdict.value} {change.rule} at {change.place}"
        yield from (f"    {line}" for line in lines_about(change))
    yield f"  take it over with: toolpost lock --accept {drift.name}"
