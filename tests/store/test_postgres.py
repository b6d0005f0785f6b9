"""PostgreSQL as it is met in practice: restarted, crashed, shared, misnamed. Nothing is lost, nothing is there twice."""

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import anyio
import pytest
from asyncpg.transaction import Transaction

from tests.postgres import Postgres
from tests.waiting import until
from toolpost.audit import AuditEntry, AuditFilter
from toolpost.contracts.errors import BadConfiguration, CapabilityMissing, GatewayError, StoreUnavailable
from toolpost.store import open_store
from toolpost.store.postgres.store import PostgresStore
from toolpost.store.scripts import Script, Statement, lock_name
from toolpost.store.urls import PostgresLocation, parse_store_url, shown_url

pytestmark = [pytest.mark.anyio, pytest.mark.wire]
Make = Callable[..., AuditEntry]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.new_url()


async def opened(url: str, **options: float) -> PostgresStore:
    place = parse_store_url(url)
    assert isinstance(place, PostgresLocation)
    return await PostgresStore.open(place, **options)  # type: ignore[arg-type]


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = await opened(url)
    yield store
    await store.aclose()


class Load:
    """Many callers who append one after the other, and remember what was acknowledged."""

    def __init__(self, store: PostgresStore, entry: Make, name: str = "") -> None:
        self.store = store
        self.entry = entry
        self.name = name
        self.acknowledged: list[str] = []
        self.is_over = False

    async def caller(self, number: int) -> None:
        count = 0
        while not self.is_over:
            call_id = f"{self.name}{number}-{count}"
            await self.store.audit.append(self.entry(call_id=call_id))
            self.acknowledged.append(call_id)
            count += 1

    async def until_more(self) -> None:
        """Wait until things go on."""
        before = len(self.acknowledged)
        await until(lambda: len(self.acknowledged) >= before + 64)


async def counted(store: PostgresStore) -> Counter[str]:
    records = await store.audit.entries(AuditFilter(), limit=1_000_000)
    return Counter(record.entry.call_id for record in records)


async def test_restarts_under_load_lose_nothing_and_write_nothing_twice(
    postgres: Postgres, store: PostgresStore, entry: Make
) -> None:
    load = Load(store, entry)
    async with anyio.create_task_group() as tasks:
        for number in range(32):
            tasks.start_soon(load.caller, number)
        for mode in ("fast", "immediate", "kill", "immediate"):
            await load.until_more()
            await anyio.to_thread.run_sync(postgres.restart, mode)
        await load.until_more()
        load.is_over = True
    found = await counted(store)
    verdict = await store.audit.verify()

    assert verdict.is_intact, verdict
    assert found == Counter(load.acknowledged)


async def test_connections_that_are_cut_lose_nothing_and_write_nothing_twice(
    postgres: Postgres, store: PostgresStore, url: str, entry: Make
) -> None:
    load = Load(store, entry)
    async with anyio.create_task_group() as tasks:
        for number in range(32):
            tasks.start_soon(load.caller, number)
        for _ in range(20):
            await asyncio.sleep(0.05)
            cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'toolpost'"
            await anyio.to_thread.run_sync(postgres.sql, url, cut)
        await load.until_more()
        load.is_over = True
    found = await counted(store)

    assert (await store.audit.verify()).is_intact
    assert found == Counter(load.acknowledged)


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """Have processes stand still. Whatever happens meanwhile they go on: a database ends with the last of its own."""
    try:
        _signal(pids, signal.SIGSTOP)
        yield
    finally:
        _signal(pids, signal.SIGCONT)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it had come to its end by itself
            os.kill(pid, number)


@pytest.mark.parametrize("rounds", [2, pytest.param(6, marks=pytest.mark.soak)])
async def test_a_server_that_falls_silent_and_finishes_late_writes_nothing_twice(
    postgres: Postgres, url: str, entry: Make, rounds: int
) -> None:
    # Stopped in the middle of a statement, a backend goes on with it when its client has long turned to another one.
    store, reader = await opened(url, command_s=0.3), await opened(url)
    busy = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%WITH moved%' AND pid <> pg_backend_pid()"
    load = Load(store, entry)
    async with anyio.create_task_group() as tasks:
        for number in range(32):
            tasks.start_soon(load.caller, number)
        for _ in range(rounds):
            await load.until_more()
            pids = [int(pid) for pid in (await anyio.to_thread.run_sync(postgres.sql, url, busy)).split()]
            with stopped(pids):
                await asyncio.sleep(1)
        await load.until_more()
        load.is_over = True
    found = await counted(reader)
    verdict = await reader.audit.verify()
    await store.aclose()
    await reader.aclose()

    assert verdict.is_intact
    assert found == Counter(load.acknowledged)


