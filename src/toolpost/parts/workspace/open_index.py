"""Open indexes: a generation is checked and opened once, and searched until a build replaces it."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from toolpost import NoIndex, ToolpostError
from toolpost.parts.workspace import engine
from toolpost.parts.workspace.generations import GenerationPointer, IndexDamaged, check_generation, read_pointer
from toolpost.parts.workspace.indexed_files import FileRow, Manifest, open_manifest
from toolpost.parts.workspace.spec import Repository


class OpenIndex:
    """One generation, open for searches from any thread."""

    def __init__(self, repository: Repository, pointer: GenerationPointer) -> None:
        self.repository = repository
        self.pointer = pointer
        self._stack = ExitStack()
        folder = self.folder = check_generation(repository.index_dir, pointer)
        try:
            self.engine = engine.open_engine(folder)
            self.engine.config_reader("manual")
            self.engine.reload()
            self.searcher: Any = self.engine.searcher()
            self.manifest: Manifest = self._stack.enter_context(open_manifest(folder))
            self.manifest.totals()
        except (ValueError, OSError, sqlite3.Error) as error:
            self._stack.close()
            raise IndexDamaged(f"The index is damaged: {error}.") from error
        self._lock = threading.Lock()

    @contextmanager
    def read_manifest(self) -> Iterator[Manifest]:
        """Give access to the manifest; one thread at a time."""
        with self._lock:
            yield self.manifest

    def find(self, query: Any, limit: int, *, offset: int = 0) -> list[engine.ScoredChunk]:
        """Return the best chunks for a tantivy query; raises `NoIndex` if the index is damaged."""
        try:
            found = self.searcher.search(query, limit, count=False, offset=offset).hits
            return [engine.scored_chunk_of(self.searcher.doc(address), score) for score, address in found]
        except BaseException as error:
            # A panic of tantivy derives from BaseException, and would end more than this search.
            if type(error).__name__ != "PanicException":
                raise
            raise damage_error(self.repository, IndexDamaged(f"The index is damaged: {error}.")) from None

    def find_file(self, path: str) -> FileRow | None:
        with self._lock:
            return self.manifest.file(path)

    def list_files(self) -> list[FileRow]:
        with self._lock:
            return list(self.manifest.files())


class OpenIndexes:
    """The open indexes of a workspace, by repository."""

    def __init__(self) -> None:
        self._open: dict[str, OpenIndex] = {}
        self._lock = threading.Lock()

    def get(self, repository: Repository) -> OpenIndex:
        """Return the current index of a repository; raise `NoIndex` if there is none or it is damaged."""
        for _ in range(5):
            try:
                return self._current(repository)
            except IndexDamaged as damage:
                # A build may have removed this generation a moment ago; then the pointer names another one by now.
                if self._is_still_current(repository, damage):
                    raise damage_error(repository, damage) from damage
        return self._current(repository)

    def _current(self, repository: Repository) -> OpenIndex:
        pointer = read_pointer(repository.index_dir)
        if pointer is None:
            raise NoIndex(
                f"`{repository.name}` has no index yet.", hint="build one with `index_build`", repo=repository.name
            )
        known = self._open.get(repository.name)
        if known is not None and known.pointer.generation == pointer.generation:
            return known
        with self._lock:
            # Again under the lock: another thread may have opened it by now. Opening reads the whole index.
            known = self._open.get(repository.name)
            if known is None or known.pointer.generation != pointer.generation:
                # The previous one is freed when the last search in it ends.
                known = self._open[repository.name] = OpenIndex(repository, pointer)
        return known

    def _is_still_current(self, repository: Repository, damage: IndexDamaged) -> bool:
        try:
            pointer = read_pointer(repository.index_dir)
        except IndexDamaged:
            return True
        if pointer is None:
            return True
        try:
            check_generation(repository.index_dir, pointer)
        except IndexDamaged as again:
            return again.message == damage.message
        return False


def damage_error(repository: Repository, damage: IndexDamaged) -> ToolpostError:
    """Return the error for callers, with a hint."""
    return NoIndex(
        damage.message,
        hint="rebuild it with `index_build`",
        repo=repository.name,
        damaged=True,
    )
