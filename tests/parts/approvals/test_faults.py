"""SIGKILL at every step between a vote and the end of the approved call, with a gateway of its own process.

Whatever the step: the tool never runs twice for one approval, never without one, and an approval that was not dispatched is still
there. A call that was dispatched and never finished is lost.
"""

import asyncio
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.parts.approvals.victim import STEPS, bank, config_of, pay
from tests.ways import ROOT
from toolpost.app import open_app
from toolpost.audit import AuditFilter
from toolpost.base.caller import OPERATOR
from toolpost.parts.approvals import records, service
from toolpost.parts.approvals.rounds import Status
from toolpost.parts.approvals.service import Approvals

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

KILLED = -9

SURVIVES = {
    "before:vote", "inside:cast", "before:record_quorum", "inside:record", "after:record_quorum", "after:vote",
    "before:dispatch", "inside:dispatch",
}  # fmt: skip
"""Steps before the dispatch is committed."""
HAPPENED = {"after:effect", "before:finish", "inside:finish", "after:finish", "none"}


class Victims:
    """Gateways that die where they are told to."""

    def __init__(self, process: "subprocess.Popen[str]", url: str, effects: Path) -> None:
        self._process = process
        self.url = url
        self.effects = effects

    def live(self, step: str, name: str) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{self.url}\t{self.effects}\t{step}\t{name}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    @property
    def paid(self) -> Counter[str]:
        return Counter(self.effects.read_text().split()) if self.effects.exists() else Counter()


@contextmanager
def victims(url: str, folder: Path) -> Iterator[Victims]:
    command = [sys.executable, "-m", "tests.parts.approvals.victim"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield Victims(process, url, folder / "effects")
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def _short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway that looks after a dead one gives up calls at once; the dead one promised ten seconds."""
    original = records.find_lost

    def find_now(lease_s: float, entry_of: Any) -> Any:
        return original(-lease_s, entry_of)

    monkeypatch.setattr(records, "find_lost", find_now)


async def after_death(victim: Victims, name: str) -> tuple[dict[str, Any], Status, int, int]:
    """Look after a dead gateway: call again, as its client would. Returns answer, fate of the first round, effects, entries."""
    async with open_app(config_of(victim.url), plugins=[bank(victim.effects)]) as app:
        approvals: Approvals = app.service(Approvals)
        await approvals.sweep()
        rounds = await approvals.list_rounds(only_open=False, limit=1)
        entries = await app.store.audit.entries(AuditFilter(tool="approvals__quorum"), limit=10_000)
        digest = rounds[0].round.subject_digest
        recorded = sum(entry.entry.arguments == digest for entry in entries)
        answer = await pay(app, name)
        first = await approvals.read(rounds[0].round.id)
        assert (await app.store.audit.verify()).is_intact
        return answer, first.status, victim.paid[name], recorded


async def test_every_step_once(url: str, tmp_path: Path) -> None:
    with victims(url, tmp_path) as victim:
        for step in (step for step in STEPS if step != "random"):
            name = step.replace(":", "-")
            assert victim.live(step, name) == (0 if step == "none" else KILLED), step
            before = victim.paid[name]
            answer, status, paid, recorded = await after_death(victim, name)

            assert before == (1 if step in HAPPENED else 0), step
            assert paid <= 1, f"{step}: it ran twice"
            assert recorded <= 1, f"{step}: one quorum is recorded once"
            if step in ("before:vote", "inside:cast"):
                assert (answer["ok"], status, paid) == (False, Status.OPEN, 0), step
            elif step in SURVIVES:
                assert (answer["ok"], status, paid) == (True, Status.DONE, 1), f"{step}: the approval is still there"
            else:
                fate = Status.DONE if step in ("after:finish", "none") else Status.LOST
                assert (answer["ok"], status) == (False, fate), step
                assert ("was lost" in answer["error"]["message"]) is (fate is Status.LOST), step


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(5))
async def test_two_hundred_deaths(url: str, tmp_path: Path, batch: int) -> None:
    """Forty of them in each batch, half of them at a random moment."""
    chosen = random.Random(batch)
    fates: Counter[Status] = Counter()
    with victims(url, tmp_path) as victim:
        for number in range(40):
            step = STEPS[(batch * 40 + number) // 2 % len(STEPS)] if number % 2 else "random"
            name = f"{number}-{step.replace(':', '-')}-{chosen.random():.6f}"
            victim.live(step, name)
            was_paid = victim.paid[name]
            answer, status, paid, _ = await after_death(victim, name)
            fates[status] += 1

            assert paid <= 1, (step, "it ran twice")
            assert paid == 0 or status in (Status.DONE, Status.LOST), (step, "it ran without an approval")
            assert not was_paid or not answer["ok"], (step, "its approval was used twice")
            if status is Status.OPEN:
                assert paid == 0
            if answer["ok"]:
                assert (was_paid, paid, status) == (0, 1, Status.DONE), (step, "an approval that was not dispatched")

    assert len(fates) > 1, fates


async def test_one_of_two_gateways_on_one_database_is_killed(postgres: Any, tmp_path: Path) -> None:
    """The one that lives gives up the call of the one that died, and not its own."""
    url = postgres.new_url()
    with victims(url, tmp_path) as victim:
        async with open_app(config_of(url), plugins=[bank(victim.effects)]) as app:
            approvals: Approvals = app.service(Approvals)
            asked = await pay(app, "mine")
            own = (await approvals.list_rounds(only_open=True))[0].round
            await approvals.vote(own.id, "approve", by=OPERATOR)
            assert await asyncio.to_thread(victim.live, "after:effect", "theirs") == KILLED
            await approvals.sweep()
            rounds = {one.round.id: one.status for one in await approvals.list_rounds(only_open=False)}
            done = await pay(app, "mine")

    assert not asked["ok"]
    assert rounds[own.id] is Status.APPROVED
    assert Status.LOST in rounds.values()
    assert done["ok"]
    assert victim.paid == {"mine": 1, "theirs": 1}


async def test_a_gateway_that_lives_keeps_its_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that runs longer than the lease is renewed, and not given up by the sweep of its own or another gateway."""
    monkeypatch.undo()
    monkeypatch.setattr(service, "LEASE_S", 3.0)
    monkeypatch.setattr(service, "RENEW_S", 0.1)
    url = f"sqlite:{tmp_path / 'store.db'}"
    plugin = bank(tmp_path / "effects")
    plugin._tools.clear()

    @plugin.tool
    async def pay(name: str) -> str:
        """Pay slowly."""
        await asyncio.sleep(4)  # longer than the lease
        return name

    from tests.parts.approvals import victim as module

    async with (
        open_app(config_of(url), plugins=[plugin]) as app,
        open_app(config_of(url), plugins=[bank(tmp_path / "other")]) as other,
    ):
        approvals: Approvals = app.service(Approvals)
        await module.pay(app, "slow")
        found = (await approvals.list_rounds(only_open=True))[0].round
        await approvals.vote(found.id, "approve", by=OPERATOR)
        running = asyncio.create_task(module.pay(app, "slow"))
        began = time.monotonic()
        seen = set()
        while not running.done():
            seen.add((await other.service(Approvals).read(found.id)).status)
            await asyncio.sleep(0.2)
        answer = await running
        ended = (await approvals.read(found.id)).status

    assert answer["ok"]
    assert time.monotonic() - began > 3
    assert Status.LOST not in seen
    assert ended is Status.DONE
