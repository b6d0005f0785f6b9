"""Durations, counted on the event loop and written as OTLP bytes by the exporter's thread."""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from toolpost.parts.telemetry.conventions import BOUNDS_S, DESCRIPTIONS, DROPPED
from toolpost.parts.telemetry.spans import key_values

SERIES_LIMIT: Final = 2_000
"""Of each metric, as in the SDK of OpenTelemetry; what comes after them counts together."""
_OVERFLOW: Final = {"otel.metric.overflow": "true"}


class Series:
    """The durations with one set of attributes."""

    __slots__ = ("attributes", "counts", "total")

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self.attributes = attributes
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration; a bound belongs to the bucket below it."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total += seconds


class Histograms:
    """All series, by metric and attributes."""

    def __init__(self, began_ns: int) -> None:
        self._began_ns = began_ns
        self._series: dict[str, dict[tuple[tuple[str, Any], ...], Series]] = {name: {} for name in DESCRIPTIONS}

    def find(self, metric: str, attributes: Mapping[str, Any]) -> Series:
        """Return the series with these attributes; beyond the limit, the one of all others."""
        known = self._series[metric]
        key = tuple(sorted((name, value) for name, value in attributes.items() if value is not None))
        if key not in known and len(known) >= SERIES_LIMIT:
            attributes, key = _OVERFLOW, tuple(_OVERFLOW.items())
        if key not in known:
            known[key] = Series(attributes)
        return known[key]

    def write(self, resource: Resource, scope: InstrumentationScope, now_ns: int, *, dropped: int) -> bytes:
        """Write everything since the start, as the body of a request."""
        metrics = []
        for name, series in self._series.items():
            # Copied in one step: the event loop may add series at the same time.
            points = [self._write_point(each, now_ns) for each in list(series.values())]
            if points:
                metric = Metric(name=name, description=DESCRIPTIONS[name], unit="s")
                metric.histogram.data_points.extend(points)
                metric.histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
                metrics.append(metric)
        metrics.append(self._write_dropped(now_ns, dropped))
        scoped = ScopeMetrics(scope=scope, metrics=metrics)
        made = ExportMetricsServiceRequest(
            resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scoped])]
        )
        return made.SerializeToString()

    def _write_point(self, series: Series, now_ns: int) -> HistogramDataPoint:
        counts = list(series.counts)
        return HistogramDataPoint(
            attributes=key_values(series.attributes),
            start_time_unix_nano=self._began_ns,
            time_unix_nano=now_ns,
            count=sum(counts),
            sum=series.total,
            bucket_counts=counts,
            explicit_bounds=BOUNDS_S,
        )

    def _write_dropped(self, now_ns: int, dropped: int) -> Metric:
        metric = Metric(name=DROPPED, description="Spans that could not be sent.", unit="{span}")
        metric.sum.is_monotonic = True
        metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
        point = NumberDataPoint(start_time_unix_nano=self._began_ns, time_unix_nano=now_ns, as_int=dropped)
        metric.sum.data_points.append(point)
        return metric
