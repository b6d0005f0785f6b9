"""Interchangeable servers: one tool of their common ones, which goes on when a server fails, and never acts twice."""

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from mcp import Client

from tests.loaded import loaded
from tests.upstreams.behind import SERVERS, report, text_of
from tests.upstreams.test_questions import Person, client_on
from tests.waiting import until
from tests.ways import IN_MEMORY, QUICK_WAYS, STATELESS, Way
from toolpost import CallRequest, CallResult, Next
from toolpost.app import App, open_app
from toolpost.app.open import OpenOptions
from toolpost.audit import AuditFilter
from toolpost.base.ids import PluginName, ToolName
from toolpost.contracts.contract import contract_of_upstream
from toolpost.contracts.errors import BadConfiguration, Forbidden
from toolpost.discovery.catalog import Catalog
from toolpost.discovery.tool_groups import add_groups
from toolpost.parts.approvals.settings import ApprovalSettings, RuleSettings
from toolpost.parts.models.groups import Groups
from toolpost.parts.models.router import Router
from toolpost.parts.models.settings import GROUPS, GroupSettings
from toolpost.parts.models.stats import Stats
from toolpost.providers import ProvidedTool, RawResult
from toolpost.settings import Config
from toolpost.settings.model import ModeSettings
from toolpost.settings.servers import ServerSettings
from toolpost.testing import data_of, error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

TWIN = str(Path(__file__).with_name("twin.py"))


