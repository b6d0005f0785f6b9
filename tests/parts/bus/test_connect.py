"""Client mode: what an agent's configuration starts, forwarding to the server of its project."""

import json
import os
import signal
import subprocess
from pathlib import Path

import anyio
import psutil
import pytest

from tests.loaded import forked
from tests.parts.bus.projects import ERAS, Agent, Project
from tests.waiting import until, wait_until
from tests.ways import TOOLPOST
from toolpost.parts.bus.commands.project import ProjectServer
from toolpost.testing import error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

NAMES = [
    *("ack_task", "get_status", "get_task", "list_tasks", "poll_task", "register_worker", "reset_worker"),
    *("retry_task", "submit_task", "task_failed", "wait_tasks", "worker_done"),
]


def listed(project: Project, *command: str, version: str | None) -> bytes:
    """Return the answer to `tools/list`, to the byte."""
    with project.peer(*command) as peer:
        if version is None:
            peer.start("tools/list", id="list")
        else:
            peer.shake_hands(version)
            peer.send({"jsonrpc": "2.0", "id": "list", "method": "tools/list"})
        assert peer.process.stdout is not None
        return peer.process.stdout.readline()


@pytest.mark.parametrize(
    "version", [None, *(pytest.param(old, marks=pytest.mark.soak) for old in ("2024-11-05", "2025-11-25"))]
)
def test_a_client_lists_what_the_server_lists_byte_for_byte(project: Project, version: str | None) -> None:
    project.make()
    of_the_server = listed(project, "serve", "--stdio", version=version)
    of_a_client = listed(project, "connect", version=version)

    assert of_a_client == of_the_server
    tools = {tool["name"]: tool for tool in json.loads(of_a_client)["result"]["tools"]}
    assert list(tools) == NAMES
    assert tools["register_worker"]["inputSchema"]["required"] == ["name"]


async def test_an_agent_needs_no_token_and_bad_input_is_told_apart(project: Project) -> None:
    project.make()
    for mode in ERAS:
        async with project.client(mode=mode) as agent:
            name = (await agent.ask("register_worker", name=f"ada-{mode}"))["worker"]
            await agent.ask("submit_task", bead_id=mode, payload={"n": [1]})
            task = await agent.work(name)
            done = await agent.ask("worker_done", bead_id=mode, result="fine")
            again = await agent.ask("worker_done", bead_id=mode, result="fine")
            nameless = error_of(await agent.try_("register_worker"))
            unknown = error_of(await agent.try_("poll_task", name="nobody"))

        assert task is not None
        assert task["payload"] == {"n": [1]}
        assert done == again == {"success": True, "bead_id": mode, "worker": name}
        assert (nameless["code"], unknown["code"]) == ("INVALID_PARAMS", "NOT_FOUND")
        assert unknown["hint"] == "`register_worker` first"


async def test_a_lease_is_renewed_while_the_process_lives_and_lost_when_it_is_paused(project: Project) -> None:
    project.make(lease_s=4.0)
    with project.serve(retry_s=0.1), project.peer("connect") as paused:
        paused.request("tools/call", {"name": "register_worker", "arguments": {"name": "paused"}})
        paused.request("tools/call", {"name": "submit_task", "arguments": {"bead_id": "a"}})
        paused.request("tools/call", {"name": "poll_task", "arguments": {"name": "paused"}})
        paused.request("tools/call", {"name": "ack_task", "arguments": {"name": "paused", "bead_id": "a"}})
        await anyio.sleep(6)  # longer than the lease
        kept = project.json("tasks", "a")
        paused.process.send_signal(signal.SIGSTOP)
        async with project.client() as agent:
            await agent.ask("register_worker", name="other")
            task = await agent.work("other", timeout_ms=40_000)
            paused.process.send_signal(signal.SIGCONT)
            late = paused.request("tools/call", {"name": "worker_done", "arguments": {"bead_id": "a"}})
            await agent.ask("worker_done", bead_id="a")

    assert (kept["state"], kept["attempt"]) == ("running", 1)
    assert task is not None
    assert task["attempt"] == 2
    assert late["result"]["isError"]
    assert json.loads(late["result"]["content"][0]["text"])["code"] == "STALE_LEASE"


