"""Search one index by words and phrases.

Candidates come from the index by rank. Each is compared with its file on disk before it becomes a hit: lines are those of the
file now, what is gone is dropped, and phrases and case, which the index does not have, are checked against the text.
"""

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from toolpost import InvalidArguments
from toolpost.parts.workspace import engine, optional
from toolpost.parts.workspace.engine import WORD, ChunkInfo, ScoredChunk, parts_of
from toolpost.parts.workspace.freshness import CurrentFiles, FileState
from toolpost.parts.workspace.open_index import OpenIndex
from toolpost.parts.workspace.query import CodeQuery, SearchRequest, glob_pattern, parse_query, symbol_pattern
from toolpost.parts.workspace.results import SearchHit, SearchResult, truncate_line
from toolpost.parts.workspace.spec import WorkspaceLimits

BATCH: Final = 40
CANDIDATE_LIMIT: Final = 2_000
MAX_LINE_CHARS: Final = 20_000
"""Characters of a line that are searched for the best line of a hit."""

_PATH_BOOST: Final = 0.5
_PARTS_BOOST: Final = 0.2
_EXACT: Final = 1_000.0
"""Added for an exact name: more than any other score can reach."""
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
    """The weight of a word in each field. The best field counts fully, each other one times `tie`."""

    name: float
    name_words: float
    doc: float
    text: float
    tie: float


_NAME_BOOSTS: Final = _Boosts(name=6.0, name_words=2.5, doc=1.8, text=2.0, tie=0.3)
_SENTENCE_BOOSTS: Final = _Boosts(name=0.5, name_words=0.7, doc=1.0, text=0.6, tie=0.5)


def search_index(
    index: OpenIndex, request: SearchRequest, limits: WorkspaceLimits, stop: threading.Event
) -> SearchResult:
    """Return hits, best first; `stop` ends the search early, with the hits so far."""
    query = parse_query(request.query)
    result = SearchResult(repo=index.repository.name)
    if not query.words:
        return result
    current = CurrentFiles(index.repository, limits)
    maker = _HitMaker(index, request, query, current, result)
    seen = 0
    for entry in _find_candidates(index, request, query):
        seen += 1
        if (hit := maker.make_hit(entry)) is not None:
            result.hits.append(hit)
        if len(result.hits) >= request.top or stop.is_set():
            return result
    result.is_cut = seen >= _candidate_limit(request, query)
    return result


def _candidate_limit(request: SearchRequest, query: CodeQuery) -> int:
    # Phrases and case are checked on disk, where many candidates may fail.
    is_exact = bool(query.phrases) or request.case
    return CANDIDATE_LIMIT if is_exact else CANDIDATE_LIMIT // 4


def _find_candidates(index: OpenIndex, request: SearchRequest, query: CodeQuery) -> Iterator[ScoredChunk]:
    """Yield candidates by rank, fetched in growing batches: most searches need only the first."""
    compiled = _build_query(request, query)
    limit = _candidate_limit(request, query)
    step = max(BATCH, 2 * request.top)
    offset = 0
    while offset < limit:
        batch = index.find(compiled, step, offset=offset)
        yield from sorted(batch, key=_rank, reverse=True)
        if len(batch) < step:
            return
        offset += step
        step = min(step * 4, 500)


def _rank(entry: ScoredChunk) -> float:
    """Order definitions of one name: types and functions before variables, short paths first, tests last."""
    if entry.score < _EXACT:
        return entry.score
    tests = 5.0 if re.search(r"(^|/)tests?(/|_)|_test\.", entry.path) else 0.0
    return entry.score + _KIND_WEIGHT.get(entry.stored.kind, 0.0) - 0.5 * entry.path.count("/") - tests


def _build_query(request: SearchRequest, query: CodeQuery) -> Any:
    tantivy = optional.tantivy()
    occur = tantivy.Occur
    terms = query.terms()
    boosts = _NAME_BOOSTS if len(terms) == 1 or query.identifier else _SENTENCE_BOOSTS
    compounds = [_compound_query(parts) for parts in query.compounds()]
    anything = [(occur.Should, part) for part in [_term_query(term, boosts) for term in terms] + compounds]
    parts = [(occur.Must, tantivy.Query.boolean_query(anything))]
    if (name := query.identifier) is not None and not query.phrases:
        # Definitions of exactly this name come first, those in the same case before the others.
        dotted = name.replace("::", ".").replace("#", ".")
        for field, value, score in (("name", dotted.lower(), _EXACT), ("symbol", dotted, _EXACT / 4)):
            parts.append((occur.Should, tantivy.Query.const_score_query(_term(field, value), score)))
    for phrase in query.phrases:
        parts += [(occur.Must, filter_query("text", word)) for word in engine.code_words(phrase)]
    parts += [(occur.Must, part) for part in _filters(request)]
    return tantivy.Query.boolean_query(parts)


def _term_query(term: str, boosts: _Boosts) -> Any:
    """Search one word in every field."""
    query = optional.tantivy().Query
    fields = [
        query.boost_query(_term("name", term), boosts.name),
        query.boost_query(_term("text", term, "freq"), boosts.text),
    ]
    # A compound gets `_compound_query`, which requires all of its parts.
    for stem in engine.prose_words(term) if len(parts_of(term)) == 1 else ():
        fields += [
            query.boost_query(_term("name_words", stem, "freq"), boosts.name_words),
            query.boost_query(_term("doc", stem, "freq"), boosts.doc),
            query.boost_query(_term("path_words", stem, "freq"), _PATH_BOOST),
        ]
    return query.disjunction_max_query(fields, tie_breaker=boosts.tie)


