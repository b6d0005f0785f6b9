"""Counts of a gateway, and `/metrics`: counters and histograms of our own, rendered by `prometheus_client` at a scrape.

Counting is on the call path, so it is an addition to a list in a dict and nothing else: the metrics of `prometheus_client` take a
lock for each value. Its classes are imported and used at the time of a scrape alone.
"""

import logging
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolpost.base.events import event
from toolpost.manifest import BadManifest, describe

__all__ = ["Counter", "GaugeValues", "Metrics"]

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_log = logging.getLogger("toolpost.app")

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
"""Buckets of durations, in seconds."""

TOP_TOOLS: Final = 50
"""Tools with series of their own; all others count as `other`."""
OTHER: Final = "other"
SERIES_LIMIT: Final = 50_000
"""How many combinations of server, tool and code are counted: servers may rename their tools again and again."""


class Gauge(NamedTuple):
    """Values at this moment, for each value of some labels."""

    help: str
    labels: tuple[str, ...]
    values: Mapping[tuple[str, ...], float]


GaugeValues = Mapping[str, tuple[str, float]]
"""What holds at this moment: by name, what it means and its value."""


MetricValues = Mapping[str, tuple[str, float] | Gauge]
"""The same of the kernel, which also has values with labels."""


@dataclass(frozen=True)
class Gauges:
    """The gauges of a part; its counters are added to `host.metrics`."""

    read: Callable[[], GaugeValues]
    """Called at each scrape, on the event loop: it returns what is known already. Names begin with `toolpost_` and the part's."""


def read_gauges(named: Sequence[tuple[str, Gauges]], taken: Collection[str]) -> GaugeValues:
    """Read the gauges of parts, each after the name of its part. One that fails is logged, and the others are shown.

    `taken` are the names of the kernel's own.
    """
    found: dict[str, tuple[str, float]] = {}
    for part, gauges in named:
        try:
            for name, value in _check_gauges(gauges.read()).items():
                if name in taken or name in found:
                    raise BadManifest(f"there is a gauge `{name}` already")
                found[name] = value
        except Exception as error:  # noqa: BLE001 (a part may raise anything)
            event(_log, logging.ERROR, "gauges failed", part=part, reason=str(error), exception=error)
    return found


def _check_gauges(values: object) -> GaugeValues:
    if isinstance(values, Coroutine):
        values.close()
        raise BadManifest("`read` of `Gauges` is asynchronous: it must be a plain function")
    if not isinstance(values, Mapping):
        raise BadManifest(f"`read` of `Gauges` returned {describe(values)}, not a dict")
    for name, value in values.items():
        check_metric_name(name)
        if not (isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], int | float)):
            raise BadManifest(f'the gauge `{name}` is {describe(value)}: write ("what it means", 3)')
    return values


def check_metric_name(name: str) -> None:
    """Raise `BadManifest` for a name that Prometheus does not take."""
    if not re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", name):
        raise BadManifest(f"`{name}` is no name of a metric: write letters, digits and `_`")


class Counter:
    """A number that only grows, or one per value of a label. Label values are a fixed set, never text of callers."""

    __slots__ = ("_values", "help", "label", "name")

    def __init__(self, name: str, help: str, *, label: str | None = None) -> None:  # noqa: A002 (as Prometheus calls it)
        self.name = name
        self.help = help
        self.label = label
        self._values: defaultdict[str, float] = defaultdict(float)
        if label is None:
            self._values[""] = 0

    def add(self, by: float = 1, *, of: str = "") -> None:
        self._values[of] += by

    def value(self, of: str = "") -> float:
        return self._values.get(of, 0)

    def values(self) -> Mapping[str, float]:
        """Return what was counted, by label."""
        return self._values

    def collect(self) -> "Metric":
        """Return it as Prometheus has it."""
        from prometheus_client.metrics_core import CounterMetricFamily

        family = CounterMetricFamily(self.name, self.help, labels=[self.label] if self.label else [])
        for of, value in sorted(self.values().items()):
            family.add_metric([of] if self.label else [], value)
        return family


class Durations:
    """How long something took, in buckets."""

    __slots__ = ("counts", "total_s")

    def __init__(self, counts: Sequence[int] = (0,) * (len(BOUNDS_S) + 1), total_s: float = 0.0) -> None:
        self.counts = list(counts)
        self.total_s = total_s

    def observe(self, seconds: float) -> None:
        """Count one; a bound belongs to the bucket below it."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds

    @property
    def count(self) -> int:
        """How many were counted."""
        return sum(self.counts)

    def plus(self, other: "Durations", sign: int = 1) -> "Durations":
        """Return the sum of both, or with -1 the difference."""
        pairs = zip(self.counts, other.counts, strict=True)
        return Durations([one + sign * two for one, two in pairs], self.total_s + sign * other.total_s)

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts by upper bound, as Prometheus has them."""
        found, so_far = [], 0
        for bound, count in zip((*BOUNDS_S, "+Inf"), self.counts, strict=True):
            so_far += count
            found.append((str(bound), float(so_far)))
        return found


