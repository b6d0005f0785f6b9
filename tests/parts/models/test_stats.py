"""Statistics on both stores: added once, by all gateways, and there after a restart."""

from typing import Any

import anyio
import pytest

from toolpost.contracts.errors import StoreUnavailable
from toolpost.metrics import Metrics
from toolpost.parts.models import PART
from toolpost.parts.models import stats as module
from toolpost.parts.models.stats import ModelAttempt, ModelMetrics, Stats, Totals, add_batch, bucket_of, milliseconds_of
from toolpost.store.part_migrations import open_part_store

pytestmark = [pytest.mark.anyio, pytest.mark.every_store]


def open_tables(url: str) -> Any:
    return open_part_store(url, PART.name, PART.migrations)


def done(seconds: float = 0.1, **fields: Any) -> ModelAttempt:
    return ModelAttempt(name="m", is_success=True, seconds=seconds, **fields)


FAILED = ModelAttempt(name="m", is_success=False, seconds=3)


@pytest.mark.wire
async def test_what_is_recorded_survives_and_is_added_up(url: str) -> None:
    async with open_tables(url) as store, open_tables(url) as other:
        one, two = Stats(store), Stats(other)
        for stats in (one, two):
            stats.record(done(input_tokens=10, output_tokens=4, cost=0.25))
            stats.record(FAILED)
            await stats.flush()
    async with open_tables(url) as store:
        stats = Stats(store)
        await stats.load()
        totals = (await stats.read())["m"]
        known = stats.experience("m")

    assert (totals.attempts, totals.failures, totals.input_tokens, totals.output_tokens) == (4, 2, 20, 8)
    assert totals.cost == 0.5
    assert totals.percentile_ms(0.5) == pytest.approx(100, rel=0.1)
    assert (known.attempts, known.failures) == (4, 2)
    assert known.median_s == pytest.approx(0.1, rel=0.1)
    assert known.output_tokens == 4


@pytest.mark.wire
async def test_a_batch_is_added_once_however_often_it_is_run(url: str) -> None:
    async with open_tables(url) as store:
        for _ in range(3):
            await store.scripts.run(lambda: add_batch("b-1", {"m": Totals(attempts=1)}))
        assert (await Stats(store).read())["m"].attempts == 1


@pytest.mark.wire
async def test_many_gateways_add_at_once(url: str) -> None:
    async with open_tables(url) as store:
        all_stats = [Stats(store) for _ in range(4)]

        async def record(stats: Stats) -> None:
            for _ in range(10):
                stats.record(done())
                stats.record(ModelAttempt(name="n", is_success=False, seconds=1))
                await stats.flush()

        async with anyio.create_task_group() as tasks:
            for stats in all_stats:
                tasks.start_soon(record, stats)
        found = await all_stats[0].read()
    assert (found["m"].attempts, found["n"].failures) == (40, 40)


async def test_what_could_not_be_written_is_written_later_with_the_same_id(monkeypatch: Any) -> None:
    ids: list[str] = []

    def noting(batch_id: str, batch: Any) -> Any:
        ids.append(batch_id)
        return add_batch(batch_id, batch)

    monkeypatch.setattr(module, "add_batch", noting)
    async with open_tables("sqlite::memory:") as store:
        stats = Stats(store)
        run = store.scripts.run
        fails = True

        async def run_badly(make: Any, **options: Any) -> Any:
            result = await run(make, **options)
            if fails:
                raise StoreUnavailable("the connection was lost")  # after it was committed
            return result

        monkeypatch.setattr(store.scripts, "run", run_badly)
        stats.record(done())
        await stats.try_flush()
        stats.record(done())
        fails = False
        totals = (await stats.read())["m"]

    assert totals.attempts == 2
    assert len(ids) == 3
    assert ids[0] == ids[1] != ids[2]


async def test_a_history_counts_until_there_are_new_attempts() -> None:
    async with open_tables("sqlite::memory:") as store:
        before = Stats(store)
        for _ in range(100):
            before.record(FAILED)
        await before.flush()
        stats = Stats(store)
        await stats.load()
        after = [stats.experience("m")]
        for _ in range(20):
            stats.record(done())
        after.append(stats.experience("m"))

    assert [(one.attempts, one.failures) for one in after] == [(20, 20), (20, 0)]


async def test_written_in_the_background() -> None:
    async with open_tables("sqlite::memory:") as store:
        stats = Stats(store)
        async with stats.open_writing():
            stats.record(done())
            with anyio.fail_after(30):
                while not await store.scripts.read(module.select):
                    await anyio.sleep(0.02)


def test_metrics() -> None:
    metrics = Metrics()
    counted = ModelMetrics(metrics)
    counted.count(done(input_tokens=10, output_tokens=4, cost=0.25))
    counted.count(FAILED)
    text = metrics.text({})
    assert 'toolpost_model_attempts_total{model="m"} 2' in text
    assert 'toolpost_model_failures_total{model="m"} 1' in text
    assert 'toolpost_model_input_tokens_total{model="m"} 10' in text
    assert 'toolpost_model_cost_total{model="m"} 0.25' in text


@pytest.mark.parametrize("seconds", [0.0, 0.0001, 0.001, 0.01, 0.37, 2.0, 30.0, 600.0])
def test_a_bucket_is_exact_to_nine_percent(seconds: float) -> None:
    expected = max(1.0, seconds * 1000)
    assert milliseconds_of(bucket_of(seconds)) == pytest.approx(expected, rel=0.1)


def test_percentiles() -> None:
    totals = Totals()
    for ms in range(1, 101):
        totals.latencies[bucket_of(ms / 1000)] += 1
    assert totals.percentile_ms(0.5) == pytest.approx(50, rel=0.1)
    assert totals.percentile_ms(0.99) == pytest.approx(99, rel=0.1)
    assert Totals().percentile_ms(0.5) is None
