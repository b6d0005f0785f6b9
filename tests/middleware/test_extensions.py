"""Methods of extensions are held to modes, middleware and approval rules as calls of tools are, in both eras."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.parts.approvals.bank import requiring
from tests.upstreams.extended import CLIENT, extending, wire_to
from tests.upstreams.test_extensions import seen
from tests.upstreams.wires import http_wire
from tests.waiting import until
from tests.ways import IN_MEMORY
from toolpost import CallRequest, CallResult, Forbidden, Next
from toolpost.app import open_app, open_http
from toolpost.app.open import OpenOptions
from toolpost.audit import AuditFilter
from toolpost.settings.callers import CallerSettings
from toolpost.settings.model import ModeSettings, StoreSettings

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

each_era = pytest.mark.parametrize("is_stateless", [False, True], ids=["handshake", "stateless"])
each_transport = pytest.mark.parametrize("transport", ["duplex", "http"])


def methods(tmp_path: Path, name: str = "up") -> list[str]:
    """Return the methods of extensions that reached a server."""
    return [message["method"] for message in seen(tmp_path, name) if "vendor" in str(message.get("method"))]


MODES: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({"mode": "readonly", "confirmed": ["up"]}, {}, False),
    ({"mode": "test"}, {"tags": ("test",)}, True),
    ({"mode": "test"}, {"tags": ("prod",)}, False),
    ({"mode": "minimal", "minimal": ["up__do"]}, {}, False),
    ({"mode": "minimal", "minimal": ["up__*"]}, {}, True),
    ({"mode": "minimal", "minimal": ["up__*", "!up__vendor/*"]}, {}, False),
    ({"mode": "full"}, {}, True),
]


@each_era
@pytest.mark.parametrize("whose", ["gateway", "caller"])
@pytest.mark.parametrize(("modes", "spec", "passes"), MODES, ids=json.dumps)
async def test_a_mode_limits_methods(
    modes: dict[str, Any],
    spec: dict[str, Any],
    passes: bool,
    whose: str,
    is_stateless: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANN", "ann-secret")
    caller = CallerSettings(token="${ANN}", mode=modes["mode"] if whose == "caller" else "full")
    limits = ModeSettings(**(modes if whose == "gateway" else {key: modes[key] for key in modes if key != "mode"}))
    config = msgspec.structs.replace(IN_MEMORY, callers={"ann": caller}, modes=limits)
    servers, token = [extending(tmp_path, spec=spec)], ((b"authorization", b"Bearer ann-secret"),)
    async with open_app(config, bundled=False, servers=servers) as app, open_http(app) as url:
        async with http_wire(url, CLIENT, is_stateless=is_stateless, headers=token) as wire:
            answer = await wire.ask("vendor/echo", {"a": 1})
            await wire.notify("notifications/vendor/hello", {})
            if passes:
                await until(lambda: "notifications/vendor/hello" in methods(tmp_path))
            await wire.ask("ping")

    assert ("result" in answer) is passes, answer
    assert methods(tmp_path) == (["vendor/echo", "notifications/vendor/hello"] if passes else [])
    if modes["mode"] == "readonly":
        error = answer["error"]["data"]
        assert error["code"] == "FORBIDDEN"
        assert "modes.mode" in error["hint"]
    elif not passes:
        assert answer["error"]["code"] == -32601


@each_era
@each_transport
@pytest.mark.parametrize(
    "rule",
    [
        {"tools": ["up__*"]},
        {"tools": ["up__vendor/*"]},
        {"tags": ["risky"]},
        {"annotations": {"destructiveHint": True}},
        {"arguments": {"required": ["b"]}},
    ],
    ids=lambda rule: next(iter(rule)),
)
async def test_a_method_is_no_way_around_an_approval(
    rule: dict[str, Any], transport: str, is_stateless: bool, tmp_path: Path
) -> None:
    config = requiring(**{"tools": None} | rule)
    spec = extending(tmp_path, spec={"tags": ("risky",)})
    async with wire_to(transport, spec, is_stateless=is_stateless, config=config) as (app, wire):
        answer = await wire.ask("vendor/echo", {"a": 1})
        await wire.notify("notifications/vendor/hello", {})
        await wire.ask("ping")
        (record,) = await app.store.audit.entries(AuditFilter(), limit=10)

    error = answer["error"]["data"]
    assert (error["code"], error["details"]["guard"]) == ("FORBIDDEN", "approvals")
    assert "!up__vendor/echo" in error["hint"]
    assert (record.entry.tool, record.entry.source, record.entry.outcome) == ("vendor/echo", "up", "refused")
    assert methods(tmp_path) == []


@each_era
async def test_a_method_that_no_rule_matches_passes(is_stateless: bool, tmp_path: Path) -> None:
    config = requiring(tools=["up__*", "other__*", "!up__vendor/echo"])
    async with wire_to("http", extending(tmp_path), is_stateless=is_stateless, config=config) as (_, wire):
        answers = [await wire.ask(method, {}) for method in ("vendor/echo", "vendor/tell")]

    assert ["result" in answer for answer in answers] == [True, False]
    assert methods(tmp_path) == ["vendor/echo"]


@each_era
@pytest.mark.parametrize("name", ["up__do", "do"])
async def test_a_method_is_held_to_the_rules_of_the_tool_that_it_names(
    name: str, is_stateless: bool, tmp_path: Path
) -> None:
    config = requiring(tools=["up__do"])
    async with wire_to("http", extending(tmp_path), is_stateless=is_stateless, config=config) as (_, wire):
        other = await wire.ask("vendor/echo", {"name": "other"})
        answer = await wire.ask("vendor/echo", {"name": name})

    assert other["result"]["params"]["name"] == "other"
    assert answer["error"]["data"]["code"] == "FORBIDDEN"
    assert methods(tmp_path) == ["vendor/echo"]


@each_era
async def test_a_middleware_sees_changes_and_refuses_methods(is_stateless: bool, tmp_path: Path) -> None:
    requests: list[CallRequest] = []

    async def police(call: CallRequest, proceed: Next) -> CallResult:
        requests.append(call)
        if call.arguments.get("a") == "bad":
            raise Forbidden("Not this.", hint="something else")
        if call.arguments.get("a") == "bug":
            raise RuntimeError("internals")
        result = await proceed(call.with_arguments({**call.arguments, "added": True}))
        return result.replace(data={**result.data, "seen": True})

    specs = [extending(tmp_path)]
    async with (
        open_app(IN_MEMORY, bundled=False, servers=specs, options=OpenOptions(middleware=[police])) as app,
        open_http(app) as url,
    ):
        async with http_wire(url, CLIENT, is_stateless=is_stateless) as wire:
            passed = await wire.ask("vendor/echo", {"a": 1}, {"com.example/key": 7})
            refused = await wire.ask("vendor/echo", {"a": "bad"})
            failed = await wire.ask("vendor/echo", {"a": "bug"})
            await wire.notify("notifications/vendor/hello", {"a": "bad"})
            await wire.ask("ping")
        outcomes = [record.entry.outcome for record in await app.store.audit.entries(AuditFilter(), limit=10)]

    assert (passed["result"]["seen"], passed["result"]["params"]["added"]) == (True, True)
    assert (refused["error"]["data"]["code"], refused["error"]["data"]["hint"]) == ("FORBIDDEN", "something else")
    assert failed["error"]["data"]["code"] == "INTERNAL"
    assert "internals" not in json.dumps(failed)
    assert [call.tool for call in requests] == ["up__vendor/echo"] * 3 + ["up__vendor/hello"]
    assert (requests[0].provider, requests[0].meta["com.example/key"]) == ("up", 7)
    assert methods(tmp_path) == ["vendor/echo"]
    assert sorted(outcomes) == ["error", "ok", "refused"]


GATEWAY = """
import sys
from tests.middleware.test_extensions import serve_until_killed
serve_until_killed(*sys.argv[1:])
"""


def serve_until_killed(folder: str, store: str) -> None:
    """Send a method that is never answered, and wait to be killed."""

    async def serve() -> None:
        config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=f"sqlite:{store}"))
        async with wire_to("duplex", extending(Path(folder)), is_stateless=False, config=config) as (_, wire):
            await wire.ask("vendor/never", {"a": 1})

    asyncio.run(serve())


async def test_a_method_is_on_record_before_it_can_have_an_effect(tmp_path: Path) -> None:
    store = str(tmp_path / "store.db")
    gateway = await asyncio.create_subprocess_exec(
        sys.executable, "-c", GATEWAY, str(tmp_path), store, cwd=Path(__file__).parents[2]
    )
    try:
        await until(lambda: "vendor/never" in methods(tmp_path))
    finally:
        os.kill(gateway.pid, signal.SIGKILL)
        await gateway.wait()
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=f"sqlite:{store}"))
    async with open_app(config, bundled=False) as app:
        (record,) = await app.store.audit.entries(AuditFilter(), limit=10)

    assert (record.entry.tool, record.entry.source, record.entry.outcome) == ("vendor/never", "up", "lost")
