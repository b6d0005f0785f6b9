"""What a server was given in confidence does not come back out through its failures."""

import sys
from pathlib import Path

import msgspec
import pytest

from tests.hostile.attacks import attack
from tests.ways import IN_MEMORY, QUICK_WAYS, Way
from toolpost.app import open_app
from toolpost.settings import ServerSettings
from toolpost.testing import error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

SCRIPT = """
import json, os, sys
if os.path.exists(sys.argv[1]):
    sys.exit("cannot log in with " + os.environ["API_TOKEN"])
open(sys.argv[1], "w").close()
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "server/discover":
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
    if message.get("method") == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    if message.get("method") == "tools/list":
        tools = [{"name": "t", "inputSchema": {"type": "object"}}]
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}}), flush=True)
    if message.get("method") == "tools/call":
        sys.exit("dying with " + os.environ["API_TOKEN"])
"""


@attack(
    "server",
    "prints the secrets of its environment and crashes",
    "they are masked in answers, logs and reports",
)
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_token_that_a_server_prints_reaches_nobody(
    way: Way, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="toolpost")
    (tmp_path / "server.py").write_text(SCRIPT)
    settings = ServerSettings(
        command=sys.executable,
        args=[str(tmp_path / "server.py"), str(tmp_path / "started")],
        env={"API_TOKEN": "tok-5up3r-s3cret"},
    )
    config = msgspec.structs.replace(IN_MEMORY, servers={"leaky": settings}, project=str(tmp_path))
    async with open_app(config, bundled=False) as app, way.client_of(app) as client:
        crashed = await client.call_tool("leaky__t", {})
        failed = await client.call_tool("leaky__t", {})
        report = app.servers.providers["leaky"].supervisor.report()

    assert error_of(crashed)["code"] == error_of(failed)["code"] == "UPSTREAM_UNAVAILABLE"
    assert "(redacted)" in str(error_of(crashed))
    for shown in (str(crashed), str(failed), str(report.last_error), str(report.stderr_tail), caplog.text):
        assert "s3cret" not in shown
