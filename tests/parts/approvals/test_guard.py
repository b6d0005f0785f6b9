"""Calls that fall under a rule run once, after they were approved, whatever way they come."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp import Client

from tests.discovery.test_modes import with_servers
from tests.endpoints.tasks.asking import Tasks
from tests.parts.approvals.bank import approvals_of, bank, cast, expire, refused, requiring, served
from tests.upstreams.behind import hostile
from tests.waiting import until
from tests.ways import BOTH, QUICK_WAYS, STATELESS, Way
from toolpost import CallRequest, CallResult, Next, Plugin
from toolpost.app import loading, open_app
from toolpost.audit import AuditFilter
from toolpost.authoring.middleware import ToolInfo
from toolpost.base.caller import Caller, Scope
from toolpost.base.ids import META_KEY, CallerId, PluginName, ToolName
from toolpost.contracts.errors import BadConfiguration, StoreUnavailable
from toolpost.discovery.catalog import Catalog
from toolpost.discovery.views import FilteredProvider
from toolpost.endpoints.auth.roster import CallerTable, KnownCaller
from toolpost.manifest import bundled_parts
from toolpost.middleware.fast_path import FastPath
from toolpost.middleware.pipeline import _guards_call
from toolpost.parts.approvals import part as part_module
from toolpost.parts.approvals import vrf
from toolpost.parts.approvals.draw import order
from toolpost.parts.approvals.rounds import Round, Status
from toolpost.parts.approvals.rules import ApprovalRules
from toolpost.parts.approvals.service import parse_round_id
from toolpost.parts.approvals.settings import ApprovalSettings, RuleSettings
from toolpost.providers import ProvidedTool
from toolpost.settings import Config
from toolpost.settings.model import ModeSettings, PluginSettings, TaskSettings
from toolpost.testing import data_of, error_of

pytestmark = pytest.mark.anyio


def naming(found: str) -> Any:
    """The `_meta` of a call that names its round."""
    return {META_KEY: {"round_id": found}}


async def status_of(app: Any, round_id: str) -> Status:
    return (await approvals_of(app).read(parse_round_id(round_id))).status


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_an_approved_call_runs_once(way: Way) -> None:
    paid: list[int] = []
    async with served(requiring(), bank(paid), way=way) as (app, client):
        first = await refused(client, amount=5)
        pending = await refused(client, amount=5)
        await cast(app, first["details"]["round_id"])
        done = data_of(await client.call_tool("bank__pay", {"amount": 5}))
        again = await refused(client, amount=5)
        free = data_of(await client.call_tool("bank__balance", {}))
        ended = await status_of(app, first["details"]["round_id"])

    assert (done, paid, free) == (1, [5], 5)
    assert pending["details"]["round_id"] == first["details"]["round_id"]
    assert "0 of 1" in first["message"]
    assert first["hint"] == "call again with the same arguments once it is approved; may vote: cli"
    assert again["details"]["round_id"] != first["details"]["round_id"]
    assert "its approval is used" in again["message"]
    assert ended is Status.DONE


async def test_on_both_stores(url: str) -> None:
    paid: list[int] = []
    async with served(requiring(url=url), bank(paid)) as (app, client):
        found = (await refused(client, amount=5))["details"]["round_id"]
        await cast(app, found)
    async with served(requiring(url=url), bank(paid)) as (app, client):
        done = data_of(await client.call_tool("bank__pay", {"amount": 5}))

    assert done == 1, "an approval survives a restart"


async def test_changed_arguments_and_a_changed_contract_are_refused(url: str) -> None:
    paid: list[int] = []
    async with served(requiring(url=url), bank(paid)) as (app, client):
        found = (await refused(client, amount=5))["details"]["round_id"]
        await cast(app, found)
        other = await refused(client, amount=6)
    async with served(requiring(url=url), bank(paid, currency="USD")) as (app, client):
        changed = await refused(client, amount=5)
        named = await client.call_tool("bank__pay", {"amount": 5}, meta=naming(found))

    assert paid == []
    assert f"Round {found} is approved, for other arguments" in other["message"]
    assert f"Round {found} is approved, for other arguments or an earlier contract" in changed["message"]
    assert "the contract of the tool" in error_of(named)["message"]


async def test_a_call_may_name_its_round() -> None:
    paid: list[int] = []
    async with served(requiring(), bank(paid)) as (app, client):

        async def pay(amount: int, named: str) -> Any:
            return await client.call_tool("bank__pay", {"amount": amount}, meta=naming(named))

        found = (await refused(client, amount=5))["details"]["round_id"]
        early = error_of(await pay(5, found))
        await cast(app, found)
        changed = error_of(await pay(6, found))
        unknown = error_of(await pay(5, "99"))
        nonsense = error_of(await pay(5, "../etc"))
        done = data_of(await pay(5, found))
        used = error_of(await pay(5, found))
        rounds = await approvals_of(app).list_rounds(only_open=False)

    assert "0 of 1" in early["message"]
    assert "is for another call" in changed["message"]
    assert (unknown["code"], nonsense["code"]) == ("NOT_FOUND", "NOT_FOUND")
    assert (done, paid) == (1, [5])
    assert "was used already" in used["message"]
    assert len(rounds) == 1, "a call that names its round opens none"


async def test_denial_and_expiry() -> None:
    paid: list[int] = []
    async with served(requiring(expires_s=60), bank(paid)) as (app, client):
        found = (await refused(client, amount=5))["details"]["round_id"]
        await cast(app, found, "deny")
        denied = await refused(client, amount=5)
        late = (await refused(client, amount=6))["details"]["round_id"]
        await cast(app, late)
        await expire(app.store)
        expired = await refused(client, amount=6)
        over = await refused(client, amount=5)

    assert paid == []
    assert (denied["details"]["round_id"], denied["message"]) == (
        found,
        f"This call was denied in round {found}, by cli.",
    )
    assert f"Round {late} expired" in expired["message"]
    assert over["details"]["round_id"] != found, "what was denied may be asked for again when its time is over"


async def test_a_failed_call_uses_its_approval() -> None:
    paid: list[int] = []
    async with served(requiring(), bank(paid)) as (app, client):
        found = (await refused(client, amount=13))["details"]["round_id"]
        await cast(app, found)
        failed = error_of(await client.call_tool("bank__pay", {"amount": 13}))
        again = await refused(client, amount=13)
        view = await approvals_of(app).read(parse_round_id(found))

    assert failed["code"] == "HANDLER_ERROR"
    assert (view.status, view.round.outcome) == (Status.FAILED, "HANDLER_ERROR")
    assert again["details"]["round_id"] != found
    assert paid == [13]


async def test_invalid_arguments_open_no_round() -> None:
    async with served(requiring(), bank([])) as (app, client):
        wrong = error_of(await client.call_tool("bank__pay", {"amount": "much"}))
        rounds = await approvals_of(app).list_rounds(only_open=False)

    assert wrong["code"] == "INVALID_PARAMS"
    assert rounds == []


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_call_may_wait_longer_than_its_tool_may_run(way: Way) -> None:
    paid: list[int] = []
    slow = Plugin("bank", version="1.0.0")

    @slow.tool(timeout_s=1.0)
    async def pay(amount: int) -> int:
        """Pay."""
        paid.append(amount)
        return amount

    messages: list[Any] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        messages.append(message)

    async with served(requiring(wait=True), slow, way=way) as (app, client):
        calling = asyncio.create_task(client.call_tool("bank__pay", {"amount": 5}, progress_callback=note))
        while not (rounds := await approvals_of(app).list_rounds(only_open=True)):
            await asyncio.sleep(0.01)
        (view,) = rounds
        await asyncio.sleep(1.2)  # what must not come would be here by now
        assert paid == []
        await cast(app, str(view.round.id))
        done = data_of(await asyncio.wait_for(calling, 30))

    assert (done, paid) == (5, [5])
    assert any(f"round {view.round.id}" in str(message) for message in messages)


async def test_a_waiting_call_is_told_of_denial_and_expiry() -> None:
    async with served(requiring(wait=True, expires_s=3), bank([])) as (app, client):
        calling = asyncio.create_task(client.call_tool("bank__pay", {"amount": 5}))
        while not (rounds := await approvals_of(app).list_rounds(only_open=True)):
            await asyncio.sleep(0.01)
        await cast(app, str(rounds[0].round.id), "deny")
        denied = error_of(await asyncio.wait_for(calling, 30))
        began = time.monotonic()
        expired = await refused(client, amount=6)

    assert "was denied" in denied["message"]
    assert "expired before the call ran" in expired["message"]
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    "change", ["nothing", "contract", "quarantine", "gone", "removed", "removed at once", "narrowed"]
)
async def test_what_changed_while_a_call_waited_is_not_called(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paid: list[int] = []
    ann, ben = KnownCaller(name="ann"), KnownCaller(name="ben")
    async with open_app(requiring(wait=True), plugins=[bank(paid)]) as app:
        app.roster.replace(CallerTable(callers=(ann, ben)))
        open_call = approvals_of(app).open_call

        async def open_and_remove(*subject: Any, **options: Any) -> Any:
            opened = await open_call(*subject, **options)
            app.roster.replace(CallerTable(callers=(ben,)))
            return opened

        if change == "removed at once":
            monkeypatch.setattr(approvals_of(app), "open_call", open_and_remove)
        caller = Caller(id=CallerId("ann"), transport="http")
        call = app.gateway.admit(caller=caller, name="bank__pay", arguments={"amount": 5})
        calling = asyncio.create_task(app.gateway.call(call))
        while not (rounds := await approvals_of(app).list_rounds(only_open=True)):
            await asyncio.sleep(0.01)
        tool = call.tool
        changed = replace(tool, contract=replace(tool.contract, aliases=(ToolName("bank__send"),)))
        match change:
            case "contract":
                app.gateway.catalog = catalog_with(tools=[changed])
            case "quarantine":
                app.gateway.catalog = catalog_with(quarantined=[tool])
            case "gone":
                app.gateway.catalog = catalog_with()
            case "removed":
                app.roster.replace(CallerTable(callers=(ben,)))
            case "narrowed":
                app.roster.replace(CallerTable(callers=(replace(ann, scope=Scope(tools=("other__*",))), ben)))
        view = await cast(app, str(rounds[0].round.id))
        answer = await calling
        after = await approvals_of(app).read(view.round.id)

    if change == "nothing":
        assert (answer.code, paid, after.status) == (None, [5], Status.DONE)
    else:
        assert (answer.code, paid) == ("FORBIDDEN", [])
        assert after.status is Status.APPROVED, "an approval that was not used can be used once all is as before"


def catalog_with(*, tools: Sequence[ProvidedTool] = (), quarantined: Sequence[ProvidedTool] = ()) -> Catalog:
    """A catalog of the bank with these tools."""
    return Catalog(
        [
            FilteredProvider(
                name=PluginName("bank"),
                tools={tool.contract.name: tool for tool in tools},
                quarantined={tool.contract.name: tool for tool in quarantined},
            )
        ]
    )


async def test_calls_that_wait_are_limited() -> None:
    config = requiring(wait=True)
    config = msgspec.structs.replace(config, limits=msgspec.structs.replace(config.limits, calls=2))
    async with open_app(config, plugins=[bank([])]) as app:
        caller = Caller(id=CallerId("ann"), transport="memory")
        calls = [
            app.gateway.admit(caller=caller, name="bank__pay", arguments={"amount": amount}) for amount in range(3)
        ]
        calling = [asyncio.create_task(app.gateway.call(call)) for call in calls]
        done, waiting = await asyncio.wait(calling, return_when=asyncio.FIRST_COMPLETED, timeout=30)
        for call in calls:
            call.cancel("the test is over")
        await asyncio.wait(waiting or calling)

    assert [task.result().code for task in done] == ["QUEUE_OVERLOADED"]


def test_a_guard_whose_filter_fails_applies(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        name = "broken"

        def applies_to_call(self, _call: Any) -> bool:
            raise RuntimeError("a bug")

    class AnyCall:
        id = "c1"

    assert _guards_call(Broken(), AnyCall())  # type: ignore[arg-type]
    assert "applies_to_call failed" in caplog.text


async def test_a_quarantined_tool_opens_no_round() -> None:
    async with served(requiring(), bank([])) as (app, client):
        app.gateway.catalog = catalog_with(quarantined=[app.gateway.catalog.find("bank__pay")])
        await refused(client, amount=5)
        rounds = await approvals_of(app).list_rounds(only_open=False)

    assert rounds == []


async def test_the_rounds_of_others_cannot_be_probed_by_naming_them() -> None:
    async with open_app(requiring(), plugins=[bank([])]) as app:
        answers = []
        for name, meta in (("ann", {}), ("eve", naming("1")), ("eve", naming("2"))):
            caller = Caller(id=CallerId(name), transport="memory")
            call = app.gateway.admit(caller=caller, name="bank__pay", arguments={"amount": 5}, meta=meta)
            answers.append((await app.gateway.call(call)).error)

    assert [getattr(error, "code", None) for error in answers] == ["FORBIDDEN", "NOT_FOUND", "NOT_FOUND"]
    assert str(answers[1]).replace("round 1", "round 2") == str(answers[2])


async def test_a_tool_that_a_group_runs_is_looked_up_too() -> None:
    async with open_app(requiring(), plugins=[bank([])]) as app:
        member = app.gateway.catalog.find("bank__pay")
    changed = replace(member, contract=replace(member.contract, aliases=(ToolName("bank__send"),)))
    group = replace(member, contract=replace(member.contract, name=ToolName("banks__pay")))

    assert catalog_with(tools=[replace(group, runs=(member,))]).provides(member)
    assert not catalog_with(tools=[replace(group, runs=(changed,))]).provides(member)
    assert not catalog_with(tools=[group]).provides(member)


async def test_two_equal_calls_that_wait_run_once() -> None:
    paid: list[int] = []
    async with served(requiring(wait=True), bank(paid)) as (app, client):
        calling = [asyncio.create_task(client.call_tool("bank__pay", {"amount": 5})) for _ in range(5)]
        while not (rounds := await approvals_of(app).list_rounds(only_open=True)):
            await asyncio.sleep(0.01)
        while app.gateway.in_flight < 5:
            await asyncio.sleep(0.01)
        await cast(app, str(rounds[0].round.id))
        answers = await asyncio.gather(*calling)

    assert paid == [5]
    assert sorted(bool(answer.is_error) for answer in answers) == [False, True, True, True, True]


async def test_a_call_that_comes_to_its_approval_after_the_first_has_ended_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paid: list[int] = []
    async with served(requiring(wait=True), bank(paid)) as (app, client):
        approvals = approvals_of(app)
        dispatch, has_first, both, first_is_done = approvals.dispatch, asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def dispatch_in_turn(*arguments: Any) -> Round:
            # Both calls have seen the approval when the first uses it; the second tries when the first has ended.
            if has_first.is_set():
                both.set()
                await first_is_done.wait()
            else:
                has_first.set()
                await both.wait()
            return await dispatch(*arguments)

        monkeypatch.setattr(approvals, "dispatch", dispatch_in_turn)
        calling = {asyncio.create_task(client.call_tool("bank__pay", {"amount": 5})) for _ in range(2)}
        await until(lambda: app.gateway.in_flight == 2)
        while not (rounds := await approvals.list_rounds(only_open=True)):
            await asyncio.sleep(0.01)
        await cast(app, str(rounds[0].round.id))
        done, waiting = await asyncio.wait(calling, return_when=asyncio.FIRST_COMPLETED)
        first_is_done.set()
        answers = [await each for each in (*done, *waiting)]

    assert paid == [5]
    assert [bool(answer.is_error) for answer in answers] == [False, True]
    assert "was used already" in error_of(answers[1])["message"]


async def test_a_cancelled_call_leaves_its_approval_to_the_next() -> None:
    paid: list[int] = []
    async with served(requiring(wait=True), bank(paid)) as (app, client):
        calling = asyncio.create_task(client.call_tool("bank__pay", {"amount": 5}))
        while not (rounds := await approvals_of(app).list_rounds(only_open=True)):
            await asyncio.sleep(0.01)
        calling.cancel()
        while app.gateway.in_flight:
            await asyncio.sleep(0.01)
        await cast(app, str(rounds[0].round.id))
        done = data_of(await client.call_tool("bank__pay", {"amount": 5}))

    assert (done, paid) == (1, [5])


async def test_automatic_eval_is_held_to_the_rules() -> None:
    paid: list[int] = []

    async def evaluate(client: Client) -> Any:
        return await client.call_tool("automatic_eval", {"toolName": "bank__pay", "arguments": {"amount": 5}})

    async with served(requiring(BOTH), bank(paid)) as (app, client):
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "automatic_eval" in listed
        error = error_of(await evaluate(client))
        await cast(app, error["details"]["round_id"])
        answer = await evaluate(client)

    assert not answer.is_error
    assert paid == [5]


async def test_the_tool_that_finds_tools_may_wait_for_its_approval() -> None:
    async with served(requiring(BOTH, tools=["automatic_mcp"], wait=True), bank([])) as (app, client):
        calling = asyncio.create_task(client.call_tool("automatic_mcp", {"query": "pay"}))
        while not (rounds := await approvals_of(app).list_rounds(only_open=True)):
            await asyncio.sleep(0.01)
        await cast(app, str(rounds[0].round.id))
        answer = await asyncio.wait_for(calling, 30)

    assert not answer.is_error, "it is in no catalog, and can be called all the same"


@pytest.mark.parametrize("waits", [False, True])
async def test_mcp_tasks_are_held_to_the_rules(waits: bool) -> None:
    paid: list[int] = []
    config = requiring(wait=waits)
    config = msgspec.structs.replace(config, tasks=TaskSettings(after_s=0))
    async with open_app(config, plugins=[bank(paid)]) as app:
        from toolpost.endpoints.memory import open_memory_endpoint

        tasks = Tasks()
        endpoint = open_memory_endpoint(app.call_handler, app.sdk)
        async with Client(endpoint, mode=STATELESS, extensions=[tasks]) as client:
            calling = asyncio.create_task(client.call_tool("bank__pay", {"amount": 5}))
            while not (rounds := await approvals_of(app).list_rounds(only_open=True)):
                await asyncio.sleep(0.01)
            if not waits:
                assert error_of(await calling)["code"] == "FORBIDDEN"
            assert paid == []
            await cast(app, str(rounds[0].round.id))
            done = await (calling if waits else client.call_tool("bank__pay", {"amount": 5}))

    assert data_of(done) == 1
    assert paid == [5]
    assert tasks.handles, "the calls were tasks"


async def test_the_bus_is_held_to_the_rules() -> None:
    async with served(requiring(tools=["bus__submit_task"])) as (app, client):
        found = (await refused(client, "bus__submit_task", bead_id="b-1"))["details"]["round_id"]
        before = data_of(await client.call_tool("bus__get_status", {}))
        await cast(app, found)
        after = data_of(await client.call_tool("bus__submit_task", {"bead_id": "b-1"}))

    assert before["queue"] == []
    assert after["queued"]


async def test_middleware_cannot_change_what_was_approved() -> None:
    paid: list[int] = []
    raised = [0]

    async def raise_amount(call: CallRequest, proceed: Next) -> CallResult:
        return await proceed(call.with_arguments({"amount": call.arguments["amount"] + raised[0]}))

    around = Plugin("around", middleware=[raise_amount])
    async with served(requiring(), bank(paid), around) as (app, client):
        found = (await refused(client, amount=5))["details"]["round_id"]
        await cast(app, found)
        raised[0] = 1_000
        other = await refused(client, amount=5)
        raised[0] = 0
        await client.call_tool("bank__pay", {"amount": 5})

    assert other["details"]["round_id"] != found, "voters see what the tool will get"
    assert paid == [5]


async def test_middleware_that_tries_twice_needs_two_approvals() -> None:
    paid: list[int] = []

    async def try_twice(call: CallRequest, proceed: Next) -> CallResult:
        await proceed(call)
        return await proceed(call)

    async with served(requiring(), bank(paid), Plugin("around", middleware=[try_twice])) as (app, client):
        found = (await refused(client, amount=5))["details"]["round_id"]
        await cast(app, found)
        await refused(client, amount=5)

    assert paid == [5]


@pytest.mark.parametrize("more", [0, 1_000])
async def test_middleware_that_tries_twice_at_once_runs_one_call(more: int) -> None:
    paid: list[int] = []
    delays = [0.0]

    async def try_at_once(call: CallRequest, proceed: Next) -> CallResult:
        async def try_later() -> CallResult:
            await asyncio.sleep(delays[0])
            return await proceed(call.with_arguments({"amount": call.arguments["amount"] + more}))

        results = await asyncio.gather(proceed(call), try_later(), return_exceptions=True)
        if isinstance(results[0], BaseException):
            raise results[0]
        return results[0]

    async with served(requiring(), bank(paid), Plugin("around", middleware=[try_at_once])) as (app, client):
        # The second attempt comes at various moments of the first one: while it is admitted, dispatched, or running.
        for amount in range(20, 30):
            delays[0] = 0.0
            found = (await refused(client, amount=amount))["details"]["round_id"]
            await cast(app, found)
            delays[0] = (amount - 20) * 0.0005
            await client.call_tool("bank__pay", {"amount": amount})
            assert await status_of(app, found) is Status.DONE

    assert paid == list(range(20, 30))


@pytest.mark.wire
@pytest.mark.parametrize(
    ("rule", "confirmed", "caught"),
    [
        ({"tools": ["up__*"]}, [], {"up__echo"}),
        ({"tools": ["*", "!up__*"]}, [], {"bank__pay", "bank__balance"}),
        ({"tags": ["money"]}, [], {"bank__pay", "bank__balance"}),
        ({"tags": ["far"]}, [], {"up__echo"}),
        ({"annotations": {"readOnlyHint": False}}, [], {"bank__pay", "up__echo"}),
        ({"annotations": {"destructiveHint": True}, "tools": ["up__*"]}, ["up"], {"up__echo"}),
        ({"tools": ["bank__*"], "annotations": {"readOnlyHint": True}}, [], {"bank__balance"}),
        ({"arguments": {"required": ["amount"], "properties": {"amount": {"minimum": 100}}}}, [], set()),
        ({"arguments": {"required": ["amount"], "properties": {"amount": {"minimum": 5}}}}, [], {"bank__pay"}),
    ],
)
async def test_what_rules_select(rule: dict[str, Any], confirmed: list[str], caught: set[str]) -> None:
    settings = ApprovalSettings(rules={"r": RuleSettings(**rule)})
    plugins = PluginSettings(bundled=["time", "approvals"], tags={"bank": ["money"]})
    modes = ModeSettings(confirmed=confirmed)
    config = msgspec.structs.replace(requiring(settings=settings), plugins=plugins, modes=modes)
    server = hostile(tags=frozenset({"far"}))
    calls: dict[str, dict[str, Any]] = {"bank__pay": {"amount": 5}, "bank__balance": {}, "up__echo": {"text": "hi"}}
    async with served(config, bank([]), servers=[server]) as (_, client):
        answers = {tool: await client.call_tool(tool, arguments) for tool, arguments in calls.items()}

    assert {tool for tool, answer in answers.items() if answer.is_error} == caught


@pytest.mark.parametrize(
    ("is_upstream", "confirmed", "hints", "is_caught"),
    [
        (True, [], {"readOnlyHint": True}, True),
        (True, ["up"], {"readOnlyHint": True}, False),
        (True, ["up"], {}, True),
        (True, ["other"], {"readOnlyHint": True}, True),
        (False, [], {"readOnlyHint": True}, False),
        (False, [], {}, True),
    ],
)
def test_hints_of_a_server_count_where_they_are_confirmed(
    is_upstream: bool, confirmed: list[str], hints: dict[str, bool], is_caught: bool
) -> None:
    """An unconfirmed server cannot talk its way out of a rule by calling its tools read-only."""
    rules = {"r": RuleSettings(annotations={"readOnlyHint": False})}
    tool = ToolInfo(name=ToolName("up__drop"), provider=PluginName("up"), is_upstream=is_upstream, annotations=hints)

    found = ApprovalRules(ApprovalSettings(rules=rules), lambda _: frozenset(), confirmed=confirmed)
    assert bool(found.for_tool(tool)) is is_caught


@pytest.mark.wire
async def test_one_setting_confirms_a_server_for_modes_and_for_rules(tmp_path: Path) -> None:
    rules = {"r": RuleSettings(tools=["*__look"], annotations={"readOnlyHint": False})}
    config = requiring(settings=ApprovalSettings(rules=rules))
    config = msgspec.structs.replace(config, modes=ModeSettings(confirmed=["good"]))
    config = with_servers(tmp_path, config, good=[], other=[])
    async with served(config) as (_, client):
        answers = {name: await client.call_tool(f"{name}__look", {}) for name in ("good", "other")}

    assert {name for name, answer in answers.items() if answer.is_error} == {"other"}


async def test_a_renamed_tool_stays_under_its_rule() -> None:
    paid: list[int] = []
    renamed = Plugin("bank", version="2.0.0")

    @renamed.tool(aliases=["pay"])
    async def transfer(amount: int) -> int:
        """Pay."""
        paid.append(amount)
        return amount

    async with served(requiring(tools=["bank__pay"]), renamed) as (_, client):
        await refused(client, "bank__pay", amount=5)
        await refused(client, "bank__transfer", amount=5)

    assert paid == []


def test_voting_needs_no_approval_and_a_server_of_that_name_does() -> None:
    rules = ApprovalRules(ApprovalSettings(rules={"all": RuleSettings()}), lambda _: frozenset())
    name, provider = ToolName("approvals__consensus_vote"), PluginName("approvals")

    assert rules.for_tool(ToolInfo(name=name, provider=provider, is_upstream=False)) == []
    assert rules.for_tool(ToolInfo(name=name, provider=provider, is_upstream=True))


@pytest.mark.wire
async def test_tools_that_no_rule_can_match_keep_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    start = FastPath.start

    def note(path: FastPath, call: Any, delivery: Any) -> bool:
        if is_sent := start(path, call, delivery):
            sent.append(call.tool.contract.name)
        return is_sent

    monkeypatch.setattr(FastPath, "start", note)
    config = requiring(tools=["up__pid"])
    async with served(config, servers=[hostile()], way=Way("http", STATELESS)) as (_, client):
        await client.call_tool("up__echo", {"text": "started"})
        sent.clear()
        await client.call_tool("up__echo", {"text": "hi"})
        await refused(client, "up__pid")

    assert sent == ["up__echo"]


@pytest.mark.wire
async def test_arguments_that_no_rule_matches_keep_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    start = FastPath.start

    def note(path: FastPath, call: Any, delivery: Any) -> bool:
        if is_sent := start(path, call, delivery):
            sent.append(call.arguments["text"])
        return is_sent

    monkeypatch.setattr(FastPath, "start", note)
    config = requiring(tools=["up__echo"], arguments={"properties": {"text": {"const": "pay"}}})
    async with served(config, servers=[hostile()], way=Way("http", STATELESS)) as (_, client):
        await client.call_tool("up__echo", {"text": "started"})
        sent.clear()
        await client.call_tool("up__echo", {"text": "hi"})
        await refused(client, "up__echo", text="pay")
        await client.call_tool("up__echo", {"text": "hi again"})

    assert sent == ["hi", "hi again"]


async def test_every_refusal_is_in_the_audit() -> None:
    async with served(requiring(), bank([])) as (app, client):
        found = (await refused(client, amount=5))["details"]["round_id"]
        await cast(app, found)
        await client.call_tool("bank__pay", {"amount": 5})
        entries = await app.store.audit.entries(AuditFilter(), limit=10)

    told = [(entry.entry.tool, entry.entry.outcome) for entry in entries]
    assert told == [("bank__pay", "refused"), ("approvals__quorum", "ok"), ("bank__pay", "ok")]


async def test_the_requester_may_not_vote_unless_the_rule_says_so() -> None:
    async with served(requiring(voters=["local"]), bank([])) as (_, client):
        alone = await refused(client, amount=5)
    async with served(requiring(voters=["local"], requester_may_vote=True), bank([])) as (_, client):
        found = (await refused(client, amount=5))["details"]["round_id"]
        voted = data_of(await client.call_tool("approvals__consensus_vote", {"round_id": found}))
        done = data_of(await client.call_tool("bank__pay", {"amount": 5}))

    assert "0 callers other than `local` may vote" in alone["message"]
    assert voted["level"] == "ABSOLUTE"
    assert done == 1


async def test_a_requester_cannot_try_a_draw_with_vrf_eval() -> None:
    async with served(requiring(voters=["ann", "ben", "cleo"], draw=2), bank([])) as (app, client):
        found = (await refused(client, amount=5))["details"]["round_id"]
        shown = msgspec.json.decode((await approvals_of(app).read(parse_round_id(found))).round.shown)["draw"]
        tried = data_of(await client.call_tool("approvals__vrf_eval", {"input_hex": shown["input_hex"]}))

    assert tried["public_key_hex"] != shown["public_key_hex"]
    assert tried["proof_hex"] != shown["proof_hex"]


async def test_voters_are_drawn_verifiably_for_each_call() -> None:
    pool = [f"voter-{number}" for number in range(9)]
    async with served(requiring(voters=pool, draw=3), bank([])) as (app, client):
        found = [(await refused(client, amount=amount))["details"]["round_id"] for amount in range(12)]
        again = (await refused(client, amount=0))["details"]["round_id"]
        rounds = [(await approvals_of(app).read(parse_round_id(one))).round for one in found]

    assert again == found[0], "the same call has the same voters"
    assert {len(one.voters) for one in rounds} == {3}
    assert {one.needed for one in rounds} == {3}
    assert len({one.voters for one in rounds}) > 1
    for one in rounds:
        shown = msgspec.json.decode(one.shown)["draw"]
        public, alpha, proof = (bytes.fromhex(shown[name]) for name in ("public_key_hex", "input_hex", "proof_hex"))
        output = vrf.verify(public, alpha, proof)
        assert output is not None
        assert set(one.voters) == set(order(tuple(shown["pool"]), output)[:3])


async def test_rules_that_cannot_be_enforced_stop_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(part_module, "make_approvals", fail)
    with pytest.raises(BadConfiguration, match="cannot be enforced"):
        async with served(requiring(), bank([])):
            pass


async def test_rules_without_tables_stop_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    without = [
        replace(part, migrations="toolpost.parts.approvals") if part.name == "approvals" else part
        for part in bundled_parts()
    ]
    monkeypatch.setattr(loading, "bundled_parts", lambda: without)  # a package without any
    with pytest.raises(BadConfiguration, match="cannot be enforced"):
        async with served(requiring(), bank([])):
            pass


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"rules": {"r": {"voters": ["role:none"]}}}, "no role `none`"),
        ({"rules": {"r": {"voters": []}}}, "voters is empty"),
        ({"rules": {"r": {"votes": 2}}}, "2 votes are needed"),
        ({"rules": {"r": {"draw": 2}}}, "cannot be drawn from 1"),
        ({"rules": {"r": {"voters": ["a", "b"], "draw": 1, "votes": 2}}}, "2 votes are needed, and 1"),
        ({"rules": {"r": {"tools": [""]}}}, "a pattern is empty"),
        ({"rules": {"r": {"arguments": {"type": "nonsense"}}}}, "no valid JSON Schema"),
        ({"keys": {"ann": "short"}}, "no Ed25519 public key"),
    ],
)
async def test_settings_that_make_no_sense(settings: Any, problem: str) -> None:
    config: Config = requiring(settings=msgspec.convert(settings, ApprovalSettings))
    with pytest.raises(BadConfiguration, match=problem):
        async with open_app(config):
            pass


async def test_a_dispatch_whose_answer_was_lost_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The approval may be used by then: the round must not count as running for as long as the gateway lives."""
    paid: list[int] = []
    async with served(requiring(), bank(paid)) as (app, client):
        found = (await refused(client, amount=5))["details"]["round_id"]
        await cast(app, found)
        approvals = approvals_of(app)
        original = approvals.dispatch

        async def lose(*arguments: Any) -> Any:
            await original(*arguments)
            raise StoreUnavailable("the connection was lost during the commit")

        monkeypatch.setattr(approvals, "dispatch", lose)
        answer = await client.call_tool("bank__pay", {"amount": 5})
        ended = await status_of(app, found)

    assert answer.is_error
    assert paid == [], "what may not have been approved does not run"
    assert ended is Status.FAILED


async def test_votes_that_change_on_the_way_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An equivocation after the call was let in takes the approval back, and the error counts what is left."""
    paid: list[int] = []
    async with served(requiring(), bank(paid)) as (app, client):
        found = (await refused(client, amount=5))["details"]["round_id"]
        await cast(app, found)
        approvals = approvals_of(app)
        original = approvals.dispatch

        async def after_denial(*arguments: Any) -> Any:
            await cast(app, found, "deny")
            return await original(*arguments)

        monkeypatch.setattr(approvals, "dispatch", after_denial)
        error = await refused(client, amount=5)

    assert paid == []
    assert "cli (two votes, both void)" in error["message"]
