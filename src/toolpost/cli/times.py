"""The type of time options: ISO 8601, or how long ago."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import click

_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class TimeParameter(click.ParamType[str]):
    """ISO 8601 (UTC unless it has an offset), or an age such as `30m`, `2h`, `7d`; becomes UTC as the audit writes it."""

    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if found := _AGO.fullmatch(value.strip().lower()):
            moment = datetime.now(UTC) - timedelta(**{_UNITS[found[2]]: float(found[1])})
        else:
            try:
                moment = datetime.fromisoformat(value.strip())
            except ValueError:
                self.fail(f"`{value}` is not a time; write 2026-03-01T12:00, or 2h for two hours ago", param, ctx)
        utc = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
