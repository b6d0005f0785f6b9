"""The trail over HTTP: shown, verified and proven, to its owner and to administrators; what operators see of it."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.parts.trail.test_tools import ask
from tests.ways import IN_MEMORY, QUICK_WAYS, STATELESS
from tests.wire.callers import client_of, request, three_callers
from toolpost.app import open_app, open_http
from toolpost.audit import AuditFilter
from toolpost.parts.trail.doctor import TrailDoctor
from toolpost.parts.trail.settings import TRAIL, TrailSettings
from toolpost.parts.trail.verify_trail import check_proof
from toolpost.settings import Config
from toolpost.settings.model import PluginSettings
from toolpost.testing import error_of

pytestmark = pytest.mark.anyio


@pytest.mark.wire
async def test_sessions_are_shown_verified_and_proven_over_http(tmp_path: Path, url: str) -> None:
    async with open_app(three_callers(tmp_path, url)) as app, open_http(app) as http:
        async with client_of(http, "token-of-ann", STATELESS) as client:
            await ask(client, "audit_session_start", intent="mend", session_id="work")
            for content in ("one", "two", "three"):
                given = {"type": "plan", "agent_id": "a", "content": content}
                await ask(client, "thought_record", session_id="work", **given)
            await ask(client, "merkle_finalize", session_id="work")
        own = [await request(http, f"/api/trail{path}", "ann") for path in ("", "/session?id=work&after=1&limit=1")]
        proofs = [
            await request(http, f"/api/trail/prove?id=work&{what}", "ann")
            for what in ("record=2", "first=1", "first=1&size=2")
        ]
        valid = [await request(http, f"/api/trail/verify{query}", "ann") for query in ("?id=work", "")]
        eve = [
            await request(http, f"/api/trail{path}", "eve")
            for path in ("", "/session?id=work", "/verify?id=work", "/prove?id=work&record=1", "?caller=ann")
        ]
        admin = [
            await request(http, f"/api/trail{path}", "ben")
            for path in ("", "?caller=ann", "?caller=eve", "/session?id=work")
        ]
        bad = [
            await request(http, f"/api/trail{path}", "ann")
            for path in (
                "/session",
                "/session?id=work&after=x",
                "/session?id=%00",
                "/prove?id=work",
                "/prove?id=work&record=1&first=1",
                "/prove?id=work&first=9",
                "/prove?id=work&record=1&size=99999999999999999999",
            )
        ]
        missing = await request(http, "/api/trail/prove?id=work&record=9", "ann")
        stranger = await request(http, "/api/trail", "mallory")
        written = await request(http, "/api/trail", "ann", method="POST")
        metrics = (await request(http, "/metrics", "ben"))[1]

    assert [status for status, _ in own] == [200, 200]
    assert own[0][1]["sessions"][0]["session_id"] == "work"
    assert own[0][1]["public_key"] == own[0][1]["sessions"][0]["public_key"]
    assert [record["content"] for record in own[1][1]["records"]] == ["two"]
    assert [check_proof(proof) for _, proof in proofs] == [
        "record 2 is in the session work",
        "the first 1 records of the session work are as they were",
        "the first 1 records of the session work are as they were",
    ]
    assert valid == [(200, {"valid": True, "broken_count": 0, "record_count": 3})] * 2
    assert (eve[0][1]["sessions"], [status for status, _ in eve[1:]]) == ([], [404, 404, 404, 403])
    assert [len(answer["sessions"]) for _, answer in admin[:3]] == [1, 1, 0]
    assert admin[3][0] == 200
    assert [status for status, _ in bad] == [400] * len(bad)
    assert (missing[0], stranger[0], written[0]) == (404, 401, 405)
    assert 'toolpost_trail_records_total{kind="thought"} 3' in metrics
    assert "toolpost_trail_seals_total 1" in metrics
    assert "toolpost_trail_sessions 1" in metrics


async def test_what_must_be_decided_is_looked_at() -> None:
    def with_settings(**given: Any) -> Config:
        return TRAIL.put(IN_MEMORY, TrailSettings(**given))

    doctor = TrailDoctor()
    none = await doctor.check_setup(IN_MEMORY)
    good = await doctor.check_setup(with_settings(decisions={"bus__worker_done": "bead_id"}, deciding_agents=["*"]))
    bad = await doctor.check_setup(with_settings(decisions={"buss__done": "id"}, deciding_agents=["main"]))

    assert none == []
    assert [finding.message for finding in good] == ["a decision is required by bus__worker_done, turns of *"]
    assert [(finding.level, finding.message) for finding in bad] == [
        ("problem", "deciding_agents: there is no agent `main`"),
        ("warning", "decisions: no server or plugin has `buss__done`"),
    ]


async def test_what_is_required_needs_no_second_setting() -> None:
    """Decisions are required although `plugins.bundled` does not name the plugin."""
    config = msgspec.structs.replace(IN_MEMORY, plugins=PluginSettings(bundled=["time"]))
    config = TRAIL.put(config, TrailSettings(decisions={"time__current_time": "timezone"}))
    async with open_app(config) as app, QUICK_WAYS[0].client_of(app) as client:
        refused = error_of(await client.call_tool("time__current_time", {"timezone": "UTC"}))
        await ask(client, "thought_record", type="decision", agent_id="a", content="x", task_id="UTC")
        answer = await client.call_tool("time__current_time", {"timezone": "UTC"})

    assert refused["code"] == "INVALID_REQUEST"
    assert not answer.is_error


@pytest.mark.wire
async def test_a_call_is_proven_by_its_id_to_its_owner_and_to_administrators(tmp_path: Path, url: str) -> None:
    plugins = PluginSettings(bundled=["time", "trail"])
    config = TRAIL.put(
        msgspec.structs.replace(three_callers(tmp_path, url), plugins=plugins), TrailSettings(sessions="all")
    )
    async with open_app(config) as app, open_http(app) as http:
        async with client_of(http, "token-of-ann", "legacy") as client:
            await client.call_tool("time__current_time", {"timezone": "UTC"})
        (record,) = await app.store.audit.entries(AuditFilter(tool="time__*"), limit=1)
        answers = {
            name: await request(http, f"/api/trail/prove?call={record.entry.call_id}", name)
            for name in ("ann", "ben", "eve")
        }
        missing = await request(http, "/api/trail/prove?call=c-nothing", "ann")

    assert {name: status for name, (status, _) in answers.items()} == {"ann": 200, "ben": 200, "eve": 404}
    assert missing[0] == 404
    assert check_proof(answers["ann"][1]).startswith("record ")
    assert record.entry.call_id in json.dumps(answers["ann"][1])
