"""Outcomes of attempts on models: counted in memory, added to the store in batches, and read back at the next start.

A batch has an id, and the store remembers it: a transaction that is run again after a lost connection adds nothing twice. All
gateways of one store add to the same numbers. A process that is killed loses the batch that it was just collecting.

Latencies are counted in buckets a quarter of an octave wide, so a percentile is exact to 9 %.
"""

import logging
import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import anyio

from toolpost.base import event
from toolpost.metrics import Counter as MetricCounter
from toolpost.metrics import Metrics
from toolpost.parts.models.score import Experience
from toolpost.store import NOW, Script, Statement, Store, change

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_log = logging.getLogger("toolpost.models")

RECENT: Final = 50
"""How many attempts decide on the reliability and latency of a model: what it did last year says little."""

SEED_LIMIT: Final = 20
"""How many attempts the history is worth after a restart, until there are as many new ones."""

FLUSH_S: Final = 0.2
"""How long attempts are collected before they are written."""

BATCH_AGE_S: Final = 86_400.0

_BUCKETS_PER_OCTAVE: Final = 4


def bucket_of(seconds: float) -> int:
    """Return the bucket of a latency; 0 for a millisecond and less."""
    return max(0, round(_BUCKETS_PER_OCTAVE * math.log2(max(1.0, seconds * 1000))))


def milliseconds_of(bucket: int) -> float:
    """Return the latency in the middle of a bucket."""
    return float(2 ** (bucket / _BUCKETS_PER_OCTAVE))


@dataclass(kw_only=True)
class Totals:
    """The sums of a model's attempts."""

    attempts: int = 0
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    latencies: Counter[int] = field(default_factory=Counter)
    """Successful attempts, by bucket."""

    def add(self, other: "Totals") -> None:
        """Add the sums of another."""
        self.attempts += other.attempts
        self.failures += other.failures
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.cost += other.cost
        self.latencies += other.latencies

    def percentile_ms(self, share: float) -> float | None:
        """Return the latency that this share of successes did not exceed; None without a success."""
        rank = math.ceil(share * self.latencies.total())
        for bucket in sorted(self.latencies):
            rank -= self.latencies[bucket]
            if rank <= 0:
                return round(milliseconds_of(bucket), 1)
        return None


@dataclass(frozen=True, kw_only=True)
class ModelAttempt:
    """One attempt on a model that has ended."""

    name: str
    is_success: bool
    seconds: float
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


class LatencySummary(MetricCounter):
    """Percentiles of answered attempts since the start of the process, as a Prometheus summary."""

    __slots__ = ("_totals",)

    def __init__(self, name: str, help_text: str) -> None:
        super().__init__(name, help_text, label="model")
        self._totals: dict[str, Totals] = {}

    def note(self, model: str, seconds: float) -> None:
        """Count an answer."""
        self.add(seconds, of=model)
        self._totals.setdefault(model, Totals()).latencies[bucket_of(seconds)] += 1

    def collect(self) -> "Metric":
        """Return quantiles, sum and count of each model."""
        from prometheus_client.metrics_core import SummaryMetricFamily

        family = SummaryMetricFamily(self.name, self.help, labels=["model"])
        for model, totals in sorted(self._totals.items()):
            for share in (0.5, 0.95, 0.99):
                found_s = (totals.percentile_ms(share) or 0.0) / 1000
                family.add_sample(self.name, {"model": model, "quantile": str(share)}, found_s)
            family.add_metric([model], totals.latencies.total(), self.value(model))
        return family