async def test_two_workers_of_one_process_do_not_get_each_other_s_token(project: Project) -> None:
    project.make()
    # Both steps of the second worker fit in on a busy machine.
    with project.serve(offer_s=3.0):
        async with project.client() as agent:
            for name in ("a", "b"):
                await agent.ask("register_worker", name=name)
            await agent.ask("submit_task", bead_id="t")
            first = (await agent.ask("poll_task", name="a"))["task"]
            second = await agent.work("b", timeout_ms=1e300)
            stale = error_of(await agent.try_("worker_done", bead_id="t", lease_token=first["lease_token"]))
            assert second is not None
            done = await agent.ask("worker_done", bead_id="t")

    assert stale["code"] == "STALE_LEASE"
    assert done["worker"] == "b"


async def until_polling(agent: Agent, count: int) -> None:
    with anyio.fail_after(30):
        while (await agent.ask("get_status"))["polling_workers"] != count:
            await anyio.sleep(0.05)


async def test_who_goes_away_during_a_poll_gives_its_offer_back(project: Project) -> None:
    project.make()
    async with project.client() as agent:
        await agent.ask("register_worker", name="here")
        for way, number in (("end", None), ("term", signal.SIGTERM), ("kill", signal.SIGKILL)):
            with project.peer("connect") as gone:
                gone.request("tools/call", {"name": "register_worker", "arguments": {"name": way}})
                gone.start("tools/call", {"name": "poll_task", "arguments": {"name": way}}, id="poll")
                await until_polling(agent, 1)
                if number is not None:
                    gone.process.send_signal(number)
            await until_polling(agent, 0)
            await agent.ask("submit_task", bead_id=way)
            task = await agent.work("here", timeout_ms=2_000)
            assert task is not None, way
            assert task["bead_id"] == way
            await agent.ask("worker_done", bead_id=way)


async def test_what_was_offered_and_not_begun_goes_back_at_the_end(project: Project) -> None:
    project.make()
    async with project.client() as agent:
        await agent.ask("register_worker", name="ada")
        await agent.ask("submit_task", bead_id="t")
        await agent.ask("poll_task", name="ada")
    after = project.json()

    assert after["workers"] == []
    assert [task["bead_id"] for task in after["queue"]] == ["t"]


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)], ids=["killed", "ended"]
)
async def test_a_server_that_goes_away_is_started_again_and_nothing_is_lost(project: Project, number: int) -> None:
    project.make()
    async with project.client() as agent:
        await agent.ask("register_worker", name="ada")
        assert project.server is not None
        first = project.server["pid"]
        polled: list[dict[str, object]] = []

        async def poll() -> None:
            polled.append(await agent.ask("poll_task", name="ada", timeout_ms=40_000))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poll)
            await anyio.sleep(0.5)  # the promise holds in either order; this one is the likelier
            os.kill(first, number)
            await until(lambda: not psutil.pid_exists(first) or is_zombie(first))
            await agent.ask("submit_task", bead_id="t")
        await agent.ask("ack_task", name="ada", bead_id="t")
        assert project.server is not None
        os.kill(project.server["pid"], number)
        done = await agent.ask("worker_done", bead_id="t")

    assert polled[0]["task"]["bead_id"] == "t"  # type: ignore[index]
    assert done["success"]
    assert project.json("tasks", "t")["attempt"] == 1


@pytest.mark.soak
async def test_ten_clients_at_once_find_one_server(project: Project) -> None:
    project.make()
    folder = project.root / "deep" / "down"
    folder.mkdir(parents=True)
    answers: list[object] = []

    async def one(number: int) -> None:
        async with project.client(cwd=folder if number % 2 else project.root) as agent:
            answers.append(await agent.ask("register_worker", name="ada"))

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(one, number)

    assert len(answers) == 10
    assert (project.root / ".toolpost" / "bus-server.log").read_text().count("serves 12 tools") == 1
    assert not (folder / ".toolpost").exists()
    assert (project.root / ".toolpost" / ".gitignore").read_text() == "*\n"
    assert (project.root / ".toolpost" / "bus-server.json").stat().st_mode & 0o077 == 0


async def test_a_linked_work_tree_is_the_same_project(project: Project, tmp_path: Path) -> None:
    project.make()
    git = ["git", "-C", str(project.root), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(tmp_path / "linked")], check=True)
    async with project.client() as agent, project.client(cwd=tmp_path / "linked") as other:
        await agent.ask("submit_task", bead_id="t")
        status = await other.ask("get_status")

    assert status["queue"] == ["t"]


