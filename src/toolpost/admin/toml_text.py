"""Edits `[servers.NAME]` tables, and those of parts, in the text of `toolpost.toml`; everything else in the file is kept."""

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


def parse_servers(text: str, path: Path, section: str = "servers") -> dict[str, Any]:
    """Return the servers of a file, as written, or another table; raises `BadConfiguration` if it is not TOML."""
    present = _parse(text, path).get(section, {})
    if not isinstance(present, dict):
        raise BadConfiguration(f"{path}: {section} must be a table: write [{section}.NAME].")
    return present


def _parse(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadConfiguration(f"{path} is not TOML: {error}.") from error


def render_server(name: str, server: ServerSettings, remark: str = "") -> str:
    """Render a server as TOML, without defaults."""
    return render_entry("servers", name, non_default_values(server), remark)


def render_entry(section: str, name: str, values: Mapping[str, Any], remark: str = "") -> str:
    """Render an entry of a section as TOML."""
    return "\n".join(_render_lines(section, name, values, remark)) + "\n"


def non_default_values(server: ServerSettings) -> dict[str, Any]:
    usual = msgspec.to_builtins(ServerSettings())
    values: dict[str, Any] = msgspec.to_builtins(server)
    values["network"] = {key: value for key, value in values["network"].items() if value is not None}
    usual["network"] = {}
    return {key: value for key, value in values.items() if value != usual[key]}


def add_servers(text: str, path: Path, tables: Mapping[str, str], *, may_show: bool, section: str = "servers") -> str:
    """Add or replace servers, or entries of another section; raises `BadConfiguration` unless that is all that changes."""
    before, present = _parse(text, path), parse_servers(text, path, section)
    new = text
    for name in tables:
        if name in present:
            new = _remove_table(new, section, name)
    for table in tables.values():
        new = _append(new, table)
    expected = before | {
        section: present | {name: tomllib.loads(table)[section][name] for name, table in tables.items()}
    }
    try:
        is_as_expected = tomllib.loads(new) == expected
    except (ValueError, RecursionError):
        is_as_expected = False
    if not is_as_expected:
        hint = f"write them as [{section}.NAME] tables"
        if may_show:
            hint += ", or add these by hand:\n" + "\n".join(tables.values())
        raise BadConfiguration(f"{path} has its {section} in a form that cannot be edited automatically.", hint=hint)
    return new


def remove_server(text: str, path: Path, name: str) -> str:
    """Remove a server, with the comments right above it; raises `BadConfiguration` unless the result parses to that change."""
    before, present = _parse(text, path), parse_servers(text, path)
    new = _remove_table(_remove_remark(text, name), "servers", name)
    left = {other: server for other, server in present.items() if other != name}
    rest = {key: value for key, value in before.items() if key != "servers"}
    try:
        found = tomllib.loads(new)
        is_as_expected = found.pop("servers", {}) == left and found == rest
    except (ValueError, RecursionError):
        is_as_expected = False
    if not is_as_expected or name not in present:
        raise BadConfiguration(
            f"{path} has its servers in a form that cannot be edited automatically.",
            hint=f"remove servers.{name} by hand",
        )
    return new


def set_server_key(text: str, path: Path, name: str, key: str, value: Json, section: str = "servers") -> str:
    """Set one key of a server, or of an entry of another section, and leave every other character as it is.

    Raises `BadConfiguration` where that is not possible.
    """
    before, present = _parse(text, path), parse_servers(text, path, section)
    line = "\r\n" if "\r\n" in text else "\n"
    table = re.compile(rf"^[ \t]*\[[ \t]*{section}[ \t]*\.[ \t]*{_quoted(name)}[ \t]*\][^\n]*(?:\n|\Z)", re.MULTILINE)
    new = text
    if found := table.search(text):
        following = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, found.end())
        end = following.start() if following else len(text)
        given = re.compile(rf"^([ \t]*){re.escape(key)}[ \t]*=[^\n#]*?([ \t]*(?:#[^\n]*)?)$", re.MULTILINE)
        body, count = given.subn(lambda m: f"{m[1]}{key} = {render_value(value)}{m[2]}", text[found.end() : end], 1)
        if not count:
            gap = "" if text[: found.end()].endswith("\n") else line
            body = f"{gap}{key} = {render_value(value)}{line}{body}"
        new = text[: found.end()] + body + text[end:]
    expected = before | {section: present | {name: present.get(name, {}) | {key: value}}}
    try:
        is_as_expected = tomllib.loads(new) == expected
    except (ValueError, RecursionError):
        is_as_expected = False
    if not is_as_expected:
        raise BadConfiguration(
            f"{path} has {section}.{name} in a form that cannot be edited automatically.",
            hint=f"set {key} = {render_value(value)} there by hand",
        )
    return new


