"""A search in one index: candidates by rank, each compared with the disk before it becomes a hit."""

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from toolpost.contracts.errors import InvalidArguments
from toolpost.parts.workspace import engine, optional
from toolpost.parts.workspace.engine import Entry, Stored
from toolpost.parts.workspace.freshness import Disk, State
from toolpost.parts.workspace.hits import Found, Hit, Wish, shown_line
from toolpost.parts.workspace.open_index import OpenIndex
from toolpost.parts.workspace.query import Wanted, glob_pattern, symbol_pattern, wanted
from toolpost.parts.workspace.spec import Limits
from toolpost.parts.workspace.words import WORD, parts_of

BATCH: Final = 40
CANDIDATE_LIMIT: Final = 2_000
LONGEST_LINE: Final = 20_000
"""Characters of a line that are looked at to find the line that matters."""

_PATH_BOOST: Final = 0.5
_PARTS_BOOST: Final = 0.2
_EXACT: Final = 1_000.0
_KIND_WEIGHT: Final = {
    **dict.fromkeys(("class", "interface", "struct", "trait", "enum", "table"), 30.0),
    "function": 28.0,
    "macro": 26.0,
    "type": 25.0,
    "method": 20.0,
}
_SPACES: Final = re.compile(r"\s+")


@dataclass(frozen=True)
class _Boosts:
    """What a word is worth, field by field; `tie` is the share of those that are not the best."""

    name: float
    name_words: float
    doc: float
    text: float
    tie: float


_OF_A_NAME: Final = _Boosts(name=6.0, name_words=2.5, doc=1.8, text=2.0, tie=0.3)
_OF_A_SENTENCE: Final = _Boosts(name=0.5, name_words=0.7, doc=1.0, text=0.6, tie=0.5)


def search_index(index: OpenIndex, wish: Wish, limits: Limits, stop: threading.Event) -> Found:
    """Find what is wished for, best first."""
    asked = wanted(wish.query)
    found = Found(repo=index.repository.name)
    if not asked.words:
        return found
    disk = Disk(index.repository, limits)
    judge = _Judge(index, wish, asked, disk, found)
    seen = 0
    for entry in _ranked(index, wish, asked):
        seen += 1
        if (hit := judge.hit(entry)) is not None:
            found.hits.append(hit)
        if len(found.hits) >= wish.top or stop.is_set():
            return found
    found.is_cut = seen >= CANDIDATE_LIMIT
    return found


