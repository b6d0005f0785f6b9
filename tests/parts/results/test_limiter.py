"""Which results are limited, for whom, and what is sent where the usual answer is not possible."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tests.hostile.attacks import attack
from tests.parts.results.conftest import LIMIT, limited, open_limited
from tests.plugins.bulk import plugin as bulk
from tests.ways import IN_MEMORY
from toolpost import Plugin
from toolpost.app import App
from toolpost.base.caller import Caller, ClientInfo, Scope
from toolpost.base.ids import CallerId
from toolpost.contracts.errors import BadConfiguration, StoreUnavailable
from toolpost.discovery.views import View
from toolpost.endpoints.calls import write_call_result
from toolpost.middleware import CheckedResult
from toolpost.parts import ResultLimiter
from toolpost.parts.results.doctor import ResultsDoctor
from toolpost.parts.results.settings import RESULTS, LimitRule, LimitTable, ResultSettings, SizeLimits, check_results
from toolpost.protocol.era import REVISIONS
from toolpost.settings.servers import ServerSettings

pytestmark = pytest.mark.anyio


def caller(revision: str = "2025-11-25") -> Caller:
    return Caller(id=CallerId("ada"), transport="memory", client=ClientInfo(revision=revision))


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[App]:
    async with open_limited(limited(**settings), bulk) as app:
        yield app


async def call(app: App, tool: str, revision: str = "2025-11-25", **arguments: Any) -> dict[str, Any]:
    admitted = app.gateway.admit(caller=caller(revision), name=tool, arguments=arguments)
    written: dict[str, Any] = json.loads(write_call_result(await app.gateway.call(admitted), REVISIONS[revision]))
    return written


async def limit(app: App, result: CheckedResult) -> CheckedResult:
    admitted = app.gateway.admit(caller=caller(), name="bulk__text", arguments={"count": 1})
    limiter = app.contributions.first(ResultLimiter)
    assert limiter is not None
    return await limiter.limit(admitted, result)


@pytest.mark.parametrize("revision", [name for name, known in REVISIONS.items() if not known.has_structured_content])
async def test_a_client_that_knows_no_links_gets_text_in_their_place(revision: str) -> None:
    async with served(blob_bytes=2_000) as app:
        for tool, count in (("bulk__rows", 500), ("bulk__exact", 500), ("bulk__picture", 100)):
            written = await call(app, tool, revision, count=count)
            assert {block["type"] for block in written["content"]} == {"text"}
            assert "structuredContent" not in written
            # It knows no output schema, so that nothing has to look like an error.
            assert written["isError"] is False
            assert "[Truncated] The call succeeded." in written["content"][-1]["text"]


async def test_what_cannot_be_kept_is_sent_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(keep_mb=1) as app:
        written = await call(app, "bulk__text", count=100_000)
        assert written["content"][0]["text"].count("\n") == 100_000
        assert len(written["content"]) == 1

        async def refuse(*_: Any, **__: Any) -> None:
            raise StoreUnavailable("The disk is full.")

        monkeypatch.setattr("toolpost.parts.results.kept.KeptResults.keep", refuse)
        written = await call(app, "bulk__text", count=1_000)
        assert written["content"][0]["text"].count("\n") == 1_000
        assert 'toolpost_results_limited_total{answer="whole"} 2.0' in await app.monitor.scrape()


@attack("server", "send JSON of nothing but brackets, deeply nested or not", "its beginning is shown, in bounded time")
async def test_dense_json_is_shown_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolpost.parts.results.scan.Scanner.__init__", _impatient)
    for content in (b"[" * 3_000 + b"]" * 3_000, b"[" + b",".join([b"[]"] * 20_000) + b"]"):
        fields = {"content": msgspec.Raw(content), "structuredContent": msgspec.Raw(b'{"a":' + content + b"}")}
        data = msgspec.json.encode(fields)
        async with served() as app:
            short = await limit(app, CheckedResult(data, upstream_fields=fields))
        written = json.loads(short.encoded)
        assert len(short.encoded) < 2 * LIMIT
        assert written["content"][-2]["text"].startswith("[Truncated]")


def _impatient(self: Any, data: bytes, steps_limit: int = 1_000) -> None:
    self.data = data
    self._steps = steps_limit


async def test_a_result_that_fits_is_the_same_object() -> None:
    image = {"type": "image", "data": "A" * 50_000, "mimeType": "image/png"}
    fields = {"content": msgspec.Raw(msgspec.json.encode([image, {"type": "text", "text": "x"}]))}
    both = {
        "content": msgspec.Raw(msgspec.json.encode([{"type": "text", "text": "x" * 1500}])),
        "structuredContent": msgspec.Raw(b'{"a":"%b"}' % (b"x" * 1500)),
    }
    asking = {"resultType": msgspec.Raw(b'"input_required"'), "requestState": msgspec.Raw(b'"%b"' % (b"x" * 9000))}
    async with served(blob_bytes=100_000) as app:
        for each in (fields, both, asking):
            result = CheckedResult(msgspec.json.encode(each), upstream_fields=each)
            assert await limit(app, result) is result
        beside = CheckedResult(b'"x"', [image])
        assert await limit(app, beside) is beside
        whole = await call(app, "bulk__rows", count=10)
        assert len(whole["content"]) == 1


async def test_unknown_fields_and_meta_are_passed_on_unless_they_are_large() -> None:
    async with served() as app:
        text = msgspec.Raw(msgspec.json.encode([{"type": "text", "text": "x" * 9000, "annotations": {"priority": 1}}]))
        fields = {"content": text, "_meta": msgspec.Raw(b'{"a":1}'), "other": msgspec.Raw(b'"%b"' % (b"x" * 9000))}
        short = await limit(app, CheckedResult(msgspec.json.encode(fields), upstream_fields=fields))
        written = json.loads(short.encoded)

    assert written["_meta"] == {"a": 1}
    assert "other" not in written
    assert written["content"][0]["annotations"] == {"priority": 1}


async def test_programs_in_this_process_get_whole_results() -> None:
    async with served() as app:
        admitted = app.gateway.admit(
            caller=caller(), name="bulk__rows", arguments={"count": 500}, wants_whole_result=True
        )
        answer = await app.gateway.call(admitted)

    assert len(json.loads(answer.payload)["data"]) == 500


def test_the_first_rule_that_matches_counts() -> None:
    settings = ResultSettings(
        limit_tokens=10_000,
        rules={
            "mine": LimitRule(callers=["ada"], tools=["logs__*", "!logs__all"], limit_tokens=500),
            "logs": LimitRule(tools=["logs__*"], limit_tokens=2_250),
            "ci": LimitRule(callers=["ci"], limit_tokens=0),
        },
    )
    check_results(settings)
    table = LimitTable(settings)
    blobs = settings.blob_bytes

    assert settings.smallest == 2_000
    assert table.find("logs__one", "ada") == SizeLimits(2_000, blobs)
    assert table.find("logs__all", "ada") == SizeLimits(9_000, blobs)
    assert table.find("logs__one", "ci") == SizeLimits(9_000, blobs)
    assert table.find("other__one", "ci") is None
    assert table.find("other__one", "ada") == SizeLimits(40_000, blobs)
    assert ResultSettings().smallest == 0
    only = ResultSettings(rules={"logs": LimitRule(tools=["logs__*"], limit_tokens=2_250)})
    assert LimitTable(only).find("other__one", "ada") is None


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (LimitRule(), "has no limit"),
        (LimitRule(limit_tokens=249), "250 is the least"),
        (LimitRule(tools=["!"], limit_tokens=1250), "a pattern is empty"),
    ],
)
async def test_rules_that_say_nothing_are_refused(rule: LimitRule, message: str) -> None:
    with pytest.raises(BadConfiguration, match=message):
        async with open_limited(limited(rules={"one": rule}), bulk):
            pass


async def test_doctor_names_callers_that_are_not_there() -> None:
    doctor = ResultsDoctor()
    assert await doctor.check_setup(IN_MEMORY) == []
    rules = {"one": LimitRule(callers=["nobody", "local"], limit_tokens=0)}
    found = await doctor.check_setup(RESULTS.put(IN_MEMORY, ResultSettings(limit_tokens=1000, rules=rules)))
    assert [(each.level.value, each.message) for each in found] == [
        ("warning", "results.rules.one: there is no caller `nobody`"),
        ("ok", "results are truncated over 4000 bytes, and kept for 3600 s, 256 MB a caller"),
    ]


async def test_only_the_very_plugin_that_reads_results_is_shown_to_every_caller() -> None:
    theirs = Plugin("results", version="1.0.0")

    @theirs.tool
    def secret() -> str:
        """Return what not every caller may see."""
        return "secret"

    scope = Scope(tools=("bulk__*",))
    async with open_limited(limited(), bulk) as app:
        assert "results__read" in [tool.contract.name for tool in app.gateway.catalog.narrow(View(scopes=(scope,)))]
    async with open_limited(limited(), theirs, bulk) as app:
        assert "results__secret" in [tool.contract.name for tool in app.gateway.catalog]
        shown = [tool.contract.name for tool in app.gateway.catalog.narrow(View(scopes=(scope,)))]
        assert not app.plugins.for_everyone
    assert shown
    assert all(name.startswith("bulk__") for name in shown)


async def test_a_server_may_not_take_the_place_of_what_reads_the_rest() -> None:
    config = msgspec.structs.replace(limited(), servers={"results": ServerSettings(command="cat")})
    with pytest.raises(BadConfiguration, match=r"servers\.results takes the place"):
        async with open_limited(config, bulk):
            pass
