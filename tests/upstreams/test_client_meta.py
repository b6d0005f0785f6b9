"""The `_meta` of a client's request reaches the server, as with a direct connection: all but what is the gateway's own."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.upstreams.extended import META, extending, wire_to
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

TRACE = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
SAID = {"com.example/tenant": {"id": 7, "odd": None}, "vendor": "x", "io.modelcontextprotocol.skills/y": 1}
OURS = {META: {"routingKey": "k"}, "progressToken": "theirs", "io.modelcontextprotocol/clientInfo": {"name": "mallory"}}
REQUESTS: dict[str, Any] = {
    "tools/call": {"name": "up__do", "arguments": {"what": "echo"}},
    "resources/read": {"uri": "note://one"},
    "prompts/get": {"name": "up__greet"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "up__greet"},
        "argument": {"name": "who", "value": "a"},
    },
    "vendor/echo": {"n": 1},
}
ANSWERS = {
    "prompts/get": {"messages": []},
    "prompts/list": {"prompts": [{"name": "greet"}]},
    "completion/complete": {"completion": {"values": []}},
}


def saying(tmp_path: Path, era: str, **spec: Any) -> ServerSpec:
    offered: dict[str, Any] = {
        "resources": {},
        "prompts": {},
        "completions": {},
        "extensions": {"com.example/vendor": {}},
    }
    return extending(tmp_path, era=era, capabilities=offered, uris=["note://one"], answers=ANSWERS, spec=spec)


def metas(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Return the `_meta` of the last request of each method that the server got."""
    messages = map(json.loads, (tmp_path / "up").read_text().splitlines())
    return {
        message["method"]: (message.get("params") or {}).get("_meta", {}) for message in messages if "id" in message
    }


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize(
    ("transport", "is_stateless"),
    [("duplex", False), ("duplex", True), ("http", False), ("http", True)],
    ids=["duplex-handshake", "duplex-modern", "http-handshake", "http-modern"],
)
async def test_it_passes_but_for_what_is_ours(transport: str, is_stateless: bool, era: str, tmp_path: Path) -> None:
    own = {} if is_stateless else {"io.modelcontextprotocol/clientInfo": OURS["io.modelcontextprotocol/clientInfo"]}
    sent = SAID | TRACE | {META: OURS[META], "progressToken": OURS["progressToken"]} | own
    async with wire_to(transport, saying(tmp_path, era), is_stateless=is_stateless) as (_, wire):
        for method, params in REQUESTS.items():
            assert "result" in await wire.ask(method, params, sent), method
        with_token = metas(tmp_path)
        del sent["progressToken"]
        for method, params in REQUESTS.items():
            # A call without progress, to a server that runs, takes the fast path.
            assert "result" in await wire.ask(method, params, sent), method
    got = metas(tmp_path)

    for method, meta in [(method, seen[method]) for seen in (with_token, got) for method in REQUESTS]:
        assert {key: meta.get(key) for key in SAID} == SAID, method
        assert meta["traceparent"].split("-")[1] == TRACE["traceparent"].split("-")[1]
        assert META not in meta
        assert meta.get("progressToken") != "theirs"
        assert meta.get("io.modelcontextprotocol/clientInfo", {}).get("name") != "mallory"
    # A list goes to every server.
    assert not got["resources/list"].keys() & SAID.keys()


@pytest.mark.parametrize("is_stateless", [False, True], ids=["handshake", "modern"])
async def test_a_setting_withholds_it(is_stateless: bool, tmp_path: Path) -> None:
    spec = saying(tmp_path, "handshake", client_meta=False)
    async with wire_to("duplex", spec, is_stateless=is_stateless) as (_, wire):
        for method, params in REQUESTS.items():
            for _ in range(2):
                assert "result" in await wire.ask(method, params, SAID | TRACE), method
    got = metas(tmp_path)

    for method in REQUESTS:
        assert not got[method].keys() & SAID.keys(), method
        assert got[method]["traceparent"].split("-")[1] == TRACE["traceparent"].split("-")[1]