class CallDurations:
    """How long calls took, by server, tool and code.

    Everything is counted by tool; a scrape shows the `TOP_TOOLS` tools with most calls, and the rest as `other`, so that a server
    with thousands of tools does not make thousands of series. Shown values must never decrease: a tool that becomes one of the
    top begins at zero, and what it had stays in `other`; one that is displaced leaves what it had shown behind.
    """

    def __init__(self, top: int = TOP_TOOLS) -> None:
        self._top = top
        self._counted: dict[tuple[str, str, str], Durations] = {}
        """By server, tool and code."""
        self._shown: dict[tuple[str, str], dict[str, Durations]] = {}
        """The tools at the top, and what they had by code when they got there."""
        self._hidden: dict[tuple[str, str], Durations] = {}
        """By server and code: what tools had shown that were displaced, which `other` must not show again."""
        self._is_full = False
        """Whether there have been more tools than are shown, so that `other` has shown some."""

    def observe(self, server: str, tool: str, code: str, seconds: float) -> None:
        """Count a call."""
        key = (server, tool, code)
        if (found := self._counted.get(key)) is None:
            found = self._make(key)
        found.counts[bisect_left(BOUNDS_S, seconds)] += 1
        found.total_s += seconds

    def _make(self, key: tuple[str, str, str]) -> Durations:
        if len(self._counted) >= SERIES_LIMIT:
            key = (key[0], OTHER, key[2])
        return self._counted.setdefault(key, Durations())

    def by_code(self) -> dict[str, Durations]:
        """Return the durations of all tools together."""
        found: dict[str, Durations] = {}
        for (_, _, code), durations in self._counted.items():
            found[code] = found[code].plus(durations) if code in found else durations
        return found

    def collect(self) -> "Metric":
        """Return the shown histogram."""
        from prometheus_client.metrics_core import HistogramMetricFamily

        help_text = "Time from admission to answer, by server, tool and code."
        family = HistogramMetricFamily("toolpost_call_duration_seconds", help_text, labels=["server", "tool", "code"])
        for labels, durations in self.series():
            family.add_metric(labels, durations.buckets(), durations.total_s)
        return family

    def series(self) -> Iterator[tuple[tuple[str, str, str], Durations]]:
        """Choose the top tools and return all series by server, tool and code."""
        self._choose()
        others: dict[tuple[str, str], Durations] = {}
        for (server, tool, code), counted in sorted(self._counted.items()):
            shown = self._shown.get((server, tool))
            rest = counted
            if shown is not None:
                rest = shown.get(code) or Durations()
                if (own := counted.plus(rest, -1)).count:
                    yield (server, tool, code), own
            others[server, code] = others[server, code].plus(rest) if (server, code) in others else rest
        for key, durations in others.items():
            hidden = self._hidden.get(key)
            if (left := durations if hidden is None else durations.plus(hidden, -1)).count:
                yield (key[0], OTHER, key[1]), left

    def _choose(self) -> None:
        calls: defaultdict[tuple[str, str], int] = defaultdict(int)
        for (server, tool, _), durations in self._counted.items():
            if tool != OTHER:
                calls[server, tool] += durations.count
        waiting = sorted((key for key in calls if key not in self._shown), key=lambda key: calls[key], reverse=True)
        for key in waiting:
            if len(self._shown) < self._top:
                # Its counts were not shown yet, unless there have been others.
                self._shown[key] = self._counts_of(key) if self._is_full else {}
                continue
            self._is_full = True
            least = min(self._shown, key=lambda one: calls[one])
            # Twice as many: two tools that are called alike must not take turns.
            if calls[key] <= 2 * calls[least]:
                break
            self._displace(least)
            self._shown[key] = self._counts_of(key)

    def _counts_of(self, key: tuple[str, str]) -> dict[str, Durations]:
        return {
            code: Durations(durations.counts, durations.total_s)
            for (server, tool, code), durations in self._counted.items()
            if (server, tool) == key
        }

    def _displace(self, key: tuple[str, str]) -> None:
        before = self._shown.pop(key)
        for code, durations in self._counts_of(key).items():
            shown = durations.plus(before[code], -1) if code in before else durations
            known = self._hidden.get((key[0], code))
            self._hidden[key[0], code] = shown if known is None else known.plus(shown)


