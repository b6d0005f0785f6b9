"""`pytest --toolpost-lock`: tests that each tool of a project matches the lock. Without the option nothing heavy is imported."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from toolpost.contracts.lockfile import Drift

NEW: Final = "tools that are not in the lock"


class NotAsLocked(Exception):
    pass


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("toolpost")
    group.addoption(
        "--toolpost-lock",
        nargs="?",
        const="strict",
        choices=("strict", "check"),
        help="Test that every tool matches toolpost.lock; with `check`, allow compatible changes.",
    )
    group.addoption("--toolpost-config", metavar="FILE", help="The configuration (default: toolpost.toml in the root).")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each tool in the lock, and one for tools that are not in it."""
    if config.getoption("toolpost_lock"):
        comparison = LockComparison(config)
        items += [
            LockedToolTest.from_parent(session, name=name, nodeid=f"toolpost.lock::{name}", comparison=comparison)
            for name in (*comparison.names, NEW)
        ]


class LockComparison:
    """The lock compared with the live tools, once for all tests."""

    def __init__(self, config: pytest.Config) -> None:
        """Read the lock; servers are started when the first test runs."""
        # Imported here, so that pytest runs without the option do not load the gateway.
        from toolpost.admin.lock_file import LockFile
        from toolpost.settings import load_config

        named = config.getoption("toolpost_config")
        path = Path(named) if named else config.rootpath / "toolpost.toml"
        self._config = load_config(path if named or path.exists() else None)
        self._is_strict = config.getoption("toolpost_lock") == "strict"
        self._locked = LockFile.of(
            self._config, None if path.exists() else config.rootpath / self._config.lock
        ).require_tools()
        self._drifts: Mapping[str, Drift] | None = None
        self.missing: Mapping[str, str] = {}

    @property
    def names(self) -> list[str]:
        return sorted(self._locked)

    def source_of(self, name: str) -> str | None:
        """Return the plugin or server of a locked tool, None for one that is not locked."""
        locked = self._locked.get(name)
        return locked.source if locked is not None else None

    def faults(self, name: str) -> Iterator["Drift"]:
        """Yield the failing drifts of a tool, or with `NEW` of the tools that are not in the lock."""
        for drift in self._compared().values():
            is_selected = drift.kind == "added" if name == NEW else drift.name == name and drift.kind != "added"
            if is_selected and (self._is_strict or drift.failure is not None):
                yield drift

    def _compared(self) -> Mapping[str, "Drift"]:
        if self._drifts is None:
            from toolpost.app.tool_states import load_live_tools
            from toolpost.contracts.compatibility import judge
            from toolpost.contracts.lockfile import drifts
            from toolpost.terminal.event_loop import run_async

            live = run_async(load_live_tools, self._config)
            self.missing = live.missing
            known = {name: tool for name, tool in self._locked.items() if tool.source not in live.missing}
            self._drifts = {drift.name: drift for drift in drifts(known, live.tools, judge=judge)}
        return self._drifts


class LockedToolTest(pytest.Item):
    def __init__(self, *, comparison: LockComparison, **options: Any) -> None:
        super().__init__(**options)
        self._comparison = comparison

    def runtest(self) -> None:
        """Fail if the tool differs from the lock, or if its server could not be started."""
        found = list(self._comparison.faults(self.name))
        if (reason := self._comparison.missing.get(self._comparison.source_of(self.name) or "")) is not None:
            raise NotAsLocked(f"`{self.name}` could not be compared: {reason}")
        if found:
            raise NotAsLocked("\n".join(line for drift in found for line in _describe(drift)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the changes without a traceback."""
        return str(excinfo.value) if isinstance(excinfo.value, NotAsLocked) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"toolpost.lock: {self.name}"


def _describe(drift: "Drift") -> Iterator[str]:
    from toolpost.contracts.compatibility.explanation import describe_change

    reason = f": {drift.failure.reason}" if drift.failure is not None else ""
    yield f"{drift.name} {drift.kind} ({drift.verdict.value}){reason}"
    for change in drift.judgement.changes:
        yield f"  {change.verdict.value} {change.rule} at {change.place}"
        yield from (f"    {line}" for line in describe_change(change))
    yield f"  to accept it: toolpost lock --accept {drift.name}"