class Twins:
    """Two servers in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.set(a="ok", b="ok")

    def set(self, **modes: str) -> None:
        for name, mode in modes.items():
            (self.folder / f"{name}.mode").write_text(mode)

    def stop(self, name: str) -> None:
        (self.folder / f"{name}.mode").unlink()

    @property
    def calls(self) -> list[str]:
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def config(self, *, timeout_s: float = 20.0, url: str = "sqlite::memory:", **group: Any) -> Config:
        servers = {
            name: ServerSettings(
                command=sys.executable, args=["-S", "-E", TWIN, name, str(self.folder)], timeout_s=timeout_s, tags=tags
            )
            for name, tags in (("a", ["x", "both"]), ("b", ["y", "both"]))
        }
        config = msgspec.structs.replace(IN_MEMORY, servers=servers)
        return GROUPS.put(config, {"pair": GroupSettings(servers=["a", "b"], **group)})


@pytest.fixture
def twins(tmp_path: Path) -> Twins:
    return Twins(tmp_path)


@asynccontextmanager
async def opened(config: Config, way: Way = QUICK_WAYS[0], **options: Any) -> AsyncIterator[tuple[App, Client]]:
    async with open_app(config, **options) as app, way.client_of(app) as client:
        yield app, client


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_common_tools_are_one_tool_and_their_former_names_answer(twins: Twins, way: Way) -> None:
    async with opened(twins.config(), way) as (_, client):
        listed = [tool.name for tool in (await client.list_tools()).tools if tool.name[:4] in ("pair", "a__o", "b__o")]
        others = {tool.name for tool in (await client.list_tools()).tools}
        answers = [text_of(await client.call_tool(name, {})) for name in ("pair__read", "a__read", "b__write")]
        alone = text_of(await client.call_tool("b__only_b", {}))

    assert listed == ["a__only_a", "b__only_b", "pair__ask", "pair__read", "pair__write"]
    assert {"a__differs", "b__differs"} <= others
    assert not {"a__read", "b__read", "pair__differs"} & others
    assert answers == ["a did read", "a did read", "a did write"]
    assert alone == "b did only_b"


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_what_may_be_repeated_goes_to_the_next_server(twins: Twins, way: Way) -> None:
    twins.set(a="crash")
    async with opened(twins.config(), way) as (_, client):
        answer = text_of(await client.call_tool("pair__read", {}))

    assert answer == "b did read"
    assert twins.calls == ["a read", "b read"]


async def test_what_may_have_acted_is_not_repeated(twins: Twins) -> None:
    twins.set(a="crash")
    async with opened(twins.config()) as (_, client):
        error = error_of(await client.call_tool("pair__write", {}))
        assert (error["code"], twins.calls) == ("UPSTREAM_UNAVAILABLE", ["a write"])

    (twins.folder / "calls").unlink()
    async with opened(twins.config(idempotent=["write"])) as (_, client):
        assert text_of(await client.call_tool("pair__write", {})) == "b did write"
    assert twins.calls == ["a write", "b write"]


async def test_a_server_that_cannot_have_seen_the_call_is_passed_over(twins: Twins) -> None:
    async with opened(twins.config()) as (app, client):
        twins.stop("a")
        app.servers.providers["a"].supervisor.restart()
        await until(lambda: not report(app, "a").pids)
        answer = text_of(await client.call_tool("pair__write", {}))

    assert answer == "b did write"
    assert twins.calls == ["b write"]


async def test_a_server_that_hangs_costs_its_time_limit_and_no_more(twins: Twins) -> None:
    twins.set(a="hang")
    async with opened(twins.config(timeout_s=2.0)) as (_, client):
        started = anyio.current_time()
        answer = text_of(await client.call_tool("pair__read", {}))
        took_s = anyio.current_time() - started
        error = error_of(await client.call_tool("pair__write", {}))

    assert answer == "b did read"
    assert 2 <= took_s < 30
    assert error["code"] == "TOOL_TIMEOUT"
    assert "b write" not in twins.calls


async def test_a_call_that_is_cancelled_goes_to_no_other_server(twins: Twins) -> None:
    twins.set(a="hang")
    async with opened(twins.config()) as (app, client):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "pair__read", {})
            await until(lambda: twins.calls)
            tasks.cancel_scope.cancel()
        await until(lambda: not app.gateway.in_flight)
    assert twins.calls == ["a read"]


async def test_a_circuit_opens_and_is_shown_reset_and_counted(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    twins.set(a="crash")
    monkeypatch.setattr("toolpost.parts.models.groups.FAILURES", 1)
    async with opened(twins.config()) as (_, client):
        answers = [text_of(await client.call_tool("pair__read", {})) for _ in range(3)]
        state: Any = data_of(await client.call_tool("models__router_fallback", {}))
        twins.set(a="ok")
        await client.call_tool("models__router_fallback", {"reset": "pair/a"})
        after = text_of(await client.call_tool("pair__read", {}))
        stats: Any = data_of(await client.call_tool("models__router_stats", {}))

    assert answers == ["b did read"] * 3
    assert twins.calls == ["a read", "b read", "b read", "b read", "a read"]
    assert (state["circuitState"]["pair/a"]["state"], state["circuitState"]["pair/b"]["state"]) == ("open", "closed")
    assert after == "a did read"
    assert (stats["models"]["pair/a"]["failures"], stats["models"]["pair/b"]["successes"]) == (1, 3)


async def test_middleware_and_audit_see_the_server_that_is_called(twins: Twins) -> None:
    seen: list[str] = []

    async def forbid(call: CallRequest, proceed: Next) -> CallResult:
        seen.append(call.tool)
        if call.tool == "a__write":
            raise Forbidden("nothing is written to a")
        return await proceed(call)

    async with opened(twins.config(), options=OpenOptions(middleware=[forbid])) as (app, client):
        error = error_of(await client.call_tool("pair__write", {}))
        answer = text_of(await client.call_tool("pair__read", {}))
        audited = [record.entry.tool for record in await app.store.audit.entries(AuditFilter(), limit=100)]

    assert (error["code"], answer) == ("FORBIDDEN", "a did read")
    assert seen == ["pair__write", "a__write", "pair__read", "a__read"]
    assert sorted(audited) == ["a__read", "a__write", "pair__read", "pair__write"]
    assert twins.calls == ["a read"]


async def test_a_group_is_seen_by_those_who_see_all_its_servers(twins: Twins) -> None:
    async with opened(twins.config()) as (app, _client):
        tags = app.gateway.catalog.tags
    assert tags["pair"] == {"both"}  # type: ignore[index]


def asking(*, era: str) -> Config:
    """Configure a group of two servers that ask their client back."""
    options = [] if era == STATELESS else ["handshake"]
    program, *arguments = loaded(str(SERVERS / "asking.py"), *options)
    servers = {name: ServerSettings(command=program, args=arguments) for name in ("a", "b")}
    config = msgspec.structs.replace(IN_MEMORY, servers=servers)
    return GROUPS.put(config, {"pair": GroupSettings(servers=["a", "b"])})


@pytest.mark.parametrize("era", ["2025-11-25", STATELESS])
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_server_of_a_group_asks_the_client_back_and_gets_its_own_answers(way: Way, era: str) -> None:
    person = Person()
    async with open_app(asking(era=era)) as app, client_on(app, way, **person.callbacks) as client:
        answers = json.loads(text_of(await client.call_tool("pair__ask_twice", {})))

    assert answers[0] == {"action": "accept", "content": {"name": "Ada"}}
    assert answers[1]["roots"]
    assert person.asked == ["Who are you?", "roots"]


async def test_answers_go_to_the_server_that_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if it is no longer the first."""
    person = Person()
    async with open_app(asking(era=STATELESS)) as app, client_on(app, QUICK_WAYS[-1], **person.callbacks) as client:
        breakers = app.service(Router).breakers
        asked_by: list[str] = []
        admit = app.gateway.admit

        def note(**options: Any) -> Any:
            asked_by.append(options["name"])
            if options["name"] == "b__ask_twice":
                breakers["pair/a"].reset()
            return admit(**options)

        monkeypatch.setattr(app.gateway, "admit", note)
        for _ in range(3):
            attempt = breakers["pair/a"].enter()
            assert attempt is not None
            attempt.note_failure()
        await client.call_tool("pair__ask_twice", {})

    assert {name for name in asked_by if name != "pair__ask_twice"} == {"b__ask_twice"}


