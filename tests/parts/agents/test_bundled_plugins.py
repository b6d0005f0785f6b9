"""The plugins that come where an agent is configured: through MCP's own client, and through a real agent in its turn."""

import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from mcp import Client

from tests.parts.agents.asking import ADA, BOB, asked, at_work
from tests.proofs import proves
from tests.waiting import until
from tests.ways import IN_MEMORY, STATELESS
from toolpost.app import App, open_app, open_http
from toolpost.base.caller import Principal, Scope
from toolpost.base.events import event
from toolpost.base.ids import ThreadId
from toolpost.parts.agents.plugins.schedule import decode_principal, encode_principal
from toolpost.parts.agents.settings import ALL_AGENTS, AgentSettings, AllAgentsSettings
from toolpost.parts.agents.testing import acp_agent_command
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings
from toolpost.store.key_values import Item
from toolpost.testing import assert_each_argument_matters, conversations_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

COMMAND, *ARGS = acp_agent_command()
CONFIG = msgspec.structs.replace(IN_MEMORY, parts={"agents": {"script": AgentSettings(command=COMMAND, args=ARGS)}})


@asynccontextmanager
async def opened(config: Config = CONFIG, mode: str = STATELESS) -> AsyncIterator[tuple[App, Client]]:
    async with open_app(config) as app, open_http(app) as url, Client(url, mode=mode) as client:
        yield app, client


async def used(client: Client, name: str, **arguments: Any) -> Any:
    """Return what a tool gives, or the error object."""
    answer = await client.call_tool(name, arguments)
    told = answer.structured_content or json.loads(answer.content[0].text)  # type: ignore[union-attr]
    return told["data"] if told["ok"] else told["error"]


async def used_by_agent(app: App, thread: ThreadId, name: str, **arguments: Any) -> Any:
    """Have the agent of a thread use a tool, and return what it was given."""
    ended = await asked(app, thread, f"call {name} {json.dumps(arguments)}")
    told = json.loads(ended.text)
    return told["data"] if told["ok"] else told["error"]


@proves("history__threads", "limit")
@proves("history__search", "query", "limit")
@proves("history__read", "thread", "after", "limit")
async def test_each_argument_of_the_history_matters() -> None:
    async with opened() as (app, client):
        threads = [await conversations_of(app).create_thread(ADA, title=title) for title in ("one", "two")]
        for thread in threads:
            await asked(app, thread.id, "say blue door")
        await assert_each_argument_matters(client, "history__threads", base={}, changed={"limit": 1})
        await assert_each_argument_matters(
            client, "history__search", base={"query": "blue"}, changed={"query": "say", "limit": 1}
        )
        await assert_each_argument_matters(
            client,
            "history__read",
            base={"thread": threads[0].id},
            changed={"thread": threads[1].id, "after": 1, "limit": 1},
        )


@pytest.mark.parametrize("mode", ["legacy", STATELESS])
async def test_history_is_searched_and_read_by_whoever_led_it(mode: str) -> None:
    async with opened(mode=mode) as (app, client):
        mine = await conversations_of(app).create_thread(ADA, title="colours")
        await asked(app, mine.id, "say the door is Blue today")
        foreign = await conversations_of(app).create_thread(BOB, title="secret")
        await conversations_of(app).handle_message(BOB, foreign.id, "say blue is the secret")

        assert [thread["title"] for thread in await used(client, "history__threads")] == ["colours"]
        found = await used(client, "history__search", query="DOOR blue")
        assert [(m["role"], m["seq"]) for m in found] == [("assistant", 2), ("user", 1)]
        assert await used(client, "history__search", query="secret") == []
        read = await used(client, "history__read", thread=mine.id, after=1)
        assert [m["text"] for m in read] == ["the door is Blue today"]
        assert (await used(client, "history__read", thread=foreign.id))["code"] == "NOT_FOUND"
        assert (await used(client, "history__search", query=""))["code"] == "INVALID_PARAMS"


