"""Callers who share a bus and do not trust each other: nobody takes, ends or resets what is another's."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from mcp import Client

from tests.hostile.attacks import attack
from tests.parts.bus.projects import Project as BusProject
from tests.postgres import Postgres
from tests.ways import OURS, STATELESS
from tests.wire.callers import ERAS, Project, client_of
from toolpost.app import App, open_app, open_http
from toolpost.app.callers import read_callers
from toolpost.audit import AuditFilter
from toolpost.base.caller import Caller
from toolpost.base.ids import META_KEY, CallerId, ThreadId
from toolpost.parts.bus.service import Bus
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings
from toolpost.testing import data_of, error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

WHERE = pytest.mark.parametrize(
    ("config", "mode"), [*(("sqlite", era) for era in ERAS), ("postgres", STATELESS)], indirect=["config"]
)
CALLERS = ("planner", "ada", "eve", "boss\nadmin = true")


@dataclass(frozen=True)
class Member:
    """One caller, through a real client with a token of its own."""

    client: Client

    async def ask(self, tool: str, **arguments: Any) -> Any:
        return data_of(await self.client.call_tool(f"bus__{tool}", arguments))

    async def refused(self, tool: str, **arguments: Any) -> str:
        """Call what must fail; returns the code."""
        error = error_of(await self.client.call_tool(f"bus__{tool}", arguments))
        assert error["code"] != "FORBIDDEN" or error["hint"]
        return str(error["code"])

    async def work(self, name: str = "w") -> dict[str, Any]:
        """Take a task and begin it, as the seed's agents do: without a token."""
        task: dict[str, Any] = (await self.ask("poll_task", name=name))["task"]
        await self.ask("ack_task", name=name, bead_id=task["bead_id"])
        return task


@dataclass(frozen=True)
class Company:
    """A gateway, and everybody who may come in."""

    app: App
    url: str
    planner: Member
    ada: Member
    eve: Member
    boss: Member


@pytest.fixture
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Config:
    url = f"sqlite:{tmp_path / 'store.db'}"
    if getattr(request, "param", "") == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        url = server.new_url()
    return msgspec.structs.replace(Project(tmp_path).write(*CALLERS).load(), store=StoreSettings(url=url))


@asynccontextmanager
async def opened(config: Config, mode: str = STATELESS) -> AsyncIterator[Company]:
    config = msgspec.structs.replace(config, plugins=OURS)
    async with open_app(config) as app, open_http(app) as url, AsyncExitStack() as stack:
        names = [caller.partition("\n")[0] for caller in CALLERS]
        members = [Member(await stack.enter_async_context(client_of(url, f"{name}-token", mode))) for name in names]
        yield Company(app, url, *members)


async def begun(company: Company, task: str = "t") -> dict[str, Any]:
    """Have ada's worker `w` do a task of the planner."""
    await company.ada.ask("register_worker", name="w")
    await company.planner.ask("submit_task", bead_id=task)
    return await company.ada.work()


