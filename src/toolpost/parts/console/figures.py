"""Figures of calls: how many, how many failed, and how long they took, of the last hour and of the hour before.

Durations are percentiles: a mean hides the calls that people wait for. They are nearest ranks, and left out where too few calls
were seen: a 99th percentile of twenty calls is the longest of them.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from toolpost.base import JsonObject

MINUTES: Final = 60
TOOLS: Final = 20
"""Tools that are shown, the worst first."""

SampledCall = tuple[str, str, str, int, float]
"""The minute, server and tool of a call, whether it failed, and its duration in milliseconds."""

_SEEN: Final = {50: 1, 95: 20, 99: 100}
"""How many calls a percentile needs."""


@dataclass
class Hour:
    """The calls of an hour, as far as they were seen."""

    calls: int = 0
    failed: int = 0
    durations_ms: list[float] = field(default_factory=list)

    def render(self, weight: float) -> JsonObject:
        """Return the figures, for as many calls as these stand for."""
        ordered = sorted(self.durations_ms)
        return {
            "calls": round(self.calls * weight),
            "failed": round(self.failed * weight),
            **{f"p{percent}Ms": _percentile(ordered, percent) for percent in _SEEN},
        }


@dataclass
class Figures:
    """The calls of two hours, and those of each minute of the last one."""

    now: Hour = field(default_factory=Hour)
    before: Hour = field(default_factory=Hour)
    minutes: dict[str, Hour] = field(default_factory=lambda: defaultdict(Hour))

    def add(self, minute: str, is_failed: int, duration_ms: float, *, is_now: bool) -> None:
        for hour in (self.now, self.minutes[minute]) if is_now else (self.before,):
            hour.calls += 1
            hour.failed += is_failed
            hour.durations_ms.append(duration_ms)

    def render(self, weight: float) -> JsonObject:
        """Return the figures of both hours."""
        return {"now": self.now.render(weight), "before": self.before.render(weight)}

    def render_minutes(self, minutes: Sequence[str], weight: float) -> JsonObject:
        """Return a number for each minute, the oldest first."""
        found = [self.minutes.get(minute, Hour()) for minute in minutes]
        return {
            "calls": [round(each.calls * weight) for each in found],
            "failed": [round(each.failed * weight) for each in found],
            "p95Ms": [_percentile(sorted(each.durations_ms), 95, is_rough=True) or 0.0 for each in found],
        }

    @property
    def concern(self) -> tuple[float, float]:
        """How much it deserves to be looked at: by failures, then by the time that its calls took."""
        return (self.now.failed, sum(self.now.durations_ms))


def summarize(
    calls: Iterable[SampledCall], weight: float, *, minutes: Sequence[str], servers: Sequence[str]
) -> JsonObject:
    """Return the figures of all calls, of each server, and of the tools that deserve to be looked at.

    Each call stands for `weight` calls. `minutes` are those of the last hour, as the audit writes them; earlier calls are those
    of the hour before. A call that arrived in a later minute is left out: a clock was set back.
    """
    first, last = minutes[0], minutes[-1]
    total, by_server = Figures(), {name: Figures() for name in servers}
    by_tool: dict[tuple[str, str], Figures] = defaultdict(Figures)
    for minute, source, tool, is_failed, duration_ms in calls:
        if minute > last:
            continue
        is_now = minute >= first
        total.add(minute, is_failed, duration_ms, is_now=is_now)
        by_tool[source, tool].add(minute, is_failed, duration_ms, is_now=is_now)
        if (of_server := by_server.get(source)) is not None:
            of_server.add(minute, is_failed, duration_ms, is_now=is_now)
    called = [(name, figures) for name, figures in by_tool.items() if figures.now.calls]
    worst = sorted(called, key=lambda each: each[1].concern, reverse=True)
    return {
        "total": total.render(weight) | total.render_minutes(minutes, weight),
        "servers": {
            name: each.render(weight) | each.render_minutes(minutes, weight) for name, each in by_server.items()
        },
        "tools": [{"tool": tool, "server": source, **each.render(weight)} for (source, tool), each in worst[:TOOLS]],
        "toolsCalled": len(called),
        "isSampled": weight > 1,
    }


def _percentile(ordered: Sequence[float], percent: int, *, is_rough: bool = False) -> float | None:
    """Return the nearest rank of sorted values; None of too few, unless a rough value will do."""
    if not ordered or (len(ordered) < _SEEN[percent] and not is_rough):
        return None
    return round(ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)], 3)
