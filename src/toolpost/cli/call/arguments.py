"""Arguments of a tool from a command line: one JSON object, `key=value`, `key:=json`, `@file` or `-`."""

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.cli.call.schemas import items_of, may_be_text, properties_of, types_of
from toolpost.contracts.errors import InvalidRequest

_PAIR: Final = re.compile(r"(?P<key>[^=]+?)(?P<mark>:?=)(?P<text>.*)", re.DOTALL)
_HOW: Final = "write key=value, key:=json, one JSON object, @file, or - for stdin"


@dataclass(frozen=True, kw_only=True)
class ArgumentPair:
    """`key=value`, or `key:=json` if `is_raw`."""

    key: str
    text: str
    is_raw: bool


ParsedWord = JsonObject | ArgumentPair


def parse_words(words: Iterable[str]) -> list[ParsedWord]:
    """Parse the words, and read the files that they name."""
    return [_parse_word(word) for word in words]


def arguments_of(words: Iterable[ParsedWord], schema: JsonObject) -> JsonObject:
    """Combine the words; the declared type of an argument decides how its text is parsed."""
    arguments: JsonObject = {}
    for word in words:
        if isinstance(word, ArgumentPair):
            _set_argument(word, arguments, schema)
        else:
            arguments |= word
    return arguments


def _parse_word(word: str) -> ParsedWord:
    if word == "-":
        return _parse_object(sys.stdin.read(), "stdin")
    if word.startswith("@"):
        return _parse_object(_read_text(Path(word[1:])), word[1:])
    if word.lstrip().startswith("{"):
        return _parse_object(word, "the argument")
    if found := _PAIR.fullmatch(word):
        return ArgumentPair(key=found["key"], text=found["text"], is_raw=found["mark"] == ":=")
    raise InvalidRequest(f"`{word[:80]}` is not an argument.", hint=_HOW)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidRequest(f"Cannot read {path}: {reason}.", hint=_HOW) from error


def _parse_object(text: str, where: str) -> JsonObject:
    value = _parse_json(text, where)
    if not isinstance(value, dict):
        raise InvalidRequest(f"No JSON object in {where}.", hint='write one object: {"key": "value"}')
    return value


def _parse_json(text: str, where: str) -> Json:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidRequest(f"Invalid JSON in {where}: {error}.", hint=_HOW) from error


def _set_argument(pair: ArgumentPair, arguments: JsonObject, schema: JsonObject) -> None:
    """Set an argument, or with `a.b` a nested key."""
    holder, declared = arguments, schema
    steps = [pair.key] if pair.key in properties_of(schema, schema) else pair.key.split(".")
    for step in steps[:-1]:
        declared = properties_of(declared, schema).get(step, {})
        holder = holder.setdefault(step, {})
        if not isinstance(holder, dict):
            raise InvalidRequest(f"`{pair.key}`: `{step}` is not an object.", hint=_HOW)
    name = steps[-1]
    declared = properties_of(declared, schema).get(name, {})
    if pair.is_raw:
        holder[name] = _parse_json(pair.text, f"`{pair.key}`")
    elif _is_item(pair, declared, schema):
        before = holder.get(name)
        item = _parse_value(pair.text, items_of(declared, schema), schema)
        holder[name] = [*(before if isinstance(before, list) else ()), item]
    else:
        holder[name] = _parse_value(pair.text, declared, schema)


def _is_item(pair: ArgumentPair, declared: Json, root: JsonObject) -> bool:
    types = types_of(declared, root)
    return "array" in types and "string" not in types and not pair.text.lstrip().startswith("[")


def _parse_value(text: str, declared: Json, root: JsonObject) -> Json:
    """Parse a text as the declared type; an argument that may be this string gets the text."""
    types = types_of(declared, root)
    if not types or ("string" in types and may_be_text(declared, root, text)):
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        # Left as text: validation explains what is wrong better than a parser could.
        return text
