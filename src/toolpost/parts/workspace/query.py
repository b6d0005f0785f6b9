"""A search request: its filters, and its query read as words, identifiers and phrases in quotes."""

import re
from dataclasses import dataclass
from typing import Final

from toolpost.parts.workspace.engine import WORD, parts_of

WORD_LIMIT: Final = 64
"""Further words of a query are ignored."""

_GLOB_MARKS: Final = {"*": "[^/]*", "?": "[^/]"}
_QUOTED: Final = re.compile(r'"([^"]+)"')


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """The arguments of `workspace__search`, except `repo`."""

    query: str
    mode: str = "all"
    """`code`, `prose` or `all`: the family of languages to search."""
    top: int = 5
    context: int = 0
    path: str | None = None
    language: str | None = None
    kind: str | None = None
    symbol: str | None = None
    case: bool = False
    regex: bool = False


@dataclass(frozen=True, kw_only=True)
class CodeQuery:
    """A parsed query."""

    text: str
    """The query without its phrases."""
    words: tuple[str, ...]
    """As they were written, including those of the phrases."""
    phrases: tuple[str, ...]

    @property
    def identifier(self) -> str | None:
        """The whole query if it is one name, perhaps with its scope (`User.name`, `ns::f`); else None."""
        bare = self.text.strip().strip("`").removesuffix("()")
        return bare if bare and re.fullmatch(r"[\w~]+(?:(?:\.|::|#)[\w~]+)*", bare) else None

    def terms(self) -> tuple[str, ...]:
        """Return the distinct words in lower case, not split."""
        return tuple(dict.fromkeys(word.lower() for word in self.words))

    def compounds(self) -> tuple[tuple[str, ...], ...]:
        """Return the parts of each compound word, such as `(get, user)` for `getUser`."""
        split = (parts_of(word) for word in self.words)
        return tuple(dict.fromkeys(parts for parts in split if len(parts) > 1))


def parse_query(text: str) -> CodeQuery:
    phrases = tuple(phrase.strip() for phrase in _QUOTED.findall(text) if phrase.strip())
    words = tuple(WORD.findall(text)[:WORD_LIMIT])
    return CodeQuery(text=_QUOTED.sub(" ", text) if phrases else text, words=words, phrases=phrases)


def glob_pattern(glob: str) -> str:
    """Translate a path filter to a regular expression: a folder, a file, or a glob in which `**` crosses folders."""
    glob = glob.strip().removeprefix("./").strip("/")
    if not any(mark in glob for mark in "*?["):
        return f"{re.escape(glob)}(/.*)?"
    pattern, position = "", 0
    while position < len(glob):
        if glob.startswith("**/", position):
            pattern, position = f"{pattern}(.*/)?", position + 3
        elif glob.startswith("**", position):
            pattern, position = f"{pattern}.*", position + 2
        else:
            character = glob[position]
            pattern, position = pattern + _GLOB_MARKS.get(character, re.escape(character)), position + 1
    # As in .gitignore: a glob without a folder matches in every folder.
    return pattern if "/" in glob else f"(.*/)?{pattern}"


def symbol_pattern(glob: str) -> str:
    """Translate a symbol filter to a regular expression; `*` matches anything, `::` and `#` are dots."""
    dotted = glob.strip().replace("::", ".").replace("#", ".")
    return ".*".join(re.escape(part) for part in dotted.split("*"))
