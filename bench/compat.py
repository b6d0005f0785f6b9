"""Judging changes: the claims of registries, mutated definitions, 6,044 real tools. `python -m bench.compat` prints it."""

import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.contracts.compatibility.claims import CLAIMS, REASONS, judged_claims
from tests.contracts.compatibility.definitions import schemas
from tests.contracts.compatibility.mutations import INPUT, OUTPUT, mutated

from bench.figures import COUNT, MS, OURS, Figures, Metric, Pace, Part, S, Target
from bench.load import BenchError
from bench.servers import toucan
from toolpost.contracts import Definition, judge
from toolpost.contracts.findings import inspect_definition

SAMPLE = 300
SCENARIO = "judging changes"
AGREED = Metric(SCENARIO, "claims of registries agreed with", "%")
PAIR = Metric(SCENARIO, "a changed pair, median", MS)
MISSED = Metric(SCENARIO, "breaking mutations called compatible", COUNT)
ALARMS = Metric(SCENARIO, "safe mutations called breaking", COUNT)
ALL = Metric(SCENARIO, "6,044 changed tools judged", S)
ALL_CPU = Metric(SCENARIO, "6,044 changed tools judged, CPU", S)


def measure(sample: int = SAMPLE) -> dict[str, Any]:
    """Return every figure that judging is held to."""
    if not CLAIMS.exists() or not toucan.DEFINITIONS.exists():
        raise BenchError(f"the data is not there: {CLAIMS}, {toucan.DEFINITIONS}\nhint: leave out `compat`")
    return {"claims": _claims(), "mutations": _mutations(sample), "all": _all()}


def measure_into(figures: Figures, _: Pace) -> None:
    """Measure once, as a part of all figures."""
    found = measure()
    mutations = found["mutations"]
    for metric, value in (
        (AGREED, 100 * found["claims"]["agreed"]),
        (PAIR, mutations["median_ms"]),
        (MISSED, mutations.get("breaking, called compatible", 0)),
        (ALARMS, mutations.get("safe, called breaking", 0)),
        (ALL, found["all"]["judged_s"]),
        (ALL_CPU, found["all"]["judged_cpu_s"]),
    ):
        figures.add(metric, OURS, value)


def targets(figures: Figures) -> list[Target]:
    """Say what was aimed at."""
    found = []
    aims: list[tuple[Metric, str, Callable[[float], bool]]] = [
        (AGREED, "at least 95 %", lambda value: value >= 95),
        (PAIR, "under 2 ms", lambda value: value < 2),
        (MISSED, "none", lambda value: value == 0),
        (ALL, "under 10 s", lambda value: value < 10),
    ]
    for metric, aim, is_reached in aims:
        if (value := figures.median(metric, OURS)) is not None:
            shown = f"{value:,.2f} {metric.unit}".strip()
            found.append(Target(what=metric.name, aim=aim, found=value, shown=shown, is_reached=is_reached(value)))
    return found


def _claims() -> dict[str, Any]:
    claims = list(judged_claims())
    disagreed = [claim.id for claim in claims if not claim.is_agreed]
    return {
        "count": len(claims),
        "agreed": 1 - len(disagreed) / len(claims),
        "disagreements": {name: REASONS.get(name, "NO REASON IS KNOWN") for name in disagreed},
    }


def _mutations(sample: int) -> dict[str, Any]:
    rng = random.Random(7)
    counts: Counter[str] = Counter()
    times = []
    for schema in schemas(sample, rng):
        for field, mutations in (("inputSchema", INPUT), ("outputSchema", OUTPUT)):
            for mutation in mutations:
                changed = mutated(schema, mutation, rng)
                if changed is None:
                    continue
                old, new = (Definition.from_json({"name": "t", field: each}) for each in (schema, changed))
                began = time.perf_counter()
                verdict = judge(old, new).verdict
                times.append(time.perf_counter() - began)
                counts[f"{'breaking' if mutation.breaks else 'safe'}, called {verdict.value}"] += 1
    return {
        "pairs": len(times),
        "median_ms": 1_000 * statistics.median(times),
        "p99_ms": 1_000 * statistics.quantiles(times, n=100)[98],
        **dict(sorted(counts.items())),
    }


def _all() -> dict[str, Any]:
    """Judge every real definition against a copy that differs in one place, as after an update of all servers."""
    listed = [json.loads(line) for line in toucan.DEFINITIONS.read_text().splitlines()]
    pairs = [(Definition.from_listed(each), Definition.from_listed(_updated(each))) for each in listed]
    began, began_cpu = time.perf_counter(), time.process_time()
    verdicts = Counter(judge(old, new).verdict.value for old, new in pairs)
    judged_s, judged_cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    began = time.perf_counter()
    for old, _ in pairs:
        _ = old.digests
    digests_s = time.perf_counter() - began
    suspected = sum(bool(inspect_definition(old)) for old, _ in pairs)
    return {
        "tools": len(pairs),
        "judged_s": judged_s,
        "judged_cpu_s": judged_cpu_s,
        "digests_s": digests_s,
        "verdicts": dict(verdicts),
        "suspected": suspected,
    }


def _updated(listed: dict[str, Any]) -> dict[str, Any]:
    schema = listed["inputSchema"]
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
        return listed | {"description": "Changed."}
    return listed | {"inputSchema": schema | {"properties": schema["properties"] | {"one_more": {"type": "string"}}}}


PART = Part(name="compat", title="Judging changes", measure=measure_into, targets=targets)


def main() -> None:
    json.dump(measure(int(sys.argv[1]) if len(sys.argv) > 1 else SAMPLE), sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main()
