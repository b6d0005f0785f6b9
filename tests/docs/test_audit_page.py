"""The verifier that the audit's page gives away agrees with ours, on a sound record and on a forged one."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks_of
from tests.upstreams.behind import gateway, hostile
from toolpost import NotFound, Plugin
from toolpost.audit import AuditFilter
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings
from toolpost.store import open_store
from toolpost.testing import client_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

PAGE = ROOT / "docs/reference/audit.md"

plugin = Plugin("notes", version='1.0 "ünïcode" \\ 雪 \u2028 🦊')


@plugin.tool
async def read(title: str) -> str:
    """Read a note."""
    if title == "none":
        raise NotFound
    return title


def verified(database: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    (block,) = [block for block in blocks_of(PAGE) if block.file == "verify_audit.py"]
    script = folder / "verify_audit.py"
    script.write_text(block.text)
    return subprocess.run([sys.executable, script, database], capture_output=True, text=True, timeout=30, check=False)


@pytest.fixture
async def database(tmp_path: Path) -> Path:
    path = tmp_path / "audit.db"
    async with client_of(plugin, config=Config(store=StoreSettings(url=f"sqlite:{path}"))) as client:
        for title in ("a", "none", 'b"\\\n', "雪"):
            await client.call_tool("notes__read", {"title": title})
        await client.call_tool("notes__read", {"titel": "refused"})
    return path


async def test_the_page_verifies_a_real_record(database: Path, tmp_path: Path) -> None:
    async with open_store(database) as store:
        verdict = await store.audit.verify()

    seen = verified(database, tmp_path)
    assert verdict.is_intact
    assert seen.stdout == f"5 entries, head {verdict.head}\n"
    assert seen.returncode == 0


FORGERIES = {
    "changed": "UPDATE audit SET tool = 'notes__other' WHERE seq = 2",
    "removed": "DELETE FROM audit WHERE seq = 2",
    "cut off": "DELETE FROM audit WHERE seq = 5",
    "slipped in": "INSERT INTO audit SELECT 6, at_utc, call_id, trace_id, caller, tool, source, contract, schema_version,"
    " tooling_version, arguments, outcome, code, duration_ms, result, previous, hash FROM audit WHERE seq = 5",
}


@pytest.mark.parametrize("forgery", FORGERIES)
async def test_the_page_finds_a_forged_record(forgery: str, database: Path, tmp_path: Path) -> None:
    with sqlite3.connect(database) as forger:
        forger.execute("DROP TRIGGER audit_is_never_changed")
        forger.execute("DROP TRIGGER audit_is_never_deleted")
        forger.execute(FORGERIES[forgery])
    forger.close()

    async with open_store(database) as store:
        verdict = await store.audit.verify()

    seen = verified(database, tmp_path)
    assert not verdict.is_intact
    assert seen.returncode == 1
    assert "not as it was written" in seen.stderr or "the head does not match" in seen.stderr


async def test_a_rewritten_chain_is_found_by_the_head_that_was_kept(database: Path, tmp_path: Path) -> None:
    kept = verified(database, tmp_path).stdout.split()[-1]
    with sqlite3.connect(database) as forger:
        forger.execute("DROP TRIGGER audit_is_never_deleted")
        forger.execute("DELETE FROM audit WHERE seq = 5")
        forger.execute("UPDATE audit_head SET seq = 4, hash = (SELECT hash FROM audit WHERE seq = 4)")
    forger.close()

    seen = verified(database, tmp_path)
    assert seen.returncode == 0  # sound in itself, as the page says
    assert seen.stdout.split()[-1] != kept


async def test_the_page_says_whose_tooling_version_is_recorded(tmp_path: Path) -> None:
    config = Config(store=StoreSettings(url=f"sqlite:{tmp_path / 'audit.db'}"))
    async with gateway(hostile(), config=config) as (app, client):
        await client.call_tool("up__echo", {"text": "x"})
        told = app.servers.providers["up"].supervisor
        (record,) = await app.store.audit.entries(AuditFilter(), limit=10)
        greeting = next(i.negotiation for i in told._pool if i.negotiation)

    assert record.entry.tooling_version == greeting.build != ""
    assert "`tooling_version` | as a plugin declares it; for a server's tool the version" in PAGE.read_text()
