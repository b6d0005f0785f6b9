"""However a build ends, no process is left and the old index answers: killed, cancelled, out of time, overloaded."""

import itertools
import json
import random
import time
from contextlib import suppress
from pathlib import Path

import anyio
import psutil
import pytest

from tests.parts.workspace.repos import USERS, build, first, make_repo, workspace_app, workspace_client, write
from tests.waiting import until
from tests.ways import QUICK_WAYS, StdioPeer, Way, stdio_peer
from tests.wire.test_cancellation import cancel_request
from toolpost.parts.workspace.spec import spec_of
from toolpost.testing import data_of, error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


def builders() -> list[psutil.Process]:
    """Return the processes that build, of this test alone: those below this one."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "toolpost.parts.workspace" in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


async def builder() -> psutil.Process:
    with anyio.fail_after(60):
        while True:
            for process in builders():
                with suppress(psutil.NoSuchProcess):
                    # The reaper has the same words on its command line, and the command itself below it.
                    if process.children() == [] or "-P" in process.cmdline()[:2]:
                        return process
            await anyio.sleep(0.005)


async def nobody_left() -> None:
    await until(lambda: not builders())


def many(root: Path, count: int = 300, *, size: int = 5) -> None:
    write(root, {f"many/m{n}.py": USERS.replace("User", f"Thing{n}") * size for n in range(count)})


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.soak)])
async def test_killed_again_and_again_the_old_index_answers(kills: int, tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    rng = random.Random(8)
    async with workspace_client(root) as client:
        await build(client)
        many(root)
        killed = 0
        for _ in range(kills):
            async with anyio.create_task_group() as tasks:

                async def kill() -> None:
                    process = await builder()
                    await anyio.sleep(rng.uniform(0, 0.5))
                    process.kill()

                tasks.start_soon(kill)
                answer = await client.call_tool("workspace__index_build", {"repo": root.name})
            killed += answer.is_error or False
            if answer.is_error:
                assert error_of(answer)["code"] == "HANDLER_ERROR"
            hit = await first(client, "UserStore")

            assert (hit["path"], hit["isDefinition"]) == ("src/users.py", True)
        await nobody_left()
        whole = await build(client)

    # On a busy machine some builds are done before they are met.
    assert killed >= max(1, kills // 4)
    assert whole["files"] == 303
    assert len(list(spec_of(root, ["."]).repositories[0].index_dir.glob("generation-*"))) == 1


def builders_beneath(gateway: int) -> list[psutil.Process]:
    """Return the processes that build beneath a gateway."""
    found = []
    for process in psutil.Process(gateway).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "toolpost.parts.workspace" in process.cmdline():
                found.append(process)
    return found


def test_cancelled_from_outside_it_ends_within_a_second(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    cancelled = set()
    with stdio_peer(cwd=root, arguments=("--with", "workspace")) as peer:
        peer.call("workspace__check_status")
        # A phase may be over before the cancellation is read: then it is tried again, with all to do again.
        # The last one is the shortest, and is tried once.
        for attempt, phase in (*itertools.product(range(12), ("scan", "parse")), (12, "write")):
            if phase in cancelled:
                continue
            many(root, 600, size=5 + attempt)
            token = {"progressToken": phase}
            key = f"{phase}-{attempt}"
            peer.start("tools/call", {"name": "workspace__index_build", "arguments": {}}, id=key, meta=token)
            if (answer := until_phase(peer, phase)) is None:
                peer.send(cancel_request(key))
                started = time.monotonic()
                answer, _ = answer_of(peer)
                took_s = time.monotonic() - started

                assert took_s < 20, "a second, and some for a busy machine"
            assert answer["id"] == key
            if not answer["result"].get("isError"):
                continue
            cancelled.add(phase)
            assert json.loads(answer["result"]["content"][0]["text"])["code"] == "CANCELLED"
            until = time.monotonic() + 30
            while builders_beneath(peer.process.pid) and time.monotonic() < until:
                time.sleep(0.05)
            assert builders_beneath(peer.process.pid) == []
        many(root, 600, size=4)
        peer.start(
            "tools/call", {"name": "workspace__index_build", "arguments": {}}, id="last", meta={"progressToken": "p"}
        )
        answer, notes = answer_of(peer)

    assert cancelled >= {"scan", "parse"}
    assert answer["result"]["structuredContent"]["repositories"][0]["files"] == 603
    phases = [next(iter(note["_meta"].values()))["phase"] for note in notes]
    assert phases == sorted(phases, key=["scan", "parse", "write"].index)
    assert phases
    values = [note["progress"] for note in notes]
    assert values == sorted(set(values))


def until_phase(peer: StdioPeer, phase: str) -> dict | None:  # type: ignore[type-arg]
    """Read until a note says that this phase has come; returns the answer if that comes before."""
    while True:
        message = peer.receive()
        if "method" not in message:
            return message  # type: ignore[no-any-return]
        if next(iter(message["params"]["_meta"].values()))["phase"] == phase:
            return None


def answer_of(peer: StdioPeer) -> tuple[dict, list]:  # type: ignore[type-arg]
    notes = []
    while True:
        message = peer.receive()
        if "method" in message:
            notes.append(message["params"])
        else:
            return message, notes


@pytest.mark.parametrize("way", QUICK_WAYS[:2], ids=str)
async def test_out_of_time_it_ends_with_its_process(way: Way, tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    many(root, 1_000)
    async with workspace_client(root, way=way, build_limit_s=0.9) as client:
        error = error_of(await client.call_tool("workspace__index_build", {}))
        await nobody_left()

    assert (error["code"], error["timeoutMs"]) == ("TOOL_TIMEOUT", 900)


async def test_searches_go_on_while_it_builds(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    async with workspace_client(root) as client:
        await build(client)
        many(root)
        seen: set[str] = set()
        memory = psutil.Process().memory_info().rss
        async with anyio.create_task_group() as tasks:

            async def look() -> None:
                while True:
                    seen.add((await first(client, "UserStore"))["path"])
                    await anyio.sleep(0.01)

            tasks.start_soon(look)
            built = await build(client)
            grown = psutil.Process().memory_info().rss - memory
            tasks.cancel_scope.cancel()
        new = await first(client, "Thing299Store")

    assert seen == {"src/users.py"}
    assert built["added"] == 300
    assert new["path"] == "many/m299.py"
    assert grown < 32 * 1024 * 1024


async def test_more_than_may_be_in_flight_are_turned_away(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    codes: list[str] = []
    async with workspace_client(root, in_flight=2) as client:
        limits = data_of(await client.call_tool("workspace__check_status", {}))["limits"]

        async def ask() -> None:
            answer = await client.call_tool("workspace__index_status", {})
            codes.append(error_of(answer)["code"] if answer.is_error else "ok")

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(ask)
        after = await client.call_tool("workspace__index_status", {})

    assert limits["inFlight"] == 2
    assert set(codes) == {"ok", "QUEUE_OVERLOADED"}
    assert not after.is_error
    assert spec_of(root, ["."]).in_flight == 64


async def test_builds_that_wait_are_bounded_and_can_be_called_off(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    many(root, 400)
    async with workspace_app(root) as app:
        way = QUICK_WAYS[1]
        async with way.client_of(app) as client:
            results: list[str] = []

            async def ask() -> None:
                answer = await client.call_tool("workspace__index_build", {})
                results.append(error_of(answer)["code"] if answer.is_error else "ok")

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await builder()
                for _ in range(64 + 3):
                    tasks.start_soon(ask)
                await until(lambda: len(results) >= 3)
                refused = list(results)
                tasks.cancel_scope.cancel()
            await nobody_left()
            await until(lambda: not app.gateway.in_flight)
            again = data_of(await client.call_tool("workspace__index_build", {}))

    assert refused == ["QUEUE_OVERLOADED"] * 3
    assert again["repositories"][0]["files"] == 403
