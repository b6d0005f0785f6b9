"""What approvals cost: calls that no rule matches, a vote, many rounds. `python -m bench.approvals` does it alone."""

import asyncio
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from bench.figures import MS, OURS, PERCENT, US, Figures, Metric, Pace, Part, Target, at_most, say
from toolpost.app import App, open_app
from toolpost.base.caller import OPERATOR, Caller
from toolpost.base.ids import CallerId
from toolpost.middleware.fast_path import Delivery
from toolpost.parts.approvals.service import Approvals
from toolpost.parts.approvals.settings import ApprovalSettings, RuleSettings
from toolpost.parts.approvals.subject import CallSubject
from toolpost.settings import Config
from toolpost.settings.audit import AuditSettings
from toolpost.settings.model import StoreSettings
from toolpost.upstreams.spec import ServerSpec

BLOCKS = 300
CALLS = 50
OPEN = 10_000
EVE = Caller(id=CallerId("eve"), transport="http")
ECHO = Path(__file__).parents[1] / "tests/upstreams/servers/hostile.py"

SCENARIO = "approvals"
PLAIN = Metric(SCENARIO, "call of a server's tool without rules, processor time", US)
UNMATCHED = Metric(SCENARIO, "the same with a rule that does not match", US)
OTHER_ARGUMENTS = Metric(SCENARIO, "the same with a rule that matches other arguments", US)
SAMPLED = Metric(SCENARIO, "the same with audit.sample = 0.05", US)
MORE = Metric(SCENARIO, "more for a rule that does not match, median of neighboring blocks", PERCENT)
MORE_OTHER_ARGUMENTS = Metric(SCENARIO, "more for a rule that matches other arguments", PERCENT)
MORE_SAMPLED = Metric(SCENARIO, "more for audit.sample = 0.05", PERCENT)
OPENING = Metric(SCENARIO, f"open a round, with up to {OPEN:,} open", MS)
VOTE = Metric(SCENARIO, f"vote and record the quorum, with {OPEN:,} open", MS)
LIST = Metric(SCENARIO, f"list 100 of {OPEN:,} open rounds", MS)


def config_of(folder: Path, name: str, *, sample: float = 0.0, **rules: RuleSettings) -> Config:
    config = Config(store=StoreSettings(url=f"sqlite:{folder / name}.db"), audit=AuditSettings(sample=sample))
    return msgspec.structs.replace(config, parts={"approvals": ApprovalSettings(rules=rules)}) if rules else config


async def call(app: App) -> None:
    """Call a server's tool as an endpoint does: over the fast path if that is open."""
    made = app.gateway.admit(caller=EVE, name="up__echo", arguments={"text": "hi"})
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish(*_: object) -> None:
        if not done.done():
            done.set_result(None)

    def start_task() -> None:
        asyncio.ensure_future(app.gateway.call(made)).add_done_callback(finish)

    delivery = Delivery(start_task=start_task, write=lambda _: b"", send=finish, fail=finish)
    if not app.gateway.pipeline.try_fast_path(made, delivery):
        start_task()
    await done


async def measure_calls(folder: Path, figures: Figures) -> None:
    """Compare a gateway without rules to one with a rule for another tool, and to one with a sample: a block each, in pairs."""
    spec = ServerSpec(name="up", command=(sys.executable, "-S", "-E", str(ECHO), "--version", "2025-11-25"))
    configs = {
        PLAIN: config_of(folder, "a"),
        UNMATCHED: config_of(folder, "b", money=RuleSettings(tools=["bank__*"])),
        OTHER_ARGUMENTS: config_of(
            folder,
            "e",
            texts=RuleSettings(tools=["up__echo"], arguments={"properties": {"text": {"const": "no"}}}),
        ),
        SAMPLED: config_of(folder, "d", sample=0.05),
    }
    async with AsyncExitStack() as stack:
        apps = {
            metric: await stack.enter_async_context(open_app(config, servers=[spec]))
            for metric, config in configs.items()
        }
        for app in apps.values():
            for _ in range(CALLS):
                await call(app)
        for other, more in ((UNMATCHED, MORE), (OTHER_ARGUMENTS, MORE_OTHER_ARGUMENTS), (SAMPLED, MORE_SAMPLED)):
            for number in range(BLOCKS):
                took = {}
                for metric in (other, PLAIN) if number % 2 else (PLAIN, other):
                    # The time of the processor: it is what a rule costs, whatever else the machine does.
                    began = time.process_time()
                    for _ in range(CALLS):
                        await call(apps[metric])
                    took[metric] = (time.process_time() - began) / CALLS * 1e6
                    figures.add(metric, OURS, took[metric])
                figures.add(more, OURS, (took[other] / took[PLAIN] - 1) * 100)


async def measure_rounds(folder: Path, figures: Figures) -> None:
    """Open many rounds, then vote in some and list them."""

    def subject(number: int) -> CallSubject:
        return CallSubject(
            tool="bank__pay",
            provider="bank",
            contract="sha256:1",
            caller="eve",
            arguments={"amount": number},
            definition={"name": "bank__pay"},
            rule="money",
            voters=("cli",),
            needed=1,
        )

    async with open_app(config_of(folder, "c", money=RuleSettings(tools=["bank__*"]))) as app:
        approvals: Approvals = app.service(Approvals)
        for number in range(OPEN):
            figures.add(OPENING, OURS, await _time(approvals.open_call(subject(number), expires_s=3_600)))
        for view in await approvals.list_rounds(only_open=True, limit=500):
            figures.add(VOTE, OURS, await _time(approvals.vote(view.round.id, "approve", by=OPERATOR)))
        for _ in range(5):
            figures.add(LIST, OURS, await _time(approvals.list_rounds(only_open=True)))
    worst = statistics.quantiles(figures.values[VOTE][OURS], n=100)[98]
    figures.note(f"99th percentile of a vote: {worst:.2f} ms")


async def _time(doing: Any) -> float:
    began = time.perf_counter()
    await doing
    return (time.perf_counter() - began) * 1_000


def measure(figures: Figures, _pace: Pace) -> None:
    """Measure calls, then rounds."""

    async def both(folder: Path) -> None:
        say("approvals: calls")
        await measure_calls(folder, figures)
        say(f"approvals: {OPEN:,} rounds")
        await measure_rounds(folder, figures)

    with tempfile.TemporaryDirectory(prefix="toolpost-bench-") as folder:
        uvloop.run(both(Path(folder)))


def targets(figures: Figures) -> list[Target]:
    """Compare with the aims: rules that do not match cost nearly nothing, and a vote is quick."""
    found = [(MORE, 3.0, PERCENT), (MORE_OTHER_ARGUMENTS, 10.0, PERCENT), (VOTE, 5.0, MS)]
    return [
        at_most(metric.name, value, limit, unit)
        for metric, limit, unit in found
        if (value := figures.median(metric, OURS)) is not None
    ]


PART = Part(name="approvals", title="Approvals", measure=measure, targets=targets)


def main() -> None:
    """Measure, and print medians."""
    figures = Figures()
    measure(figures, Pace(rounds=1, seconds=1))
    for metric in figures.values:
        print(f"{metric.name}: {figures.median(metric, OURS):.3f} {metric.unit}")
    for note in figures.notes:
        print(note)


if __name__ == "__main__":
    main()
