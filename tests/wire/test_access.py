"""Who may come in: a token where one is set, and one is mandatory off localhost."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tests.hostile.attacks import attack
from tests.ways import BEHAVIOURS, IN_MEMORY, STATELESS, plugin_of
from toolpost.app import open_app, open_http
from toolpost.audit import AuditFilter
from toolpost.contracts.errors import BadConfiguration
from toolpost.endpoints.auth.access import Access, Refused
from toolpost.endpoints.auth.roster import CallerTable, KnownCaller, Roster, digest_of
from toolpost.settings.model import HttpSettings
from toolpost.testing import data_of

pytestmark = pytest.mark.anyio


@pytest.mark.wire
@pytest.mark.parametrize("mode", ["legacy", STATELESS])
async def test_a_token_is_asked_for_and_names_the_caller(mode: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    config = msgspec.structs.replace(
        IN_MEMORY, project=str(tmp_path), http=HttpSettings(listen="127.0.0.1:0", token="${file:token}")
    )
    async with open_app(config, plugins=[plugin_of(BEHAVIOURS)], bundled=False) as app, open_http(app) as url:
        async with create_mcp_http_client(headers={"authorization": "Bearer s3cret"}) as known:
            async with Client(streamable_http_client(url, http_client=known), mode=mode) as client:
                answer = await client.call_tool("does__echo", {"text": "x"})
                listed = await client.list_tools()
        statuses = [await _status(url, token) for token in ("", "Bearer wrong", "Basic s3cret", "Bearer s3cre")]
        health = await _status(url.replace("/mcp", "/healthz"), "")
        entries = await app.store.audit.entries(AuditFilter(), limit=10)

    assert data_of(answer) == "x"
    assert statuses == [401, 401, 401, 401]
    assert health == 200
    assert [record.entry.caller for record in entries] == ["token"]
    if mode == STATELESS:
        assert listed.cache_scope == "private"


@attack(
    "operator",
    "listens to the network without a token",
    "the gateway does not start",
)
@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::"])
async def test_off_localhost_a_token_is_mandatory(host: str) -> None:
    with pytest.raises(BadConfiguration, match="requires a token"):
        Access(host=host, roster=Roster())

    known = KnownCaller(name="token", token=digest_of(b"t"))
    access = Access(host=host, roster=Roster(CallerTable(callers=(known,))))
    admission = access.find_admission({b"host": b"any", b"authorization": b"Bearer t"})
    assert admission is not None
    assert admission.caller.id == "token"


async def _status(url: str, authorization: str) -> int:
    port = int(url.split(":")[2].split("/", maxsplit=1)[0])
    path = url[url.index("/", 8) :]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    verb = "POST" if path == "/mcp" else "GET"
    writer.write(
        f"{verb} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {authorization}\r\nconnection: close\r\n\r\n".encode()
    )
    status = int((await reader.read()).split(b" ")[1])
    writer.close()
    await writer.wait_closed()
    return status


def test_a_name_that_a_proxy_sends_is_refused_with_where_it_belongs() -> None:
    with pytest.raises(Refused, match=r"http\.allowed_hosts") as refused:
        Access(host="127.0.0.1", roster=Roster()).find_admission({b"host": b"tools.example"})

    assert refused.value.status == 421
    named = Access(host="127.0.0.1", roster=Roster(), allowed_hosts=["tools.example"])
    assert named.find_admission({b"host": b"tools.example"}) is not None
