"""What was measured: one number per candidate and round, medians and ratios of them, targets beside them."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench.candidates import FASTMCP, PEERS, SDK_HIGH, SDK_LOW, like

RATE = "calls/s"
MS = "ms"
US = "µs"
MIB = "MiB"
S = "s"
COUNT = ""


@dataclass(frozen=True)
class Metric:
    """What a number is about."""

    scenario: str
    name: str
    unit: str

    @property
    def is_better_when_large(self) -> bool:
        return self.unit == RATE


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
    """All numbers of a run, and remarks on them."""

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

    def targets(self) -> list[Target]:
        return [*self._ratio_targets(), *self._own_targets()]

    def _ratio_targets(self) -> list[Target]:
        found: list[Target] = []
        for metric in self.values:
            if not metric.scenario.startswith("HTTP"):
                continue
            for peer, least in ((FASTMCP, 8.0), (SDK_LOW, 4.0), (SDK_HIGH, 4.0)):
                ratio = self.ratio(metric, like(peer).name, peer.name)
                if ratio is None:
                    continue
                what = f"{metric.scenario}: {metric.name}, {like(peer).name} against {peer.name}"
                if metric.name == RATE_AT_32:
                    found.append(_at_least(what, ratio, least))
                elif metric.name == P50_AT_32 and peer is FASTMCP:
                    found.append(_at_least(what, ratio, 4.0))
        return found

    def _own_targets(self) -> list[Target]:
        limits = ((HELP_CPU, 0.3), (REGISTER, 2.0))
        return [
            Target(
                what=f"{metric.scenario}: {metric.name}",
                aim=f"< {limit:g} s",
                found=value,
                shown=f"{value:.2f} s",
                is_reached=value < limit,
            )
            for metric, limit in limits
            if (value := self.median(metric, "Toolpost")) is not None
        ]

    def as_object(self) -> dict[str, Any]:
        """Return everything, for machines."""
        return {
            "figures": [
                {**vars(metric), "who": who, "median": median(values), "values": values}
                for metric, by_name in self.values.items()
                for who, values in by_name.items()
            ],
            "ratios": [
                {**vars(metric), "ours": like(peer).name, "theirs": peer.name, "timesBetter": ratio}
                for metric in self.values
                for peer in PEERS
                if (ratio := self.ratio(metric, like(peer).name, peer.name)) is not None
            ],
            "targets": [vars(target) for target in self.targets()],
            "refused": self.refusals,
            "notes": self.notes,
        }


RATE_AT_32 = "32 in flight, calls/s"
P50_AT_32 = "32 in flight, p50"
HELP_CPU = Metric("toolpost --help", "CPU", S)
REGISTER = Metric("register 6,044 definitions", "time", S)

Progress = Callable[[str], None]


def say(step: str) -> None:
    print(f"bench: {step}", file=sys.stderr, flush=True)


def _at_least(what: str, ratio: float, least: float) -> Target:
    return Target(what=what, aim=f"≥ {least:g} x", found=ratio, shown=f"{ratio:.1f} x", is_reached=ratio >= least)
