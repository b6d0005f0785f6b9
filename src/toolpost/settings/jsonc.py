"""Parses JSON with comments and trailing commas, with line numbers in errors.

Comments and trailing commas are overwritten with spaces first, so that positions in the parsed text are positions in the file:
`json_edit` relies on it.
"""

import json
import re
from typing import Final

from toolpost.base.ids import Json

# Possessive, and with an optional end: otherwise each quote in an unterminated string is tried as a start, which takes
# quadratic time.
_STRING: Final = r'"(?:[^"\\\n]|\\.)*+"?'
_COMMENT: Final = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/|/\*", re.DOTALL)
_TRAILING_COMMA: Final = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)


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
