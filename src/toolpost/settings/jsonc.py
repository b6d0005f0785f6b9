"""Reads JSON with comments and trailing commas, with line numbers in errors, and changes one member of it.

Comments and trailing commas are overwritten with spaces first, so that positions in the parsed text are positions in the file:
a change cuts the text there, and leaves all else as its owner has written it.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toolpost.base.ids import Json

# Possessive, and with an optional end: otherwise each quote in an unterminated string is tried as a start, which takes
# quadratic time.
_STRING: Final = r'"(?:[^"\\\n]|\\.)*+"?'
_COMMENT: Final = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/|/\*", re.DOTALL)
_TRAILING_COMMA: Final = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_SPACE: Final = re.compile(r"\s*")
_DECODER: Final = json.JSONDecoder()


class NotJson(ValueError):
    """A syntax error; the message has line and column."""

    def __init__(self, what: str, text: str, at: int) -> None:
        line = text.count("\n", 0, at) + 1
        column = at - text.rfind("\n", 0, at)
        super().__init__(f"line {line}, column {column}: {what}")


def read_jsonc(text: str) -> Json:
    """Parse JSON, with or without comments; raises `NotJson`."""
    plain = to_plain_json(text)
    try:
        value: Json = json.loads(plain)
    except json.JSONDecodeError as error:
        raise NotJson(error.msg[:1].lower() + error.msg[1:], plain, error.pos) from error
    except RecursionError as error:
        raise NotJson("it is nested too deep", plain, 0) from error
    except ValueError as error:
        # Python refuses to read a number of more than 4,300 digits.
        raise NotJson("a number is too long", plain, 0) from error
    return value


def to_plain_json(text: str) -> str:
    """Overwrite comments, trailing commas and a byte order mark with spaces."""
    return _TRAILING_COMMA.sub(lambda found: " " if found[0] == "," else found[0], blank_comments(text))


def blank_comments(text: str) -> str:
    """Overwrite comments and a byte order mark with spaces."""
    blank = _COMMENT.sub(lambda found: _blank(found, text), text)
    return f" {blank[1:]}" if blank.startswith("\ufeff") else blank


def _blank(found: re.Match[str], text: str) -> str:
    if found[0] == "/*":
        raise NotJson("this comment does not end", text, found.start())
    return found[0] if found[0].startswith('"') else re.sub(r"[^\r\n]", " ", found[0])


class NotAnObject(ValueError):
    """The value to change is not an object; the message names it."""


@dataclass(frozen=True, kw_only=True)
class _Member:
    """The position of a member, from its name to the end of its value."""

    name: str
    start: int
    value_start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class _Object:
    """The position of an object, from brace to brace, and its members."""

    start: int
    close: int
    members: list[_Member]

    def member(self, name: str) -> _Member | None:
        """Find a member; of duplicates the last, as JSON parsers do."""
        return next((found for found in reversed(self.members) if found.name == name), None)


def get_member(text: str, path: Sequence[str]) -> Json | None:
    """Return the value at a path, None if there is none; raises `NotAnObject` if a step of the path is not an object."""
    if is_blank(text):
        return None
    value = read_jsonc(text)
    for depth, name in enumerate(path):
        if not isinstance(value, dict):
            raise NotAnObject(f"`{'.'.join(path[:depth])}`" if depth else "it")
        if name not in value:
            return None
        value = value[name]
    return value


def set_member(text: str, path: Sequence[str], value: Json) -> str:
    if is_blank(text):
        return text + json.dumps(_nest(path, value), indent=2, ensure_ascii=False) + "\n"
    holder = _parse_object(text, _skip(to_plain_json(text), 0))
    for depth, name in enumerate(path):
        member = holder.member(name)
        if member is None:
            return _insert(text, holder, name, _nest(path[depth + 1 :], value))
        if depth == len(path) - 1:
            is_inline = "\n" not in text[holder.start : holder.close]
            return text[: member.value_start] + _dump(value, text, member.start, is_inline) + text[member.end :]
        holder = _parse_object(text, member.value_start)
    return text


def remove_member(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at this path, which must exist."""
    holder = _parse_object(text, _skip(to_plain_json(text), 0))
    for name in path[:-1]:
        member = holder.member(name)
        assert member is not None
        holder = _parse_object(text, member.value_start)
    return _remove(text, holder, path[-1])