class ModelMetrics:
    """Counters since the start of the process, by model."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        metrics = metrics or Metrics()

        def add(name: str, help_text: str) -> MetricCounter:
            return metrics.add(MetricCounter(f"toolpost_model_{name}_total", help_text, label="model"))

        self.attempts = add("attempts", "Attempts on models, by model.")
        self.failures = add("failures", "Attempts that failed, by model.")
        self.input_tokens = add("input_tokens", "Tokens that models were sent, by model.")
        self.output_tokens = add("output_tokens", "Tokens that models answered with, by model.")
        self.cost = add("cost", "Cost of answers at the configured prices, by model.")
        self.seconds = add("seconds", "Time until models had answered or failed, by model.")
        self.latency = LatencySummary("toolpost_model_latency_seconds", "Time until models had answered, by model.")
        metrics.add(self.latency)

    def count(self, attempt: ModelAttempt) -> None:
        """Add an attempt."""
        name = attempt.name
        self.attempts.add(of=name)
        self.failures.add(0 if attempt.is_success else 1, of=name)
        self.input_tokens.add(attempt.input_tokens, of=name)
        self.output_tokens.add(attempt.output_tokens, of=name)
        self.cost.add(attempt.cost, of=name)
        self.seconds.add(attempt.seconds, of=name)
        if attempt.is_success:
            self.latency.note(name, attempt.seconds)


class Stats:
    """The statistics of all models of a store."""

    def __init__(self, store: Store, metrics: ModelMetrics | None = None) -> None:
        self._store = store
        self._metrics = metrics or ModelMetrics()
        self._history: dict[str, Totals] = {}
        """As read at the start."""
        self._recent: dict[str, deque[ModelAttempt]] = {}
        self._pending: dict[str, Totals] = {}
        self._batch: tuple[str, dict[str, Totals]] | None = None
        """What is being written, with its id; kept if that fails, since it may have been written all the same."""
        self._has_pending = anyio.Event()
        self._writing = anyio.Lock()

    async def load(self) -> None:
        """Read the history, so that scores begin where they were."""
        self._history = await self._store.scripts.read(select)

    def record(self, attempt: ModelAttempt) -> None:
        """Count an attempt; it is written soon."""
        self._metrics.count(attempt)
        self._recent.setdefault(attempt.name, deque(maxlen=RECENT)).append(attempt)
        self._pending.setdefault(attempt.name, Totals()).add(
            Totals(
                attempts=1,
                failures=0 if attempt.is_success else 1,
                input_tokens=attempt.input_tokens,
                output_tokens=attempt.output_tokens,
                cost=attempt.cost,
                latencies=Counter([bucket_of(attempt.seconds)] if attempt.is_success else []),
            )
        )
        self._has_pending.set()

    def experience(self, name: str) -> Experience:
        """Return what recent attempts say; after a restart the history counts too, until there are enough of them."""
        recent = self._recent.get(name, ())
        history = self._history.get(name, Totals())
        seed = max(0, min(SEED_LIMIT, history.attempts) - len(recent))
        failed = seed * history.failures / history.attempts if history.attempts else 0.0
        done = [attempt for attempt in recent if attempt.is_success]
        median_ms = history.percentile_ms(0.5)
        successes = history.attempts - history.failures
        return Experience(
            attempts=len(recent) + seed,
            failures=len(recent) - len(done) + round(failed),
            median_s=median(attempt.seconds for attempt in done) if done else median_ms and median_ms / 1000,
            output_tokens=(
                sum(attempt.output_tokens for attempt in done) / len(done)
                if done
                else history.output_tokens / successes
                if successes
                else None
            ),
        )

    async def read(self) -> dict[str, Totals]:
        """Return the sums of all gateways of the store, with everything that this one has recorded."""
        await self.flush()
        return await self._store.scripts.read(select)

    async def flush(self) -> None:
        """Write what is pending; if that fails it stays pending, and the error is raised."""
        async with self._writing:
            while self._batch is not None or self._pending:
                if self._batch is None:
                    # It keeps its id until it is written: an attempt whose answer was lost may have been committed.
                    self._batch, self._pending = (uuid4().hex, self._pending), {}
                batch_id, batch = self._batch
                await self._store.scripts.run(partial(add_batch, batch_id, batch), durable=False)
                self._batch = None

    @asynccontextmanager
    async def open_writing(self) -> AsyncIterator[None]:
        """Write what is recorded, a moment later, as long as this is open."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write_pending)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    async def _write_pending(self) -> None:
        while True:
            await self._has_pending.wait()
            await anyio.sleep(FLUSH_S)
            self._has_pending = anyio.Event()
            await self.try_flush()

    async def try_flush(self) -> None:
        """Write what is pending, or log why that failed: statistics never fail a call."""
        try:
            with anyio.CancelScope(shield=True):
                await self.flush()
        except Exception as error:  # noqa: BLE001 (of the store; tried again with the next attempt)
            event(_log, logging.WARNING, "statistics of models not written", reason=str(error))


def add_batch(batch_id: str, batch: Mapping[str, Totals]) -> Script[None]:
    """Add sums to those of the store, once for each batch id."""
    ((now,),) = yield NOW
    added = yield change(
        "INSERT INTO models_batches (id, at) VALUES (?1, ?2) ON CONFLICT (id) DO NOTHING", (batch_id, now)
    )
    if not added:
        return
    yield Statement("DELETE FROM models_batches WHERE at < ?1", (now - BATCH_AGE_S,))
    # In one order everywhere, so that two gateways cannot wait for each other's rows.
    for name, totals in sorted(batch.items()):
        yield Statement(
            "INSERT INTO models_stats (name, attempts, failures, input_tokens, output_tokens, cost, last_at)"
            " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (name) DO UPDATE SET"
            " attempts = models_stats.attempts + excluded.attempts, failures = models_stats.failures + excluded.failures,"
            " input_tokens = models_stats.input_tokens + excluded.input_tokens,"
            " output_tokens = models_stats.output_tokens + excluded.output_tokens,"
            " cost = models_stats.cost + excluded.cost, last_at = excluded.last_at",
            (
                name,
                totals.attempts,
                totals.failures,
                totals.input_tokens,
                totals.output_tokens,
                totals.cost,
                now,
            ),
        )
        for bucket, count in sorted(totals.latencies.items()):
            yield Statement(
                "INSERT INTO models_latencies (name, bucket, attempts) VALUES (?1, ?2, ?3)"
                " ON CONFLICT (name, bucket) DO UPDATE SET attempts = models_latencies.attempts + excluded.attempts",
                (name, bucket, count),
            )


def select() -> Script[dict[str, Totals]]:
    """Return the sums of every model, by name."""
    rows = yield Statement(
        "SELECT name, attempts, failures, input_tokens, output_tokens, cost FROM models_stats ORDER BY name"
    )
    found = {
        str(name): Totals(
            attempts=attempts, failures=failures, input_tokens=inputs, output_tokens=outputs, cost=float(cost)
        )
        for name, attempts, failures, inputs, outputs, cost in rows
    }
    rows = yield Statement("SELECT name, bucket, attempts FROM models_latencies")
    for name, bucket, count in rows:
        if name in found:
            found[name].latencies[bucket] = count
    return found
