"""What the router costs a model call: choosing, circuit and statistics, without the model's own time."""

import time
from statistics import quantiles

import anyio
import anyio.lowlevel

from bench.figures import MS, OURS, Figures, Metric, Pace, Part, Target, at_most, say
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.parts.models import PART as MODELS_PART
from toolpost.parts.models.endpoint import Completion, ModelPrompt, TextListener
from toolpost.parts.models.router import Model, Router
from toolpost.parts.models.score import FACTORS, Candidate, Scorer, ScoreRequest, ScoreWeights
from toolpost.parts.models.stats import Stats
from toolpost.store.part_migrations import open_part_store

SCENARIO = "models"
CALLS = 1_000
WARM_UP = 100
MODELS = 5
SENTENCE = "Please review function number {number}, explain what it does, and write a test for each of its branches. "
OVERHEAD = Metric(SCENARIO, "router, of a call with a new prompt of 300 characters, p50", MS)
OVERHEAD_HIGH = Metric(SCENARIO, "the same, p99", MS)
CALLER = Caller(id=CallerId("bench"), transport="memory")


class InstantModel:
    """A model that takes no time."""

    acts = False

    async def answer(self, prompt: ModelPrompt, caller: Caller, on_text: TextListener | None) -> Completion:  # noqa: ARG002
        return Completion(text="done", input_tokens=100, output_tokens=1)


def measure(figures: Figures, pace: Pace) -> None:
    for number in range(1, pace.rounds + 1):
        say(f"round {number}/{pace.rounds}: models")
        found = anyio.run(_measure_calls, backend_options={"use_uvloop": True})
        figures.add(OVERHEAD, OURS, found[49])
        figures.add(OVERHEAD_HIGH, OURS, found[98])


async def _measure_calls() -> list[float]:
    """Return the percentiles of a call, in milliseconds; statistics are written meanwhile, as in a gateway."""
    models: dict[str, Model] = {f"model-{number}": InstantModel() for number in range(MODELS)}
    candidates = [
        Candidate(
            name=name,
            domains=["law", "programming"],
            skills=["code review", "tests", "summaries"],
            description="Reads and writes code and texts of many kinds.",
            context=200_000,
            input_price=1.0,
        )
        for name in models
    ]
    async with open_part_store("sqlite::memory:", MODELS_PART.name, MODELS_PART.migrations) as store:
        stats = Stats(store)
        router = Router(models, Scorer(candidates, ScoreWeights(dict.fromkeys(FACTORS, 1.0))), stats)
        times = []
        async with stats.open_writing():
            for number in range(WARM_UP + CALLS):
                text = (SENTENCE.format(number=number) * 3)[:300]
                began = time.perf_counter()
                await router.call(ModelPrompt.of_text(text), ScoreRequest(prompt=text), caller=CALLER, timeout_s=30)
                times.append((time.perf_counter() - began) * 1000)
                await anyio.lowlevel.checkpoint()
    return quantiles(times[WARM_UP:], n=100)


def targets(figures: Figures) -> list[Target]:
    found = figures.median(OVERHEAD, OURS)
    return [] if found is None else [at_most(str(OVERHEAD), found, 1.0, MS)]


PART = Part(
    name="models",
    title="The router between models",
    measure=measure,
    targets=targets,
    method=f"""\
{CALLS:,} calls of the router, in this process, among {MODELS} models that answer at once: what is left is choosing (each prompt
is new, so that nothing is remembered), circuits, time limits and statistics, which are written to SQLite meanwhile.""",
)


if __name__ == "__main__":
    measured = Figures()
    measure(measured, Pace(rounds=3, seconds=1))
    for metric in measured.values:
        print(f"{metric}: {measured.median(metric, OURS):.3f} ms")
