"""SIGKILL at random moments: whatever a tool did is in the trail and in the audit, and both are as they were written."""

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.parts.trail.victim import EVE, config_of, shop
from tests.ways import ROOT
from toolpost.app import open_app
from toolpost.audit import AuditFilter
from toolpost.parts.trail.service import Trail

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

KILLED = -9


async def account(url: str, folder: Path) -> Counter[str]:
    """Open the store again; compare what was done with what is recorded. Returns how many calls have which outcome."""
    done = (folder / "effects").read_text().split() if (folder / "effects").exists() else []
    async with open_app(config_of(url, folder), plugins=[shop(folder)]) as app:
        trail: Trail = app.service(Trail)
        calls: set[str] = set()
        outcomes: dict[str, str] = {}
        after = (0, 0)
        while found := await trail.list(
            EVE.id, session_id=None, task_id=None, kinds=["call", "result"], after=after, limit=1_000
        ):
            for _, record in found:
                body = record.body_json
                if record.kind == "call":
                    calls.add(body["call_id"])
                else:
                    assert body["call_id"] not in outcomes, "a call has one result"
                    outcomes[body["call_id"]] = body["outcome"]
            after = (found[-1][1].session, found[-1][1].seq)
        audited = {
            str(record.entry.call_id): record.entry.outcome
            for record in await app.store.audit.entries(AuditFilter(tool="shop__buy"), limit=1_000_000)
        }
        verdict = await trail.verify_all(None, None)
        assert (await app.store.audit.verify()).is_intact

    assert verdict.is_valid, verdict
    assert len(set(done)) == len(done)
    assert set(done) <= calls, "whatever a tool did was recorded before"
    assert set(done) <= audited.keys()
    pairs = {(audited[call], outcomes.get(call)) for call in done}
    # Killed between the two, the trail knows that the tool had answered and the audit does not.
    assert pairs <= {("ok", "ok"), ("lost", "lost"), ("lost", "ok")}
    return Counter(outcomes[call] for call in done)


async def die(url: str, folder: Path, times: int, seed: int) -> Counter[str]:
    chosen, found = random.Random(seed), Counter[str]()
    command = [sys.executable, "-m", "tests.parts.trail.victim"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            for number in range(times):
                # The first one long enough to do something on a busy machine.
                delay_s = chosen.uniform(0, 0.15) if number else 1.5
                process.stdin.write(f"{url}\t{folder}\t{delay_s:.4f}\n")
                process.stdin.flush()
                assert int(process.stdout.readline()) == KILLED
                found = await account(url, folder)
        finally:
            process.kill()
    return found


async def test_a_few_deaths(url: str, tmp_path: Path) -> None:
    found = await die(url, tmp_path, 4, seed=1)

    assert found
    assert set(found) <= {"ok", "lost"}


@pytest.mark.soak
async def test_many_deaths(url: str, tmp_path: Path) -> None:
    found = await die(url, tmp_path, 40, seed=2)

    assert set(found) == {"ok", "lost"}
