"""The official conformance suite's required scenarios pass through the gateway as they do directly, with as many checks,
and so they do for a plugin that uses only the public API.

`scripts/node-servers` puts the suite, and the Node.js that it needs, into `.venv/node`; without them these tests are skipped.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.loaded import loaded, loaded_toml, loaded_toolpost
from tests.upstreams.behind import SERVERS
from tests.upstreams.servers.skillful import write_skill
from tests.ways import ROOT, server_environment

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
def running(command: Sequence[str], port: int, folder: Path) -> Iterator[None]:
    """Start a server and wait until it listens."""
    environment = server_environment() | {"PYTHONWARNINGS": "ignore"}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            assert process.poll() is None, "the server ended before it served"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(60)


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
    with running(loaded("-m", "tests.conformance.fixtures", str(port)), port, ROOT):
        yield port


@pytest.mark.parametrize("revision", DIRECT)
def test_required_scenarios_pass_through_the_gateway(revision: str, tmp_path: Path) -> None:
    front = free_port()
    gateway = loaded_toolpost("serve", "--listen", f"127.0.0.1:{front}")
    with fixtures() as behind:
        (tmp_path / "toolpost.toml").write_text(f'[servers.fixtures]\nurl = "http://127.0.0.1:{behind}/mcp"\n')
        with running(gateway, front, tmp_path):
            found = checks(f"http://127.0.0.1:{front}/mcp/server/fixtures", revision, tmp_path / "through")

    assert_passed(found, revision)


def assert_passed(found: dict[str, list[dict[str, Any]]], revision: str) -> None:
    for name, count in DIRECT[revision].items():
        failed = [check for check in found[name] if check["status"] not in ("SUCCESS", "INFO")]
        assert failed == [], name
        # A scenario that has nothing to look at passes too: it must have had as much to look at.
        assert len(found[name]) >= count, name


@pytest.mark.parametrize(
    "revision",
    [pytest.param(each, marks=[] if each == max(DIRECT) else pytest.mark.soak) for each in DIRECT],
)
def test_required_scenarios_pass_with_a_plugin(revision: str, tmp_path: Path) -> None:
    with serving_plugin(tmp_path) as url:
        found = checks(url, revision, tmp_path / "plugin")

    assert_passed(found, revision)


@contextmanager
def serving_plugin(folder: Path) -> Iterator[str]:
    (folder / "conformance_plugin.py").write_text(Path(__file__).with_name("conformance_plugin.py").read_text())
    port = free_port()
    gateway = loaded_toolpost("serve", "--listen", f"127.0.0.1:{port}", "--plugin", "conformance_plugin:plugin")
    with running(gateway, port, folder):
        yield f"http://127.0.0.1:{port}/mcp/server/conformance"


TASKS = {
    "tasks-capability-negotiation": 5,
    "tasks-dispatch-and-envelope": 9,
    "tasks-lifecycle": 9,
    "tasks-mrtr-input": 4,
    "tasks-request-headers": 5,
    "tasks-request-state-removal": 3,
    "tasks-wire-fields": 4,
}
"""The scenarios of the tasks extension, and how many checks each has. Not among them: two for tools that can be called as tasks
only, of which Toolpost has none (`docs/reference/tasks.md`), and one that the suite itself skips."""


@pytest.mark.soak
def test_scenarios_of_tasks_pass_with_a_plugin(tmp_path: Path) -> None:
    with serving_plugin(tmp_path) as url:
        for name, count in TASKS.items():
            assert_scenario_passes(name, count, url, tmp_path / "tasks")


OPTIONAL = {
    "http-custom-header-server-validation": 7,
    "http-header-validation": 14,
    "json-schema-2020-12": 7,
    "server-session-lifecycle": 3,
    "server-sse-polling": 3,
}
SKILLS = {"sep-2640-skills-directory": 7, "sep-2640-skills-enumeration": 32, "sep-2640-skills-manifest": 6}
"""The scenarios that no revision requires, and how many checks each has. Not among them: those of tasks, which have a test of
their own."""


@pytest.mark.soak
def test_optional_scenarios_pass_through_the_gateway(tmp_path: Path) -> None:
    front = free_port()
    gateway = loaded_toolpost("serve", "--listen", f"127.0.0.1:{front}")
    settings = []
    for name in ("one", "two"):
        write_skill(tmp_path / name, f"{name}-refunds/letters/nested")
        write_skill(tmp_path / name, f"{name}-refunds")
        settings += [f"[servers.{name}]", loaded_toml(str(SERVERS / "skillful.py"), str(tmp_path / name))]
    with fixtures() as behind:
        settings += ["[servers.fixtures]", f'url = "http://127.0.0.1:{behind}/mcp"']
        (tmp_path / "toolpost.toml").write_text("\n".join(settings))
        with running(gateway, front, tmp_path):
            base = f"http://127.0.0.1:{front}/mcp"
            for name, count in OPTIONAL.items():
                assert_scenario_passes(name, count, f"{base}/server/fixtures", tmp_path / "optional")
            for name, count in SKILLS.items():
                assert_scenario_passes(name, count, base, tmp_path / "skills")


def assert_scenario_passes(name: str, count: int, url: str, out: Path) -> None:
    command: list[str | Path] = [NODE, SUITE, "server", "--url", url, "--scenario", name, "--output-dir", out]
    subprocess.run(command, capture_output=True, timeout=100, check=False, env={"PATH": os.environ["PATH"]})
    [file] = out.glob(f"server-{name}-*/checks.json")
    found = json.loads(file.read_text())
    # A warning is about what a server should do, which is up to the server behind.
    assert [check for check in found if check["status"] not in ("SUCCESS", "INFO", "WARNING")] == [], name
    assert len(found) >= count, name


@pytest.mark.soak
@pytest.mark.parametrize("revision", DIRECT)
def test_the_number_of_checks_is_that_of_a_direct_run(revision: str, tmp_path: Path) -> None:
    with fixtures() as port:
        found = checks(f"http://127.0.0.1:{port}/mcp", revision, tmp_path / "direct")
    text = (SUITE.parents[1] / "requirements" / f"{revision}.yaml").read_text()
    section = re.search(r"^server:\n((?:  - .*\n)+)", text, re.MULTILINE)
    assert section is not None

    assert {name: len(found[name]) for name in re.findall(r"- (\S+)", section[1])} == DIRECT[revision]