async def test_two_stores_write_one_chain_while_the_database_restarts(
    postgres: Postgres, store: PostgresStore, url: str, entry: Make
) -> None:
    other = await opened(url)
    loads = [Load(store, entry, "a"), Load(other, entry, "b")]
    async with anyio.create_task_group() as tasks:
        for load in loads:
            for number in range(16):
                tasks.start_soon(load.caller, number)
        for mode in ("immediate", "fast"):
            for load in loads:
                await load.until_more()
            await anyio.to_thread.run_sync(postgres.restart, mode)
        for load in loads:
            await load.until_more()
            load.is_over = True
    found = await counted(store)
    await other.aclose()

    assert (await store.audit.verify()).is_intact
    assert found == Counter(loads[0].acknowledged + loads[1].acknowledged)


async def test_a_group_that_was_committed_unseen_is_not_written_again(store: PostgresStore, entry: Make) -> None:
    # The answer is lost, not the statement: the connection ends between the two.
    writer = store.audit._batches._write.__self__  # type: ignore[attr-defined]
    await store.audit.append(entry())
    connection = await store._audit_connection.open()

    is_lost = anyio.Event()

    async def lost(*arguments: Any, **options: Any) -> None:
        await execute(*arguments, **options)
        is_lost.set()
        raise ConnectionResetError("the answer got lost")

    execute = connection.execute
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(connection), "execute", lambda _self, *a, **o: lost(*a, **o))
        task = asyncio.ensure_future(store.audit.append(entry(call_id="once")))
        await is_lost.wait()
    await task

    assert (await counted(store))["once"] == 1
    assert (await store.audit.verify()).checked == 2
    assert writer._head is not None


async def test_a_database_that_stays_away_is_a_typed_error_after_a_bounded_time(
    postgres: Postgres, url: str, entry: Make
) -> None:
    store = await opened(url, retry_s=0.5)
    await anyio.to_thread.run_sync(postgres.stop)
    try:
        started = time.monotonic()
        outcomes = await asyncio.gather(
            *(store.audit.append(entry()) for _ in range(40)),
            store.audit.newest(),
            store.known_tools.remember("git", []),
            return_exceptions=True,
        )
        took_s = time.monotonic() - started
    finally:
        await anyio.to_thread.run_sync(postgres.start)
    await store.audit.append(entry())
    checked = (await store.audit.verify()).checked
    await store.aclose()

    assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
    assert "retried for 0.5 s" in (getattr(outcomes[0], "hint", "") or "")
    assert took_s < 30
    assert checked == 1


async def test_a_database_that_is_not_there_is_told_at_opening(postgres: Postgres, url: str) -> None:
    await anyio.to_thread.run_sync(postgres.stop)
    try:
        with pytest.raises(BadConfiguration, match="cannot be reached") as caught:
            async with open_store(url, retry_s=0.2):
                pass
    finally:
        await anyio.to_thread.run_sync(postgres.start)

    assert caught.value.hint


async def test_a_write_that_was_lost_before_its_commit_is_done_again(
    postgres: Postgres, store: PostgresStore, url: str
) -> None:
    runs = 0

    def script() -> Script[int]:
        nonlocal runs
        runs += 1
        yield Statement("INSERT INTO known_tools VALUES (?1, 1, '[]')", (f"run-{runs}",))
        if runs == 1:
            postgres.restart("immediate")
        ((count,),) = yield Statement("SELECT count(*) FROM known_tools")
        return int(count)

    assert await store.scripts.run(script, repeatable=False) == 1
    assert postgres.sql(url, "SELECT server FROM known_tools") == "run-2"


@pytest.mark.parametrize("is_short", [False, True])
@pytest.mark.parametrize("repeatable", [False, True])
async def test_a_write_whose_fate_is_unknown_is_only_repeated_if_it_may_be(
    postgres: Postgres, store: PostgresStore, url: str, repeatable: bool, is_short: bool
) -> None:
    # A constraint that is checked at the commit ends the connection in the middle of it.
    postgres.sql(
        url,
        "CREATE SEQUENCE runs",
        "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF nextval('runs') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON known_tools INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION cut()",
    )

    def script() -> Script[None]:
        yield Statement("INSERT INTO known_tools VALUES ('x', 1, '[]') ON CONFLICT DO NOTHING")

    if repeatable:
        await store.scripts.run(script, is_short=is_short)
        assert postgres.sql(url, "SELECT count(*) FROM known_tools") == "1"
    else:
        with pytest.raises(StoreUnavailable, match="lost during a commit") as caught:
            await store.scripts.run(script, repeatable=False, is_short=is_short)
        assert "unknown whether" in (caught.value.hint or "")