@proves("tasks__add", "title", "notes", "after")
@proves("tasks__list", "state", "ready")
@proves("tasks__update", "task", "title", "state", "notes", "after")
@proves("tasks__remove", "task")
async def test_each_argument_of_the_tasks_matters() -> None:
    async with opened() as (_, client):
        one, two = [(await used(client, "tasks__add", title=title))["id"] for title in ("one", "two")]
        await assert_each_argument_matters(
            client,
            "tasks__add",
            base={"title": "three"},
            changed={"title": "four", "notes": "n", "after": [one]},
            shown=lambda task: {**task, "id": None},
        )
        await assert_each_argument_matters(client, "tasks__list", base={}, changed={"state": "done", "ready": True})
        await assert_each_argument_matters(
            client,
            "tasks__update",
            base={"task": one},
            changed={"task": two, "title": "first", "state": "doing", "notes": "n", "after": [two]},
        )
        await used(client, "tasks__update", task=one, after=[])
        others = [task["id"] for task in await used(client, "tasks__list") if task["id"] != two]
        missing = await used(client, "tasks__remove", task="k-nothing")
        removed = await used(client, "tasks__remove", task=two)
        left = [task["id"] for task in await used(client, "tasks__list")]

    assert (missing["code"], removed["id"]) == ("NOT_FOUND", two)
    assert left == others


async def test_tasks_wait_for_others_and_never_for_themselves() -> None:
    async with opened() as (_, client):
        first = await used(client, "tasks__add", title="dig")
        second = await used(client, "tasks__add", title="plant", after=[first["id"]])
        third = await used(client, "tasks__add", title="water", after=[second["id"]])

        assert [task["title"] for task in await used(client, "tasks__list", ready=True)] == ["dig"]
        circle = await used(client, "tasks__update", task=first["id"], after=[third["id"]])
        assert circle["code"] == "INVALID_REQUEST"
        assert circle["details"]["cycle"] == [first["id"], third["id"], second["id"], first["id"]]
        alone = await used(client, "tasks__update", task=first["id"], after=[first["id"]])
        assert alone["details"]["cycle"] == [first["id"], first["id"]]
        assert (await used(client, "tasks__add", title="x", after=["k-nothing"]))["code"] == "NOT_FOUND"
        assert (await used(client, "tasks__remove", task=first["id"]))["code"] == "INVALID_REQUEST"

        await used(client, "tasks__update", task=first["id"], state="done")
        assert [task["title"] for task in await used(client, "tasks__list", ready=True)] == ["plant"]
        await used(client, "tasks__remove", task=third["id"])
        assert [task["title"] for task in await used(client, "tasks__list")] == ["dig", "plant"]


@pytest.mark.parametrize("gateways", [1, 2])
async def test_two_changes_at_once_close_no_circle(tmp_path: Path, gateways: int) -> None:
    config = msgspec.structs.replace(CONFIG, store=StoreSettings(url=f"sqlite:{tmp_path / 'store.db'}"))
    refusals: list[str] = []

    async def put_after(client: Client, task: str, other: str) -> None:
        told = await used(client, "tasks__update", task=task, after=[other])
        refusals.extend([told["code"]] if "code" in told else [])

    async with opened(config) as (_, one), opened(config) as (_, two):
        for _ in range(5):
            dig, sow = [(await used(one, "tasks__add", title=title))["id"] for title in ("dig", "sow")]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(put_after, one, dig, sow)
                tasks.start_soon(put_after, one if gateways == 1 else two, sow, dig)

            after = {task["id"]: task["after"] for task in await used(one, "tasks__list")}
            assert after[dig] == [] or after[sow] == []
    assert len(refusals) >= 5
    assert set(refusals) == {"INVALID_REQUEST"}


