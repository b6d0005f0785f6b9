"""A gateway that records calls in a session of the trail, and is killed at a random moment.

Reads `url folder delay` from stdin, forks a child that is killed with SIGKILL after that many seconds of calls, and prints how
the child ended: one process that has everything loaded makes hundreds of deaths cheap.
"""

import os
import signal
import sys
import threading
from pathlib import Path

import anyio
import msgspec

from toolpost import Context, Plugin
from toolpost.app import open_app
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.parts.trail.service import Thought, Trail
from toolpost.parts.trail.settings import TRAIL, TrailSettings
from toolpost.settings import Config
from toolpost.settings.model import PluginSettings, StoreSettings

EVE = Caller(id=CallerId("eve"), transport="memory", session="eve-1")


def config_of(url: str, folder: Path) -> Config:
    config = Config(
        store=StoreSettings(url=url),
        plugins=PluginSettings(bundled=["trail"], installed=False),
        project=str(folder),
    )
    return TRAIL.put(config, TrailSettings(sessions="all"))


def shop(folder: Path) -> Plugin:
    """Write a line for each purchase, in one write: what is in the file has happened."""
    plugin = Plugin("shop", version="1.0.0")

    @plugin.tool
    async def buy(number: int, ctx: Context) -> int:
        """Buy something."""
        with (folder / "effects").open("a") as file:
            file.write(f"{ctx.call_id}\n")
        await anyio.sleep(0.001 * (number % 3))
        return number

    return plugin


async def live(url: str, folder: Path, delay_s: float) -> None:
    """Call the tool, three at a time, decide and seal, until killed."""
    async with open_app(config_of(url, folder), plugins=[shop(folder)]) as app:
        trail: Trail = app.service(Trail)
        threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGKILL)).start()

        async def buy(start: int) -> None:
            for number in range(start, start + 100_000):
                call = app.gateway.admit(caller=EVE, name="shop__buy", arguments={"number": number})
                answer = msgspec.json.decode((await app.gateway.call(call)).payload)
                assert answer["ok"], answer

        async def decide() -> None:
            while True:
                thought = Thought(type="decision", task_id=None, agent_id="e", content="go on")
                session, _ = await trail.record(EVE, thought, None)
                await anyio.sleep(0.005)
                await trail.seal(session)

        async with anyio.create_task_group() as tasks:
            for start in range(3):
                tasks.start_soon(buy, start * 100_000)
            tasks.start_soon(decide)


def main() -> None:
    for line in sys.stdin:
        url, folder, delay_s = line.rstrip("\n").split("\t")
        if (child := os.fork()) == 0:
            try:
                anyio.run(live, url, Path(folder), float(delay_s), backend_options={"use_uvloop": True})
            finally:
                os._exit(3)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
