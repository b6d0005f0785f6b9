"""Records of finalized sessions are removed after a time: what was exported before still verifies, and what is gone is said."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from tests.parts.trail.conftest import OpenTrail
from tests.parts.trail.test_sessions import ANN, thought
from tests.ways import IN_MEMORY, QUICK_WAYS, Way
from toolpost.app import open_app
from toolpost.contracts.errors import NotFound
from toolpost.parts.trail import service
from toolpost.parts.trail.export import encode_line, export_proof, export_session, write_verifier
from toolpost.parts.trail.service import Trail
from toolpost.parts.trail.settings import TRAIL, TrailSettings
from toolpost.settings.model import StoreSettings
from toolpost.store import Script, Statement
from toolpost.testing import data_of, error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire, pytest.mark.every_store]


def rewind(trail: Trail, seconds: float) -> Any:
    """Return what makes all sessions of a trail look older."""

    def script() -> Script[None]:
        yield Statement("UPDATE trail_sessions SET changed_at = changed_at - ?1", (seconds,))

    return trail._store.scripts.run(script)


def count_rows(trail: Trail, table: str) -> Any:
    def script() -> Script[int]:
        ((count,),) = yield Statement(f"SELECT count(*) FROM {table}")
        return int(count)

    return trail._store.scripts.read(script)


def verify_offline(folder: Path, name: str, lines: list[Any]) -> str:
    (folder / name).write_text("".join(f"{encode_line(line)}\n" for line in lines))
    done = subprocess.run(
        [sys.executable, "-I", str(write_verifier(folder)), str(folder / name)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_what_was_exported_still_verifies_when_the_records_are_gone(
    open_trail: OpenTrail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "REMOVED_AT_ONCE", 4)
    async with open_trail() as trail:
        for number in range(11):
            await trail.record(ANN, thought(f"thought {number}"), "old" if number else None)
            if not number:
                await trail.start(ANN.id, "old", "a secret intent", None)
        await trail.record(ANN, thought("open"), "old")
        sealed = await trail.seal(await trail.find(ANN.id, "old"))
        export = [line async for line in export_session(trail, sealed, with_content=True)]
        proof = await export_proof(trail, sealed, await trail.prove_inclusion(sealed, 3))
        early = await trail.apply_retention(3600)
        await rewind(trail, 7200)
        # The first session, of the MCP session, is old too, and open.
        late, again = await trail.apply_retention(3600), await trail.apply_retention(3600)
        gone = await trail.find(ANN.id, "old")
        verdict = await trail.verify_all(ANN.id, None)
        rows = [await count_rows(trail, table) for table in ("trail_records", "trail_nodes")]
        for attempt in (trail.prove_inclusion(gone, 3), trail.prove_consistency(gone, 3)):
            with pytest.raises(NotFound, match=r"11 records .* removed") as refusal:
                await attempt
            assert "merkle_root" in (refusal.value.hint or "")
        successor, _ = await trail.record(ANN, thought("later"), "old")

    assert (early, late, again) == (0, 1, 0)
    assert rows == [1, 0]
    assert (gone.root, gone.size, gone.seal, gone.signature) == (sealed.root, 11, sealed.seal, sealed.signature)
    assert (gone.intent, gone.salt) == (b"", "")
    assert gone.removed_at is not None
    assert (verdict.is_valid, verdict.record_count, verdict.removed_count) == (True, 1, 11)
    assert successor.header_json["continues"] == {"session": "old", "root": sealed.root}
    assert sealed.root in json.dumps(proof)
    for name, lines in (("export.jsonl", export), ("proof.jsonl", [proof])):
        assert trail.public_key in verify_offline(tmp_path, name, lines)


async def test_a_session_that_was_tampered_with_is_evidence_and_stays(
    open_trail: OpenTrail, caplog: pytest.LogCaptureFixture
) -> None:
    def tamper() -> Script[None]:
        yield Statement("UPDATE trail_sessions SET head = ?1 WHERE id = 'bad'", ("0" * 64,))

    async with open_trail() as trail:
        for name in ("bad", "good"):
            await trail.start(ANN.id, name, "x", None)
            await trail.record(ANN, thought("a"), name)
            await trail.seal(await trail.find(ANN.id, name))
        await trail._store.scripts.run(tamper)
        await rewind(trail, 7200)
        removed = await trail.apply_retention(3600)
        kept = [(await trail.find(ANN.id, name)).removed_at is None for name in ("bad", "good")]

    assert (removed, kept) == (1, [True, False])
    assert "records not removed: broken" in caplog.text


@pytest.mark.parametrize("change", ["root", "size", "signature", "key"])
async def test_what_is_left_of_a_session_is_verified(change: str, open_trail: OpenTrail) -> None:
    changes = {
        "root": "peaks = ?1",
        "size": "size = 2, peaks = ?1",
        "signature": "signature = 'AAAA', peaks = peaks, head = coalesce(?1, head)",
        "key": "public_key = coalesce(?1, '00')",
    }

    def tamper() -> Script[None]:
        yield Statement(
            f"UPDATE trail_sessions SET {changes[change]}", (b"\0" * 32 if "peaks = ?1" in changes[change] else None,)
        )

    async with open_trail() as trail:
        await trail.start(ANN.id, "old", "x", None)
        await trail.record(ANN, thought("a"), "old")
        await trail.seal(await trail.find(ANN.id, "old"))
        await rewind(trail, 7200)
        assert await trail.apply_retention(3600) == 1
        before = await trail.verify_all(ANN.id, None)
        await trail._store.scripts.run(tamper)
        after = await trail.verify_all(ANN.id, None)

    assert (before.is_valid, after.is_valid) == (True, False)


async def test_no_record_of_an_open_session_can_be_deleted(open_trail: OpenTrail) -> None:
    def delete() -> Script[None]:
        yield Statement("DELETE FROM trail_records")

    async with open_trail() as trail:
        await trail.record(ANN, thought("a"), None)
        with pytest.raises(Exception, match="only ever added to"):
            await trail._store.scripts.run(delete)


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_gateway_removes_them_and_clients_are_told(way: Way, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "RETENTION_S", 0.05)
    config = TRAIL.put(
        msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=url)), TrailSettings(keep_days=1 / 24)
    )
    async with open_app(config) as app, way.client_of(app) as client:

        async def ask(tool: str, **arguments: Any) -> Any:
            return data_of(await client.call_tool(f"trail__{tool}", arguments))

        await ask("audit_session_start", intent="x", session_id="old")
        await ask("thought_record", type="decision", agent_id="a", content="do it", session_id="old", task_id="t")
        sealed = await ask("merkle_finalize", session_id="old")
        trail = app.service(Trail)
        await rewind(trail, 7200)
        with anyio.fail_after(30):
            while "removed_at" not in (root := await ask("merkle_root", session_id="old")):
                await anyio.sleep(0.05)
            while await count_rows(trail, "trail_records"):
                await anyio.sleep(0.05)
        again = await ask("merkle_finalize", session_id="old")
        verdict = await ask("audit_verify_chain")
        refusals = [
            error_of(await client.call_tool(f"trail__{tool}", {"session_id": "old", **more}))
            for tool, more in (("merkle_proof", {"record": 1}), ("thought_record_list", {}))
        ]

    assert {name: root[name] for name in sealed} == sealed == {name: again[name] for name in sealed}
    assert verdict == {"valid": True, "broken_count": 0, "record_count": 0, "removed_count": 1}
    assert [refusal["code"] for refusal in refusals] == ["NOT_FOUND"] * 2
    assert all("trail.keep_days" in refusal["message"] for refusal in refusals)
