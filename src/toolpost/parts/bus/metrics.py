"""What the bus counts."""

from toolpost.metrics import Counter, Metrics


class BusMetrics:
    """Counters of the bus, shown among those of a gateway."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        metrics = metrics or Metrics()
        self.dispatches = metrics.add(
            Counter("toolpost_bus_dispatches_total", "Tasks given to workers that came for one.")
        )
        self.dispatch_seconds = metrics.add(
            Counter("toolpost_bus_dispatch_seconds_total", "Time from the offer of a task until its worker has it.")
        )
        self.expiries = metrics.add(
            Counter(
                "toolpost_bus_expiries_total",
                "Tasks taken back because nobody was heard of, by what ran out.",
                label="lease",
            )
        )