@proves("schedule__add", "prompt", "cron", "at", "timezone")
@proves("schedule__list")
@proves("schedule__remove", "id")
async def test_each_argument_of_the_schedule_matters() -> None:
    async with opened() as (app, client):
        thread = (await conversations_of(app).create_thread(ADA)).id
        base = {"prompt": "say hi", "cron": "0 9 1 1 *", "timezone": "Asia/Tokyo"}
        at = f"{datetime.now(UTC).year + 1}-06-01T12:00:00"
        added = [
            await used_by_agent(app, thread, "schedule__add", **arguments)
            for arguments in (
                base,
                base | {"prompt": "say bye"},
                base | {"cron": "0 9 2 1 *"},
                base | {"timezone": "America/Lima"},
                {"prompt": "say hi", "at": at, "timezone": "Asia/Tokyo"},
            )
        ]
        missing = await used(client, "schedule__remove", id="s-nothing")
        removed = await used(client, "schedule__remove", id=added[1]["id"])
        left = {each["id"] for each in await used(client, "schedule__list")}

    assert missing["code"] == "NOT_FOUND"
    assert [each["prompt"] for each in added[:2]] == ["say hi", "say bye"]
    assert [each["next_at"][4:] for each in added] == [
        *["-01-01T09:00:00+09:00"] * 2,
        "-01-02T09:00:00+09:00",
        "-01-01T09:00:00-05:00",
        "-06-01T12:00:00+09:00",
    ]
    assert removed["id"] == added[1]["id"]
    assert left == {each["id"] for each in added} - {added[1]["id"]}


async def test_a_scheduled_prompt_comes_by_itself_after_a_restart_too(tmp_path: Path) -> None:
    config = msgspec.structs.replace(CONFIG, store=StoreSettings(url=f"sqlite:{tmp_path / 'store.db'}"))
    async with opened(config) as (app, client):
        thread = await conversations_of(app).create_thread(ADA)
        await asked(app, thread.id, "say ready")
        soon = (datetime.now(UTC) + timedelta(seconds=5)).isoformat()
        added = await used_by_agent(app, thread.id, "schedule__add", prompt="say good morning", at=soon)
        daily = await used_by_agent(
            app, thread.id, "schedule__add", prompt="say hi", cron="0 9 * * MON-FRI", timezone="Europe/Berlin"
        )
        assert "T09:00:00+0" in daily["next_at"]
        assert [each["id"] for each in await used(client, "schedule__list")] == [added["id"], daily["id"]]
    if (left_s := datetime.fromisoformat(soon).timestamp() - time.time()) > 0:
        await anyio.sleep(left_s)

    async with opened(config) as (app, client):

        async def has_come() -> bool:
            said = [m.text for m in await conversations_of(app).read_messages(ADA, thread.id)]
            return said[-2:] == ["say good morning", "good morning"]

        await until(has_come)
        assert [each["id"] for each in await used(client, "schedule__list")] == [daily["id"]]
        await used(client, "schedule__remove", id=daily["id"])
        assert await used(client, "schedule__list") == []


def test_a_schedule_keeps_every_limit_of_its_caller() -> None:
    scope = Scope(tags=frozenset({"a"}), tools=("x__*",), is_read_only=True, confirmed=frozenset({"github"}))
    standing = msgspec.json.decode(msgspec.json.encode(encode_principal(Principal(caller=ADA.caller, scopes=(scope,)))))
    item = Item(owner=ADA.caller.id, id="s-1", value={"standing": standing})

    assert decode_principal(item).scopes == (scope,)


