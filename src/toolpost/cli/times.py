"""Points in time as people write them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import click

_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Moment(click.ParamType[str]):
    """ISO 8601 (UTC unless it says otherwise), or how long ago: `30m`, `2h`, `7d`. Becomes what the audit writes."""

    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read it."""
        if found := _AGO.fullmatch(value.strip().lower()):
            moment = datetime.now(UTC) - timedelta(**{_UNITS[found[2]]: float(found[1])})
        else:
            try:
                moment = datetime.fromisoformat(value.strip())
            except ValueError:
                self.fail(f"`{value}` is no time; write 2026-03-01T12:00, or 2h for two hours ago", param, ctx)
        return _written(moment)


def _written(moment: datetime) -> str:
    utc = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
