"""Converts one server entry of a client's file to settings. Oddities become notes, not errors."""

import json
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.errors import BadConfiguration
from toolpost.settings.servers import ServerSettings, Transport, check_server, misplaced_keys

_TRANSPORTS: Final[dict[str, Transport]] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamablehttp": "http",
    "streamable_http": "http",
    "sse": "sse",
}
_KNOWN: Final = frozenset(
    {"type", "transport", "command", "args", "env", "cwd", "url", "headers", "disabled", "envFile"}
)
_EMPTY: Final[dict[str, Any]] = {"args": [], "env": {}, "cwd": None, "headers": {}}


@dataclass(frozen=True, kw_only=True)
class ClientEntry:
    """A converted entry; `problem` says why it cannot be used."""

    settings: ServerSettings
    env_file: str | None = None
    notes: tuple[str, ...] = ()
    problem: str | None = None
    """None if it can be used."""


@dataclass(kw_only=True)
class _EntryReader:
    """Reads typed values of one entry, and collects notes and the first problem."""

    notes: list[str] = field(default_factory=list)
    problem: str | None = None

    def object(self, value: Json, key: str) -> JsonObject:
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
        self.problem = self.problem or f"`{key}` is not an object"
        return {}

    def list(self, value: Json, key: str) -> list[Json]:
        if value is None:
            return []
        if isinstance(value, list):
            return value
        self.problem = self.problem or f"`{key}` is not a list"
        return []

    def text(self, value: Json, key: str) -> str | None:
        if value is None or isinstance(value, str):
            return value
        self.problem = self.problem or f"`{key}` is not text"
        return None


def read_entry(entry: Json, *, falls_back: bool) -> ClientEntry:
    """Convert one entry; `falls_back` says that its client tries SSE where HTTP fails."""
    if not isinstance(entry, dict):
        return ClientEntry(settings=ServerSettings(), problem="it is not an object")
    reading = _EntryReader()
    settings = _read_settings(entry, reading, falls_back=falls_back)
    if unknown := sorted(set(entry) - _KNOWN):
        reading.notes.append(f"ignored: {', '.join(unknown)}")
    if extra := misplaced_keys(settings):
        reading.notes.append(f"ignored with {'a command' if settings.command else 'a url'}: {', '.join(extra)}")
        settings = msgspec.structs.replace(settings, **{key: _EMPTY[key] for key in extra})
    return ClientEntry(
        settings=settings,
        env_file=reading.text(entry.get("envFile"), "envFile") if settings.command else None,
        notes=tuple(reading.notes),
        problem=reading.problem or _find_problem(settings),
    )


def _read_settings(entry: JsonObject, reading: _EntryReader, *, falls_back: bool) -> ServerSettings:
    command, url = reading.text(entry.get("command"), "command"), reading.text(entry.get("url"), "url")
    transport = _read_transport(entry, reading)
    if command is not None and url is not None and transport is not None:
        reading.notes.append(f"has a command and a url; `type` is {transport}, so that the other one is ignored")
        command, url = (command, None) if transport == "stdio" else (None, url)
    if falls_back and transport == "http":
        # VS Code falls back to SSE for servers without streamable HTTP.
        transport = None
    return ServerSettings(
        command=command,
        url=url,
        args=[_to_text(word) for word in reading.list(entry.get("args"), "args")],
        env=_to_texts(reading.object(entry.get("env"), "env")),
        cwd=reading.text(entry.get("cwd"), "cwd"),
        headers=_to_texts(reading.object(entry.get("headers"), "headers")),
        transport=None if transport == "stdio" and command is not None else transport,
        enabled=entry.get("disabled") is not True,
    )


def _read_transport(entry: JsonObject, reading: _EntryReader) -> Transport | None:
    given = entry.get("type", entry.get("transport"))
    if given is None:
        return None
    known = _TRANSPORTS.get(given.lower()) if isinstance(given, str) else None
    if known is None:
        reading.problem = reading.problem or "`type` must be stdio, http, streamable-http or sse"
    return known


def _to_texts(values: JsonObject) -> dict[str, str]:
    return {name: _to_text(value) for name, value in values.items() if value is not None}


def _to_text(value: Json) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _find_problem(settings: ServerSettings) -> str | None:
    """Return what `check_server` finds wrong with the settings, without the name; None if nothing."""
    try:
        check_server("x", settings)
        msgspec.json.encode(settings)
    except BadConfiguration as error:
        return error.message.removeprefix("servers.x").lstrip(" .").removesuffix(".")
    except UnicodeEncodeError:
        return "it contains text that is not valid Unicode"
    return None
