"""The contracts of the console: a tool that changed is shown, accepted, rejected or quarantined."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.parts.console.conftest import OpenSite, Site
from tests.waiting import until
from toolpost.admin.lock_file import LockFile

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

SCRIPT = Path(__file__).parent / "changing.py"


def pay(**properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"to": {"type": "string"}, **properties}, "required": ["to", *properties]}
    return {"name": "pay", "description": "Pay somebody.", "inputSchema": schema}


LOOK = {"name": "look", "description": "Look.", "inputSchema": {"type": "object"}}
OLD, NEW = [pay(), LOOK], [pay(amount={"type": "number"}), LOOK]


def bank(folder: Path, more: str = "") -> str:
    (folder / "tools.json").write_text(json.dumps(OLD))
    words = json.dumps(["-S", "-E", str(SCRIPT), str(folder / "tools.json")])
    return f"# the bank\n[servers.bank] # ours\ncommand = {json.dumps(sys.executable)}\nargs = {words} # quick\n{more}"


async def change_tool(site: Site) -> None:
    (site.folder / "tools.json").write_text(json.dumps(NEW))
    await site.change("/server/act", name="bank", action="restart")
    bank = site.app.servers.providers
    await until(lambda: (found := bank["bank"].statuses.get("bank__pay")) and found.judgement is not None)  # type: ignore[call-overload]


@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_a_changed_contract_is_explained_and_accepted(
    site: OpenSite, tmp_path: Path, mode: str, store_url: str
) -> None:
    async with site(f'contracts = "{mode}"\n{bank(tmp_path)}', store=store_url, log_in=True) as opened:
        assert (await opened.get("/contracts"))["tools"] == []
        await change_tool(opened)
        (listed,) = (await opened.get("/contracts"))["tools"]
        shown = await opened.get("/contract", tool="bank__pay")
        stale = await opened.post("/contract/accept", tool="bank__pay", digest="0" * 64)
        accepted = await opened.change("/contract/accept", tool="bank__pay", digest=shown["digest"])
        after = (await opened.get("/contracts"))["tools"]
        locked = LockFile(tmp_path / "toolpost.lock").require_tools()
        await until(lambda: len(opened.app.gateway.catalog) == 2)

    assert (listed["tool"], listed["verdict"], listed["quarantined"]) == ("bank__pay", "breaking", mode == "enforce")
    (change,) = [each for each in shown["changes"] if each["rule"] == "input.required-added"]
    assert change["verdict"] == "breaking"
    assert change["example"].keys() == {"to"}
    assert change["explanation"]
    assert any(row["kind"] == "new" and "amount" in row["new"] for row in shown["diff"])
    assert stale.status_code == 400
    assert (accepted["written"], accepted["tools"], after) == (True, 2, [])
    assert locked["bank__pay"].definition.to_json()["inputSchema"]["required"] == ["to", "amount"]


async def test_a_change_is_rejected_or_quarantined_in_toolpost_toml(site: OpenSite, tmp_path: Path) -> None:
    async with site(f'contracts = "observe"\n{bank(tmp_path)}', log_in=True) as opened:
        file = tmp_path / "toolpost.toml"
        await change_tool(opened)
        providers = opened.app.servers.providers
        body = {"tool": "bank__pay", "action": "quarantine"}
        plan = await opened.change("/contract/plan", **body)
        await opened.change("/contract/change", **body, base=plan["base"])
        await until(lambda: "bank__pay" in providers["bank"].quarantined)
        assert '[servers.bank] # ours\ncontracts = "enforce"\n' in file.read_text()
        body = {"tool": "bank__pay", "action": "reject"}
        plan = await opened.change("/contract/plan", **body)
        await opened.change("/contract/change", **body, base=plan["base"])
        await until(lambda: "bank__pay" not in {**providers["bank"].tools, **providers["bank"].quarantined})
        assert (await opened.get("/contracts"))["tools"] == []
        nonsense = await opened.post("/contract/plan", tool="bank__pay", action="forget")

    text = file.read_text()
    assert 'deny = ["pay"]' in text
    assert text.count("# the bank") == text.count("# ours") == text.count("# quick") == 1
    assert nonsense.status_code == 404


def dogs(*required: str) -> str:
    taken = [{"in": "query", "name": name, "required": True, "schema": {"type": "string"}} for name in required]
    described = {"operationId": "dogs", "parameters": taken, "responses": {"200": {"description": "done"}}}
    paths = {"/dogs": {"get": described}, "/cats": {"get": {**described, "operationId": "cats", "parameters": []}}}
    return json.dumps({"openapi": "3.1.0", "info": {"title": "Pets", "version": "1"}, "paths": paths})


async def test_tools_of_an_api_are_shown_accepted_quarantined_and_rejected_as_those_of_servers(
    site: OpenSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolpost.parts.openapi.served.LOOK_S", 0.05)
    document, file = tmp_path / "pets.json", tmp_path / "toolpost.toml"
    document.write_text(dogs())
    text = '[apis.pets] # ours\ndocument = "pets.json" # kept\nbase = "http://127.0.0.1:1"\n'
    async with site(text, log_in=True, bundled=True) as opened:

        async def shown() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = (await opened.get("/contracts"))["tools"]
            return found

        async def wait_for(check: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
            with anyio.fail_after(30):
                while not check(found := await shown()):
                    await anyio.sleep(0.05)
            return found

        def names() -> list[str]:
            return sorted(tool.contract.name for tool in opened.app.gateway.catalog if tool.provider == "pets")

        assert await shown() == []
        document.write_text(dogs("size"))
        (listed,) = await wait_for(lambda found: bool(found) and found[0]["verdict"] != "pending")
        assert (listed["tool"], listed["server"], listed["verdict"], listed["promise"]) == (
            *("pets__dogs", "pets"),
            *("breaking", "pin"),
        )
        assert names() == ["pets__cats", "pets__dogs"]
        titles = [item["title"] for item in (await opened.get("/overview"))["actionItems"]]
        assert "pets__dogs has changed" in titles

        body = {"tool": "pets__dogs", "action": "quarantine"}
        plan = await opened.change("/contract/plan", **body)
        await opened.change("/contract/change", **body, base=plan["base"])
        await wait_for(lambda found: bool(found) and found[0]["quarantined"])
        await until(lambda: names() == ["pets__cats"])

        detail = await opened.get("/contract", tool="pets__dogs")
        assert any(change["rule"] == "input.required-added" for change in detail["changes"])
        await opened.change("/contract/accept", tool="pets__dogs", digest=detail["digest"])
        assert await shown() == []
        await until(lambda: names() == ["pets__cats", "pets__dogs"])
        assert "size" in (tmp_path / "toolpost.lock").read_text()

        document.write_text(dogs("size", "color"))
        await wait_for(lambda found: bool(found) and found[0]["promise"] == "lock" and found[0]["quarantined"])
        body = {"tool": "pets__dogs", "action": "reject"}
        plan = await opened.change("/contract/plan", **body)
        await opened.change("/contract/change", **body, base=plan["base"])
        await wait_for(lambda found: not found)
        assert names() == ["pets__cats"]

    written = file.read_text()
    assert "[apis.pets] # ours" in written
    assert 'contracts = "enforce"' in written
    assert 'deny = ["dogs"]' in written
