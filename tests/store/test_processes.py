"""Several processes and sudden deaths: what was acknowledged is there, in one valid chain."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.hostile.attacks import attack
from toolpost.audit import AuditEntry, AuditFilter
from toolpost.store import open_store

pytestmark = [pytest.mark.anyio, pytest.mark.wire]
APPENDER = Path(__file__).with_name("appender.py")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def start(url: str, entry: Callable[..., AuditEntry]) -> Callable[..., subprocess.Popen[str]]:
    like = json.dumps(msgspec.structs.asdict(entry()))

    def run(name: str, count: int, how: str = "together") -> subprocess.Popen[str]:
        command = [sys.executable, str(APPENDER), url, str(count), name, like, how]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    return run


Start = Callable[[str, int], "subprocess.Popen[str]"]


async def call_ids(url: str) -> list[str]:
    async with open_store(url) as store:
        verdict = await store.audit.verify()
        assert verdict.is_intact, verdict
        return [record.entry.call_id for record in await store.audit.entries(AuditFilter(), limit=100_000)]


@attack(
    "operator",
    "kills a process while it appends to the store",
    "everything that was acknowledged is there, on SQLite and PostgreSQL",
)
async def test_a_killed_process_leaves_all_that_it_acknowledged(url: str, start: Start) -> None:
    acknowledged = []
    for name in ("a", "b", "c"):
        with start(name, 1_000_000) as process:
            assert process.stdout
            acknowledged += [process.stdout.readline().strip() for _ in range(300)]
            process.kill()
            acknowledged += [line.strip() for line in process.stdout if line.endswith("\n")]

    assert set(acknowledged) <= set(await call_ids(url))


async def test_two_processes_at_once_write_one_chain(url: str, start: Start) -> None:
    with start("a", 2_000) as a, start("b", 2_000) as b:
        a.communicate()
        b.communicate()

    ids = await call_ids(url)
    assert sorted(ids) == sorted(f"{name}-{n}" for name in "ab" for n in range(2_000))


def test_a_process_ends_though_it_has_not_closed_the_store(url: str) -> None:
    forgetful = (
        "import asyncio, sys\n"
        "from toolpost.store import open_store\n"
        "store = open_store(sys.argv[1])\n"
        "asyncio.run(store.__aenter__())\n"
    )
    ended = subprocess.run([sys.executable, "-c", forgetful, url], timeout=20, check=False)

    assert ended.returncode == 0
