"""Edits `[servers.NAME]` tables in the text of `toolpost.toml`; everything else in the file is kept."""

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


def parse_servers(text: str, path: Path) -> dict[str, Any]:
    """Return the servers of a file, as written; raises `BadConfiguration` if it is not TOML."""
    present = _parse(text, path).get("servers", {})
    if not isinstance(present, dict):
        raise BadConfiguration(f"{path}: servers must be a table: write [servers.NAME].")
    return present


def _parse(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadConfiguration(f"{path} is not TOML: {error}.") from error


def render_server(name: str, server: ServerSettings, remark: str = "") -> str:
    """Render a server as TOML, without defaults."""
    return "\n".join(_render_lines(name, non_default_values(server), remark)) + "\n"


def non_default_values(server: ServerSettings) -> dict[str, Any]:
    usual = msgspec.to_builtins(ServerSettings())
    values: dict[str, Any] = msgspec.to_builtins(server)
    return {key: value for key, value in values.items() if value != usual[key]}


def add_servers(text: str, path: Path, tables: Mapping[str, str], *, may_show: bool) -> str:
    """Add or replace servers; raises `BadConfiguration` unless the result parses to exactly that change."""
    before, present = _parse(text, path), parse_servers(text, path)
    new = text
    for name in tables:
        if name in present:
            new = _remove_table(new, name)
    for table in tables.values():
        new = _append(new, table)
    expected = before | {
        "servers": present | {name: tomllib.loads(table)["servers"][name] for name, table in tables.items()}
    }
    try:
        is_as_expected = tomllib.loads(new) == expected
    except (ValueError, RecursionError):
        is_as_expected = False
    if not is_as_expected:
        hint = "write them as [servers.NAME] tables"
        if may_show:
            hint += ", or add these by hand:\n" + "\n".join(tables.values())
        raise BadConfiguration(f"{path} has its servers in a form that cannot be edited automatically.", hint=hint)
    return new


def _append(text: str, table: str) -> str:
    """Append a table after a blank line, with the line endings of the file."""
    if not text:
        return table
    line = "\r\n" if "\r\n" in text else "\n"
    gap = "" if text.endswith(line * 2) else line if text.endswith("\n") else line * 2
    return text + gap + table.replace("\n", line)


def _remove_table(text: str, name: str) -> str:
    """Remove `[servers.NAME]` and the tables below it, each up to the next header."""
    quoted = rf"(?:{re.escape(name)}|\"{re.escape(name)}\"|'{re.escape(name)}')"
    header = re.compile(rf"^[ \t]*\[[ \t]*servers[ \t]*\.[ \t]*{quoted}[ \t]*(?:\.[^\]]*)?\][^\n]*\n?", re.MULTILINE)
    while found := header.search(text):
        following = re.compile(r"^(?:[ \t]*#[^\n]*\n)*[ \t]*\[", re.MULTILINE).search(text, found.end())
        text = text[: found.start()] + (text[following.start() :] if following else "")
    return text


def _render_lines(name: str, values: Mapping[str, Any], remark: str) -> Iterator[str]:
    if remark:
        yield f"# {' '.join(remark.split())}"
    yield f"[servers.{name}]"
    for key, value in values.items():
        if not isinstance(value, dict):
            yield f"{key} = {render_value(value)}"
    for key, value in values.items():
        if isinstance(value, dict):
            yield f"\n[servers.{name}.{key}]"
            yield from (f"{render_key(inner)} = {render_value(inner_value)}" for inner, inner_value in value.items())


def render_key(name: str) -> str:
    """Render a key, quoted where necessary."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else render_value(name)


def render_value(value: Json) -> str:
    """Render a value as TOML; text, numbers and arrays of them are the same as in JSON."""
    if isinstance(value, dict):
        inner = ", ".join(f"{render_key(name)} = {render_value(inner_value)}" for name, inner_value in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(render_value, value))}]"
    # DEL is the only control character that JSON allows unescaped and TOML does not.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
