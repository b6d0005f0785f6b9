"""What approvals cost: calls that no rule matches, a vote, an approved call, and rounds by the ten thousand.

.venv/bin/python -m bench.approvals
"""

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

from toolpost.app import open_app
from toolpost.base.caller import OPERATOR, Caller
from toolpost.base.ids import CallerId
from toolpost.middleware import Delivery
from toolpost.parts.approvals.service import Approvals, CallSubject
from toolpost.parts.approvals.settings import ApprovalSettings, RuleSettings
from toolpost.running import App
from toolpost.settings import Config, StoreSettings
from toolpost.upstreams.spec import ServerSpec

ROUNDS = 40
CALLS = 250
EVE = Caller(id=CallerId("eve"), transport="http")
ECHO = Path(__file__).parents[1] / "tests/upstreams/servers/hostile.py"


def config_of(folder: Path, name: str, **rules: RuleSettings) -> Config:
    config = Config(store=StoreSettings(url=f"sqlite:{folder / name}.db"))
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


async def measure_plain_calls(folder: Path) -> dict[str, float]:
    """Compare a gateway with a rule for another tool to one without rules, a block of calls each, in turn."""
    spec = ServerSpec(name="up", command=(sys.executable, "-S", "-E", str(ECHO), "--version", "2025-11-25"))
    took: dict[str, list[float]] = {"without": [], "with": []}
    async with AsyncExitStack() as stack:
        apps = {
            "without": await stack.enter_async_context(open_app(config_of(folder, "a"), servers=[spec])),
            "with": await stack.enter_async_context(
                open_app(config_of(folder, "b", money=RuleSettings(tools=["bank__*"])), servers=[spec])
            ),
        }
        for app in apps.values():
            for _ in range(CALLS):
                await call(app)
        for number in range(ROUNDS):
            for name in sorted(apps, reverse=bool(number % 2)):
                # The time of the processor: it is what a rule costs, and is not changed by what else the machine does.
                began = time.process_time()
                for _ in range(CALLS):
                    await call(apps[name])
                took[name].append((time.process_time() - began) / CALLS * 1e6)
    medians = {name: statistics.median(values) for name, values in took.items()}
    ratios = [after / before for before, after in zip(took["without"], took["with"], strict=True)]
    return {
        "call without rules, us of processor time": medians["without"],
        "call that no rule matches, us of it": medians["with"],
        "more, %": (statistics.median(ratios) - 1) * 100,
    }


async def measure_rounds(folder: Path, count: int = 10_000) -> dict[str, float]:
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
        opening = [await _timed(approvals.open_call(subject(number), expires_s=3_600)) for number in range(count)]
        newest = await approvals.list_rounds(only_open=True, limit=500)
        voting = [await _timed(approvals.vote(view.round.id, "approve", by=OPERATOR)) for view in newest]
        listing = [await _timed(approvals.list_rounds(only_open=True)) for _ in range(5)]
    return {
        "open a round, ms": statistics.median(opening),
        f"the same with {count:,} open, ms": statistics.median(opening[-200:]),
        "vote, ms": statistics.median(voting),
        "vote, 99th percentile, ms": statistics.quantiles(voting, n=100)[98],
        "list 100 rounds, ms": statistics.median(listing),
    }


async def _timed(doing: Any) -> float:
    began = time.perf_counter()
    await doing
    return (time.perf_counter() - began) * 1_000


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, value in {
            **await measure_plain_calls(Path(folder)),
            **await measure_rounds(Path(folder)),
        }.items():
            print(f"{name:42} {value:10.3f}")


if __name__ == "__main__":
    uvloop.run(main())
