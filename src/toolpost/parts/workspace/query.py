"""What somebody looks for: words, identifiers and phrases in quotes, read from one line of text."""

import re
from dataclasses import dataclass
from typing import Final

from toolpost.parts.workspace.words import WORD, parts_of

WORD_LIMIT: Final = 64
"""Words of a query that count; a longer text is no query any more."""

_GLOB_MARKS: Final = {"*": "[^/]*", "?": "[^/]"}
_QUOTED: Final = re.compile(r'"([^"]+)"')


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A query, taken apart."""

    text: str
    words: tuple[str, ...]
    """As they were written, those of the phrases too."""
    phrases: tuple[str, ...]

    @property
    def identifier(self) -> str | None:
        """The whole query, if it is one name, perhaps with its scope."""
        bare = self.text.strip().strip("`").removesuffix("()")
        return bare if bare and re.fullmatch(r"[\w~]+(?:(?:\.|::|#)[\w~]+)*", bare) else None

    def terms(self) -> tuple[str, ...]:
        """Return every word in lower case, whole."""
        return tuple(dict.fromkeys(word.lower() for word in self.words))

    def compounds(self) -> tuple[tuple[str, ...], ...]:
        """Return the parts of each word that has several."""
        found = (parts_of(word) for word in self.words)
        return tuple(dict.fromkeys(parts for parts in found if len(parts) > 1))


def wanted(text: str) -> Wanted:
    """Read a query."""
    phrases = tuple(phrase.strip() for phrase in _QUOTED.findall(text) if phrase.strip())
    words = tuple(WORD.findall(text)[:WORD_LIMIT])
    return Wanted(text=_QUOTED.sub(" ", text) if phrases else text, words=words, phrases=phrases)


def glob_pattern(glob: str) -> str:
    """Write a path of a filter as a pattern: a folder or file, or a glob in which `**` crosses folders."""
    glob = glob.strip().removeprefix("./").strip("/")
    if not any(mark in glob for mark in "*?["):
        return f"{re.escape(glob)}(/.*)?"
    pattern, at = "", 0
    while at < len(glob):
        if glob.startswith("**/", at):
            pattern, at = f"{pattern}(.*/)?", at + 3
        elif glob.startswith("**", at):
            pattern, at = f"{pattern}.*", at + 2
        else:
            pattern, at = pattern + _GLOB_MARKS.get(glob[at], re.escape(glob[at])), at + 1
    # As git reads it: a glob without a folder is met in every folder.
    return pattern if "/" in glob else f"(.*/)?{pattern}"


def symbol_pattern(glob: str) -> str:
    """Write a symbol's name of a filter as a pattern; `*` is anything."""
    spelled = glob.strip().replace("::", ".").replace("#", ".")
    return ".*".join(re.escape(part) for part in spelled.split("*"))
