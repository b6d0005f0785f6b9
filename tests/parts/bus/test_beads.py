"""The bus and the beads tracker: in step while it is there, catching up after it was not."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.waiting import wait_until
from tests.ways import IN_MEMORY, OURS, QUICK_WAYS
from toolpost.app import open_app
from toolpost.parts.bus.settings import BusSettings
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings
from toolpost.testing import data_of, error_of

pytestmark = pytest.mark.anyio

MEMORY = QUICK_WAYS[0]


class Tracker:
    """A project that is kept in beads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / ".beads"

    def make(self, *beads: str) -> None:
        self.folder.mkdir()
        (self.folder / "beads.json").write_text(
            json.dumps({bead: {"status": "open", "comments": []} for bead in beads})
        )

    def bead(self, name: str) -> Any:
        try:
            return json.loads((self.folder / "beads.json").read_text())[name]
        except json.JSONDecodeError:  # it is being written
            return {"status": None, "comments": []}

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


@pytest.fixture
def tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tracker:
    commands = tmp_path / "bin"
    commands.mkdir()
    script = commands / "bd"
    script.write_text(f"#!{sys.executable}\n" + Path(__file__).with_name("fake_bd.py").read_text())
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    root = tmp_path / "project"
    root.mkdir()
    return Tracker(root)


def config_of(tracker: Tracker, url: str, **settings: Any) -> Config:
    return Config(
        project=str(tracker.root), store=StoreSettings(url=url), parts={"bus": BusSettings(**settings)}, plugins=OURS
    )


@pytest.mark.wire
async def test_a_bead_follows_its_task(tracker: Tracker, url: str) -> None:
    strange = "x; touch pwned; $(id) --status closed"
    tracker.make("a", "b", strange)
    async with open_app(config_of(tracker, url)) as app, MEMORY.client_of(app) as client:

        async def ask(tool: str, **arguments: Any) -> Any:
            return data_of(await client.call_tool(f"bus__{tool}", arguments))

        unknown = error_of(await client.call_tool("bus__submit_task", {"bead_id": "nothing"}))
        await ask("register_worker", name="ada")
        for bead in ("a", "b", strange):
            await ask("submit_task", bead_id=bead)
            await ask("poll_task", name="ada")
            await ask("ack_task", name="ada", bead_id=bead)
            if bead == "a":
                await anyio.to_thread.run_sync(wait_until, lambda: tracker.bead("a")["status"] == "in_progress")
            if bead == "b":
                await ask("task_failed", bead_id=bead, reason="--no time; `rm`\nat all")
            else:
                await ask("worker_done", bead_id=bead, result={"lines": 3})
        await anyio.to_thread.run_sync(wait_until, lambda: tracker.bead(strange)["comments"])
        await anyio.to_thread.run_sync(wait_until, lambda: tracker.bead("b")["status"] == "blocked")
        await anyio.to_thread.run_sync(wait_until, lambda: tracker.bead("a")["comments"])

    assert (unknown["code"], unknown["message"]) == ("NOT_FOUND", "Unknown bead `nothing`.")
    assert tracker.bead("a") == {"status": "in_progress", "comments": ['done: {"lines":3}']}
    assert tracker.bead("b") == {"status": "blocked", "comments": ["blocked: --no time; `rm`\nat all"]}
    assert tracker.bead(strange)["status"] == "in_progress"
    assert list(tracker.root.glob("pwned")) == []


@pytest.mark.wire
async def test_a_tracker_that_failed_is_told_later_and_in_order(tracker: Tracker, url: str) -> None:
    tracker.make("a")
    config = config_of(tracker, url)
    (tracker.folder / "broken").touch()
    async with open_app(config) as app, MEMORY.client_of(app) as client:
        for tool, arguments in (
            ("submit_task", {"bead_id": "a"}),
            ("register_worker", {"name": "ada"}),
            ("poll_task", {"name": "ada"}),
            ("ack_task", {"name": "ada", "bead_id": "a"}),
            ("task_failed", {"bead_id": "a", "reason": "no"}),
        ):
            data_of(await client.call_tool(f"bus__{tool}", arguments))
        await anyio.to_thread.run_sync(wait_until, lambda: len(tracker.calls) >= 2)
    assert tracker.bead("a")["status"] == "open"
    (tracker.folder / "broken").unlink()
    async with open_app(config):
        await anyio.to_thread.run_sync(wait_until, lambda: tracker.bead("a")["status"] == "blocked")

    told = [call[call.index("--status") + 1] for call in tracker.calls if "--status" in call]
    assert told[-2:] == ["in_progress", "blocked"]
    assert tracker.bead("a")["comments"] == ["blocked: no"]


@pytest.mark.parametrize("settings", [{"beads": "off"}, {}], ids=["off", "no folder"])
async def test_without_beads_the_bus_works_alone(tracker: Tracker, settings: dict[str, Any]) -> None:
    if settings:
        tracker.make()
    config = config_of(tracker, IN_MEMORY.store.url, **settings)
    async with open_app(config) as app, MEMORY.client_of(app) as client:
        submitted = data_of(await client.call_tool("bus__submit_task", {"bead_id": "no bead"}))

    assert submitted["queued"]
    assert not (tracker.folder / "calls").exists()


async def test_beads_that_are_asked_for_and_missing_do_not_stop_the_bus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    config = Config(project=str(tmp_path), store=IN_MEMORY.store, parts={"bus": BusSettings(beads="on")}, plugins=OURS)
    async with open_app(config) as app, MEMORY.client_of(app) as client:
        submitted = data_of(await client.call_tool("bus__submit_task", {"bead_id": "a"}))

    assert submitted["queued"]
