"""The official suite's scenarios for clients of authorization servers, through a gateway.

As in `test_conformance`, the suite and its Node.js are in `.venv/node`; without them this is skipped.
"""

import asyncio
import functools
import os
import re
import sys
from pathlib import Path

import pytest

from tests.conformance.auth_client import serve_stubs
from tests.conformance.test_conformance import NODE, SUITE

AT_ONCE = 6
"""So many scenarios run at the same time: with all 33 each waits so long for its turn that it meets limits of time."""

STUB = Path(__file__).with_name("auth_stub.py")

SCENARIOS = 33

LEFT_OUT = {"auth/dpop", "auth/dpop-nonce"}
"""Tokens that are bound to a key (RFC 9449), an extension."""

REFUSED = {
    "auth/iss-normalized",
    "auth/iss-supported-missing",
    "auth/iss-unexpected",
    "auth/iss-wrong-issuer",
    "auth/metadata-issuer-mismatch",
    "auth/resource-mismatch",
    "auth/scope-retry-limit",
}
"""Scenarios in which a client has to give up."""

pytestmark = [
    pytest.mark.skipif(not SUITE.exists() or not NODE.exists(), reason=f"{SUITE} or {NODE} is not there"),
    pytest.mark.timeout(450),
    pytest.mark.wire,
]


async def run_suite(out: Path) -> str:
    """Run all scenarios at once; returns what the suite printed."""
    serve = functools.partial(serve_stubs, asyncio.Semaphore(AT_ONCE))
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        stub = f"{sys.executable} -S -E {STUB} {server.sockets[0].getsockname()[1]}"
        process = await asyncio.create_subprocess_exec(
            *(str(NODE), str(SUITE), "client", "--command", stub, "--suite", "all"),
            *("--output-dir", str(out), "--timeout", "300000"),
            env={"PATH": os.environ["PATH"]},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        return printed.decode()


def read_endings(out: Path, scenarios: set[str]) -> str:
    """Return why the client ended each of these scenarios, as far as it said so."""
    files = [file for name in sorted(scenarios) for file in out.glob(f"{name}-*/stderr.txt")]
    return "\n".join(f"{file.parent.name}: {file.read_text()[-2_000:]}" for file in files)


def find_gave_up(out: Path) -> set[str]:
    """Return the scenarios that the client ended with an error."""
    folders = [file.parent.name for file in (out / "auth").glob("*/stderr.txt") if file.read_text().strip()]
    return {"auth/" + re.sub(r"-\d{4}-\d\d-\d\dT.*", "", folder) for folder in folders}


def test_the_scenarios_of_the_official_suite_pass(tmp_path: Path) -> None:
    printed = asyncio.run(run_suite(tmp_path))

    verdicts = {name: mark for mark, name in re.findall(r"^([✓✗]) (auth/\S+):", printed, re.MULTILINE)}
    assert len(verdicts) == SCENARIOS
    failed = {name for name, mark in verdicts.items() if mark == "✗"}
    assert failed == LEFT_OUT, read_endings(tmp_path, failed - LEFT_OUT)
    # The suite counts its checks alone: a client that fails where it should go on passes them too.
    gave_up = find_gave_up(tmp_path) - LEFT_OUT
    assert gave_up == REFUSED, read_endings(tmp_path, gave_up - REFUSED)
