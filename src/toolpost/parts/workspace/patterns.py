"""A search by regular expression: every indexed file that passes the filters, as it is on disk, in bounded time."""

import bisect
import threading
import time
from functools import lru_cache
from typing import Any, Final

from toolpost.contracts.errors import InvalidArguments
from toolpost.parts.workspace import optional
from toolpost.parts.workspace.engine import Entry, Stored
from toolpost.parts.workspace.freshness import Disk, State
from toolpost.parts.workspace.hits import Found, Hit, Wish, shown_line
from toolpost.parts.workspace.manifest import FileRow
from toolpost.parts.workspace.open_index import OpenIndex
from toolpost.parts.workspace.query import glob_pattern, symbol_pattern
from toolpost.parts.workspace.search import context_lines, filter_query
from toolpost.parts.workspace.spec import Limits

BUDGET_S: Final = 10.0
MATCHES_PER_FILE: Final = 200
ENOUGH: Final = 1_000
CHUNKS_PER_FILE: Final = 20_000


def search_pattern(index: OpenIndex, wish: Wish, limits: Limits, stop: threading.Event) -> Found:
    """Find the lines that match, those that define something before the others."""
    pattern = _compiled(wish)
    found = Found(repo=index.repository.name)
    disk = Disk(index.repository, limits)
    until = time.monotonic() + BUDGET_S
    for row in _rows(index, wish):
        if time.monotonic() > until or len(found.hits) >= ENOUGH or stop.is_set():
            found.is_cut = True
            break
        on_disk = disk.look(row)
        if on_disk.state is State.GONE:
            found.stale[row.path] = on_disk.state.value
            continue
        if numbers := _matching_lines(pattern, on_disk.lines):
            found.is_cut = found.is_cut or len(numbers) >= MATCHES_PER_FILE
            is_stale = on_disk.state is State.CHANGED
            if is_stale:
                found.stale[row.path] = on_disk.state.value
            found.hits.extend(_hits(index, wish, row, on_disk.lines, numbers, is_stale=is_stale, disk=disk))
        disk.forget(row.path)
    found.hits.sort(key=lambda hit: (-hit.entry.score, hit.entry.path, hit.headline_line))
    return found


def _compiled(wish: Wish) -> Any:
    re2 = optional.re2()
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = wish.case
    options.max_mem = 16 << 20
    try:
        # Alone first: what is put around it must not mend it, or be blamed for it.
        re2.compile(wish.query, options)
        return re2.compile(f"(?m:{wish.query})", options)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
        issue = {"path": "/query", "keyword": "regex", "message": reason, "received": wish.query[:200]}
        raise InvalidArguments(
            f"The query is no regular expression that can be used: {reason}.",
            hint="patterns are RE2's: linear in time, without look-around and back-references",
            issues=[issue],
        ) from error


def _rows(index: OpenIndex, wish: Wish) -> list[FileRow]:
    path = _linear(glob_pattern(wish.path)) if wish.path else None
    return [
        row
        for row in index.paths()
        if (wish.mode in ("all", row.family))
        and (wish.language in (None, row.language))
        and (path is None or path.fullmatch(row.path))
    ]


def _matching_lines(pattern: Any, lines: list[str]) -> list[int]:
    # Once over the whole text first: most files hold nothing.
    if pattern.search("\n".join(lines)) is None:
        return []
    found = []
    for number, line in enumerate(lines, 1):
        if pattern.search(line) is not None:
            found.append(number)
            if len(found) >= MATCHES_PER_FILE:
                break
    return found


def _hits(
    index: OpenIndex, wish: Wish, row: FileRow, lines: list[str], numbers: list[int], *, is_stale: bool, disk: Disk
) -> list[Hit]:
    chunks = disk.chunks_now(row) if is_stale else _chunks(index, row)
    starts = [stored.start for stored in chunks]
    hits: dict[tuple[int, int], Hit] = {}
    for number in numbers:
        at = _around(chunks, starts, number)
        if at is None or not _passes(at, wish) or (at.start, at.end) in hits:
            continue
        defines = bool(at.name) and number == at.line
        entry = Entry(row.path, row.language, 2.0 if defines else 1.0, at)
        hits[at.start, at.end] = Hit(
            repo=index.repository.name,
            file=f"{index.repository.root}/{row.path}",
            entry=entry,
            at=at,
            headline=shown_line(lines[number - 1].strip()),
            headline_line=number,
            is_definition=defines,
            coverage=1.0,
            is_stale=is_stale,
            lines=context_lines(lines, number, wish.context),
        )
    return list(hits.values())


def _chunks(index: OpenIndex, row: FileRow) -> list[Stored]:
    """Return the chunks of a file, as they were indexed."""
    found = index.find(filter_query("path", row.path), max(1, min(row.chunks, CHUNKS_PER_FILE)))
    stored = [entry.stored for entry in found]
    return sorted(stored, key=lambda one: (one.start, -one.end))


def _around(chunks: list[Stored], starts: list[int], number: int) -> Stored | None:
    """Return the innermost chunk that holds a line."""
    for at in range(bisect.bisect_right(starts, number) - 1, -1, -1):
        if chunks[at].end >= number:
            return chunks[at]
    return None


def _passes(at: Stored, wish: Wish) -> bool:
    if wish.kind is not None and at.kind != wish.kind:
        return False
    if wish.symbol is None:
        return True
    qualified = f"{at.scope}.{at.name}" if at.scope else at.name
    pattern = _linear(symbol_pattern(wish.symbol))
    return any(pattern.fullmatch(name) for name in (at.name, qualified))


@lru_cache(maxsize=64)
def _linear(pattern: str) -> Any:
    """Compile what a glob has become: with many stars, Python's own engine would take for ever."""
    return optional.re2().compile(pattern)
