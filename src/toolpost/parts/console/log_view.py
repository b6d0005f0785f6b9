"""The log on disk, as far as a caller may see it: an administrator everything, another caller the lines of its own calls.

Its files are for their owner alone, since servers may write anything to stderr. So where no token is required, a browser needs
the cookie to read them, as for the settings of servers; only the error of a call is shown to everybody who sees the call.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from anyio import to_thread

from toolpost.base import JsonObject
from toolpost.endpoints.http import Admission
from toolpost.parts import Host
from toolpost.parts.console.context import Console

OWN_FIELDS: Final = (
    *("ts", "level", "event", "tool", "server", "plugin", "call", "trace", "caller", "thread"),
    *("code", "message", "issues"),
)
"""What a caller sees of the lines of its own calls: a traceback, or the reason of an internal error, is about the gateway."""

LINES_LIMIT: Final = 100
"""Lines of one call."""
_BEFORE: Final = timedelta(seconds=1)
_AFTER: Final = timedelta(seconds=10)
_FAILURES: Final = ("tool failed", "call failed", "internal error")

Position = Mapping[int, int]


@dataclass(frozen=True)
class LogView:
    """The log as one caller sees it."""

    host: Host
    caller: str | None
    """The only caller whose lines are shown; None shows all."""

    @classmethod
    def of(cls, console: Console, admission: Admission) -> "LogView | None":
        """Return the log as a caller sees it; None if none is kept."""
        if console.host.log_files is None:
            return None
        return cls(console.host, None if admission.is_admin else admission.caller.id)

    async def find_end(self) -> Position:
        """Return where the log ends now."""
        files = self.host.log_files
        return await to_thread.run_sync(files.find_ends) if files is not None else {}

    async def read_back(
        self, wanted: Mapping[str, str], *, limit: int, before: Position | None = None
    ) -> tuple[list[JsonObject], Position, bool]:
        """Return events, newest first; where those before them begin; and whether reading ended before there were enough."""
        files = self.host.log_files
        if files is None or not self._may_see(wanted):
            return [], {}, False
        page = await to_thread.run_sync(lambda: files.read_back(self._limit(wanted), limit=limit, before=before))
        return self._show(page.events), page.before, page.is_cut

    async def read_on(self, wanted: Mapping[str, str], position: Position) -> tuple[list[JsonObject], Position, bool]:
        """Return the events past a position, oldest first; where the next ones begin; and whether some were left out."""
        files = self.host.log_files
        if files is None or not self._may_see(wanted):
            return [], position, False
        page = await to_thread.run_sync(lambda: files.read_on(self._limit(wanted), position))
        return self._show(page.events), page.before, page.is_cut

    async def read_call(self, call_id: str, at_utc: str, duration_ms: float) -> list[JsonObject]:
        """Return the lines of a call, oldest first."""
        at = datetime.fromisoformat(at_utc)
        wanted = {
            "call": call_id,
            "since": (at - _BEFORE).isoformat(timespec="milliseconds"),
            "until": (at + timedelta(milliseconds=duration_ms) + _AFTER).isoformat(timespec="milliseconds"),
        }
        events, _, _ = await self.read_back(wanted, limit=LINES_LIMIT)
        return events[::-1]

    def _may_see(self, wanted: Mapping[str, str]) -> bool:
        # As if there were none: whether another caller exists is not told.
        return self.caller is None or wanted.get("caller", self.caller) == self.caller

    def _limit(self, wanted: Mapping[str, str]) -> Mapping[str, str]:
        return wanted if self.caller is None else {**wanted, "caller": self.caller}

    def _show(self, events: Sequence[JsonObject]) -> list[JsonObject]:
        if self.caller is None:
            return [*events]
        return [{name: event[name] for name in OWN_FIELDS if name in event} for event in events if event.get("call")]


def find_error(lines: Sequence[JsonObject]) -> JsonObject | None:
    """Return message and issues of a failed call from its lines; None if they do not tell."""
    for line in reversed(lines):
        if line.get("event") in _FAILURES:
            return {
                "event": line["event"],
                "code": line.get("code"),
                "message": line.get("message") or line.get("reason"),
                "issues": line.get("issues") or [],
            }
    return None