@attack(
    "caller",
    "polls, acknowledges, renews and resets under the name of another caller's worker",
    "`FORBIDDEN`; the worker keeps its poll and its task",
)
@WHERE
async def test_a_worker_is_its_own_caller_s(config: Config, mode: str) -> None:
    async with opened(config, mode) as company:
        ada, eve = company.ada, company.eve
        await ada.ask("register_worker", name="w")
        taken = await eve.ask("register_worker", name="w")
        polled: list[Any] = []

        async def poll() -> None:
            polled.append(await ada.ask("poll_task", name="w"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poll)
            with anyio.fail_after(30):
                while (await eve.ask("get_status"))["polling_workers"] != 1:
                    await anyio.sleep(0.01)
            codes = [
                await eve.refused("poll_task", name="w", timeout_ms=0),
                await eve.refused("reset_worker", worker_name="w"),
                # Who goes away has its worker forgotten; not another's.
                await _refused_with(eve, "reset_worker", {"leaves": True}, worker_name="w"),
            ]
            await company.planner.ask("submit_task", bead_id="t")
        codes += [
            await eve.refused("ack_task", name="w", bead_id="t"),
            await eve.refused("ack_task", name="w", bead_id="t", lease_token=polled[0]["task"]["lease_token"]),
        ]
        await ada.ask("ack_task", name="w", bead_id="t")
        codes.append(await eve.refused("ack_task", name="w", bead_id="t"))  # a renewal
        done = await ada.ask("worker_done", bead_id="t")

    assert taken["worker"] == "w-1"
    assert codes == ["FORBIDDEN"] * 6
    assert done == {"success": True, "bead_id": "t", "worker": "w"}


async def _refused_with(member: Member, tool: str, facts: dict[str, Any], **arguments: Any) -> str:
    answer = await member.client.call_tool(f"bus__{tool}", arguments, meta={META_KEY: facts})  # type: ignore[arg-type]
    return str(error_of(answer)["code"])


@attack(
    "caller",
    "ends another caller's task, with no token and with a stolen one",
    "`FORBIDDEN`, also to an administrator; only the caller whose worker has the task ends it, and its result is kept",
)
@WHERE
async def test_only_the_caller_that_has_a_task_ends_it(config: Config, mode: str) -> None:
    async with opened(config, mode) as company:
        await company.eve.ask("register_worker", name="eve")
        codes, token = [], ""
        for task, is_acknowledged in (("offered", False), ("running", True)):
            await company.ada.ask("register_worker", name=task)
            await company.planner.ask("submit_task", bead_id=task)
            token = (await company.ada.ask("poll_task", name=task))["task"]["lease_token"]
            if is_acknowledged:
                await company.ada.ask("ack_task", name=task, bead_id=task)
            for other in (company.eve, company.planner, company.boss):
                for shown in ({}, {"lease_token": token}):
                    codes.append(await other.refused("worker_done", bead_id=task, result="mine", **shown))
                    codes.append(await other.refused("task_failed", bead_id=task, reason="mine", **shown))
        await company.ada.ask("worker_done", bead_id="running", result="ada's")
        late = [
            await company.eve.refused("worker_done", bead_id="running", result="ada's"),
            await company.eve.refused("worker_done", bead_id="running", lease_token=token),
        ]
        ended, _ = await company.app.service(Bus).history("running")  # type: ignore[arg-type]

    assert codes == ["FORBIDDEN"] * 24
    assert late == ["FORBIDDEN"] * 2
    assert (ended.state, ended.result_json) == ("done", "ada's")


@attack(
    "caller",
    "ends a task a second time with another result, or as failed after it was done",
    "`INVALID_REQUEST`, and the first result is kept; only the same word again is a success",
)
async def test_a_second_result_is_no_success(config: Config) -> None:
    async with opened(config) as company:
        held = await begun(company)
        ada = company.ada
        await ada.ask("worker_done", bead_id="t", result={"a": 1, "b": [2]})
        same = [
            await ada.ask("worker_done", bead_id="t", result={"b": [2], "a": 1}),
            await ada.ask("worker_done", bead_id="t", lease_token=held["lease_token"]),
        ]
        codes = [
            await ada.refused("worker_done", bead_id="t", result={"a": 1, "b": [3]}),
            await ada.refused("worker_done", bead_id="t", result=None),
            await ada.refused("worker_done", bead_id="t", result=True, lease_token=held["lease_token"]),
            await ada.refused("task_failed", bead_id="t", reason="no"),
        ]
        await company.planner.ask("submit_task", bead_id="u")
        await ada.work()
        await ada.ask("task_failed", bead_id="u", reason="no time")
        failed = await ada.ask("task_failed", bead_id="u", reason="no time")
        codes.append(await ada.refused("task_failed", bead_id="u", reason="no money"))
        kept = [(await company.app.service(Bus).history(task))[0] for task in ("t", "u")]  # type: ignore[arg-type]

    assert same == [{"success": True, "bead_id": "t", "worker": "w"}] * 2
    assert failed["reason"] == "no time"
    assert codes == ["INVALID_REQUEST"] * 5
    assert [(task.state, task.result_json, task.reason) for task in kept] == [
        ("done", {"a": 1, "b": [2]}, None),
        ("blocked", None, "no time"),
    ]


@attack(
    "caller",
    "looks for lease tokens in the answers of every tool of the bus",
    "a token is in the answers to `poll_task` and `ack_task` of the caller that has the task, and nowhere else",
)
async def test_a_token_goes_to_the_caller_that_has_the_task_alone(config: Config) -> None:
    async with opened(config) as company:
        heard: list[Any] = []
        held = await begun(company)
        for member in (company.planner, company.eve, company.boss):
            heard += [await member.ask("get_status")]
            answers = [
                await member.client.call_tool(f"bus__{tool}", arguments)
                for tool, arguments in (
                    ("poll_task", {"name": "w", "timeout_ms": 0}),
                    ("ack_task", {"name": "w", "bead_id": "t"}),
                    ("submit_task", {"bead_id": "t"}),
                    ("worker_done", {"bead_id": "t"}),
                    ("task_failed", {"bead_id": "t", "reason": "no"}),
                    ("get_task", {"bead_id": "t"}),
                    ("wait_tasks", {"bead_ids": ["t"], "timeout_ms": 0}),
                    ("list_tasks", {}),
                )
            ]
            heard += [answer.model_dump_json() for answer in answers]
        retried = await company.planner.ask("retry_task", bead_id="t")
        again = (await company.ada.ask("poll_task", name=retried.get("worker", "w")))["task"]
        audited = await company.app.store.audit.entries(AuditFilter(), limit=1_000)
        heard += [retried, *map(repr, audited)]

    text = json.dumps(heard)
    assert again["lease_token"] != held["lease_token"]
    assert held["lease_token"] not in text
    assert again["lease_token"] not in text


@attack(
    "caller",
    "registers a worker with the registration key that another caller used",
    "a worker of its own, under another name",
)
async def test_a_registration_is_not_taken_over(config: Config) -> None:
    async with opened(config) as company:
        names = []
        for member in (company.ada, company.ada, company.eve):
            answer = await member.client.call_tool(
                "bus__register_worker",
                {"name": "w"},
                meta={META_KEY: {"once": "k"}},  # type: ignore[arg-type]
            )
            names.append(data_of(answer)["worker"])

    assert names == ["w", "w", "w-1"]


@attack(
    "caller",
    "has tasks of others done again, which throws their results away",
    "`FORBIDDEN`; its submitter may, the caller whose worker has or ended it, and administrators",
)
async def test_who_may_retry_and_reset(config: Config) -> None:
    async with opened(config) as company:
        await begun(company)
        codes = [await company.eve.refused("retry_task", bead_id="t")]
        for member in (company.planner, company.ada, company.boss):
            for ends in (False, True):
                if ends:
                    await company.ada.ask("worker_done", bead_id="t", result=1)
                    codes.append(await company.eve.refused("retry_task", bead_id="t"))
                await member.ask("retry_task", bead_id="t")
                await company.ada.work()
        codes.append(await company.planner.refused("reset_worker", worker_name="w"))
        by_admin = await company.boss.ask("reset_worker", worker_name="w")
        by_owner = await company.ada.ask("reset_worker", worker_name="w")

    assert codes == ["FORBIDDEN"] * 5
    assert (by_admin["previous_task"], by_owner["previous_task"]) == ("t", None)


@WHERE
async def test_bare_calls_go_on_working_after_a_reset_and_a_retry(config: Config, mode: str) -> None:
    async with opened(config, mode) as company:
        await begun(company)
        await company.boss.ask("reset_worker", worker_name="w")
        after_reset = await company.ada.work()
        done = [await company.ada.ask("worker_done", bead_id="t") for _ in range(2)]
        await company.planner.ask("retry_task", bead_id="t")
        await company.ada.work()
        await company.planner.ask("retry_task", bead_id="t")
        # It may go to any worker of the same caller, and counts for that one.
        await company.ada.ask("register_worker", name="other")
        name = (await company.ada.ask("get_status"))["workers"]
        has_it = next(one["name"] for one in name if one["pending_task"] == "t")
        await company.ada.work(has_it)
        done.append(await company.ada.ask("worker_done", bead_id="t"))

    assert after_reset["bead_id"] == "t"
    assert done == [{"success": True, "bead_id": "t", "worker": "w"}] * 2 + [
        {"success": True, "bead_id": "t", "worker": has_it}
    ]


async def test_a_caller_is_the_same_at_every_gateway(postgres: Postgres, tmp_path: Path) -> None:
    config = Project(tmp_path).write(*CALLERS).load()
    config = msgspec.structs.replace(config, store=StoreSettings(url=postgres.new_url()))
    async with opened(config) as one, opened(config) as other:
        await begun(one)
        forbidden = await other.eve.refused("worker_done", bead_id="t")
        done = await other.ada.ask("worker_done", bead_id="t")
        again = await one.ada.ask("worker_done", bead_id="t")

    assert forbidden == "FORBIDDEN"
    assert done == again == {"success": True, "bead_id": "t", "worker": "w"}


@attack(
    "agent",
    "resets another caller's worker, in a session that an administrator leads",
    "`FORBIDDEN`: an agent acts as its caller, without the rights of an administrator",
)
async def test_an_agent_of_an_administrator_is_none(config: Config) -> None:
    async with opened(config) as company:
        await begun(company)
        await company.boss.ask("register_worker", name="b")
        boss = Caller(id=CallerId("boss"), transport="agent", thread=ThreadId("t-1"), is_admin=True)
        with company.app.tokens.lend(boss, ()) as door:
            assert door is not None
            async with client_of(door.url, door.token, STATELESS) as client:
                agent = Member(client)
                code = await agent.refused("reset_worker", worker_name="w")
                own = await agent.ask("reset_worker", worker_name="b")

    assert code == "FORBIDDEN"
    assert own["success"]


@attack(
    "caller",
    "goes on in a session that it opened while it was an administrator",
    "it is none any more as soon as the configuration says so",
)
async def test_a_session_does_not_keep_an_administrator_s_rights(config: Config) -> None:
    async with opened(config, "legacy") as company:
        await begun(company)
        await company.boss.ask("reset_worker", worker_name="w")
        callers = {name: msgspec.structs.replace(caller, admin=False) for name, caller in config.callers.items()}
        company.app.roster.replace(read_callers(msgspec.structs.replace(config, callers=callers)))
        code = await company.boss.refused("reset_worker", worker_name="w")

    assert code == "FORBIDDEN"


async def test_clients_of_bus_connect_are_the_caller_of_their_token(config: Config, tmp_path: Path) -> None:
    def project(name: str) -> BusProject:
        made = BusProject(
            root=tmp_path / f"{name}-agent", state=tmp_path, environment={"TOOLPOST_TOKEN": f"{name}-token"}
        )
        made.root.mkdir()
        return made

    async with opened(config) as company:
        async with project("ada").client(company.url) as ada, project("eve").client(company.url) as eve:
            await ada.ask("register_worker", name="w")
            await company.planner.ask("submit_task", bead_id="t")
            await ada.work("w")
            forbidden = error_of(await eve.try_("worker_done", bead_id="t"))
            await company.boss.ask("reset_worker", worker_name="w")
            await ada.work("w")
            done = await ada.ask("worker_done", bead_id="t")

    assert forbidden["code"] == "FORBIDDEN"
    assert done == {"success": True, "bead_id": "t", "worker": "w"}
