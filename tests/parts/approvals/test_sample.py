"""Calls are selected for review by chance, verifiably, and kept with their contents for a limited time."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tests.parts.approvals.bank import approvals_of, bank, refused, requiring, served
from tests.upstreams.behind import hostile
from tests.ways import IN_MEMORY, QUICK_WAYS, STATELESS, Way
from toolpost import Plugin
from toolpost.audit import AuditFilter
from toolpost.cli.main import main
from toolpost.middleware import CheckedResult
from toolpost.middleware.fast_path import FastPath
from toolpost.parts.approvals import vrf
from toolpost.parts.approvals.sample import is_selected, write, write_result
from toolpost.settings import Config
from toolpost.settings.audit import AuditSettings
from toolpost.settings.model import StoreSettings
from toolpost.store import Store
from toolpost.store.audit_contents import AuditContents, CallContent
from toolpost.testing import data_of

pytestmark = pytest.mark.anyio


def sampling(sample: float, config: Config = IN_MEMORY, **more: Any) -> Config:
    return msgspec.structs.replace(config, audit=AuditSettings(sample=sample, **more))


async def contents_of(store: Store) -> dict[str, CallContent]:
    entries = await store.audit.entries(AuditFilter(), limit=1000)
    return await store.audit_contents.find([one.entry.call_id for one in entries])


def safe() -> Plugin:
    plugin = Plugin("safe", version="1.0.0")

    @plugin.tool
    async def login(user: str, password: str) -> dict[str, str]:
        """Log in."""
        return {"user": user, "session_token": "s3cr3t", "used": str(len(password))}

    return plugin


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_exactly_those_are_kept_that_the_proof_selects(way: Way) -> None:
    async with served(sampling(0.5), bank([]), way=way) as (app, client):
        for amount in range(40):
            await client.call_tool("bank__pay", {"amount": amount})
        entries = await app.store.audit.entries(AuditFilter(), limit=100)
        kept = await contents_of(app.store)

    assert 5 < len(kept) < 35
    content = next(iter(kept.values()))
    outputs: dict[str, bytes] = {}
    for one in kept.values():
        output = vrf.verify(bytes.fromhex(one.public_key), AuditContents.input_of(one.epoch), bytes.fromhex(one.proof))
        assert output is not None
        outputs[one.epoch] = output
    for record in entries:
        output = outputs[record.entry.at_utc[:13]]
        assert is_selected(output, record.entry.call_id, 0.5) == (record.entry.call_id in kept)
    assert json.loads(content.arguments).keys() == {"amount"}
    assert content.result is not None
    flipped = bytes.fromhex(content.proof)
    flipped = bytes([flipped[0] ^ 1, *flipped[1:]])
    assert vrf.verify(bytes.fromhex(content.public_key), AuditContents.input_of(content.epoch), flipped) is None


async def test_on_both_stores_secrets_and_failures(url: str) -> None:
    config = sampling(1.0, msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=url)))
    async with served(config, safe(), bank([])) as (app, client):
        await client.call_tool("safe__login", {"user": "ann", "password": "hunter2"})
        await client.call_tool("bank__pay", {"amount": 13})
        login, failed = (await contents_of(app.store)).values()

    assert json.loads(login.arguments) == {"user": "ann", "password": "(redacted)"}
    assert "hunter2" not in str(login)
    assert "s3cr3t" not in str(login)
    assert '"user":"ann"' in str(login.result)
    assert "no luck" in str(failed.result)


async def test_a_call_that_needs_approval_is_kept_too() -> None:
    async with served(sampling(1.0, requiring(tools=["safe__login"])), safe()) as (app, client):
        await refused(client, "safe__login", user="ann", password="hunter2")
        (kept,) = (await contents_of(app.store)).values()
        (view,) = await approvals_of(app).list_rounds(only_open=True)

    assert "FORBIDDEN" in str(kept.result)
    assert "hunter2" not in f"{kept}{view}", "neither there nor in the round"


async def test_without_a_sample_nothing_is_kept() -> None:
    async with served(IN_MEMORY, bank([])) as (app, client):
        await client.call_tool("bank__pay", {"amount": 5})
        kept = await contents_of(app.store)

    assert kept == {}


async def test_the_key_is_not_that_of_the_tool() -> None:
    async with served(sampling(1.0), bank([])) as (app, client):
        await client.call_tool("bank__pay", {"amount": 5})
        (kept,) = (await contents_of(app.store)).values()
        found = data_of(
            await client.call_tool("approvals__vrf_eval", {"input_hex": AuditContents.input_of(kept.epoch).hex()})
        )
        verified = data_of(
            await client.call_tool(
                "approvals__vrf_verify",
                {
                    "public_key_hex": kept.public_key,
                    "proof_hex": kept.proof,
                    "input_hex": AuditContents.input_of(kept.epoch).hex(),
                },
            )
        )

    assert found["public_key_hex"] != kept.public_key, "who calls could know beforehand what is looked at"
    assert verified["valid"]


async def test_they_are_pruned_by_age_and_by_number(url: str) -> None:
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=url))
    async with served(config) as (app, _):
        store = app.store

        async def keep(call_id: str) -> None:
            kept = store.audit_contents
            await kept.insert(call_id, epoch="2026-11-17T18", sample=1, proof="", public_key="", arguments="{}")

        async def left() -> list[str]:
            found = await store.audit_contents.find([str(number) for number in range(9)])
            return sorted(found)

        for number in range(5):
            await keep(str(number))
        await store.audit_contents.prune(keep_s=3600, keep=10)
        assert len(await left()) == 5
        await store.audit_contents.prune(keep_s=3600, keep=2)
        assert await left() == ["3", "4"], "the newest stay"
        await store.audit_contents.prune(keep_s=0.0, keep=10)
        assert await left() == []


@pytest.mark.wire
async def test_on_the_fast_path_it_keeps_the_same_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of a server's tool that are not selected take it, and those that are do not."""
    fast: list[str] = []
    original = FastPath.start

    def start(self: Any, call: Any, delivery: Any) -> bool:
        fast.append(call.id)
        return original(self, call, delivery)

    monkeypatch.setattr(FastPath, "start", start)
    async with served(sampling(0.5), servers=[hostile()], way=Way("http", STATELESS)) as (app, client):
        for number in range(40):
            await client.call_tool("up__echo", {"text": str(number)})
        entries = await app.store.audit.entries(AuditFilter(tool="up__echo"), limit=100)
        kept = await contents_of(app.store)

    called = {record.entry.call_id for record in entries}
    assert called == {*fast, *kept}
    assert not set(fast) & set(kept)
    assert 5 < len(kept) < 35
    assert '"text":' in next(iter(kept.values())).arguments


