"""The chain as evidence: whatever is changed behind the store's back is found, and the first place named."""

from collections.abc import Callable
from hashlib import sha256

import pytest

from tests.hostile.attacks import attack
from toolpost.audit import AuditEntry, AuditFilter
from toolpost.contracts.errors import GatewayError
from toolpost.store import open_store
from toolpost.store.audit_values import AuditVerdict
from toolpost.store.chain import BEGINNING, link_entries, values_of
from toolpost.store.scripts import Script, Statement

pytestmark = pytest.mark.anyio
Make = Callable[..., AuditEntry]
Tamper = Callable[..., None]
# PostgreSQL holds to the types of its columns.
only_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(autouse=True)
async def nine_records(url: str, entry: Make) -> None:
    async with open_store(url) as store:
        for _ in range(9):
            await store.audit.append(entry())


async def verdict_on(url: str) -> AuditVerdict:
    async with open_store(url) as store:
        return await store.audit.verify()


async def test_the_format_of_the_hash_is_fixed(entry: Make) -> None:
    (row,) = link_entries([values_of(entry(call_id="call-1", caller="Ada 🦉"))], seq=6, previous=BEGINNING)

    # If this fails, chains that exist would be called broken: raise FORMAT, and keep reading the old one.
    digest = "sha256:" + "a" * 64
    sealed = (
        f'[1,"{BEGINNING}",7,"2026-03-01T12:00:00.000Z","call-1","0123456789abcdef0123456789abcdef","Ada 🦉",'
        f'"time__now","time","{digest}",1,"0.1.0","{digest}","ok",null,1.25,"{digest}"]'
    )
    assert row[-1] == "sha256:" + sha256(sealed.encode()).hexdigest()


async def test_an_untouched_chain_is_intact(url: str) -> None:
    verdict = await verdict_on(url)

    assert verdict.is_intact
    assert verdict.checked == 9


async def test_an_empty_chain_is_intact() -> None:
    verdict = await verdict_on("sqlite::memory:")

    assert verdict == AuditVerdict(checked=0, head=BEGINNING)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("at_utc", "'2026-03-01T12:00:00.001Z'"),
        ("call_id", "'other'"),
        ("trace_id", "'other'"),
        ("caller", "'eve'"),
        ("tool", "'other'"),
        ("source", "'other'"),
        ("contract", "''"),
        ("schema_version", "2"),
        ("tooling_version", "'0.1.1'"),
        ("arguments", "'other'"),
        ("outcome", "'error'"),
        ("code", "'INTERNAL'"),
        ("duration_ms", "1.2500001"),
        ("result", "NULL"),
        ("result", "''"),
        ("previous", "'other'"),
        ("hash", "'other'"),
    ],
)
async def test_a_changed_column_is_found(url: str, tamper: Tamper, column: str, value: str) -> None:
    tamper(f"UPDATE audit SET {column} = {value} WHERE seq = 4")

    verdict = await verdict_on(url)

    assert (verdict.checked, verdict.broken_seq) == (3, 4)


@only_sqlite
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("source", "x'b6299e'"),  # the bytes whose base64 is `time`, the text that was there
        ("caller", "CAST(x'ff' AS TEXT)"),
    ],
)
async def test_a_text_that_is_none_is_found(url: str, tamper: Tamper, column: str, value: str) -> None:
    tamper(f"UPDATE audit SET {column} = {value} WHERE seq = 4")

    verdict = await verdict_on(url)

    assert (verdict.checked, verdict.broken_seq) == (3, 4)


@only_sqlite
async def test_a_head_that_is_no_number_is_found(url: str, tamper: Tamper) -> None:
    tamper("UPDATE audit_head SET seq = 'x'")

    assert (await verdict_on(url)).reason == "the head does not match it"


