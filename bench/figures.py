"""What was measured: one number per candidate and round, medians and ratios of them, targets beside them."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

RATE = "calls/s"
MS = "ms"
US = "µs"
MIB = "MiB"
S = "s"
PERCENT = "%"
COUNT = ""

OURS = "Toolpost"


@dataclass(frozen=True)
class Metric:
    """What a number is about."""

    scenario: str
    name: str
    unit: str

    @property
    def is_better_when_large(self) -> bool:
        return self.unit == RATE

    def __str__(self) -> str:
        return f"{self.scenario}: {self.name}"


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is aimed at, and whether it was reached."""

    what: str
    aim: str
    found: float
    shown: str
    is_reached: bool


@dataclass
class Figures:
    """All numbers of one part, and remarks on them."""

    values: dict[Metric, dict[str, list[float]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    refusals: dict[str, int] = field(default_factory=dict)

    def add(self, metric: Metric, who: str, value: float) -> None:
        self.values.setdefault(metric, {}).setdefault(who, []).append(value)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def median(self, metric: Metric, who: str) -> float | None:
        found = self.values.get(metric, {}).get(who)
        return median(found) if found else None

    def ratio(self, metric: Metric, ours: str, theirs: str) -> float | None:
        """Say how many times better ours is: the median over rounds, each with its own neighbours."""
        mine, other = (self.values.get(metric, {}).get(who) for who in (ours, theirs))
        if not mine or not other:
            return None
        pairs = zip(mine, other, strict=False)
        larger = metric.is_better_when_large
        return median((a / b if larger else b / a) if a and b else 0.0 for a, b in pairs)


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How thoroughly it is measured."""

    rounds: int
    seconds: float
    """How long one load lasts."""


def _none(_figures: Figures) -> list[Target]:
    return []


@dataclass(frozen=True, kw_only=True)
class Part:
    """One thing that can be measured by itself; a section of the page."""

    name: str
    """What a person types."""
    title: str
    measure: Callable[[Figures, Pace], None]
    targets: Callable[[Figures], list[Target]] = _none
    names: tuple[str, ...] = (OURS,)
    """Whose figures stand side by side; a metric that is ours alone stands in a table of its own."""
    pairs: tuple[tuple[str, str], ...] = ()
    """Who of ours is compared with whom."""
    method: str = ""

    def as_object(self, figures: Figures) -> dict[str, Any]:
        """Return everything, for machines."""
        return {
            "figures": [
                {**vars(metric), "who": who, "median": median(values), "values": values}
                for metric, by_name in figures.values.items()
                for who, values in by_name.items()
            ],
            "ratios": [
                {**vars(metric), "ours": ours, "theirs": theirs, "timesBetter": ratio}
                for metric in figures.values
                for ours, theirs in self.pairs
                if (ratio := figures.ratio(metric, ours, theirs)) is not None
            ],
            "targets": [vars(target) for target in self.targets(figures)],
            "refused": figures.refusals,
            "notes": figures.notes,
        }


def say(step: str) -> None:
    print(f"bench: {step}", file=sys.stderr, flush=True)


def at_least(what: str, ratio: float, least: float) -> Target:
    """Aim at being so many times better."""
    return Target(what=what, aim=f"≥ {least:g} x", found=ratio, shown=f"{ratio:.1f} x", is_reached=ratio >= least)


def at_most(what: str, found: float, limit: float, unit: str) -> Target:
    """Aim at no more than this."""
    shown = f"{found:.2f}" if found < 10 else f"{found:,.0f}"
    return Target(what=what, aim=f"≤ {limit:g} {unit}", found=found, shown=f"{shown} {unit}", is_reached=found <= limit)
