"""Log events on stderr: text lines, or one JSON object per line."""

import json
import logging
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import click

from toolpost.base.author_code import format_author_traceback
from toolpost.base.redaction import conceal_known
from toolpost.contracts.errors import ToolpostError
from toolpost.terminal.text import printable, style_stderr

LogFormat = Literal["text", "json"]

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
NOISY: Final = ("asyncio", "httpx", "mcp", "uvicorn", "watchfiles")
"""Libraries that log much: shown from WARNING on."""

_COLORS: Final = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
_PLAIN: Final = frozenset("=\"' \t\n\\")


def log_level_option(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make the option `--log-level`, the argument of `set_up_logging`."""
    return click.option(
        "--log-level", type=click.Choice(LEVELS), default=default, show_default=True, help="Which events are shown."
    )


def set_up_logging(level: str, log_format: LogFormat = "text", *, of_author: bool = False) -> None:
    """Send events of this level and above to stderr, replacing other handlers.

    With `of_author`, tracebacks in text have the lines of a plugin's author alone.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter(of_author=of_author))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


class TextFormatter(logging.Formatter):
    """`12:00:01 WARNING tool failed  tool=time__now call=…`, with the traceback below."""

    def __init__(self, *, of_author: bool = False) -> None:
        super().__init__()
        self._of_author = of_author

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        color = _COLORS.get(record.levelname)
        level = style_stderr(record.levelname, color) if color else record.levelname
        line = format_event(at, level, record.getMessage(), _fields_of(record))
        return conceal_known(f"{line}\n{printable(trace)}" if (trace := self._trace(record)) else line)

    def _trace(self, record: logging.LogRecord) -> str | None:
        # The message of a `ToolpostError` says everything; its traceback adds nothing.
        if not record.exc_info or isinstance(record.exc_info[1], ToolpostError):
            return None
        if self._of_author and record.exc_info[1] is not None:
            return format_author_traceback(record.exc_info[1]).rstrip("\n")
        return self.formatException(record.exc_info)


class JsonFormatter(logging.Formatter):
    """One object a line: ts, level, logger, event, the event's fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        record_json: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        record_json |= {name: value for name, value in _fields_of(record).items() if name not in record_json}
        if record.exc_info:
            record_json["exception"] = self.formatException(record.exc_info)
        return conceal_known(printable(json.dumps(record_json, ensure_ascii=False, default=str)))


def format_event(at: str, level: str, message: str, fields: Mapping[str, Any]) -> str:
    """Return an event as one line."""
    shown = " ".join(f"{name}={_quote(value)}" for name, value in fields.items())
    return f"{at} {level} {printable(message)}" + (f"  {shown}" if shown else "")


def _fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    fields = getattr(record, "fields", None)
    return {name: value for name, value in fields.items() if value is not None} if isinstance(fields, Mapping) else {}


def _quote(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    needs_quotes = not text or not _PLAIN.isdisjoint(text)
    return printable(json.dumps(text, ensure_ascii=False) if needs_quotes and isinstance(value, str) else text)
