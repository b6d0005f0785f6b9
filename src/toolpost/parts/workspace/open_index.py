"""An index that is open: one generation of it, checked once, searched many times, until the next one is there."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from toolpost.contracts.errors import NoIndex, ToolpostError
from toolpost.parts.workspace import engine
from toolpost.parts.workspace.generations import Damaged, Pointer, check_generation, read_pointer
from toolpost.parts.workspace.manifest import FileRow, Manifest, open_manifest
from toolpost.parts.workspace.spec import Repository


class OpenIndex:
    """One generation."""

    def __init__(self, repository: Repository, pointer: Pointer) -> None:
        self.repository = repository
        self.pointer = pointer
        self._stack = ExitStack()
        folder = self.folder = check_generation(repository.home, pointer)
        try:
            self.engine = engine.open_engine(folder)
            self.engine.config_reader("manual")
            self.engine.reload()
            self.searcher: Any = self.engine.searcher()
            self.manifest: Manifest = self._stack.enter_context(open_manifest(folder))
            self.manifest.totals()
        except (ValueError, OSError, sqlite3.Error) as error:
            self._stack.close()
            raise Damaged(f"The index is damaged: {error}.") from error
        self._lock = threading.Lock()

    @contextmanager
    def reading(self) -> Iterator[Manifest]:
        """Hold what is known of its files; from any thread, one at a time."""
        with self._lock:
            yield self.manifest

    def find(self, query: Any, limit: int, *, offset: int = 0) -> list[engine.Entry]:
        """Return the best chunks for a query; from any thread."""
        try:
            found = self.searcher.search(query, limit, count=False, offset=offset).hits
            return [engine.entry_of(self.searcher.doc(address), score) for score, address in found]
        except BaseException as error:
            # What the engine panics with is no Exception, and would end more than this search.
            if type(error).__name__ != "PanicException":
                raise
            raise said(self.repository, Damaged(f"The index is damaged: {error}.")) from None

    def file(self, path: str) -> FileRow | None:
        """Return what is known of a file; from any thread."""
        with self._lock:
            return self.manifest.file(path)

    def paths(self) -> list[FileRow]:
        """Return every file; from any thread."""
        with self._lock:
            return list(self.manifest.files())


class Indexes:
    """The open indexes of a workspace."""

    def __init__(self) -> None:
        self._open: dict[str, OpenIndex] = {}
        self._lock = threading.Lock()

    def index(self, repository: Repository) -> OpenIndex:
        """Return a repository's index as it now is, or say that there is none."""
        for _ in range(5):
            try:
                return self._current(repository)
            except Damaged as damage:
                # A build may have replaced it in this very moment: then there is another by now.
                if self._is_still_current(repository, damage):
                    raise said(repository, damage) from damage
        return self._current(repository)

    def _current(self, repository: Repository) -> OpenIndex:
        pointer = read_pointer(repository.home)
        if pointer is None:
            raise NoIndex(
                f"`{repository.name}` has no index yet.", hint="build one with `index_build`", repo=repository.name
            )
        known = self._open.get(repository.name)
        if known is not None and known.pointer.generation == pointer.generation:
            return known
        with self._lock:
            known = self._open.get(repository.name)
            if known is None or known.pointer.generation != pointer.generation:
                # The one before is let go of when the last search in it has ended.
                known = self._open[repository.name] = OpenIndex(repository, pointer)
        return known

    def _is_still_current(self, repository: Repository, damage: Damaged) -> bool:
        try:
            pointer = read_pointer(repository.home)
        except Damaged:
            return True
        if pointer is None:
            return True
        try:
            check_generation(repository.home, pointer)
        except Damaged as again:
            return again.message == damage.message
        return False


def said(repository: Repository, damage: Damaged) -> ToolpostError:
    """Say to a caller that an index is damaged, and what to do."""
    return NoIndex(
        damage.message,
        hint="build it again with `index_build`: a damaged index is made anew",
        repo=repository.name,
        damaged=True,
    )
