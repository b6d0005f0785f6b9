"""Counters of the bus; its gauges are in `part.py`."""

from toolpost.metrics import Counter, Metrics


class BusMetrics:
    """Counters, registered with the metrics of a gateway if one is given."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        metrics = metrics or Metrics()
        self.dispatches = metrics.add(
            Counter("toolpost_bus_dispatches_total", "Tasks given to workers that polled for one.")
        )
        self.dispatch_seconds = metrics.add(
            Counter("toolpost_bus_dispatch_seconds_total", "Time from the offer of a task until its worker has it.")
        )
        self.expiries = metrics.add(
            Counter(
                "toolpost_bus_expiries_total",
                "Tasks taken back because their lease expired, by kind of lease.",
                label="lease",
            )
        )
