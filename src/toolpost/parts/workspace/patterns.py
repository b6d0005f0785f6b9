"""Search by regular expression: reads every indexed file that passes the filters, as it is on disk, in bounded time."""

import bisect
import threading
import time
from functools import lru_cache
from typing import Any, Final

from toolpost import InvalidArguments
from toolpost.parts.workspace import optional
from toolpost.parts.workspace.engine import ChunkInfo, ScoredChunk
from toolpost.parts.workspace.freshness import CurrentFiles, FileState
from toolpost.parts.workspace.indexed_files import FileRow
from toolpost.parts.workspace.open_index import OpenIndex
from toolpost.parts.workspace.query import SearchRequest, glob_pattern, symbol_pattern
from toolpost.parts.workspace.results import SearchHit, SearchResult, truncate_line
from toolpost.parts.workspace.search import context_lines, filter_query
from toolpost.parts.workspace.spec import WorkspaceLimits

BUDGET_S: Final = 10.0
MAX_MATCHES_PER_FILE: Final = 200
MAX_HITS: Final = 1_000
MAX_CHUNKS_PER_FILE: Final = 20_000


def search_pattern(
    index: OpenIndex, request: SearchRequest, limits: WorkspaceLimits, stop: threading.Event
) -> SearchResult:
    """Return a hit for each chunk with a matching line, definitions first; `stop` ends the search early."""
    pattern = _compile(request)
    result = SearchResult(repo=index.repository.name)
    current = CurrentFiles(index.repository, limits)
    deadline = time.monotonic() + BUDGET_S
    for row in _select_files(index, request):
        if time.monotonic() > deadline or len(result.hits) >= MAX_HITS or stop.is_set():
            result.is_cut = True
            break
        file = current.read(row)
        if file.state is FileState.GONE:
            result.stale[row.path] = file.state.value
            continue
        if numbers := _matching_lines(pattern, file.lines):
            result.is_cut = result.is_cut or len(numbers) >= MAX_MATCHES_PER_FILE
            is_stale = file.state is FileState.CHANGED
            if is_stale:
                result.stale[row.path] = file.state.value
            result.hits.extend(_make_hits(index, request, row, file.lines, numbers, is_stale=is_stale, current=current))
        current.forget(row.path)
    result.hits.sort(key=lambda hit: (-hit.entry.score, hit.entry.path, hit.headline_line))
    return result


def _compile(request: SearchRequest) -> Any:
    re2 = optional.re2()
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = request.case
    options.max_mem = 16 << 20
    try:
        # Compiled alone first: `a)(b` would become valid inside the group, and an error message would quote the group.
        re2.compile(request.query, options)
        return re2.compile(f"(?m:{request.query})", options)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
        issue = {"path": "/query", "keyword": "regex", "message": reason, "received": request.query[:200]}
        raise InvalidArguments(
            f"The query is not a valid regular expression: {reason}.",
            hint="the syntax is RE2: no look-around and no back-references",
            issues=[issue],
        ) from error


def _select_files(index: OpenIndex, request: SearchRequest) -> list[FileRow]:
    path = _compile_linear(glob_pattern(request.path)) if request.path else None
    return [
        row
        for row in index.list_files()
        if (request.mode in ("all", row.family))
        and (request.language in (None, row.language))
        and (path is None or path.fullmatch(row.path))
    ]


def _matching_lines(pattern: Any, lines: list[str]) -> list[int]:
    # The whole text first: most files do not match at all.
    if pattern.search("\n".join(lines)) is None:
        return []
    found = []
    for number, line in enumerate(lines, 1):
        if pattern.search(line) is not None:
            found.append(number)
            if len(found) >= MAX_MATCHES_PER_FILE:
                break
    return found


def _make_hits(
    index: OpenIndex,
    request: SearchRequest,
    row: FileRow,
    lines: list[str],
    numbers: list[int],
    *,
    is_stale: bool,
    current: CurrentFiles,
) -> list[SearchHit]:
    if is_stale:
        chunks = current.parse_chunks(row)
    else:
        indexed = index.find(filter_query("path", row.path), max(1, min(row.chunks, MAX_CHUNKS_PER_FILE)))
        chunks = sorted((chunk.stored for chunk in indexed), key=lambda stored: (stored.start, -stored.end))
    starts = [stored.start for stored in chunks]
    hits: dict[tuple[int, int], SearchHit] = {}
    for number in numbers:
        # The innermost chunk that contains the line: of those that start before it, the last that does not end before it.
        before = range(bisect.bisect_right(starts, number) - 1, -1, -1)
        at = next((chunks[place] for place in before if chunks[place].end >= number), None)
        if at is None or not _matches_filters(at, request) or (at.start, at.end) in hits:
            continue
        is_definition = bool(at.name) and number == at.line
        entry = ScoredChunk(row.path, row.language, 2.0 if is_definition else 1.0, at)
        hits[at.start, at.end] = SearchHit(
            repo=index.repository.name,
            file=f"{index.repository.root}/{row.path}",
            entry=entry,
            at=at,
            headline=truncate_line(lines[number - 1].strip()),
            headline_line=number,
            is_definition=is_definition,
            coverage=1.0,
            is_stale=is_stale,
            lines=context_lines(lines, number, request.context),
        )
    return list(hits.values())


def _matches_filters(at: ChunkInfo, request: SearchRequest) -> bool:
    if request.kind is not None and at.kind != request.kind:
        return False
    if request.symbol is None:
        return True
    pattern = _compile_linear(symbol_pattern(request.symbol))
    return any(pattern.fullmatch(name) for name in (at.name, at.qualified_name))


@lru_cache(maxsize=64)
def _compile_linear(pattern: str) -> Any:
    """Compile a translated glob with RE2: one with many stars takes exponential time in Python's `re`."""
    return optional.re2().compile(pattern)
