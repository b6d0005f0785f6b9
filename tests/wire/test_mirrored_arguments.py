"""An argument that is mirrored into a header must say there what it says in the body: a proxy may have routed on it."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp import Client

from tests.ways import BEHAVIOURS, ENVELOPE, IN_MEMORY, STATELESS, plugin_of
from tests.wire.test_bad_input import RawHttp
from toolpost.app import open_app, open_http
from toolpost.testing import data_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


@pytest.fixture
async def url(anyio_backend: Any) -> AsyncIterator[str]:
    async with open_app(IN_MEMORY, plugins=[plugin_of(BEHAVIOURS)], bundled=False) as app, open_http(app) as opened:
        yield opened


async def test_the_official_client_is_understood(url: str) -> None:
    async with Client(url, mode=STATELESS) as client:
        await client.list_tools()
        answer = await client.call_tool("does__mirrored", {"region": "eu-west"})

    assert data_of(answer) == "eu-west"


@pytest.mark.parametrize(("header", "status"), [("eu-west", 200), ("us-east", 400), ("", 400)])
async def test_a_header_that_says_something_else_is_refused(url: str, header: str, status: int) -> None:
    http = RawHttp(int(url.split(":")[2].split("/", maxsplit=1)[0]))
    params = {"name": "does__mirrored", "arguments": {"region": "eu-west"}, "_meta": ENVELOPE}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    got, answer = await http.post(body, mcp_name="does__mirrored", mcp_param_region=header)

    assert got == status
    if status == 400:
        assert json.loads(answer)["error"]["code"] == -32020