async def test_a_write_that_is_cancelled_leaves_neither_rows_nor_locks(postgres: Postgres, url: str) -> None:
    store = await opened(url, pool=1)

    def hang() -> Script[None]:
        yield lock_name("x")
        yield Statement("INSERT INTO known_tools VALUES ('half', 1, '[]')")
        yield Statement("SELECT pg_sleep(60)")

    def count_rows() -> Script[int]:
        yield lock_name("x")
        ((count,),) = yield Statement("SELECT count(*) FROM known_tools")
        return int(count)

    with anyio.move_on_after(0.3) as scope:
        await store.scripts.run(hang)
    with anyio.fail_after(30):
        count = await store.scripts.run(count_rows)
    await store.aclose()

    assert scope.cancelled_caught
    assert count == 0


async def test_a_write_that_is_cancelled_while_its_connection_is_lost_is_not_run_again(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(_transaction: Transaction) -> None:
        raise ConnectionResetError("the connection was lost")

    monkeypatch.setattr(Transaction, "rollback", lose)
    started, count = anyio.Event(), 0

    async def wait(_connection: object) -> None:
        nonlocal count
        count += 1
        started.set()
        await asyncio.sleep(30)

    writing = asyncio.create_task(store.write(wait, repeatable=True))
    await started.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError), anyio.fail_after(20):
        await writing

    assert count == 1


async def test_many_appends_share_few_commits(store: PostgresStore, entry: Make) -> None:
    await asyncio.gather(*(store.audit.append(entry()) for _ in range(10_000)))

    assert (await store.audit.verify()).checked == 10_000
    assert store.commits < 50


async def test_a_cancelled_append_is_on_the_record_all_the_same(store: PostgresStore, entry: Make) -> None:
    appends = [asyncio.ensure_future(store.audit.append(entry())) for _ in range(20)]
    await asyncio.sleep(0)
    appends[3].cancel()
    appends[17].cancel()
    await asyncio.gather(*appends, return_exceptions=True)
    await store.audit.append(entry())

    assert (await store.audit.verify()).checked == 21


async def test_closing_under_cancellation_commits_what_still_waits(url: str, entry: Make) -> None:
    with anyio.CancelScope() as scope:
        async with open_store(url) as store:
            appends = [store.audit.append(entry()) for _ in range(50)]
            scope.cancel()
            await anyio.sleep(10)
    await asyncio.gather(*appends)

    async with open_store(url) as store:
        assert await store.audit.newest() == 50


async def test_a_closed_store_takes_nothing(url: str, entry: Make) -> None:
    store = await opened(url)
    await store.aclose()
    await store.aclose()

    with pytest.raises(GatewayError, match="closed"):
        await store.audit.append(entry())
    with pytest.raises(GatewayError, match="closed"):
        await store.audit.newest()


async def test_a_full_pool_makes_readers_wait(url: str) -> None:
    store = await opened(url, pool=2)
    found = await asyncio.gather(*(store.audit.newest() for _ in range(50)))
    await store.aclose()

    assert found == [0] * 50


async def test_transactions_with_a_lock_come_one_after_the_other(store: PostgresStore) -> None:
    order: list[str] = []

    def script(name: str) -> Script[None]:
        yield lock_name("x")
        order.append(f"{name} in")
        yield Statement("SELECT pg_sleep(0.02)")
        order.append(f"{name} out")

    await asyncio.gather(*(store.scripts.run(partial(script, name)) for name in "abc"))

    assert [step.split()[1] for step in order] == ["in", "out"] * 3


async def test_many_may_open_a_new_schema_at_once(url: str, entry: Make) -> None:
    async def open_and_append() -> None:
        async with open_store(url, pool=1) as store:
            await store.audit.append(entry())

    await asyncio.gather(*(open_and_append() for _ in range(8)))

    async with open_store(url) as store:
        assert (await store.audit.verify()).checked == 8