@pytest.mark.parametrize(
    ("statement", "broken_seq", "reason"),
    [
        ("DELETE FROM audit WHERE seq = 5", 5, "missing"),
        ("DELETE FROM audit WHERE seq = 1", 1, "missing"),
        ("DELETE FROM audit WHERE seq >= 8", 8, "the head names 9"),
        ("DELETE FROM audit", 1, "the head names 9"),
        ("UPDATE audit SET seq = 20 WHERE seq = 9", 9, "missing"),
        ("INSERT INTO audit SELECT 10, {rest} FROM audit WHERE seq = 9", 10, "inserted"),
        ("INSERT INTO audit SELECT 0, {rest} FROM audit WHERE seq = 9", 0, "before the first"),
        ("INSERT INTO audit SELECT -7, {rest} FROM audit WHERE seq = 9", -7, "before the first"),
        ("DELETE FROM audit_head", 10, "head is missing"),
        ("UPDATE audit_head SET hash = 'other'", 9, "head does not match"),
        ("UPDATE audit_head SET seq = 12", 10, "the head names 12"),
        ("UPDATE audit_head SET seq = 6, hash = (SELECT hash FROM audit WHERE seq = 6)", 7, "inserted"),
    ],
)
async def test_what_is_missing_or_slipped_in_is_found(
    url: str, tamper: Tamper, statement: str, broken_seq: int, reason: str
) -> None:
    rest = (
        "at_utc, call_id, trace_id, caller, tool, source, contract, schema_version, tooling_version, "
        "arguments, outcome, code, duration_ms, result, previous, hash"
    )
    tamper(statement.format(rest=rest))

    verdict = await verdict_on(url)

    assert verdict.broken_seq == broken_seq
    assert reason in (verdict.reason or "")


async def test_swapped_records_are_found(url: str, tamper: Tamper) -> None:
    tamper(
        "UPDATE audit SET seq = 100 WHERE seq = 4",
        "UPDATE audit SET seq = 4 WHERE seq = 6",
        "UPDATE audit SET seq = 6 WHERE seq = 100",
    )

    assert (await verdict_on(url)).broken_seq == 4


@attack(
    "operator",
    "forges an entry in the middle of the audit",
    "verification names the first entry that does not fit",
)
async def test_a_forged_record_in_the_middle_is_found(url: str, tamper: Tamper) -> None:
    tamper(
        "UPDATE audit SET seq = -seq WHERE seq >= 5",
        "UPDATE audit SET seq = 1 - seq WHERE seq < 0",
        "INSERT INTO audit SELECT 5, 'now', 'forged', trace_id, 'eve', tool, source, contract, "
        "schema_version, tooling_version, arguments, outcome, code, duration_ms, result, hash, hash "
        "FROM audit WHERE seq = 4",
        "UPDATE audit_head SET seq = 10",
    )

    assert (await verdict_on(url)).broken_seq == 5


@pytest.mark.parametrize(("links_on", "broken_seq"), [(False, 5), (True, 6)])
async def test_a_record_that_was_sealed_anew_is_found(
    url: str, tamper: Tamper, entry: Make, links_on: bool, broken_seq: int
) -> None:
    async with open_store(url) as store:
        (fourth,) = await store.audit.entries(AuditFilter(), after=3, limit=1)
    (forged,) = link_entries([values_of(entry(caller="eve"))], seq=4, previous=fourth.hash if links_on else BEGINNING)
    values = ", ".join("NULL" if value is None else repr(value) for value in forged)
    tamper("DELETE FROM audit WHERE seq = 5", f"INSERT INTO audit VALUES ({values})")

    verdict = await verdict_on(url)

    assert verdict.broken_seq == broken_seq
    assert verdict.reason == "it does not continue the record before it"


async def test_appending_to_a_chain_without_its_head_is_refused(url: str, tamper: Tamper, entry: Make) -> None:
    tamper("DELETE FROM audit_head")

    async with open_store(url) as store:
        with pytest.raises(GatewayError, match="head of the audit chain is missing"):
            await store.audit.append(entry())


@pytest.mark.parametrize("statement", ["UPDATE audit SET caller = 'eve'", "DELETE FROM audit"])
async def test_a_change_by_accident_is_refused(url: str, statement: str) -> None:
    def script() -> Script[None]:
        yield Statement(statement)

    async with open_store(url) as store:
        with pytest.raises(GatewayError, match="only ever added to"):
            await store.scripts.run(script)
        verdict = await store.audit.verify()

    assert verdict.is_intact


async def test_verifying_goes_on_while_others_append(url: str, entry: Make) -> None:
    async with open_store(url) as store:
        for _ in range(20):
            pending = [store.audit.append(entry()) for _ in range(50)]
            assert (await store.audit.verify()).is_intact
            for one in pending:
                await one

        assert len(await store.audit.entries(AuditFilter(), limit=5_000)) == 1_009
