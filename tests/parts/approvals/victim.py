"""A gateway that is killed at a step between a vote and the end of the approved call.

Reads `url effects step` from stdin, forks a child that kills itself with SIGKILL at that step, and prints how the child ended:
one process that has everything loaded makes hundreds of deaths cheap.
"""

import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import anyio
import msgspec

from toolpost import Plugin
from toolpost.app import open_app
from toolpost.base.caller import OPERATOR, Caller
from toolpost.base.ids import CallerId
from toolpost.parts.approvals import records
from toolpost.parts.approvals.service import Approvals, parse_round_id
from toolpost.parts.approvals.settings import ApprovalSettings, RuleSettings
from toolpost.settings import Config
from toolpost.settings.model import PluginSettings, StoreSettings

STEPS = [
    *(f"{when}:{what}" for what in ("vote", "record_quorum", "dispatch", "finish") for when in ("before", "after")),
    *(f"inside:{script}" for script in ("cast", "record", "dispatch", "finish")),
    "before:effect",
    "after:effect",
    "random",
    "none",
]
EVE = Caller(id=CallerId("eve"), transport="memory")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def config_of(url: str) -> Config:
    rules = {"money": RuleSettings(tools=["bank__pay"])}
    return Config(
        store=StoreSettings(url=url),
        plugins=PluginSettings(bundled=[], installed=False),
        parts={"approvals": ApprovalSettings(rules=rules)},
    )


def bank(effects: Path, step: str = "none") -> Plugin:
    """Write a line for each payment, in one write: what is in the file has happened."""
    plugin = Plugin("bank", version="1.0.0")

    @plugin.tool
    async def pay(name: str) -> str:
        """Pay."""
        if step == "before:effect":
            die()
        with effects.open("a") as file:
            file.write(f"{name}\n")
        if step == "after:effect":
            die()
        return name

    return plugin


def _kill_around(name: str, when: str) -> None:
    original = getattr(Approvals, name)

    async def around(self: Any, *arguments: Any, **options: Any) -> Any:
        if when == "before":
            die()
        result = await original(self, *arguments, **options)
        die()
        return result

    setattr(Approvals, name, around)


def _kill_inside(name: str) -> None:
    original: Callable[..., Any] = getattr(records, name)

    def inside(*arguments: Any, **options: Any) -> Generator[Any, Any, Any]:
        result = yield from original(*arguments, **options)
        die()  # its statements have run, and are not committed
        return result

    setattr(records, name, inside)


async def pay(app: Any, name: str) -> dict[str, Any]:
    """Call the tool; returns the payload of its answer."""
    call = app.gateway.admit(caller=EVE, name="bank__pay", arguments={"name": name})
    answer: dict[str, Any] = msgspec.json.decode((await app.gateway.call(call)).payload)
    return answer


async def live(url: str, effects: Path, step: str, name: str) -> None:
    """Ask, vote, and call again; die on the way."""
    async with open_app(config_of(url), plugins=[bank(effects, step)]) as app:
        asked = await pay(app, name)
        when, _, what = step.partition(":")
        if when == "inside":
            _kill_inside(what)
        elif when in ("before", "after") and what != "effect":
            _kill_around(what, when)
        elif step == "random":
            threading.Timer(random.random() * 0.02, die).start()
        approvals: Approvals = app.service(Approvals)
        await approvals.vote(parse_round_id(asked["error"]["details"]["round_id"]), "approve", by=OPERATOR)
        await pay(app, name)
        if step == "random":
            await anyio.sleep(1)


def main() -> None:
    for line in sys.stdin:
        url, effects, step, name = line.rstrip("\n").split("\t")
        if (child := os.fork()) == 0:
            anyio.run(live, url, Path(effects), step, name, backend_options={"use_uvloop": True})
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