class SomeProvider:
    """A provider of tools with given contracts."""

    def __init__(self, name: str, *tools: ProvidedTool, quarantined: Sequence[ProvidedTool] = ()) -> None:
        self.name = PluginName(name)
        self.description = ""
        self.tools = {tool.contract.name: tool for tool in tools}
        self.quarantined = {tool.contract.name: tool for tool in quarantined}
        self.refused = ()
        self.is_complete = True


def provided(server: str, name: str) -> ProvidedTool:
    contract = contract_of_upstream(
        {"name": name, "inputSchema": {"type": "object"}},
        server=PluginName(server),
        name=ToolName(f"{server}__{name}"),
        closes=False,
        version="1",
        timeout_s=5,
    )
    return ProvidedTool(contract=contract, provider=PluginName(server), invoke=None)  # type: ignore[arg-type]


async def no_call(*_: Any) -> RawResult:
    raise AssertionError("nothing is called")


def derived(*providers: SomeProvider) -> dict[str, list[str]]:
    groups = Groups(settings={"pair": GroupSettings(servers=["a", "b"])}, stats=Stats(None))  # type: ignore[arg-type]
    return {str(one.name): sorted(one.tools) for one in add_groups(groups.make(), providers, no_call)}


def test_a_quarantined_tool_of_one_server_leaves_the_group_its_tool() -> None:
    held = SomeProvider("a", provided("a", "read"), provided("a", "own"))
    other = SomeProvider("b", provided("b", "write"), quarantined=[provided("b", "read")])

    assert derived(held, other) == {"a": ["a__own"], "b": ["b__write"], "pair": ["pair__read"]}
    # In the other order, too: the first server is the one whose tool is quarantined.
    held, other = (
        SomeProvider("b", provided("b", "read")),
        SomeProvider("a", provided("a", "own"), quarantined=[provided("a", "read")]),
    )
    assert derived(held, other) == {"a": ["a__own"], "b": [], "pair": ["pair__read"]}


def test_a_server_whose_tools_are_not_known_takes_none_from_the_group() -> None:
    assert derived(SomeProvider("a", provided("a", "read")), SomeProvider("b")) == {
        "a": [],
        "b": [],
        "pair": ["pair__read"],
    }


def test_a_server_that_has_not_listed_all_its_tools_counts_as_incomplete() -> None:
    slow, quick = SomeProvider("a", provided("a", "read")), SomeProvider("b", provided("b", "read"))
    slow.is_complete = False
    groups = Groups(settings={"pair": GroupSettings(servers=["a", "b"])}, stats=Stats(None))  # type: ignore[arg-type]

    assert not Catalog(add_groups(groups.make(), [slow, quick], no_call)).is_complete
    slow.is_complete = True
    assert Catalog(add_groups(groups.make(), [slow, quick], no_call)).is_complete


def test_a_group_with_the_name_of_a_plugin_is_left_out() -> None:
    plugin, server = SomeProvider("pair", provided("pair", "x")), SomeProvider("a", provided("a", "read"))
    assert derived(plugin, server, SomeProvider("b")) == {"a": ["a__read"], "b": [], "pair": ["pair__x"]}


@pytest.mark.parametrize(
    ("name", "servers", "said"), [("a", ["a", "b"], "has this name"), ("pair", ["a", "nobody"], "no server `nobody`")]
)
async def test_settings_that_make_no_sense(twins: Twins, name: str, servers: list[str], said: str) -> None:
    config = GROUPS.put(twins.config(), {name: GroupSettings(servers=servers)})
    with pytest.raises(BadConfiguration, match=said):
        async with open_app(config):
            pass


@pytest.mark.parametrize("confirmed", [[], ["a"], ["a", "b"]], ids=str)
async def test_annotations_count_once_all_servers_are_confirmed(twins: Twins, confirmed: list[str]) -> None:
    is_confirmed = len(confirmed) == 2
    config = msgspec.structs.replace(twins.config(), modes=ModeSettings(mode="readonly", confirmed=confirmed))
    async with opened(config) as (_, client):
        listed = [tool.name for tool in (await client.list_tools()).tools if tool.name.startswith("pair__")]
        answer = await client.call_tool("pair__read", {})

    assert listed == (["pair__read"] if is_confirmed else [])
    assert answer.is_error is not is_confirmed
    rules = ApprovalSettings(rules={"all": RuleSettings(annotations={"readOnlyHint": False})})
    config = msgspec.structs.replace(twins.config(), modes=ModeSettings(confirmed=confirmed))
    config = msgspec.structs.replace(config, parts={**config.parts, "approvals": rules})
    async with opened(config) as (_, client):
        answers = [await client.call_tool(name, {}) for name in ("pair__read", "pair__write")]

    assert [answer.is_error for answer in answers] == [not is_confirmed, True]