def is_blank(text: str) -> bool:
    """Whether a text has only whitespace and comments."""
    return not blank_comments(text).strip()


def _nest(path: Sequence[str], value: Json) -> Json:
    for name in reversed(path):
        value = {name: value}
    return value


def _skip(plain: str, at: int) -> int:
    found = _SPACE.match(plain, at)
    return found.end() if found else at


def _parse_object(text: str, start: int) -> _Object:
    """Locate the members of the object that starts here."""
    plain = to_plain_json(text)
    if plain[start] != "{":
        raise NotAnObject("it")
    members: list[_Member] = []
    at = _skip(plain, start + 1)
    while plain[at] != "}":
        name, after = _DECODER.raw_decode(plain, at)
        value_start = _skip(plain, _skip(plain, after) + 1)
        _, end = _DECODER.raw_decode(plain, value_start)
        members.append(_Member(name=name, start=at, value_start=value_start, end=end))
        at = _skip(plain, end)
        if plain[at] == ",":
            at = _skip(plain, at + 1)
    return _Object(start=start, close=at, members=members)


def _insert(text: str, holder: _Object, name: str, value: Json) -> str:
    is_one_line = "\n" not in text[holder.start : holder.close]
    last = holder.members[-1] if holder.members else None
    if is_one_line and (last or ("\n" not in text.strip() and text.strip() != "{}")):
        at = last.end if last else holder.start + 1
        new = f"{', ' if last else ''}{_quote(name)}: {json.dumps(value, ensure_ascii=False)}"
        return text[:at] + new + text[at:]
    outer = _indent_at(text, holder.start)
    inner = _indent_at(text, last.start) if last else outer + _indent_unit(text)
    line = _newline(text)
    # Comments after the last member belong to it, so that the new one goes after them.
    end = len(text[: holder.close].rstrip())
    before = text[holder.start + 1 : end] if last is None else _add_comma(text, last.end, end)
    head = text[: holder.start + 1] if last is None else text[: last.end]
    gap = text[end : holder.close]
    gap = gap if "\n" in gap else f"{line}{outer}"
    lines = json.dumps(value, ensure_ascii=False, indent=_indent_unit(text)).splitlines()
    new = f"{inner}{_quote(name)}: " + f"{line}{inner}".join(lines)
    return f"{head}{before}{line}{new}{gap}{text[holder.close :]}"


def _add_comma(text: str, start: int, end: int) -> str:
    has_one = "," in blank_comments(text)[start:end]
    return text[start:end] if has_one else f",{text[start:end]}"


def _remove(text: str, holder: _Object, name: str) -> str:
    member = holder.member(name)
    assert member is not None
    index = holder.members.index(member)
    bare = blank_comments(text)
    cuts = [_cut(text, member)]
    after = _skip(bare, member.end)
    if bare[after] == ",":
        cuts.append((after, after + 1))
    elif index:
        comma = bare.index(",", holder.members[index - 1].end)
        cuts.append((comma, comma + 1))
    shorter = text
    for start, end in sorted(cuts, reverse=True):
        shorter = shorter[:start] + shorter[end:]
    return _collapse(shorter, holder.start)


def _cut(text: str, member: _Member) -> tuple[int, int]:
    """Return the span of a member, with the line break or the space before it."""
    head = text[: member.start].rstrip(" \t")
    if head.endswith("\n"):
        head = head[: -2 if head.endswith("\r\n") else -1]
    return len(head), member.end


def _collapse(text: str, start: int) -> str:
    """Write an object without members and comments as `{}`."""
    found = re.compile(r"\{\s*\}").match(text, start)
    return f"{text[:start]}{{}}{text[found.end() :]}" if found else text


def _dump(value: Json, text: str, start: int, is_inline: bool) -> str:
    if is_inline:
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, ensure_ascii=False, indent=_indent_unit(text)).splitlines()
    return f"{_newline(text)}{_indent_at(text, start)}".join(lines)


def _quote(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _indent_at(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _indent_unit(text: str) -> str:
    """Return the indentation of the file: that of its first indented line, else two spaces."""
    found = re.search(r"^([ \t]+)[^\s*/]", text, re.MULTILINE)
    return found[1] if found else "  "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