def test_what_is_large_is_cut() -> None:
    assert len(write({"text": "x" * 1_000_000})) < 70_000
    assert "too large" in write_result(CheckedResult(b'"' + b"x" * 2_000_000 + b'"'))


def test_the_command_shows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toolpost.toml").write_text('[audit]\nsample = 1.0\n[plugins]\nbundled = ["time"]\n')
    runner = CliRunner()
    runner.invoke(main, ["call", "time__current_time", "timezone=Asia/Tokyo"], catch_exceptions=False)
    shown = runner.invoke(main, ["audit", "--contents"])
    line = json.loads(runner.invoke(main, ["audit", "--contents", "--json"]).stdout)
    both = runner.invoke(main, ["audit", "--contents", "--follow"])

    assert '"timezone":"Asia/Tokyo"' in shown.stdout
    content = line["content"]
    proof, key, given = (bytes.fromhex(content[name]) for name in ("proof_hex", "public_key_hex", "input_hex"))
    output = vrf.verify(key, given, proof)
    assert output is not None
    assert is_selected(output, line["callId"], content["sample"])
    assert both.exit_code == 2


def test_chance_is_fair() -> None:
    output = vrf.evaluate(bytes(32), b"x").output
    hits = sum(is_selected(output, f"call-{number}", 0.05) for number in range(20_000))
    assert 800 < hits < 1200

    assert not is_selected(output, "x", 0.0)
    assert is_selected(output, "x", 1.0)
