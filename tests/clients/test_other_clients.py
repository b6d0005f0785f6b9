"""What a plugin offers, as clients that others wrote get it: the TypeScript SDK's, the Inspector's and FastMCP's.

`scripts/node-servers` puts the first two into `.venv/node`, the extra `bench` brings the third; without them these tests are
skipped. One client is wire, the others are soak.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.test_conformance import NODE, PLACE, free_port, running
from tests.ways import BEHAVIOURS, TOOLPOST, server_environment

OFFERS = "tests.plugins.offers:plugin"
HERE = Path(__file__).parent
INSPECTOR = Path(sys.prefix) / "node-clients" / "node_modules" / ".bin" / "mcp-inspector"

pytestmark = [pytest.mark.wire, pytest.mark.soak, pytest.mark.timeout(120)]

needs_node = pytest.mark.skipif(
    not NODE.exists() or not (PLACE / "@modelcontextprotocol/client").exists(), reason="npm's clients are not there"
)
needs_fastmcp = pytest.mark.skipif(importlib.util.find_spec("fastmcp") is None, reason="fastmcp is not installed")


@contextmanager
def target(transport: str, folder: Path) -> Iterator[list[str]]:
    """Yield how a client reaches the plugin: the address of a gateway, or the command that starts one."""
    if transport == "stdio":
        yield [TOOLPOST, "serve", "--stdio", "--plugin", OFFERS]
        return
    port = free_port()
    with running([TOOLPOST, "serve", "--listen", f"127.0.0.1:{port}", "--plugin", OFFERS], port, folder):
        yield [f"http://127.0.0.1:{port}/mcp"]


def run(*command: str | Path, folder: Path) -> Any:
    """Run a client and return the JSON that it printed last."""
    environment = server_environment() | {"HOME": str(folder), "PYTHONWARNINGS": "ignore", "PATH": os.environ["PATH"]}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


EXPECTED: dict[str, Any] = {
    "tools": 19,
    "icons": ["https://example.com/image.png", "data:,"],
    "mixed": ["text", "image", "audio", "resource", "resource", "resource_link", "text"],
    "image": ["image"],
    "measured": [{"ok": True, "data": {"width": 1}}, "ruler"],
    "broken": [True, ["text", "image"]],
    "refused": -32050,
    "resources": ["offers://logo"],
    "templates": ["offers://notes/{title}", "offers://search{?text,most}"],
    "note": "buy bread",
    "missing": -32602,
    "prompts": ["offers__summarize"],
    "prompt": "Summarize it in 7 dry words.",
    "completed": ["warm"],
    "booked": {
        "action": "accept",
        "booking": {"name": "Ada", "guests": 3, "table": "inside", "note": None},
        "sure": True,
    },
    "thread": "Ada",
    "atOnce": {"name": {"name": "Ada"}, "poem": "roses"},
    "paid": "accept",
    "folders": ["file:///home/ada"],
    "private": "shown",
    "personal": "I am Ada.",
    "logs": ["info", "error"],
    "changed": ["offers://notes/today", "prompts", "resources", "tools"],
}


@needs_node
@pytest.mark.parametrize(
    ("version", "era", "transport"),
    [
        pytest.param("v1", "legacy", "http"),
        *(
            pytest.param(*case, marks=pytest.mark.soak)
            for case in (
                ("v1", "legacy", "stdio"),
                ("v2", "legacy", "http"),
                ("v2", "legacy", "stdio"),
                ("v2", "modern", "http"),
                ("v2", "modern", "stdio"),
            )
        ),
    ],
)
def test_the_typescript_sdk(version: str, era: str, transport: str, tmp_path: Path) -> None:
    with target(transport, tmp_path) as where:
        script = HERE / "typescript_client.mjs"
        found = json.loads(run(NODE, script, PLACE.parent, version, era, *where, folder=tmp_path).splitlines()[-1])

    revision = "2026-07-28" if era == "modern" else "2025-11-25"
    assert found.pop("who") == {"name": "ts", "revision": revision, "can": [True, True, True, True]}
    asked = ["Your booking?", "A table for 3?", "Your booking?", "Your name?", "Pay there", "Show it?", "Who are you?"]
    assert found.pop("asked") == asked
    # The code of the handshake era; the second version of the SDK shows that of the stateless era in its place.
    assert found == (EXPECTED | {"missing": -32002} if version == "v1" else EXPECTED)


@needs_node
@pytest.mark.parametrize(("version", "era"), [("v1", "legacy"), ("v2", "legacy"), ("v2", "modern")])
def test_the_typescript_sdk_gets_the_last_progress_on_a_pipe(version: str, era: str, tmp_path: Path) -> None:
    serve = (TOOLPOST, "serve", "--stdio", "--plugin", BEHAVIOURS)
    script = HERE / "progress_client.mjs"
    printed = run(NODE, script, PLACE.parent, version, era, "does__chatter", "20", *serve, folder=tmp_path)
    got = json.loads(printed.splitlines()[-1])

    lost = [values for values in got["found"] if values != [1, 2, 3]]
    # The client has 20 ms to read the last report: on a busy machine that is not always enough.
    assert len(lost) <= 3, got
    assert lost or got["errors"] == []


@needs_fastmcp
@pytest.mark.soak
@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_fastmcp(era: str, transport: str, tmp_path: Path) -> None:
    with target(transport, tmp_path) as where:
        found = json.loads(
            run(sys.executable, HERE / "fastmcp_client.py", era, *where, folder=tmp_path).splitlines()[-1]
        )

    assert found.pop("asked") == ["Your booking?", "A table for 3?", "Your name?", "Show it?", "Who are you?"]
    assert found == {key: EXPECTED[key] for key in found}
    assert len(found) == (16 if era == "legacy" else 15)


@needs_node
@pytest.mark.skipif(not INSPECTOR.exists(), reason="the Inspector is not here: scripts/node-clients gets it")
@pytest.mark.soak
@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector(era: str, transport: str, tmp_path: Path) -> None:
    with target(transport, tmp_path) as where:

        def ask(*options: str) -> Any:
            command: list[str | Path] = [NODE, INSPECTOR, "--cli", "--protocol-era", era]
            if transport == "stdio":
                for name in ("PYTHONPATH", "PATH", "XDG_DATA_HOME"):
                    command += ["-e", f"{name}={server_environment()[name]}"]
                return json.loads(run(*command, *options, "--", *where, folder=tmp_path))
            return json.loads(run(*command, *options, "--server-url", *where, folder=tmp_path))

        tools = ask("--method", "tools/list")["tools"]
        mixed = ask("--method", "tools/call", "--tool-name", "offers__mixed")
        note = ask("--method", "resources/read", "--uri", "offers://notes/today")
        prompt = ask(
            "--method", "prompts/get", "--prompt-name", "offers__summarize", "--prompt-args", "title=today", "words=7"
        )

    assert len(tools) == EXPECTED["tools"]
    assert [block["type"] for block in mixed["content"]] == EXPECTED["mixed"]
    assert note["contents"][0]["text"] == "buy bread"
    assert prompt["messages"][1]["content"]["text"] == EXPECTED["prompt"]