async def test_bad_schedules_are_refused_with_the_reason() -> None:
    async with opened() as (app, client):
        thread = (await conversations_of(app).create_thread(ADA)).id
        for wrong, said in (
            ({"cron": "61 * * * *"}, "not a cron expression"),
            ({"cron": "* * * * * *"}, "five fields"),
            ({"cron": "0 0 30 2 *"}, "30 2"),
            ({"at": "tomorrow"}, "not a valid time"),
            ({"at": "2001-01-01"}, "has passed"),
            ({"at": "0001-01-01T00:00:00+14:00"}, "has passed"),
            ({"at": "9999-12-31T23:59:59-12:00"}, "ten years ahead"),
            ({}, "either `cron` or `at`"),
            ({"cron": "* * * * *", "at": "2090-01-01"}, "either `cron` or `at`"),
            ({"cron": "* * * * *", "timezone": "Mars"}, "time zone"),
        ):
            refused = await used_by_agent(app, thread, "schedule__add", prompt="say hi", **wrong)
            assert refused["code"] == "INVALID_REQUEST"
            assert said in refused["message"]

        assert await used(client, "schedule__list") == []
        outside = await used(client, "schedule__add", prompt="say hi", cron="* * * * *")
        assert "Only an agent in a conversation" in outside["message"]
        assert (await used(client, "schedule__remove", id="s-nothing"))["code"] == "NOT_FOUND"


@proves("delegate__start", "work", "agent", "timeout_s", "max_tools")
@proves("delegate__wait", "id", "timeout_s")
@proves("delegate__cancel", "id")
async def test_each_argument_of_work_that_is_started_matters() -> None:
    use = 'call time__current_time {"timezone": "UTC"}'
    async with opened() as (app, _):
        thread = (await conversations_of(app).create_thread(ADA)).id
        ends = []
        for arguments in ({"work": "say yes"}, {"work": "say x", "agent": "scrip"}, {"work": use, "max_tools": 0}):
            started = await used_by_agent(app, thread, "delegate__start", **arguments)
            ends.append(await used_by_agent(app, thread, "delegate__wait", id=started["id"]))
        limited = await used_by_agent(app, thread, "delegate__start", work="hang", timeout_s=0.3)
        late = await used_by_agent(app, thread, "delegate__wait", id=limited["id"], timeout_s=15)
        one, two = [await used_by_agent(app, thread, "delegate__start", work="hang") for _ in range(2)]
        began = time.monotonic()
        waited = await used_by_agent(app, thread, "delegate__wait", id=one["id"], timeout_s=0.1)
        waited_s = time.monotonic() - began
        cancelled = await used_by_agent(app, thread, "delegate__cancel", id=one["id"])
        other = await used_by_agent(app, thread, "delegate__wait", id=two["id"], timeout_s=0.1)
        last = await used_by_agent(app, thread, "delegate__cancel", id=two["id"])

    assert (last["id"], last["state"]) == (two["id"], "cancelled")
    assert [end["answer"] for end in ends] == ["yes", "", ""]
    assert "scrip" in ends[1]["problem"]
    assert ends[2]["problem"] == "It used tools more than 0 times."
    assert late["state"] == "failed"
    assert (waited["state"], waited["id"], waited_s < 60) == ("running", one["id"], True)
    assert (cancelled["state"], cancelled["id"]) == ("cancelled", one["id"])
    assert (other["state"], other["id"]) == ("running", two["id"])


@proves("delegate__run", "work", "agent", "timeout_s", "max_tools")
async def test_work_is_delegated_within_limits() -> None:
    async with opened() as (app, client):
        thread = (await conversations_of(app).create_thread(ADA)).id
        done = await used_by_agent(app, thread, "delegate__run", work="say all done")
        assert (done["state"], done["answer"]) == ("done", "all done")
        read = await used(client, "history__read", thread=done["thread"])
        assert [m["text"] for m in read] == ["say all done", "all done"]

        with anyio.fail_after(30):
            slow = await used_by_agent(app, thread, "delegate__run", work="hang", timeout_s=0.3)
        assert slow["state"] == "failed"
        greedy = await used_by_agent(
            app, thread, "delegate__run", work='call time__current_time {"timezone": "UTC"}', max_tools=0
        )
        assert greedy["problem"] == "It used tools more than 0 times."
        deep = await used_by_agent(app, thread, "delegate__run", work='call delegate__run {"work": "say deeper"}')
        assert "cannot be delegated again" in deep["answer"]
        nobody = await used_by_agent(app, thread, "delegate__run", work="x", agent="scrip")
        assert nobody["problem"] == "Unknown agent `scrip`. Hint: did you mean `script`?"
        assert "Only an agent" in (await used(client, "delegate__run", work="say x"))["message"]


