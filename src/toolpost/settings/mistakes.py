"""Explains mistakes in `toolpost.toml`: for a value of a wrong type the line, the key, the expected type and an example."""

import json
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from toolpost.contracts.errors import BadConfiguration

_EXPECTED: Final = re.compile(
    r"Expected `(?P<types>[^`]+)`(?P<bound>.*?)(?:, got `(?P<got>[^`]+)`)?(?: - at `\$(?P<at>.*)`)?"
)
_TYPES: Final = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "",
}
_TABLE: Final = re.compile(r"\[\[?(?P<name>[^\[\]]++)\]\]?\s*+(?:#.*)?")
_KEY: Final = re.compile(r"(?P<key>[\w\-.\"' \t]++)=")


class WrongValue(BadConfiguration):
    """A setting has a value of the wrong type, or out of bounds."""

    key: str = ""
    """The setting, with the tables that it is in: `servers.github.args`."""


def explain_wrong_value(error: msgspec.ValidationError, values: Mapping[str, Any], place: str) -> WrongValue:
    """Say which setting is wrong and what is expected there; `values` are those of the table `place`, "" for the whole file."""
    found = _EXPECTED.fullmatch(str(error))
    if found is None:
        fault, _, at = str(error).partition(" - at `$")
        key = f"{place}{at.rstrip('`')}".lstrip(".")
        explained = WrongValue(f"{key}: {fault}.")
    else:
        at = found["at"] or ""
        key = f"{place}{at}".lstrip(".")
        types = [name for name in found["types"].split(" | ") if name != "null"]
        expected = " or ".join(_TYPES.get(name, name) for name in types) + found["bound"]
        got = f", not {_TYPES.get(found['got'], found['got']) or 'null'}" if found["got"] else ""
        hint = _give_example(key, types, _value_at(values, at)) if found["got"] else None
        explained = WrongValue(f"{key} must be {expected}{got}.", hint=hint)
    explained.key = key
    return explained


def find_line(text: str, key: str) -> int | None:
    """Return the line of a TOML file that sets a key, or opens its table; None if it is not found."""
    wanted = _split(key.partition("[")[0])
    table: list[str] = []
    best: int | None = None
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if found := _TABLE.fullmatch(line):
            table = _split(found["name"])
            here = table
        elif found := _KEY.match(line):
            here = [*table, *_split(found["key"])]
        else:
            continue
        if here == wanted:
            return number
        if here and here == wanted[: len(here)]:
            best = number
    return best


def find_repair(fault: str, text: str) -> str | None:
    """Return how to repair text that the parser refuses with this message; None if the message says enough.

    The value itself is not shown: it may be secret.
    """
    if fault.startswith(("Cannot overwrite", "Cannot declare")):
        return "a file has each table and each key once"
    if fault.startswith(("Invalid hex value", "Unescaped")):
        return "in double quotes `\\` begins an escape: use single quotes, as in 'C:\\tools'"
    place = re.search(r"\(at line ([0-9]+)", fault)
    line = text.split("\n")[int(place[1]) - 1] if place else ""
    key, _, value = (part.strip() for part in line.partition("="))
    if value.lower() in ("true", "false"):
        return f"write {key} = {value.lower()}"
    if value and value[0] not in "\"'[{":
        return f'put text in quotes: {key} = "…"'
    return None


def _split(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in dotted.split(".")]


def _value_at(values: Any, at: str) -> Any:
    for step in filter(None, at.split(".")):
        values = values.get(step) if isinstance(values, Mapping) else None
    return values


def _give_example(key: str, types: Sequence[str], value: Any) -> str | None:
    name = key.rpartition(".")[2]
    if "object" in types:
        return f"write a table: [{key}]"
    written = _convert_example(types, value)
    return f"for example: {name} = {written}" if written is not None and "[" not in name else None


def _convert_example(types: Sequence[str], value: Any) -> str | None:
    """Write a value as one of the expected types, as its author may have meant it."""
    if "array" in types and not isinstance(value, list | dict):
        items = _split_words(value) if isinstance(value, str) else [str(value)]
        return json.dumps(items, ensure_ascii=False)
    if "bool" in types:
        return "false" if str(value).strip().lower() in ("false", "no", "off", "0") else "true"
    if "int" in types or "float" in types:
        number = str(value).strip()
        return number if _is_number(number, is_integer="float" not in types) else "10"
    if isinstance(value, dict):
        value = [item for item in value.values() if isinstance(item, str)]
    if "str" in types and isinstance(value, list):
        return json.dumps(str(value[0]), ensure_ascii=False) if value else '"…"'
    if "str" in types and isinstance(value, int | float):
        return json.dumps(str(value).lower() if isinstance(value, bool) else str(value))
    return None


def _split_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return [text]


def _is_number(text: str, *, is_integer: bool) -> bool:
    try:
        found = tomllib.loads(f"a = {text}")["a"]
    except (ValueError, RecursionError, KeyError):
        return False
    return isinstance(found, int if is_integer else (int, float)) and not isinstance(found, bool)