async def test_schemas_of_one_database_are_strangers(postgres: Postgres, entry: Make) -> None:
    one, other = postgres.new_url(), postgres.new_url()
    async with open_store(one) as store:
        await store.audit.append(entry())
    async with open_store(other) as store:
        assert await store.audit.newest() == 0


async def refusal_of(url: str) -> BadConfiguration:
    with pytest.raises(BadConfiguration) as caught:
        async with open_store(url, retry_s=0.2):
            pass
    assert caught.value.hint
    return caught.value


async def test_a_schema_of_a_newer_toolpost_is_refused(postgres: Postgres, url: str) -> None:
    async with open_store(url):
        pass
    postgres.sql(url, "INSERT INTO migrations VALUES (999, 'later', 'x', 'then')")

    assert "written by a newer Toolpost: it has migration 999" in (await refusal_of(url)).message


async def test_a_schema_that_is_somebody_elses_is_refused_and_left_alone(postgres: Postgres, url: str) -> None:
    schema = url.rpartition("=")[2]
    postgres.sql(url, f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.customers (id int)")

    assert "customers" in (await refusal_of(url)).message
    assert postgres.sql(url, f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'") == "customers"


async def test_a_database_that_does_not_exist_is_refused(postgres: Postgres) -> None:
    refusal = await refusal_of(postgres.uri.replace("/postgres?", "/nowhere?"))

    assert "does not exist" in refusal.message


async def test_a_database_in_another_encoding_is_refused(postgres: Postgres, url: str) -> None:
    postgres.sql(
        url, "DROP DATABASE IF EXISTS latin", "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'"
    )

    assert "encoded in LATIN1" in (await refusal_of(postgres.uri.replace("/postgres?", "/latin?"))).message


async def test_a_user_who_may_not_is_told_so_without_the_password(postgres: Postgres, url: str) -> None:
    postgres.sql(url, "DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN PASSWORD 'hush-hush'")
    refusal = await refusal_of(url.replace("postgres:@", "guest:hush-hush@"))

    assert "denies permission" in refusal.message
    assert "hush" not in f"{refusal.message} {refusal.hint} {refusal.__cause__}"


async def test_a_full_disk_is_told(store: PostgresStore, url: str, postgres: Postgres, entry: Make) -> None:
    postgres.sql(
        url,
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$",
        "CREATE TRIGGER full_disk BEFORE INSERT ON audit EXECUTE FUNCTION full_disk()",
    )
    outcomes = await asyncio.gather(*(store.audit.append(entry()) for _ in range(3)), return_exceptions=True)
    postgres.sql(url, "DROP TRIGGER full_disk ON audit")
    await store.audit.append(entry())

    assert all("disk is full" in str(outcome) for outcome in outcomes)
    assert (await store.audit.verify()).checked == 1


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql:db", "unknown kind of store"),
        ("postgres:", "unknown kind of store"),
        ("postgresql://host/db?schema=Robert'); DROP", "plain name"),
        ("postgresql://host/db?schema=pg_catalog", "plain name"),
        ("postgresql://[::1/db", "not a valid URL"),
        ("postgresql://u:s3cret-word@127.0.0.1:1/db", "cannot be reached"),
        ("postgresql://u:s3cret-word@no-such-host.invalid/db?password=s3cret-word", "cannot be reached"),
        ("postgresql://u:s3cret-word@host:port/db", "invalid URL"),
    ],
)
async def test_a_bad_url_is_refused_without_telling_its_password(url: str, reason: str) -> None:
    refusal = await refusal_of(url)

    assert reason in refusal.message
    assert "s3cret" not in f"{refusal.message} {refusal.hint}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://host/db", "postgresql://host/db"),
        ("postgresql://ada@host/db", "postgresql://ada@host/db"),
        ("postgresql://ada:pw@host/db?schema=x", "postgresql://ada:(redacted)@host/db?schema=x"),
        ("postgresql://ada:p/w@@host/db", "postgresql://ada:(redacted)@host/db"),
        ("postgresql:///db?host=/run&password=pw&user=ada", "postgresql:///db?host=/run&password=(redacted)&user=ada"),
        ("postgresql://host/db?sslpassword=pw", "postgresql://host/db?sslpassword=(redacted)"),
        ("sqlite:a/b.db", "sqlite:a/b.db"),
    ],
)
async def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert shown_url(url) == shown


async def test_without_its_package_the_capability_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("toolpost.store.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)

    with pytest.raises(CapabilityMissing) as caught:
        async with open_store("postgresql://host/db"):
            pass
    assert "toolpost[postgres]" in (caught.value.hint or "")
