"""Servers and tools whose calls fail, found in the audit.

A rate alone is loud at night, when one of two calls fails; a number alone is loud by day, when ten of a million do. So both
count: at least `RATE` of the calls of the last `WINDOW_S`, and at least `LEAST` of them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

from toolpost.base.action_items import ActionItem
from toolpost.store.audit import AuditLog
from toolpost.store.audit_values import OutcomeCount, SampledCall

WINDOW_S: Final = 300.0
RATE: Final = 0.05
LEAST: Final = 10
MOST: Final = 0.8
"""The share of a server's failures from which on they are those of one tool."""
BEFORE_S: Final = 7_200.0
"""How far back the beginning is looked for."""


@dataclass
class CallTally:
    """The calls of a server or a tool."""

    calls: int = 0
    failed: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    """Of those that failed."""

    def add(self, count: OutcomeCount) -> None:
        self.calls += count.calls
        if count.is_failed:
            self.failed += count.calls
            self.codes[count.code or ""] += count.calls

    @property
    def is_failing(self) -> bool:
        return self.failed >= LEAST and self.failed >= RATE * self.calls


@dataclass(frozen=True, kw_only=True)
class Failing:
    """A server, or one tool of it, whose calls fail."""

    server: str
    tool: str | None
    tools: int
    """How many of its tools fail."""
    tally: CallTally


async def list_failures(audit: AuditLog, now: float) -> list[ActionItem]:
    """Return an item for each server whose calls fail, the most failures first; `now` is in seconds since 1970."""
    counts = await audit.count_outcomes(_stamp(now - WINDOW_S))
    failing = find_failing(counts)
    if not failing:
        return []
    # Only now: nearly always nothing fails, and nothing needs to be known of the time before.
    sample = await audit.sample(_stamp(now - BEFORE_S))
    return [_describe(each, find_beginning(each, sample.calls, now)) for each in failing]


def find_failing(counts: Iterable[OutcomeCount]) -> list[Failing]:
    """Return the servers whose calls fail; with the tool, if nearly all failures are its."""
    by_server: dict[str, CallTally] = defaultdict(CallTally)
    by_tool: dict[str, dict[str, CallTally]] = defaultdict(lambda: defaultdict(CallTally))
    for count in counts:
        by_server[count.source].add(count)
        by_tool[count.source][count.tool].add(count)
    found: list[Failing] = []
    for server, whole in by_server.items():
        tools = by_tool[server]
        worst = max(tools, key=lambda name: tools[name].failed)
        if tools[worst].is_failing and tools[worst].failed >= MOST * whole.failed:
            found.append(Failing(server=server, tool=worst, tools=1, tally=tools[worst]))
        elif whole.is_failing:
            failed = sum(1 for tally in tools.values() if tally.failed)
            found.append(Failing(server=server, tool=None, tools=failed, tally=whole))
        else:
            # Rare tools among many calls that are well.
            each = [(name, tally) for name, tally in tools.items() if tally.is_failing]
            found += [Failing(server=server, tool=name, tools=1, tally=tally) for name, tally in each]
    return sorted(found, key=lambda each: each.tally.failed, reverse=True)


def find_beginning(failing: Failing, calls: Iterable[SampledCall], now: float) -> float:
    """Return when the calls began to fail: the first minute from which on each five minutes had too many failures."""
    by_minute: dict[str, CallTally] = defaultdict(CallTally)
    for stamp, source, tool, is_failed, _ in calls:
        if source == failing.server and failing.tool in (None, tool):
            tally = by_minute[stamp]
            tally.calls += 1
            tally.failed += is_failed
    known = {_read_minute(stamp): tally for stamp, tally in by_minute.items()}
    window = int(WINDOW_S // 60)
    last = first = int(now // 60)
    for minute in range(last, last - int(BEFORE_S // 60), -1):
        seen = [known[each] for each in range(minute - window + 1, minute + 1) if each in known]
        if sum(tally.failed for tally in seen) < max(1, RATE * sum(tally.calls for tally in seen)):
            break
        if minute in known and known[minute].failed:
            first = minute
    return min(now, first * 60.0)


def _describe(failing: Failing, since: float) -> ActionItem:
    tally = failing.tally
    (code, count), *_ = tally.codes.most_common(1)
    most = "All" if count == tally.failed else f"{count:,} of them"
    several = f", of {failing.tools} tools" if failing.tools > 1 else ""
    pattern = failing.tool or f"{failing.server}__*"
    # An error that a server answers in its result has no code.
    wanted = ("code", code) if code else ("outcome", "error")
    return ActionItem(
        kind="failures",
        title=f"{tally.failed:,} of {tally.calls:,} calls of {failing.tool or failing.server} failed within 5 minutes",
        text=f"{most} with {code or 'an error of the server'}{several}.",
        since=since,
        action="Show the failed calls",
        path=f"/calls?{urlencode({'tool': pattern, wanted[0]: wanted[1]})}",
        command=f"toolpost audit --tool '{pattern}' --{wanted[0]} {wanted[1]}",
        is_urgent=True,
    )


def _stamp(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _read_minute(text: str) -> int:
    return int(datetime.fromisoformat(f"{text}:00+00:00").timestamp()) // 60
