"""Events on stderr: lines for people, or one JSON object a line for machines."""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

from toolpost.base.redaction import conceal_known
from toolpost.cli.terminal import printable, styled
from toolpost.contracts.errors import ToolpostError

LogFormat = Literal["text", "json"]

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
NOISY: Final = ("asyncio", "httpx", "mcp", "uvicorn", "watchfiles")
"""Libraries whose everyday news is not ours: heard from WARNING on."""

_COLOURS: Final = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
_PLAIN: Final = frozenset("=\"' \t\n\\")


def set_up_logging(level: str, log_format: LogFormat = "text") -> None:
    """Send every event of this level and above to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


class TextFormatter(logging.Formatter):
    """`12:00:01 WARNING tool failed  tool=time__now call=…`, with the traceback below."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a line for people."""
        at = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        fields = " ".join(f"{name}={_quoted(value)}" for name, value in _fields_of(record).items())
        line = f"{at} {_level(record)} {printable(record.getMessage())}" + (f"  {fields}" if fields else "")
        return conceal_known(f"{line}\n{printable(trace)}" if (trace := self._trace(record)) else line)

    def _trace(self, record: logging.LogRecord) -> str | None:
        # An error of ours states its fact in the line itself.
        if not record.exc_info or isinstance(record.exc_info[1], ToolpostError):
            return None
        return self.formatException(record.exc_info)


class JsonFormatter(logging.Formatter):
    """One object a line: ts, level, logger, event, the event's fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a line for machines."""
        told: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        told |= {name: value for name, value in _fields_of(record).items() if name not in told}
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return conceal_known(printable(json.dumps(told, ensure_ascii=False, default=str)))


def _level(record: logging.LogRecord) -> str:
    colour = _COLOURS.get(record.levelname)
    return styled(record.levelname, colour) if colour else record.levelname


def _fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, Mapping) else {}


def _quoted(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    needs_quotes = not text or not _PLAIN.isdisjoint(text)
    return printable(json.dumps(text, ensure_ascii=False) if needs_quotes and isinstance(value, str) else text)
