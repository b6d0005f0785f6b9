"""Proofs and records of a long session of the decision trail. `python -m bench.trail` does it by itself."""

import asyncio
import json
import os
import tempfile
import time
from functools import partial
from pathlib import Path

from bench.figures import Figures, Metric, Pace, Part, Target, say
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId, JsonObject
from toolpost.parts import open_part_store
from toolpost.parts.trail import records
from toolpost.parts.trail.part import TrailPart
from toolpost.parts.trail.records import Draft
from toolpost.parts.trail.service import Thought, Trail
from toolpost.parts.trail.verify_trail import check_proof

WHO = "Toolpost"
SCENARIO = "the decision trail"
RECORDS = int(os.environ.get("TRAIL_RECORDS", "1000000"))
AT_ONCE = 20_000
AT = "2026-11-17T12:00:00.000Z"
ANN = Caller(id=CallerId("ann"), transport="memory")

PROOF = Metric(SCENARIO, f"inclusion proof for one of {RECORDS:,} records", "ms")
SIZE = Metric(SCENARIO, "its size", "bytes")
RECORD = Metric(SCENARIO, "thought_record in the same session", "ms")


def measure(figures: Figures, pace: Pace) -> None:
    """Fill one session, then prove and record in it."""
    with tempfile.TemporaryDirectory(prefix="toolpost-bench-") as folder:
        asyncio.run(_measure(f"sqlite:{Path(folder)}/trail.db", figures, pace))


async def _measure(url: str, figures: Figures, pace: Pace) -> None:
    assert TrailPart.migrations is not None
    async with open_part_store(url, TrailPart.name, TrailPart.migrations) as store:
        trail = await Trail.open(store)
        started = await trail.start(ANN.id, "long", "bench", None)
        say(f"trail: writing {RECORDS:,} records")
        body: JsonObject = {
            "kind": "thought",
            "type": "plan",
            "author": "ann",
            "agent_id": "a",
            "task_id": None,
            "references": [],
        }
        for start in range(0, RECORDS, AT_ONCE):
            drafts = [
                Draft(once=f"{number}", body=body | {"content": "0" * 64}, content="x", salt="00")
                for number in range(start, min(start + AT_ONCE, RECORDS))
            ]
            await store.scripts.run(partial(records.append, started.number, drafts, AT), full=False)
        for _ in range(pace.rounds):
            session = await trail.find(ANN.id, "long")
            for seq in range(1, RECORDS + 1, max(1, RECORDS // 100)):
                began = time.perf_counter()
                proof = await trail.prove_inclusion(session, seq)
                figures.add(PROOF, WHO, (time.perf_counter() - began) * 1000)
                figures.add(SIZE, WHO, len(json.dumps(proof, separators=(",", ":"))))
                check_proof(proof)
            for number in range(50):
                began = time.perf_counter()
                thought = Thought(type="plan", task_id=None, agent_id="a", content=f"{number}")
                await trail.record(ANN, thought, "long")
                figures.add(RECORD, WHO, (time.perf_counter() - began) * 1000)


def targets(figures: Figures) -> list[Target]:
    """Compare the worst proof with the aims: every one has to be short and quick."""
    found = []
    for metric, limit in ((PROOF, 5.0), (SIZE, 2048.0)):
        worst = max(figures.values.get(metric, {}).get(WHO, [float("inf")]))
        found.append(
            Target(
                what=metric.name,
                aim=f"at most {limit:g} {metric.unit}",
                found=worst,
                shown=f"{worst:.2f} {metric.unit}",
                is_reached=worst <= limit,
            )
        )
    return found


PART = Part(name="trail", title="The decision trail", measure=measure, targets=targets)


def main() -> None:
    """Measure, and print medians."""
    figures = Figures()
    measure(figures, Pace(rounds=1, seconds=1))
    for metric in figures.values:
        print(f"{metric.name}: {figures.median(metric, WHO):.2f} {metric.unit}")
    for target in targets(figures):
        print(f"{'reached' if target.is_reached else 'missed'}: {target.what}, {target.aim}: {target.shown}")


if __name__ == "__main__":
    main()
