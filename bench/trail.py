"""Proofs and records of a long session of the decision trail. `python -m bench.trail` does it by itself."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from bench.figures import Figures, Metric, Pace, Part, Target, say
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId, JsonObject
from toolpost.parts.trail import PART as TRAIL
from toolpost.parts.trail import records
from toolpost.parts.trail.export import encode_line, export_session, write_verifier
from toolpost.parts.trail.records import Draft
from toolpost.parts.trail.service import Thought, Trail
from toolpost.parts.trail.verify_trail import check_proof
from toolpost.store import open_part_store

WHO = "Toolpost"
SCENARIO = "the decision trail"
RECORDS = int(os.environ.get("TRAIL_RECORDS", "1000000"))
AT_ONCE = 20_000
AT = "2026-11-17T12:00:00.000Z"
ANN = Caller(id=CallerId("ann"), transport="memory")

PROOF = Metric(SCENARIO, f"inclusion proof for one of {RECORDS:,} records", "ms")
SIZE = Metric(SCENARIO, "its size", "bytes")
RECORD = Metric(SCENARIO, "thought_record in the same session", "ms")
EXPORTED = min(RECORDS, 100_000)
VERIFY = Metric(SCENARIO, f"offline verification of {EXPORTED:,} records", "s")


def measure(figures: Figures, pace: Pace) -> None:
    """Fill one session, then prove and record in it."""
    with tempfile.TemporaryDirectory(prefix="toolpost-bench-") as folder:
        asyncio.run(_measure(Path(folder), figures, pace))


async def _measure(folder: Path, figures: Figures, pace: Pace) -> None:
    async with open_part_store(f"sqlite:{folder}/trail.db", TRAIL.name, TRAIL.migrations) as store:
        trail = await Trail.open(store)
        await _measure_verification(trail, folder, figures, pace)
        await _fill(trail, "long", RECORDS)
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


async def _measure_verification(trail: Trail, folder: Path, figures: Figures, pace: Pace) -> None:
    """Export a sealed session, and verify it in a process of its own that has no Toolpost."""
    await _fill(trail, "exported", EXPORTED)
    session = await trail.seal(await trail.find(ANN.id, "exported"))
    with (folder / "exported.jsonl").open("w") as file:
        async for line in export_session(trail, session, with_content=False):
            file.write(f"{encode_line(line)}\n")
    command = [sys.executable, "-I", str(write_verifier(folder)), str(folder / "exported.jsonl")]
    for _ in range(pace.rounds):
        began = time.perf_counter()
        await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
        figures.add(VERIFY, WHO, time.perf_counter() - began)


async def _fill(trail: Trail, name: str, count: int) -> None:
    say(f"trail: writing {count:,} records")
    started = await trail.start(ANN.id, name, "bench", None)
    body: JsonObject = {
        "kind": "thought",
        "type": "plan",
        "author": "ann",
        "agent_id": "a",
        "task_id": None,
        "references": [],
    }
    for start in range(0, count, AT_ONCE):
        drafts = [
            Draft(once=f"{number}", body=body | {"content": "0" * 64}, content="x", salt="00")
            for number in range(start, min(start + AT_ONCE, count))
        ]
        await trail._store.scripts.run(partial(records.append, started.number, drafts, AT), durable=False)  # noqa: SLF001


def targets(figures: Figures) -> list[Target]:
    """Compare the worst proof with the aims: every one has to be short and quick."""
    found = []
    for metric, limit in ((PROOF, 5.0), (SIZE, 2048.0), (VERIFY, 5.0)):
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
