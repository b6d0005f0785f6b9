"""A tool's arguments as words on a command line: one JSON object, `key=value`, `key:=json`, `@file` or `-`."""

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.cli.call.schemas import items_of, properties_of, types_of
from toolpost.contracts.errors import InvalidRequest

_PAIR: Final = re.compile(r"(?P<key>[^=]+?)(?P<mark>:?=)(?P<text>.*)", re.DOTALL)
_HOW: Final = "write key=value, key:=json, one JSON object, @file, or - for stdin"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """`key=value` or, when raw, `key:=json`."""

    key: str
    text: str
    is_raw: bool


Word = JsonObject | Pair


def read_words(words: Iterable[str]) -> list[Word]:
    """Read what was typed, and the files it names."""
    return [_read(word) for word in words]


def arguments_of(words: Iterable[Word], schema: JsonObject) -> JsonObject:
    """Put the words together; the declared type of an argument decides how its text is read."""
    arguments: JsonObject = {}
    for word in words:
        if isinstance(word, Pair):
            _put(word, arguments, schema)
        else:
            arguments |= word
    return arguments


def _read(word: str) -> Word:
    if word == "-":
        return _object(sys.stdin.read(), "stdin")
    if word.startswith("@"):
        return _object(_text_of(Path(word[1:])), word[1:])
    if word.lstrip().startswith("{"):
        return _object(word, "the argument")
    if found := _PAIR.fullmatch(word):
        return Pair(key=found["key"], text=found["text"], is_raw=found["mark"] == ":=")
    raise InvalidRequest(f"`{word[:80]}` is not an argument.", hint=_HOW)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidRequest(f"Cannot read {path}: {reason}.", hint=_HOW) from error


def _object(text: str, where: str) -> JsonObject:
    value = _json(text, where)
    if not isinstance(value, dict):
        raise InvalidRequest(f"There is no JSON object in {where}.", hint='arguments are one object: {"key": "value"}')
    return value


def _json(text: str, where: str) -> Json:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidRequest(f"There is no valid JSON in {where}: {error}.", hint=_HOW) from error


def _put(pair: Pair, arguments: JsonObject, schema: JsonObject) -> None:
    """Set an argument, or with `a.b` a part of one."""
    holder, declared = arguments, schema
    steps = [pair.key] if pair.key in properties_of(schema, schema) else pair.key.split(".")
    for step in steps[:-1]:
        declared = properties_of(declared, schema).get(step, {})
        holder = holder.setdefault(step, {})
        if not isinstance(holder, dict):
            raise InvalidRequest(f"`{pair.key}`: `{step}` is no object.", hint=_HOW)
    name = steps[-1]
    declared = properties_of(declared, schema).get(name, {})
    if pair.is_raw:
        holder[name] = _json(pair.text, f"`{pair.key}`")
    elif _is_item(pair, declared, schema):
        before = holder.get(name)
        item = _value(pair.text, items_of(declared, schema), schema)
        holder[name] = [*(before if isinstance(before, list) else ()), item]
    else:
        holder[name] = _value(pair.text, declared, schema)


def _is_item(pair: Pair, declared: Json, root: JsonObject) -> bool:
    types = types_of(declared, root)
    return "array" in types and "string" not in types and not pair.text.lstrip().startswith("[")


def _value(text: str, declared: Json, root: JsonObject) -> Json:
    """Read a text as what the argument may be; one that may be a string is one."""
    types = types_of(declared, root)
    if "string" in types or not types:
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        # Left as it is: the contract says what is wrong with it better than a parser could.
        return text