def _compound_query(parts: tuple[str, ...]) -> Any:
    """Require all parts of a compound, in any spelling: `getUser` finds `get_user`."""
    tantivy = optional.tantivy()
    query = tantivy.Query
    found = []
    for part in dict.fromkeys(parts):
        fields = [_term("text", part, "freq")]
        fields += [query.boost_query(_term("name_words", stem, "freq"), 2.0) for stem in engine.prose_words(part)]
        found.append((tantivy.Occur.Must, query.disjunction_max_query(fields)))
    return query.boost_query(query.boolean_query(found), _PARTS_BOOST)


def _filters(request: SearchRequest) -> list[Any]:
    query = optional.tantivy().Query
    values = [
        ("family", None if request.mode == "all" else request.mode),
        ("language", request.language),
        ("kind", request.kind),
    ]
    found = [filter_query(field, value) for field, value in values if value is not None]
    for field, glob in (("path", request.path), ("symbol", request.symbol)):
        if glob is not None:
            pattern = glob_pattern(glob) if field == "path" else symbol_pattern(glob)
            try:
                matching = query.regex_query(engine.schema(), field, pattern)
            except ValueError as error:
                issue = {"path": f"/{field}", "keyword": "pattern", "message": str(error)}
                raise InvalidArguments(f"`{field}` is not a valid pattern.", issues=[issue]) from error
            found.append(query.const_score_query(matching, 0.0))
    return found


def filter_query(field: str, value: str) -> Any:
    """Return a query for documents with this value, which adds nothing to their score."""
    return optional.tantivy().Query.const_score_query(_term(field, value, "freq" if field == "text" else "basic"), 0.0)


def _term(field: str, value: str, option: str = "basic") -> Any:
    return optional.tantivy().Query.term_query(engine.schema(), field, value, option)


class _HitMaker:
    """Turns candidates into hits, or rejects them."""

    def __init__(
        self, index: OpenIndex, request: SearchRequest, query: CodeQuery, current: CurrentFiles, result: SearchResult
    ) -> None:
        self._index = index
        self._request = request
        self._query = query
        self._current = current
        self._result = result
        self._terms = frozenset(query.terms())
        self._name = (query.identifier or "").replace("::", ".").replace("#", ".")

    def make_hit(self, entry: ScoredChunk) -> SearchHit | None:
        """Compare a candidate with its file; return None if it is gone or does not match exactly."""
        row = self._index.find_file(entry.path)
        if row is None:
            return None
        file = self._current.read(row)
        at: ChunkInfo | None = entry.stored
        if file.state is not FileState.FRESH:
            self._result.stale[entry.path] = file.state.value
            at = (
                self._current.relocate(row, entry.stored)
                if file.state is FileState.CHANGED and entry.stored.name
                else None
            )
        if at is None or at.start > len(file.lines) or not self._matches_exactly(file.lines, at):
            return None
        line, coverage = self._best_line(file.lines, at)
        return SearchHit(
            repo=self._index.repository.name,
            file=f"{self._index.repository.root}/{entry.path}",
            entry=entry,
            at=at,
            headline=truncate_line(file.lines[line - 1].strip()),
            headline_line=line,
            is_definition=self._is_definition(at),
            coverage=coverage,
            is_stale=file.state is not FileState.FRESH,
            lines=context_lines(file.lines, line, self._request.context),
        )

    def _is_definition(self, at: ChunkInfo) -> bool:
        names = {at.name, at.qualified_name}
        if self._request.case:
            return bool(self._name) and self._name in names
        return bool(self._name) and self._name.lower() in {name.lower() for name in names}

    def _matches_exactly(self, lines: list[str], at: ChunkInfo) -> bool:
        """Check phrases and case, which the index does not have."""
        if not self._query.phrases and not self._request.case:
            return True
        text = _SPACES.sub(" ", "\n".join(lines[at.start - 1 : at.end]))
        if self._request.case:
            return all(_SPACES.sub(" ", p) in text for p in self._query.phrases) and set(self._query.words) <= set(
                WORD.findall(text)
            )
        lower = text.lower()
        return all(_SPACES.sub(" ", phrase).lower() in lower for phrase in self._query.phrases)

    def _best_line(self, lines: list[str], at: ChunkInfo) -> tuple[int, float]:
        """Return the line with the most words of the query, and the share of those words that the whole chunk contains."""
        best, most, found = at.line, -1.0, set()
        for number in range(at.start, min(at.end, len(lines)) + 1):
            text = lines[number - 1][:MAX_LINE_CHARS]
            written = WORD.findall(text)
            words = {part for word in written for part in (word.lower(), *parts_of(word))} & self._terms
            found |= words
            text = text.lower()
            worth = len(words) + 10 * sum(phrase.lower() in text for phrase in self._query.phrases)
            if worth > most + (0.5 if number != at.line else 0):
                best, most = number, worth
        if at.name and (self._is_definition(at) or most <= 0):
            best = at.line
        return best, len(found) / max(1, len(self._terms))


def context_lines(lines: list[str], line: int, context: int) -> list[tuple[int, str]]:
    """Return the numbered lines around a line; none if `context` is 0."""
    if context == 0:
        return []
    first, last = max(1, line - context), min(len(lines), line + context)
    return [(number, truncate_line(lines[number - 1])) for number in range(first, last + 1)]
