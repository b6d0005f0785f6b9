"""The official conformance suite's authorization server scenarios pass against the gateway's own login."""

import json
import os
import subprocess
from pathlib import Path

import anyio
import pytest
from anyio.streams.text import TextReceiveStream

from tests.conformance.test_conformance import NODE, SUITE, free_port
from tests.parts.authorization_server.conftest import Gateway, OpenGateway, open_gateway, quick_hashes

__all__ = ["open_gateway", "quick_hashes"]

pytestmark = [
    pytest.mark.skipif(not SUITE.exists() or not NODE.exists(), reason=f"{SUITE} or {NODE} is not there"),
    pytest.mark.anyio,
    pytest.mark.wire,
]


async def test_the_scenarios_of_authorization_servers_pass(open_gateway: OpenGateway, tmp_path: Path) -> None:
    port = free_port()
    async with open_gateway() as gateway:
        client = (await gateway.register(redirect_uris=[f"http://127.0.0.1:{port}/callback"]))["client_id"]
        command: list[str] = [str(NODE), str(SUITE), "authorization", "--url", gateway.url, "--client-id", client]
        command += ["--port", str(port), "--resource", f"{gateway.url}/mcp", "--output-dir", str(tmp_path / "out")]
        with anyio.fail_after(60):
            async with await anyio.open_process(
                command, stderr=subprocess.STDOUT, env={"PATH": os.environ["PATH"]}
            ) as suite:
                assert suite.stdout is not None
                said = ""
                async for text in TextReceiveStream(suite.stdout):
                    said += text
                    if "Waiting up to" in text:
                        await log_in(gateway, next(line for line in said.splitlines() if "/authorize?" in line))
                await suite.wait()
    checks = [check for file in (tmp_path / "out").rglob("checks.json") for check in json.loads(file.read_text())]

    assert {check["id"] for check in checks} >= {"authorization-server-metadata", "authorization-code-grant"}, said
    assert [check for check in checks if check["status"] != "SUCCESS"] == []


async def log_in(gateway: Gateway, url: str) -> None:
    begun = await gateway.http.get(url)
    page = await gateway.sign_in(await gateway.http.get(begun.headers["location"]))
    done = await gateway.send_form(page, action="allow")
    await gateway.http.get(done.headers["location"])
