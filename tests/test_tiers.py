"""Each test is in its tier, and a unit test that starts a process or uses a socket fails, whatever becomes of the refusal."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ways import ROOT

pytestmark = pytest.mark.wire

SAMPLE = """
import asyncio, contextlib, socket, subprocess
import pytest
from tests.ways import WAYS

@pytest.mark.every_way
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_way(way): pass

@pytest.mark.parametrize("way", [way for way in WAYS if way.mode == "legacy"], ids=str)
def test_one_era(way): pass

@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_store(kind): pass

@pytest.mark.every_store
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_every_store(kind): pass

def test_a_value(): pass

@pytest.mark.wire
def test_told(): subprocess.run(["true"])

def test_process(): subprocess.run(["true"])

def test_hidden():
    with contextlib.suppress(Exception): subprocess.run(["true"])

def test_socket(): socket.create_server(("127.0.0.1", 0))

@pytest.fixture
def anyio_backend(): return "asyncio", {"use_uvloop": True}

@pytest.mark.anyio
async def test_loop(): await asyncio.create_subprocess_exec("true")

@pytest.mark.soak
def test_long(): pass
"""


def outcomes(folder: Path, *options: str) -> tuple[set[str], set[str]]:
    """Run the sample, and return the names of those that passed and of those that failed."""
    (folder / "test_sample.py").write_text(SAMPLE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        "-v",
        "--rootdir",
        str(folder),
    ]
    done = subprocess.run([*command, *options, folder], cwd=ROOT, capture_output=True, text=True)
    found = re.findall(r"::test_(\S+) (PASSED|FAILED)", done.stdout)
    assert found, done.stdout + done.stderr
    return {name for name, how in found if how == "PASSED"}, {name for name, how in found if how == "FAILED"}


def test_unit_tests_are_what_is_left_and_are_kept_from_the_outside(tmp_path: Path) -> None:
    passed, failed = outcomes(tmp_path, "--unit")

    memory = {"a_way[memory-handshake]", "a_way[memory-modern]", "one_era[memory-handshake]"}
    assert passed == memory | {"a_store[sqlite]", "every_store[sqlite]", "a_value"}
    assert failed == {"process", "hidden", "socket", "loop"}


def test_wire_has_one_of_the_variants_that_others_cover(tmp_path: Path) -> None:
    wire, _ = outcomes(tmp_path, "-m", "wire")
    soak, _ = outcomes(tmp_path, "-m", "soak", "--soak")

    covered = {"one_era[http-handshake]", "one_era[stdio-handshake]", "a_store[postgres]"}
    assert wire == {"a_way[http-modern]", "a_way[stdio-handshake]", "every_store[postgres]", "told"}
    assert soak == {"a_way[http-handshake]", "a_way[stdio-modern]", "long"} | covered
