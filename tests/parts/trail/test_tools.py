"""The tools of the trail as a client sees them, on each transport, in each era, on both stores."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp import Client

from tests.proofs import proves
from tests.ways import IN_MEMORY, QUICK_WAYS, WAYS, Way, stdio_server
from toolpost.app import open_app
from toolpost.parts.trail.verify_trail import check_proof, check_signature
from toolpost.settings.model import PluginSettings, StoreSettings
from toolpost.testing import data_of, error_of

pytestmark = [pytest.mark.anyio, pytest.mark.every_store]


async def ask(client: Client, tool: str, **arguments: Any) -> Any:
    return data_of(await client.call_tool(f"trail__{tool}", arguments))


async def use(client: Client) -> None:
    """Go through all tools, as an agent does that accounts for what it does."""
    started = await ask(client, "audit_session_start", intent="mend it", task_id="t-1", session_id="work")
    plan = await ask(
        client, "thought_record", type="plan", agent_id="a", content="look", task_id="t-1", session_id="work"
    )
    decision = await ask(
        client,
        "thought_record",
        type="decision",
        agent_id="a",
        content="mend",
        task_id="t-1",
        session_id="work",
        references=[plan["hash"]],
    )
    listed = await ask(client, "thought_record_list", task_id="t-1", limit=1)
    rest = await ask(client, "thought_record_list", task_id="t-1", cursor=listed["next_cursor"])
    verdict = await ask(client, "audit_verify_chain", task_id="t-1")
    root = await ask(client, "merkle_root", session_id="work")
    final = await ask(client, "merkle_finalize", session_id="work")
    proof = await ask(client, "merkle_proof", session_id="work", record=decision["hash"])
    consistent = await ask(client, "merkle_proof", session_id="work", first=1)
    later = await ask(client, "thought_record", type="reflection", agent_id="a", content="good", session_id="work")

    assert started | {"started_at": "", "hash": ""} == {
        "session_id": "work",
        "intent": "mend it",
        "task_id": "t-1",
        "started_at": "",
        "hash": "",
        "continues": None,
    }
    assert (plan["prev_hash"], decision["prev_hash"]) == (started["hash"], plan["hash"])
    assert decision["references"] == [plan["hash"]]
    assert [*listed["records"], *rest["records"]] == [plan, decision]
    assert verdict == {"valid": True, "broken_count": 0, "record_count": 2}
    assert (root["root"], root["size"]) == (final["root"], 2)
    assert "signature" not in root
    check_signature(msgspec.json.decode(final["seal"]), final["signature"], final["public_key"])
    assert proof["root"] == final["root"]
    assert check_proof(proof)
    assert check_proof(consistent)
    assert later["session_id"] == "work.2"


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_an_agent_accounts_for_what_it_does(way: Way, url: str) -> None:
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=url))
    async with open_app(config) as app, way.client_of(app) as client:
        await use(client)


@pytest.mark.wire
@pytest.mark.parametrize("way", [way for way in WAYS if way.transport == "stdio"], ids=str)
async def test_an_agent_accounts_for_what_it_does_on_stdio(way: Way, tmp_path: Path) -> None:
    server = stdio_server(cwd=tmp_path, arguments=("--with", "trail"))
    async with Client(server, mode=way.mode) as client:
        await use(client)


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_bad_input_is_refused_and_loses_nothing(way: Way) -> None:
    async with open_app(IN_MEMORY) as app, way.client_of(app) as client:
        await ask(client, "thought_record", type="plan", agent_id="a", content="x")
        bad: list[tuple[str, dict[str, Any], str]] = [
            ("thought_record", {"type": "guess", "agent_id": "a", "content": "x"}, "INVALID_PARAMS"),
            ("thought_record", {"type": "plan", "agent_id": "a", "content": ""}, "INVALID_PARAMS"),
            ("thought_record", {"type": "plan", "agent_id": "a\n", "content": "x"}, "INVALID_PARAMS"),
            ("thought_record", {"type": "plan", "agent_id": "a", "content": "x" * 70_000}, "INVALID_PARAMS"),
            (
                "thought_record",
                {"type": "plan", "agent_id": "a", "content": "x", "references": ["nothing"]},
                "INVALID_PARAMS",
            ),
            ("thought_record", {"type": "plan", "agent_id": "a", "content": "x", "session_id": "no"}, "NOT_FOUND"),
            ("thought_record_list", {"cursor": "?"}, "INVALID_PARAMS"),
            ("merkle_root", {"session_id": "no"}, "NOT_FOUND"),
            ("merkle_finalize", {"session_id": "no"}, "NOT_FOUND"),
            ("audit_verify_chain", {"session_id": "no"}, "NOT_FOUND"),
            ("merkle_proof", {}, "INVALID_PARAMS"),
            ("merkle_proof", {"record": 1, "first": 1}, "INVALID_PARAMS"),
            ("merkle_proof", {"record": 2}, "NOT_FOUND"),
            ("merkle_proof", {"record": 10**30}, "NOT_FOUND"),
            ("merkle_proof", {"first": 2}, "INVALID_PARAMS"),
        ]
        codes = [error_of(await client.call_tool(f"trail__{tool}", given))["code"] for tool, given, _ in bad]
        verdict = await ask(client, "audit_verify_chain")

    assert codes == [code for _, _, code in bad]
    assert verdict == {"valid": True, "broken_count": 0, "record_count": 1}


@proves("trail__audit_session_start", "intent", "task_id", "session_id")
@proves("trail__thought_record", "type", "task_id", "agent_id", "content", "references", "session_id")
@proves("trail__thought_record_list", "task_id", "session_id", "kind", "limit", "cursor")
@proves("trail__audit_verify_chain", "task_id", "session_id")
@proves("trail__merkle_finalize", "session_id")
@proves("trail__merkle_root", "session_id")
@proves("trail__merkle_proof", "session_id", "record", "first", "size")
async def test_every_argument_matters() -> None:
    async with open_app(IN_MEMORY) as app, QUICK_WAYS[0].client_of(app) as client:
        await use(client)  # most of them
        one = await ask(client, "audit_session_start", intent="one", session_id="one", task_id="t-2")
        await ask(client, "audit_session_start", intent="two", session_id="two")
        for number in range(3):
            await ask(
                client, "thought_record", type="plan", agent_id=f"a{number}", content=f"{number}", session_id="one"
            )
        await ask(client, "thought_record", type="analysis", agent_id="b", content="x", session_id="two", task_id="t-3")
        of_one = (await ask(client, "thought_record_list", session_id="one"))["records"]
        of_task = (await ask(client, "thought_record_list", task_id="t-3"))["records"]
        calls = (await ask(client, "thought_record_list", kind="call"))["records"]
        counts = [
            (await ask(client, "audit_verify_chain", **given))["record_count"]
            for given in ({"session_id": "one"}, {"session_id": "two"}, {"task_id": "t-3"}, {})
        ]
        sizes = [(await ask(client, "merkle_root", session_id=name))["size"] for name in ("one", "two")]
        early = await ask(client, "merkle_proof", session_id="one", record=1, size=2)
        late = await ask(client, "merkle_proof", session_id="one", first=1, size=3)
        final = await ask(client, "merkle_finalize", session_id="one")
        is_open = "seal" not in await ask(client, "merkle_root", session_id="two")

    assert (one["intent"], one["task_id"]) == ("one", "t-2")
    assert [(each["agent_id"], each["content"]) for each in of_one] == [("a0", "0"), ("a1", "1"), ("a2", "2")]
    assert [(each["session_id"], each["type"]) for each in of_task] == [("two", "analysis")]
    assert "thought" not in {each["kind"] for each in calls}
    assert counts[:3] == [3, 1, 1]
    assert counts[3] >= 7
    assert sizes == [3, 1]
    assert (early["seq"], early["size"], late["first"], late["size"]) == (1, 2, 1, 3)
    assert (final["session_id"], is_open) == ("one", True)


async def test_alone_its_tools_have_bare_names() -> None:
    config = msgspec.structs.replace(IN_MEMORY, plugins=PluginSettings(only="trail"))
    async with open_app(config) as app, QUICK_WAYS[0].client_of(app) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}

    assert names == {
        "audit_session_start",
        "thought_record",
        "thought_record_list",
        "audit_verify_chain",
        "merkle_finalize",
        "merkle_root",
        "merkle_proof",
    }