def remove_server_key(text: str, path: Path, name: str, key: str) -> str:
    """Remove one key of a server, which may be absent; raises `BadConfiguration` where that is not possible."""
    before, present = _parse(text, path), parse_servers(text, path)
    server = {other: value for other, value in present.get(name, {}).items() if other != key}
    new = text
    table = re.compile(rf"^[ \t]*\[[ \t]*servers[ \t]*\.[ \t]*{_quoted(name)}[ \t]*\][^\n]*(?:\n|\Z)", re.MULTILINE)
    if key in present.get(name, {}) and (found := table.search(text)):
        following = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, found.end())
        end = following.start() if following else len(text)
        given = re.compile(rf"^[ \t]*{re.escape(key)}[ \t]*=[^\n]*(?:\n|\Z)", re.MULTILINE)
        new = text[: found.end()] + given.sub("", text[found.end() : end], count=1) + text[end:]
    try:
        is_as_expected = tomllib.loads(new) == before | {"servers": present | {name: server}}
    except (ValueError, RecursionError):
        is_as_expected = False
    if not is_as_expected:
        raise BadConfiguration(
            f"{path} has servers.{name} in a form that cannot be edited automatically.",
            hint=f"remove {key} there by hand",
        )
    return new


def _quoted(name: str) -> str:
    return rf"(?:{re.escape(name)}|\"{re.escape(name)}\"|'{re.escape(name)}')"


def _remove_remark(text: str, name: str) -> str:
    """Remove the comments right above `[servers.NAME]`; those at the top of the file are about all of it."""
    header = rf"^[ \t]*\[[ \t]*servers[ \t]*\.[ \t]*{_quoted(name)}[ \t]*(?:\.[^\]]*)?\]"
    found = re.search(rf"(?<=\n)((?:[ \t]*#[^\n]*\n)+)(?={header})", text, re.MULTILINE)
    is_at_top = found is not None and not re.search(r"^[ \t]*[^#\s]", text[: found.start()], re.MULTILINE)
    return text if found is None or is_at_top else text[: found.start()] + text[found.end() :]


def _append(text: str, table: str) -> str:
    """Append a table after a blank line, with the line endings of the file."""
    if not text:
        return table
    line = "\r\n" if "\r\n" in text else "\n"
    gap = "" if text.endswith(line * 2) else line if text.endswith("\n") else line * 2
    return text + gap + table.replace("\n", line)


def _remove_table(text: str, section: str, name: str) -> str:
    """Remove `[section.NAME]` and the tables below it, each up to the next header."""
    header = re.compile(
        rf"^[ \t]*\[[ \t]*{section}[ \t]*\.[ \t]*{_quoted(name)}[ \t]*(?:\.[^\]]*)?\][^\n]*\n?", re.MULTILINE
    )
    while found := header.search(text):
        following = re.compile(r"^(?:[ \t]*#[^\n]*\n)*[ \t]*\[", re.MULTILINE).search(text, found.end())
        text = text[: found.start()] + (text[following.start() :] if following else "")
    return text


def _render_lines(section: str, name: str, values: Mapping[str, Any], remark: str) -> Iterator[str]:
    if remark:
        yield f"# {' '.join(remark.split())}"
    yield f"[{section}.{name}]"
    for key, value in values.items():
        if not isinstance(value, dict):
            yield f"{key} = {render_value(value)}"
    for key, value in values.items():
        if isinstance(value, dict):
            yield f"\n[{section}.{name}.{key}]"
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
