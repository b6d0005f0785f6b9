"""Servers as text of `toolpost.toml`: put at its end, or in the place of one that is there. The rest stays as it is."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from toolpost.base.ids import Json
from toolpost.contracts.errors import BadConfiguration
from toolpost.settings.servers import ServerSettings


def servers_in(text: str, path: Path) -> dict[str, Any]:
    """Read the servers that are there, as they are written; what is not TOML is not written to."""
    present = _read(text, path).get("servers", {})
    if not isinstance(present, dict):
        raise BadConfiguration(f"{path}: servers is a table: write [servers.NAME].")
    return present


def _read(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadConfiguration(f"{path} is not TOML: {error}.") from error


def server_table(name: str, server: ServerSettings, remark: str = "") -> str:
    """Write one server, without what is default."""
    return "\n".join(_lines(name, set_values(server), remark)) + "\n"


def set_values(server: ServerSettings) -> dict[str, Any]:
    """Return what is set, without what is default."""
    usual = msgspec.to_builtins(ServerSettings())
    values: dict[str, Any] = msgspec.to_builtins(server)
    return {key: value for key, value in values.items() if value != usual[key]}


def with_servers(text: str, path: Path, tables: Mapping[str, str], *, may_show: bool) -> str:
    """Return the text with these servers; proves that nothing else has changed."""
    before, present = _read(text, path), servers_in(text, path)
    new = text
    for name in tables:
        if name in present:
            new = _without_table(new, name)
    for table in tables.values():
        new = _appended(new, table)
    meant = before | {"servers": present | {name: _parsed(name, table) for name, table in tables.items()}}
    try:
        is_as_meant = tomllib.loads(new) == meant
    except (ValueError, RecursionError):
        is_as_meant = False
    if not is_as_meant:
        what = "write them as [servers.NAME] tables"
        if may_show:
            what += ", or put these into the file yourself:\n" + "\n".join(tables.values())
        raise BadConfiguration(f"{path} writes its servers in a way that cannot be added to.", hint=what)
    return new


def _appended(text: str, table: str) -> str:
    """Put a table at the end, after a blank line and with the line ends of the file."""
    if not text:
        return table
    line = "\r\n" if "\r\n" in text else "\n"
    gap = "" if text.endswith(line * 2) else line if text.endswith("\n") else line * 2
    return text + gap + table.replace("\n", line)


def _parsed(name: str, table: str) -> Any:
    return tomllib.loads(table)["servers"][name]


def _without_table(text: str, name: str) -> str:
    """Cut out `[servers.NAME]` and the tables below it, each up to the next header."""
    quoted = rf"(?:{re.escape(name)}|\"{re.escape(name)}\"|'{re.escape(name)}')"
    header = re.compile(rf"^[ \t]*\[[ \t]*servers[ \t]*\.[ \t]*{quoted}[ \t]*(?:\.[^\]]*)?\][^\n]*\n?", re.MULTILINE)
    while found := header.search(text):
        following = re.compile(r"^(?:[ \t]*#[^\n]*\n)*[ \t]*\[", re.MULTILINE).search(text, found.end())
        text = text[: found.start()] + (text[following.start() :] if following else "")
    return text


def _lines(name: str, values: Mapping[str, Any], remark: str) -> Iterator[str]:
    if remark:
        yield f"# {' '.join(remark.split())}"
    yield f"[servers.{name}]"
    for key, value in values.items():
        if not isinstance(value, dict):
            yield f"{key} = {toml_value(value)}"
    for key, value in values.items():
        if isinstance(value, dict):
            yield f"\n[servers.{name}.{key}]"
            yield from (f"{toml_key(inner)} = {toml_value(held)}" for inner, held in value.items())


def toml_key(name: str) -> str:
    """Write a key, in quotes where it needs them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_value(name)


def toml_value(value: Json) -> str:
    """Write a value as TOML; for text, numbers and arrays of them that is how JSON writes it."""
    if isinstance(value, dict):
        inner = ", ".join(f"{toml_key(name)} = {toml_value(held)}" for name, held in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    # The one control character that JSON lets through and TOML does not.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