async def test_delegated_work_is_bounded_in_number_and_can_be_cancelled() -> None:
    async with opened() as (app, _):
        thread = (await conversations_of(app).create_thread(ADA)).id
        started = [await used_by_agent(app, thread, "delegate__start", work="hang") for _ in range(4)]
        assert (await used_by_agent(app, thread, "delegate__start", work="hang"))["code"] == "QUEUE_OVERLOADED"
        waited = await used_by_agent(app, thread, "delegate__wait", id=started[0]["id"], timeout_s=0.1)
        assert waited["state"] == "running"
        for each in started:
            assert (await used_by_agent(app, thread, "delegate__cancel", id=each["id"]))["state"] == "cancelled"

        async def has_ended() -> bool:
            return not conversations_of(app).runs

        await until(has_ended)
        assert (await used_by_agent(app, thread, "delegate__start", work="say x"))["state"] == "running"
        assert (await used_by_agent(app, thread, "delegate__cancel", id="d-nothing"))["code"] == "NOT_FOUND"


async def test_nothing_is_delegated_when_every_session_is_at_work() -> None:
    config = ALL_AGENTS.put(CONFIG, AllAgentsSettings(sessions=2))
    async with opened(config) as (app, _):
        one, two = [(await conversations_of(app).create_thread(ADA)).id for _ in range(2)]
        alone = await asked(app, one, 'call delegate__run {"work": "say done"}')
        busy = await at_work(app, two, "hang")
        refused = await asked(app, one, 'call delegate__run {"work": "say done"}')
        busy.stop("cancelled", "enough")
        await busy.hooks_done.wait()

    assert '"answer":"done"' in alone.text
    assert "QUEUE_OVERLOADED" in refused.text
    assert "All agent sessions are busy." in refused.text


async def test_cancelling_a_turn_cancels_what_it_delegated() -> None:
    async with opened() as (app, _):
        thread = (await conversations_of(app).create_thread(ADA)).id
        await conversations_of(app).start_message(ADA, thread, 'call delegate__run {"work": "hang"}')

        async def is_at_work() -> bool:
            return len(conversations_of(app).runs) == 2

        await until(is_at_work)
        await conversations_of(app).cancel(ADA, thread)

        async def has_ended() -> bool:
            return not conversations_of(app).runs

        await until(has_ended)


@proves("logs__query", "level", "thread", "trace", "text", "limit")
async def test_each_argument_of_the_log_matters() -> None:
    log = logging.getLogger("toolpost.proof")
    async with opened() as (_, client):
        event(log, logging.WARNING, "proof one", thread="t-1", trace="r-1")
        event(log, logging.ERROR, "proof two", thread="t-2", trace="r-2")
        await assert_each_argument_matters(
            client,
            "logs__query",
            base={"text": "proof"},
            changed={"level": "error", "thread": "t-1", "trace": "r-2", "text": "proof one", "limit": 1},
        )


async def test_the_log_is_queried() -> None:
    async with opened() as (app, client):
        thread = (await conversations_of(app).create_thread(ADA)).id
        failed = await asked(app, thread, "crash")
        assert failed.state == "failed"

        found = await used(client, "logs__query", level="warning", thread=thread)
        assert found
        assert all(entry["fields"]["thread"] == thread for entry in found)
        assert await used(client, "logs__query", thread="t-nothing") == []


async def test_without_agents_nothing_of_this_is_listed() -> None:
    async with opened(IN_MEMORY) as (_, client):
        listed = {tool.name.partition("__")[0] for tool in (await client.list_tools()).tools}

    assert "time" in listed
    assert not listed & {"history", "tasks", "schedule", "delegate", "logs"}