def _ranked(index: OpenIndex, wish: Wish, asked: Wanted) -> Iterator[Entry]:
    """Yield candidates in order of rank, in batches: most searches need but the first."""
    query = _query(wish, asked)
    # Those that are to be compared with the disk may be many.
    is_picky = bool(asked.phrases) or wish.case
    step = max(BATCH, 2 * wish.top)
    offset = 0
    while offset < (CANDIDATE_LIMIT if is_picky else CANDIDATE_LIMIT // 4):
        batch = index.find(query, step, offset=offset)
        yield from sorted(batch, key=_preference, reverse=True)
        if len(batch) < step:
            return
        offset += step
        step = min(step * 4, 500)


def _preference(entry: Entry) -> float:
    """Among definitions of one name, that of a type or function comes before a variable's, and the shorter path first."""
    if entry.score < _EXACT:
        return entry.score
    tests = 5.0 if re.search(r"(^|/)tests?(/|_)|_test\.", entry.path) else 0.0
    return entry.score + _KIND_WEIGHT.get(entry.stored.kind, 0.0) - 0.5 * entry.path.count("/") - tests


def _query(wish: Wish, asked: Wanted) -> Any:
    tantivy = optional.tantivy()
    occur, query = tantivy.Occur, tantivy.Query
    terms = asked.terms()
    boosts = _OF_A_NAME if len(terms) == 1 or asked.identifier else _OF_A_SENTENCE
    compounds = [_compound_query(parts) for parts in asked.compounds()]
    parts = [(occur.Must, _either([_term_query(term, boosts) for term in terms] + compounds))]
    if (name := asked.identifier) is not None and not asked.phrases:
        parts += [(occur.Should, exact) for exact in _exact_queries(name)]
    for phrase in asked.phrases:
        parts += [(occur.Must, filter_query("text", word)) for word in engine.code_words(phrase)]
    parts += [(occur.Must, part) for part in _filters(wish)]
    return query.boolean_query(parts)


def _either(queries: list[Any]) -> Any:
    tantivy = optional.tantivy()
    return tantivy.Query.boolean_query([(tantivy.Occur.Should, query) for query in queries])


def _term_query(term: str, boosts: _Boosts) -> Any:
    """Look for one word in every field."""
    query = optional.tantivy().Query
    fields = [
        query.boost_query(_of("name", term), boosts.name),
        query.boost_query(_of("text", term, "freq"), boosts.text),
    ]
    # The parts of a compound are looked for together, not each by itself.
    for stem in engine.prose_words(term) if len(parts_of(term)) == 1 else ():
        fields += [
            query.boost_query(_of("name_words", stem, "freq"), boosts.name_words),
            query.boost_query(_of("doc", stem, "freq"), boosts.doc),
            query.boost_query(_of("path_words", stem, "freq"), _PATH_BOOST),
        ]
    return query.disjunction_max_query(fields, tie_breaker=boosts.tie)


def _compound_query(parts: tuple[str, ...]) -> Any:
    """Look for all parts of a compound, for it may be spelled otherwise: `getUser` as `get_user`."""
    tantivy = optional.tantivy()
    query = tantivy.Query
    found = []
    for part in dict.fromkeys(parts):
        fields = [_of("text", part, "freq")]
        fields += [query.boost_query(_of("name_words", stem, "freq"), 2.0) for stem in engine.prose_words(part)]
        found.append((tantivy.Occur.Must, query.disjunction_max_query(fields)))
    return query.boost_query(query.boolean_query(found), _PARTS_BOOST)


def _exact_queries(name: str) -> list[Any]:
    """A definition of exactly this name comes first, one in the same capitals before others."""
    query = optional.tantivy().Query
    spelled = name.replace("::", ".").replace("#", ".")
    return [
        query.const_score_query(_of("name", spelled.lower()), _EXACT),
        query.const_score_query(_of("symbol", spelled), _EXACT / 4),
    ]


def _filters(wish: Wish) -> list[Any]:
    query = optional.tantivy().Query
    given = [("family", None if wish.mode == "all" else wish.mode), ("language", wish.language), ("kind", wish.kind)]
    found = [filter_query(field, value) for field, value in given if value is not None]
    for field, glob in (("path", wish.path), ("symbol", wish.symbol)):
        if glob is not None:
            pattern = glob_pattern(glob) if field == "path" else symbol_pattern(glob)
            try:
                matching = query.regex_query(engine.schema(), field, pattern)
            except ValueError as error:
                issue = {"path": f"/{field}", "keyword": "pattern", "message": str(error)}
                raise InvalidArguments(f"`{field}` cannot be read.", issues=[issue]) from error
            found.append(query.const_score_query(matching, 0.0))
    return found


def filter_query(field: str, value: str) -> Any:
    """Make a query that keeps what has a value, and ranks nothing."""
    return optional.tantivy().Query.const_score_query(_of(field, value, "freq" if field == "text" else "basic"), 0.0)


def _of(field: str, value: str, option: str = "basic") -> Any:
    return optional.tantivy().Query.term_query(engine.schema(), field, value, option)


class _Judge:
    """Makes hits of candidates, or turns them away."""

    def __init__(self, index: OpenIndex, wish: Wish, asked: Wanted, disk: Disk, found: Found) -> None:
        self._index = index
        self._wish = wish
        self._asked = asked
        self._disk = disk
        self._found = found
        self._terms = frozenset(asked.terms())
        self._name = (asked.identifier or "").replace("::", ".").replace("#", ".")

    def hit(self, entry: Entry) -> Hit | None:
        """Compare a candidate with the disk; one that is not there any more, or not as written, is none."""
        row = self._index.file(entry.path)
        if row is None:
            return None
        on_disk = self._disk.look(row)
        at: Stored | None = entry.stored
        if on_disk.state is not State.FRESH:
            self._found.stale[entry.path] = on_disk.state.value
            at = (
                self._disk.relocated(row, entry.stored)
                if on_disk.state is State.CHANGED and entry.stored.name
                else None
            )
        if at is None or at.start > len(on_disk.lines) or not self._is_as_written(on_disk.lines, at):
            return None
        line, coverage = self._best_line(on_disk.lines, at)
        return Hit(
            repo=self._index.repository.name,
            file=f"{self._index.repository.root}/{entry.path}",
            entry=entry,
            at=at,
            headline=shown_line(on_disk.lines[line - 1].strip()),
            headline_line=line,
            is_definition=self._defines(at),
            coverage=coverage,
            is_stale=on_disk.state is not State.FRESH,
            lines=context_lines(on_disk.lines, line, self._wish.context),
        )

    def _defines(self, at: Stored) -> bool:
        qualified = f"{at.scope}.{at.name}" if at.scope else at.name
        names = {at.name, qualified}
        if self._wish.case:
            return bool(self._name) and self._name in names
        return bool(self._name) and self._name.lower() in {name.lower() for name in names}

    def _is_as_written(self, lines: list[str], at: Stored) -> bool:
        """Check what the index does not know: phrases to the letter, and capitals."""
        if not self._asked.phrases and not self._wish.case:
            return True
        text = _SPACES.sub(" ", "\n".join(lines[at.start - 1 : at.end]))
        if self._wish.case:
            return all(_SPACES.sub(" ", p) in text for p in self._asked.phrases) and set(self._asked.words) <= set(
                WORD.findall(text)
            )
        lower = text.lower()
        return all(_SPACES.sub(" ", phrase).lower() in lower for phrase in self._asked.phrases)

    def _best_line(self, lines: list[str], at: Stored) -> tuple[int, float]:
        """Return the line that says most of what was asked for, and how much of it the whole hit says."""
        best, most, said = at.line, -1.0, set()
        for number in range(at.start, min(at.end, len(lines)) + 1):
            text = lines[number - 1][:LONGEST_LINE]
            words = _words_of(text) & self._terms
            said |= words
            text = text.lower()
            worth = len(words) + 10 * sum(phrase.lower() in text for phrase in self._asked.phrases)
            if worth > most + (0.5 if number != at.line else 0):
                best, most = number, worth
        if at.name and (self._defines(at) or most <= 0):
            best = at.line
        return best, len(said) / max(1, len(self._terms))


def _words_of(line: str) -> set[str]:
    found: set[str] = set()
    for word in WORD.findall(line):
        found.add(word.lower())
        found.update(parts_of(word))
    return found


def context_lines(lines: list[str], line: int, context: int) -> list[tuple[int, str]]:
    """Return the lines around the headline."""
    if context == 0:
        return []
    first, last = max(1, line - context), min(len(lines), line + context)
    return [(number, shown_line(lines[number - 1])) for number in range(first, last + 1)]
