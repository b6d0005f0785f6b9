"""The bus: whole cycles (submit, poll, acknowledge, done) beside Celery on Redis and procrastinate on PostgreSQL."""

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.postgres import NoPostgres, open_postgres

from bench.bus import cycles, peers, polls
from bench.figures import MS, OURS, RATE, Figures, Metric, Pace, Part, Target, at_least, at_most, say
from bench.load import BenchError

CELERY = "Celery"
PROCRASTINATE = "procrastinate"
OURS_POSTGRES = "Toolpost on PostgreSQL"

SCENARIO = "the bus, 8 workers"
CYCLES = Metric(SCENARIO, "whole cycles", RATE)
P50 = Metric(SCENARIO, "from submit to the worker at half load, p50", MS)
P99 = Metric(SCENARIO, "from submit to the worker at half load, p99", MS)
FEW = Metric(SCENARIO, "whole cycles beside 1,000 finished tasks", RATE)
MANY = Metric(SCENARIO, "whole cycles beside 1,000,000 finished tasks", RATE)
IDLE = Metric("500 idle long polls", "CPU", "%")

METHOD = """\
A cycle is submit, poll, acknowledge, done: four steps, of which all but the poll are answered when they are on the disk (SQLite
at `synchronous = FULL`). Eight
workers and eight submitters share one process, as they do in the peers' own libraries; Celery runs its worker with eight threads
in a process of its own, with results in Redis as Debian sets it up, procrastinate runs eight at a time on the PostgreSQL that
Toolpost is measured on. The peers begin a task and keep its result; they give no lease that must be acknowledged, and know no
fencing. Latency is counted from before the submit until a waiting worker has the task, at half of the rate that was reached. The
finished tasks are written by SQL, with four lines of history each."""


def measure(figures: Figures, pace: Pace) -> None:
    """Measure everybody in turns, then what is ours alone."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolpost-bench-")))
        candidates: dict[str, Callable[[float], float]] = {
            OURS: lambda seconds: asyncio.run(cycles.per_second(f"sqlite:{folder}/bus.db", seconds))
        }
        try:
            server = stack.enter_context(open_postgres(waits_for_disk=True))
        except NoPostgres as error:
            figures.note(f"procrastinate was not measured: {error}")
        else:
            candidates |= _available(
                figures, PROCRASTINATE, lambda: stack.enter_context(peers.procrastinate(server.uri))
            )
            url = server.new_url()
            candidates[OURS_POSTGRES] = lambda seconds: asyncio.run(cycles.per_second(url, seconds))
        candidates |= _available(figures, CELERY, lambda: stack.enter_context(peers.celery(folder)))
        for number in range(1, pace.rounds + 1):
            say(f"round {number}/{pace.rounds}: cycles of {', '.join(candidates)}")
            # Twice, half as long: a machine that others share is often disturbed, and seldom for long.
            for _ in range(2):
                for who, run in candidates.items():
                    figures.add(CYCLES, who, run(pace.seconds / 2))
        _measure_latency(figures, pace, folder)
        _measure_growth(figures, pace, folder)
        say("500 idle long polls")
        figures.add(IDLE, OURS, polls.idle_cpu_percent(500, 10.0))


def _available(
    figures: Figures, who: str, start: Callable[[], Callable[[float], float]]
) -> dict[str, Callable[[float], float]]:
    try:
        return {who: start()}
    except BenchError as error:
        figures.note(f"{who} was not measured: {error}")
        return {}


def _measure_latency(figures: Figures, pace: Pace, folder: Path) -> None:
    rate = (figures.median(CYCLES, OURS) or 0.0) / 2
    for number in range(1, pace.rounds + 1):
        say(f"round {number}/{pace.rounds}: latency at {rate:,.0f} tasks/s")
        p50, p99 = asyncio.run(cycles.latency_ms(f"sqlite:{folder}/bus.db", rate, pace.seconds * 2))
        figures.add(P50, OURS, p50)
        figures.add(P99, OURS, p99)


def _measure_growth(figures: Figures, pace: Pace, folder: Path) -> None:
    places = {}
    for metric, finished in ((FEW, 1_000), (MANY, 1_000_000)):
        say(f"writing {finished:,} finished tasks")
        places[metric] = f"sqlite:{folder}/with-{finished}.db"
        asyncio.run(cycles.fill(places[metric], finished))
    for number in range(1, pace.rounds + 1):
        say(f"round {number}/{pace.rounds}: beside finished tasks")
        for metric in (FEW, MANY, MANY, FEW):
            figures.add(metric, OURS, asyncio.run(cycles.per_second(places[metric], pace.seconds / 2)))


def targets(figures: Figures) -> list[Target]:
    """Compare with what is aimed at."""
    found: list[Target] = []
    for peer, least in ((CELERY, 3.0), (PROCRASTINATE, 10.0)):
        if (ratio := figures.ratio(CYCLES, OURS, peer)) is not None:
            found.append(at_least(f"{CYCLES} against {peer}", ratio, least))
    for metric, limit in ((P50, 5.0), (P99, 30.0), (IDLE, 2.0)):
        if (value := figures.median(metric, OURS)) is not None:
            found.append(at_most(str(metric), value, limit, metric.unit))
    few, many = figures.median(FEW, OURS), figures.median(MANY, OURS)
    if few and many:
        found.append(at_most(f"{SCENARIO}: slower beside 1,000,000 finished tasks", 100 * (1 - many / few), 20.0, "%"))
    return found


PART = Part(
    name="bus",
    title="the bus beside Celery and procrastinate",
    measure=measure,
    targets=targets,
    names=(OURS, OURS_POSTGRES, CELERY, PROCRASTINATE),
    pairs=((OURS, CELERY), (OURS, PROCRASTINATE), (OURS_POSTGRES, PROCRASTINATE)),
    method=METHOD,
)
