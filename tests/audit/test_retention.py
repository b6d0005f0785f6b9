"""Old records are removed in sealed segments: what is left, and what was archived, stays verifiable."""

import gzip
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from tests.audit.conftest import OpenStore, Receiver, add_entries
from tests.audit.test_export import exporting_to, webhook
from tests.waiting import until
from toolpost.audit import AuditFilter, retention
from toolpost.audit.archive import archive_name, find_archive_break
from toolpost.audit.exporter import read_floor
from toolpost.audit.retention import apply_retention
from toolpost.audit.spec import RetentionLimits
from toolpost.base.ids import Digest
from toolpost.store import Store, open_store
from toolpost.store.copying import copy_store
from toolpost.store.scripts import Script, Statement
from toolpost.store.segments import AuditSegment

pytestmark = [pytest.mark.anyio, pytest.mark.wire, pytest.mark.every_store]

NEW = "2999-01-01T00:00:00.000Z"
DAY = RetentionLimits(days=1)


async def seqs(store: Store) -> list[int]:
    return [record.seq for record in await store.audit.entries(AuditFilter(), limit=1_000)]


async def test_old_records_are_sealed_archived_and_removed(
    open_export_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "SEGMENT", 4)
    async with open_export_store() as store:
        await add_entries(store, 10)
        await add_entries(store, 3, at=NEW)
        before = await store.audit.verify()
        assert await apply_retention(store, replace(DAY, archive=tmp_path / "archive"), ()) == 10
        assert await seqs(store) == [11, 12, 13]
        after = await store.audit.verify()
        assert after.is_intact
        assert (after.checked, after.sealed, after.head) == (13, 10, before.head)
        segments = await store.audit.segments()
        assert [(each.first, each.last) for each in segments] == [(1, 4), (5, 8), (9, 10)]
        for segment in segments:
            assert find_archive_break(tmp_path / "archive", segment) is None
        await add_entries(store, 1, at=NEW)
        assert (await store.audit.verify()).checked == 14
        assert await apply_retention(store, DAY, ()) == 0

        archived = min((tmp_path / "archive").iterdir())
        lines = gzip.decompress(archived.read_bytes()).replace(b'"caller":"ada"', b'"caller":"eve"')
        archived.write_bytes(gzip.compress(lines))
        assert "entry 1" in (find_archive_break(tmp_path / "archive", segments[0]) or "")
        archived.write_bytes(archived.read_bytes()[:-20])
        assert find_archive_break(tmp_path / "archive", segments[0]) is not None


@pytest.mark.parametrize(
    "damage",
    [gzip.compress(b'{"seq":' + b"[" * 100_000), gzip.compress(b"{")[:10] + b"\xff" * 40],
    ids=["deep", "no stream"],
)
def test_a_damaged_archive_is_named(tmp_path: Path, damage: bytes) -> None:
    sealed = AuditSegment(first=1, last=4, previous=Digest(""), hash=Digest(""), digest=Digest(""))
    (tmp_path / archive_name(sealed)).write_bytes(damage)

    assert (find_archive_break(tmp_path, sealed) or "").startswith(f"{archive_name(sealed)}: ")


async def test_the_newest_stays_and_a_size_is_kept(open_export_store: OpenStore) -> None:
    async with open_export_store() as store:
        await add_entries(store, 40)
        await apply_retention(store, RetentionLimits(mb=0.01), ())
        left = await seqs(store)
        assert 5 < len(left) < 30
        assert left[-1] == 40
        await apply_retention(store, DAY, ())
        assert await seqs(store) == [40]
        assert (await store.audit.verify()).is_intact


async def test_what_was_not_delivered_stays(open_export_store: OpenStore, receiver: Receiver) -> None:
    async with open_export_store() as store:
        await add_entries(store, 6)
        assert await apply_retention(store, DAY, ("siem",)) == 0
        async with exporting_to(store, webhook(receiver)):
            with anyio.fail_after(30):
                # What was received is noted a moment later.
                while await store.scripts.run(lambda: read_floor(["siem"])) != 6:
                    await anyio.sleep(0.02)
        await add_entries(store, 3)
        assert await apply_retention(store, DAY, ("siem",)) == 6
        assert await seqs(store) == [7, 8, 9]
        async with exporting_to(store, webhook(receiver)):
            await until(lambda: len(receiver.records) == 9)


async def test_a_broken_chain_is_evidence_and_stays(open_export_store: OpenStore) -> None:
    async with open_export_store() as store:
        await add_entries(store, 5)
        await store.scripts.run(_break_segments)
        assert await apply_retention(store, DAY, ()) == 0
        assert await seqs(store) == [1, 2, 3, 4, 5]
        verdict = await store.audit.verify()
        assert not verdict.is_intact


def _break_segments() -> Script[None]:
    # A segment that nothing continues: somebody claims to have sealed what was never there.
    yield Statement(
        "INSERT INTO audit_segments (first_seq, last_seq, previous, hash, digest, sealed_at)"
        " VALUES (1, 2, 'sha256:1', 'sha256:2', 'sha256:3', 0)"
    )


async def test_only_what_is_sealed_can_be_deleted(open_export_store: OpenStore) -> None:
    def delete() -> Script[None]:
        yield Statement("DELETE FROM audit WHERE seq = 1")

    async with open_export_store() as store:
        await add_entries(store, 2)
        with pytest.raises(Exception, match="only ever added to"):
            await store.scripts.run(delete)
        assert await seqs(store) == [1, 2]


async def test_a_store_with_sealed_segments_is_copied(open_export_store: OpenStore, tmp_path: Path) -> None:
    copy = f"sqlite:{tmp_path / 'copy.db'}"
    async with open_export_store() as source, open_store(copy) as target:
        await add_entries(source, 6)
        await add_entries(source, 2, at=NEW)
        await apply_retention(source, DAY, ())
        for written in (8, 0):  # the second time there is nothing to do
            copied = await copy_store(source, target, progress=lambda *_: None)
            assert copied.written["audit"] == written - (6 if written else 0)
        verdict = await target.audit.verify()
        assert (verdict.is_intact, verdict.checked, verdict.sealed) == (True, 8, 6)
        assert await target.audit.segments() == await source.audit.segments()
        assert await seqs(target) == [7, 8]
