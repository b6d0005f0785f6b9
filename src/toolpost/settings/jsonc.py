"""JSON with comments and trailing commas, read with line numbers.

Comments and trailing commas are overwritten with spaces first, so that every place in what is read is the same place in
what was written: `json_edit` changes files by that.
"""

import json
import re
from typing import Final

from toolpost.base.ids import Json

# Without giving anything back, and also where its end is missing: else each quote in such a string is tried as a beginning,
# which takes time in proportion to the square of its length.
_STRING: Final = r'"(?:[^"\\\n]|\\.)*+"?'
_COMMENT: Final = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/|/\*", re.DOTALL)
_TRAILING_COMMA: Final = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)


class NotJson(ValueError):
    """This is not JSON; says where."""

    def __init__(self, what: str, text: str, at: int) -> None:
        line = text.count("\n", 0, at) + 1
        column = at - text.rfind("\n", 0, at)
        super().__init__(f"line {line}, column {column}: {what}")


def read_jsonc(text: str) -> Json:
    """Read JSON, with or without comments; `NotJson` says in which line it is broken."""
    plain = as_plain_json(text)
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


def as_plain_json(text: str) -> str:
    """Overwrite comments, trailing commas and a byte order mark with spaces."""
    return _TRAILING_COMMA.sub(lambda found: " " if found[0] == "," else found[0], without_comments(text))


def without_comments(text: str) -> str:
    """Overwrite comments and a byte order mark with spaces."""
    blank = _COMMENT.sub(lambda found: _blank(found, text), text)
    return f" {blank[1:]}" if blank.startswith("\ufeff") else blank


def _blank(found: re.Match[str], text: str) -> str:
    if found[0] == "/*":
        raise NotJson("a comment that begins here does not end", text, found.start())
    return found[0] if found[0].startswith('"') else re.sub(r"[^\r\n]", " ", found[0])