class _CallCounter(Counter):
    """Calls by code, out of their durations: a call is counted once."""

    __slots__ = ("_durations",)

    def __init__(self, name: str, help_text: str, durations: CallDurations) -> None:
        super().__init__(name, help_text, label="code")
        self._durations = durations

    def value(self, of: str = "") -> float:
        return self.values().get(of, 0)

    def values(self) -> Mapping[str, float]:
        return {code: durations.count for code, durations in self._durations.by_code().items()}


class _CallSeconds(_CallCounter):
    """Time of all calls together."""

    __slots__ = ()

    def __init__(self, name: str, help_text: str, durations: CallDurations) -> None:
        super().__init__(name, help_text, durations)
        self.label = None

    def values(self) -> Mapping[str, float]:
        return {"": sum(durations.total_s for durations in self._durations.by_code().values())}


class Metrics:
    """Every counter of a gateway; docs/reference/metrics.md explains each."""

    def __init__(self) -> None:
        self.durations = CallDurations()
        self.calls = _CallCounter(
            "toolpost_calls_total", "Calls answered, by their code; OK is a success.", self.durations
        )
        self.call_seconds = _CallSeconds(
            "toolpost_call_seconds_total", "Time from admission to answer, of all calls.", self.durations
        )
        self.connections_refused = Counter(
            "toolpost_connections_refused_total", "Connections refused or closed for a limit, by which.", label="why"
        )
        self.tokens_rejected = Counter("toolpost_tokens_rejected_total", "Requests whose token was refused (401).")
        self.names_refused = Counter(
            "toolpost_names_refused_total",
            "Requests for a name (of a tool, resource, prompt …) that does not exist or is not visible to the caller.",
            label="kind",
        )
        self.searches = Counter(
            "toolpost_searches_total", "Answers of automatic_mcp, by how sure they are.", label="match"
        )
        self.tokens_sent = Counter("toolpost_search_tokens_sent_total", "Tokens of the answers of automatic_mcp.")
        self.tokens_saved = Counter(
            "toolpost_search_tokens_saved_total", "Tokens by which listing all tools would have cost more than that."
        )
        self.rerankings = Counter(
            "toolpost_rerankings_total", "Questions to the reranker, by outcome.", label="outcome"
        )
        self.preparations = Counter("toolpost_index_preparations_total", "Times that the search index was prepared.")
        self.preparation_seconds = Counter("toolpost_index_preparation_seconds_total", "Time that preparing it took.")
        self._of_parts: list[Counter] = []

    def add(self, counter: Counter) -> Counter:
        """Show a counter of a part beside ours; returns it. Raises `BadManifest` for a name that is taken, or is none."""
        check_metric_name(counter.name)
        if any(counter.name == other.name for other in self.counters):
            raise BadManifest(f"there is a counter `{counter.name}` already")
        self._of_parts.append(counter)
        return counter

    @property
    def counters(self) -> list[Counter]:
        return [value for value in vars(self).values() if isinstance(value, Counter)] + self._of_parts

    def text(self, gauges: MetricValues, counters: MetricValues | None = None, commits: Durations | None = None) -> str:
        """Render everything; `counters` are those that others keep, `commits` the transactions of the store."""
        from prometheus_client.exposition import generate_latest

        families = [counter.collect() for counter in self.counters]
        families.append(self.durations.collect())
        families += _collect(counters or {}, is_counter=True)
        families += _collect(gauges, is_counter=False)
        families += _collect_process()
        if commits is not None:
            families.append(_collect_commits(commits))
        return generate_latest(_Families(families)).decode()


class _Families:
    """A registry of what was collected already."""

    def __init__(self, families: Iterable[Any]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Any]:
        return self._families


def _collect(values: MetricValues, *, is_counter: bool) -> "Iterator[Metric]":
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if is_counter else GaugeMetricFamily
    for name, value in values.items():
        gauge = value if isinstance(value, Gauge) else Gauge(value[0], (), {(): value[1]})
        family = kind(name, gauge.help, labels=gauge.labels)
        for labels, number in sorted(gauge.values.items()):
            family.add_metric(labels, number)
        yield family


def _collect_process() -> "Iterable[Metric]":
    """Return memory, processor time and descriptors of this process, under the names that all programs use; Linux only."""
    from prometheus_client.process_collector import ProcessCollector

    return ProcessCollector(registry=None).collect()


def _collect_commits(commits: Durations) -> "Metric":
    from prometheus_client.metrics_core import HistogramMetricFamily

    family = HistogramMetricFamily("toolpost_commit_duration_seconds", "Time that transactions of the store took.")
    family.add_metric([], commits.buckets(), commits.total_s)
    return family
