"""Commands that attack what watches them: whatever they kill or stop, nothing of them is left. Linux alone promises it.

Victims run as the same user as their watchmen, the reaper and the guard above it, so they may send them any signal.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import psutil
import pytest

from tests.hostile.attacks import attack
from tests.processes.test_tree import NAMES, VICTIMS, family, pids_in, survivors, wait_for_death, wait_until_up
from toolpost.processes.tree import open_process

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper"),
    pytest.mark.wire,
]

KILL, STOP = signal.SIGKILL, signal.SIGSTOP

ATTACKS = {
    "reaper killed": [("reaper", KILL)],
    "reaper stopped": [("reaper", STOP)],
    "guard killed": [("guard", KILL)],
    "guard stopped, reaper killed": [("guard", STOP), ("reaper", KILL)],
    "guard stopped, reaper stopped": [("guard", STOP), ("reaper", STOP)],
    "reaper asked to leave": [("reaper", signal.SIGTERM)],
    "guard asked to leave": [("guard", signal.SIGTERM)],
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where victims write their pids; one that a failed test left alive ends with it."""
    yield tmp_path
    for name in survivors(tmp_path):
        os.kill(pids_in(tmp_path)[name], KILL)


def watchmen(folder: Path) -> dict[str, psutil.Process]:
    reaper = psutil.Process(pids_in(folder)["child"]).parent()
    assert reaper is not None
    guard = reaper.parent()
    assert guard is not None
    return {"reaper": reaper, "guard": guard}


def strike(folder: Path, kind: str) -> dict[str, psutil.Process]:
    found = watchmen(folder)
    for who, number in ATTACKS[kind]:
        found[who].send_signal(number)
        with suppress(psutil.NoSuchProcess):  # A reaper may be dead before it is seen to be stopped.
            while number == STOP and found[who].status() != psutil.STATUS_STOPPED:
                time.sleep(0.001)
    return found


@pytest.mark.parametrize("kind", ATTACKS)
@attack(
    "server",
    "kills or stops the process that is to end it, after starting daemons that hide from every search",
    "on Linux a second watcher ends the whole tree by the end of the call or of the server",
)
async def test_nothing_survives_an_attack_on_a_watchman(
    kind: str, folder: Path, left: Callable[[], set[psutil.Process]]
) -> None:
    async with open_process(family(folder), grace_s=0.1) as process:
        await anyio.to_thread.run_sync(wait_until_up, folder)
        assert survivors(folder) == NAMES
        strike(folder, kind)
        with anyio.fail_after(30):
            await process.end()

    assert not survivors(folder)
    assert not left()


@pytest.mark.parametrize("kind", ["reaper killed", "reaper stopped", "guard killed"])
@attack(
    "server",
    "kills or stops the process that is to end it, and goes on working",
    "the attack is noticed at once: the server ends, with everything that it started, and its calls fail",
)
async def test_an_attack_ends_the_attacker_at_once(kind: str, folder: Path) -> None:
    async with open_process(family(folder), grace_s=0.1) as process:
        await anyio.to_thread.run_sync(wait_until_up, folder)
        strike(folder, kind)
        with anyio.fail_after(30):
            returncode = await process.wait()
        await anyio.to_thread.run_sync(wait_for_death, folder)

        assert returncode == -KILL
        assert not survivors(folder)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind, marks=() if kind in ("reaper stopped", "guard stopped, reaper stopped") else pytest.mark.soak
        )
        for kind in ATTACKS
    ],
)
@attack(
    "server",
    "stops or kills its watcher, and the gateway is killed with SIGKILL while that lasts",
    "on Linux the other watcher notices the gateway's death, or is woken up by the kernel, and ends the whole tree",
)
def test_nothing_survives_an_attack_and_the_gateway_s_death(kind: str, folder: Path) -> None:
    gateway = subprocess.Popen([sys.executable, str(VICTIMS / "gateway.py"), str(folder), "asyncio"])
    wait_until_up(folder)
    found = strike(folder, kind)
    gateway.kill()
    gateway.wait()
    wait_for_death(folder)

    assert not survivors(folder)
    _, alive = psutil.wait_procs(found.values(), timeout=5)
    assert not alive


@attack(
    "server",
    "attaches a debugger to its watchers, so that they look alive and do nothing",
    "watchers cannot be traced by their own user, only by root",
)
async def test_a_watchman_belongs_to_root_in_proc(folder: Path) -> None:
    # Says nothing where the tests run as root, who owns its processes anyway, and may trace everything.
    async with open_process(family(folder), grace_s=0.1):
        await anyio.to_thread.run_sync(wait_until_up, folder)
        owners = {name: Path(f"/proc/{process.pid}/mem").stat().st_uid for name, process in watchmen(folder).items()}

    assert owners == {"reaper": 0, "guard": 0}