STALE = '{"pid": 1, "bornAt": 0, "url": "http://127.0.0.1:1/mcp", "project": "x"}'


@pytest.mark.parametrize("word", ["", "{", "[]", "{}", STALE])
def test_a_stale_word_of_a_server_is_not_believed(project: Project, word: str) -> None:
    project.make()
    (project.root / ".toolpost").mkdir()
    (project.root / ".toolpost" / "bus-server.json").write_text(word)

    found = ProjectServer(project.root).find_running()
    (project.root / ".toolpost" / "bus-server.json").unlink()

    assert found is None


async def test_a_stale_word_of_a_server_is_cleaned_up(project: Project) -> None:
    project.make()
    (project.root / ".toolpost").mkdir()
    (project.root / ".toolpost" / "bus-server.json").write_text(STALE)
    async with project.client() as agent:
        status = await agent.ask("get_status")

    assert status["queue"] == []
    assert project.server is not None
    assert project.server["pid"] != 1


async def test_a_server_that_nobody_uses_ends(project: Project) -> None:
    project.make()
    with project.serve(idle_s=4.0):
        async with project.client() as agent:
            await agent.ask("get_status")
            wait_until(lambda: project.server is None)
            again = await agent.ask("submit_task", bead_id="t")

    assert again["queued"]


@pytest.mark.soak
async def test_a_server_that_nobody_can_find_any_more_ends(project: Project) -> None:
    project.make()
    with project.serve(idle_s=10.0):
        async with project.client() as agent:
            await agent.ask("get_status")
            assert project.server is not None
            lost = project.server["pid"]
            (project.root / ".toolpost" / "bus-server.json").unlink()
            await until(lambda: not psutil.pid_exists(lost) or is_zombie(lost))
            submitted = await agent.ask("submit_task", bead_id="t")

    assert submitted["queued"]


def is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_a_server_that_cannot_start_says_why(project: Project) -> None:
    project.make()
    (project.root / "toolpost.toml").write_text('[plugins]\ndisable = ["bus"]\n')
    async with project.client() as agent:
        failure = error_of(await agent.try_("get_status"))

    assert failure["code"] == "CAPABILITY_MISSING"
    assert "bus-server.log" in failure["hint"]


@pytest.mark.soak
async def test_people_see_start_and_stop_servers(project: Project) -> None:
    project.make()
    before = project.run("status")
    async with project.client() as agent:
        await agent.ask("get_status")
        running = project.json("status")
        listed = project.json("status", "--all")
        assert project.server is not None
        token = project.server["token"]
        stopped = project.json("stop")
        after = project.run("status")

    assert before.returncode == after.returncode == 1
    assert running["running"]
    assert listed == {key: running[key] for key in ("project", "url", "pid", "version")}
    assert token not in json.dumps([running, listed])
    assert stopped == {"project": str(project.root), "stopped": True, "pid": running["pid"]}


@pytest.mark.parametrize(
    "command",
    [["bus", "serve"], pytest.param(["serve", "--with", "bus"], marks=pytest.mark.soak)],
    ids=["bus alone", "in a gateway"],
)
async def test_a_server_elsewhere_is_reached_by_its_url(project: Project, command: list[str]) -> None:
    project.make()
    project.environment["TOOLPOST_TOKEN"] = "open sesame"
    arguments = [TOOLPOST, *command, "--listen", "127.0.0.1:0", "--json"]
    server = forked.start(
        arguments, cwd=project.root, env=project.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert server.stdout is not None
    try:
        url = json.loads(server.stdout.readline())["url"]
        async with project.client(url) as agent:
            submitted = await agent.ask("submit_task", bead_id="t")
        project.environment["TOOLPOST_TOKEN"] = "another"
        async with project.client(url) as agent:
            stranger = error_of(await agent.try_("get_status"))
    finally:
        server.terminate()
        server.wait(20)
        server.stdout.close()

    assert submitted["queued"]
    assert stranger["code"] == "UNAUTHORIZED"
    assert "TOOLPOST_TOKEN" in stranger["hint"]
    assert project.server is None
