"""The official conformance suite's required scenarios pass through the gateway as they do directly, with as many checks.

`scripts/node-servers` puts the suite, and the Node.js that it needs, into `.venv/node`; without them these tests are skipped.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.ways import ROOT, TOOLPOST, server_environment

PLACE = Path(sys.prefix) / "node" / "node_modules"
SUITE = PLACE / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
NODE = PLACE / "node" / "bin" / "node"

DIRECT: dict[str, dict[str, int]] = json.loads(Path(__file__).with_name("direct_checks.json").read_text())
"""How many checks each required scenario has when the suite asks the fixtures directly; a soak test measures them again."""

pytestmark = [
    pytest.mark.skipif(not SUITE.exists() or not NODE.exists(), reason=f"{SUITE} or {NODE} is not there"),
    pytest.mark.timeout(300),
    pytest.mark.wire,
]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def running(command: list[str], port: int, folder: Path) -> Iterator[None]:
    """Start a server and wait until it listens."""
    environment = server_environment() | {"PYTHONWARNINGS": "ignore"}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            assert process.poll() is None, "the server ended before it served"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(20)


def checks(url: str, revision: str, out: Path) -> dict[str, list[dict[str, Any]]]:
    """Run what a revision requires, and return the checks of each scenario."""
    command: list[str | Path] = [NODE, SUITE, "server", "--url", url, "--requirements", revision, "--output-dir", out]
    subprocess.run(command, capture_output=True, timeout=240, check=False, env={"PATH": os.environ["PATH"]})
    found = {}
    for file in out.glob("server-*/checks.json"):
        name = re.fullmatch(r"server-(.*?)-\d{4}-\d\d-\d\dT.*", file.parent.name)
        assert name is not None
        found[name[1]] = json.loads(file.read_text())
    return found


@contextmanager
def fixtures() -> Iterator[int]:
    port = free_port()
    with running([sys.executable, "-m", "tests.conformance.fixtures", str(port)], port, ROOT):
        yield port


@pytest.mark.parametrize("revision", DIRECT)
def test_required_scenarios_pass_through_the_gateway(revision: str, tmp_path: Path) -> None:
    front = free_port()
    gateway = [str(TOOLPOST), "serve", "--listen", f"127.0.0.1:{front}"]
    with fixtures() as behind:
        (tmp_path / "toolpost.toml").write_text(f'[servers.fixtures]\nurl = "http://127.0.0.1:{behind}/mcp"\n')
        with running(gateway, front, tmp_path):
            found = checks(f"http://127.0.0.1:{front}/mcp/server/fixtures", revision, tmp_path / "through")

    for name, count in DIRECT[revision].items():
        failed = [check for check in found[name] if check["status"] not in ("SUCCESS", "INFO")]
        assert failed == [], name
        # A scenario that has nothing to look at passes too: it must have had as much to look at.
        assert len(found[name]) >= count, name


@pytest.mark.soak
@pytest.mark.parametrize("revision", DIRECT)
def test_the_number_of_checks_is_that_of_a_direct_run(revision: str, tmp_path: Path) -> None:
    with fixtures() as port:
        found = checks(f"http://127.0.0.1:{port}/mcp", revision, tmp_path / "direct")
    text = (SUITE.parents[1] / "requirements" / f"{revision}.yaml").read_text()
    section = re.search(r"^server:\n((?:  - .*\n)+)", text, re.MULTILINE)
    assert section is not None

    assert {name: len(found[name]) for name in re.findall(r"- (\S+)", section[1])} == DIRECT[revision]
