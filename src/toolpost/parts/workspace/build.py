"""A build, from the files on disk to the next generation of an index. It runs in a process of its own (`__main__.py`)."""

import contextlib
import dataclasses
import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from toolpost.base.credentials import mask
from toolpost.git.open_below import NotRegular, open_below
from toolpost.parts.workspace import engine
from toolpost.parts.workspace.build_order import BuildOrder, Built, Step
from toolpost.parts.workspace.chunks import Chunk, chunks_of
from toolpost.parts.workspace.generations import (
    Damaged,
    Pointer,
    check_generation,
    checksums,
    next_folder,
    read_pointer,
    remove_others,
    size_of,
    write_pointer,
)
from toolpost.parts.workspace.languages import Language, language_of, language_of_first_line
from toolpost.parts.workspace.manifest import FileRow, SkippedRow, Stamp, open_manifest, write_manifest
from toolpost.parts.workspace.scan import Scan
from toolpost.parts.workspace.secrets import is_private_key, style_of
from toolpost.parts.workspace.text import SNIFF_BYTES, decoded, is_binary

NAMED_SKIPS: Final = 50
TELL_S: Final = 0.1
LARGE_CHARS: Final = 16_384
"""A smaller file is taken apart in little time, whatever is in it."""

Tell = Callable[[Step], None]


@dataclass(kw_only=True)
class _Base:
    """The generation that a build starts from, if any."""

    pointer: Pointer | None = None
    folder: Path | None = None
    files: dict[str, FileRow] = field(default_factory=dict)
    skipped: dict[str, SkippedRow] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    rebuilt: str | None = None


@dataclass(kw_only=True)
class _Plan:
    """What has to be done: the files that stay as they are, and those that must be read."""

    kept: dict[str, FileRow] = field(default_factory=dict)
    to_read: list[str] = field(default_factory=list)
    skipped: list[SkippedRow] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Read:
    """A file that was read."""

    stamp: Stamp
    hash: bytes
    data: bytes


class Build:
    """One build of one repository; nothing of it is seen until its last step."""

    def __init__(self, order: BuildOrder, found: Scan, facts: dict[str, Any], tell: Tell) -> None:
        self._order = order
        self._home = order.repository.home
        self._root = order.repository.root
        self._scan = found
        self._facts = facts
        self._tell = tell
        self._told_at = 0.0
        self._step = Step(phase="parse", done=0)
        self._rows: dict[str, FileRow] = {}
        self._skipped: list[SkippedRow] = []
        self._removed = 0
        self._counts = dict.fromkeys(("added", "changed", "renamed"), 0)

    def run(self) -> Built:
        """Build, and put the new generation into its place."""
        base = self._base()
        plan = self._plan(base)
        gone = [path for path in base.files if path not in plan.kept]
        self._skipped = plan.skipped
        if base.pointer is not None and not plan.to_read and not gone and self._is_same(base, plan):
            return self._nothing_new(base, base.pointer)
        number, folder = next_folder(self._home, base.folder)
        try:
            self._write(folder, base, plan)
            self._tell(Step(phase="write", done=1, message="checking what was written"))
            built = self._put_into_place(number, folder, base)
        except BaseException:
            remove_others(self._home, base.pointer.generation if base.pointer else None)
            raise
        remove_others(self._home, number)
        return built

    def _base(self) -> _Base:
        """Read the generation before; one that is damaged is not built upon."""
        if not self._order.incremental:
            with contextlib.suppress(Damaged):
                had_one = read_pointer(self._home) is not None
                return _Base(rebuilt="asked for" if had_one else None)
        try:
            pointer = read_pointer(self._home)
            if pointer is None:
                remove_others(self._home, None)
                return _Base()
            folder = check_generation(self._home, pointer)
            remove_others(self._home, pointer.generation)
            with open_manifest(folder) as manifest:
                files = {row.path: row for row in manifest.files()}
                skipped = {row.path: row for row in manifest.skipped()}
                return _Base(pointer=pointer, folder=folder, files=files, skipped=skipped, facts=manifest.facts())
        except Damaged as damage:
            return _Base(rebuilt=damage.message)

    def _plan(self, base: _Base) -> _Plan:
        plan = _Plan(skipped=list(self._scan.skipped))
        for path, stamp in self._scan.files.items():
            language = language_of(path)
            if language is not None and not self._is_wanted(language):
                continue
            before, left_out = base.files.get(path), base.skipped.get(path)
            if before is not None and self._is_unchanged(before.stamp, stamp, base):
                if self._order.mode in ("all", before.family):
                    plan.kept[path] = before
            elif left_out is not None and self._is_unchanged(left_out.stamp, stamp, base):
                plan.skipped.append(left_out)
            else:
                plan.to_read.append(path)
        return plan

    def _is_wanted(self, language: Language) -> bool:
        return self._order.mode in ("all", language.family)

    def _is_unchanged(self, before: Stamp | None, stamp: Stamp, base: _Base) -> bool:
        if self._order.force or before != stamp:
            return False
        # A file written in the moment of the last build may have been written again with the same times.
        assert base.pointer is not None
        return max(stamp.mtime_ns, stamp.ctime_ns) < (float(base.facts.get("scannedAt", 0)) - 0.05) * 1e9

    def _is_same(self, base: _Base, plan: _Plan) -> bool:
        skips = {row.path: row.reason for row in plan.skipped}
        before = {path: row.reason for path, row in base.skipped.items()}
        return skips == before and base.facts.get("mode") == self._order.mode

    def _write(self, folder: Path, base: _Base, plan: _Plan) -> None:
        """Put what has changed into the new generation."""
        gone = {path: row for path, row in base.files.items() if path not in plan.kept and path not in plan.to_read}
        by_hash = {row.hash: path for path, row in gone.items()}
        index = engine.open_engine(folder)
        writer = index.writer(engine.HEAP_BYTES, 1)
        for path in gone:
            writer.delete_documents_by_term("path", path)
        for number, path in enumerate(plan.to_read):
            self._step = Step(phase="parse", done=number, total=len(plan.to_read), message=path)
            self._tell_now_and_then()
            self._take(writer, path, base.files.get(path), by_hash)
        self._removed = len(gone) - self._counts["renamed"]
        self._rows |= plan.kept
        self._tell(Step(phase="write", done=0, message="writing the index"))
        writer.commit()
        writer.wait_merging_threads()
        self._compact(index, folder)

    @staticmethod
    def _compact(index: Any, folder: Path) -> None:
        """Let go of files that no segment uses any more."""
        writer = index.writer(15_000_000, 1)
        writer.garbage_collect_files()
        writer.rollback()
        for path in folder.glob("*.lock"):
            path.unlink(missing_ok=True)

    def _take(self, writer: Any, path: str, before: FileRow | None, gone: dict[bytes, str]) -> None:
        """Read one file and put it into the index, if it has changed and may be."""
        read = self._read(path)
        if isinstance(read, str):
            if before is not None:
                writer.delete_documents_by_term("path", path)
            if read != "deleted":
                is_settled = read in ("binary", "secret")
                self._skipped.append(SkippedRow(path, read, self._scan.files[path] if is_settled else None))
            return
        if before is not None and before.hash == read.hash and self._order.mode in ("all", before.family):
            self._rows[path] = dataclasses.replace(before, stamp=read.stamp)
            return
        if before is not None:
            writer.delete_documents_by_term("path", path)
        text = decoded(read.data).text
        language = language_of(path) or language_of_first_line(text[:200].split("\n", 1)[0])
        if not self._is_wanted(language):
            return
        lines = text.count("\n") + (not text.endswith("\n"))
        if len(text) > self._order.limits.line_chars * max(1, lines):
            self._skipped.append(SkippedRow(path, "minified", read.stamp))
            return
        if path in self._order.avoid:
            self._skipped.append(SkippedRow(path, "too complex", read.stamp))
            return
        # What is indexed is what may be shown: a search for a credential finds nothing that would confirm it.
        masked = mask(text, style_of(path, language))
        chunks = self._taken_apart(path, masked, language)
        for chunk in chunks:
            writer.add_document(engine.document_of(chunk, path, language))
        kind = "changed" if before is not None else "renamed" if gone.pop(read.hash, None) else "added"
        self._counts[kind] += 1
        self._rows[path] = FileRow(
            path, read.stamp, read.hash, language.name, language.family, lines, len(chunks), masked=masked is not text
        )

    def _taken_apart(self, path: str, text: str, language: Language) -> list[Chunk]:
        """Take a file apart; whoever listens is told before, if that may take for ever: a parser cannot be called off."""
        if language.grammar is None or len(text) < LARGE_CHARS:
            return chunks_of(text, language)
        self._tell(replace(self._step, message=path, in_hand=path))
        chunks = chunks_of(text, language)
        self._tell(replace(self._step, message=path))
        return chunks

    def _read(self, path: str) -> _Read | str:
        """Read a file, or say why it is left out; its stamp is that of what was read."""
        limit = self._order.limits.file_bytes
        try:
            number = open_below(self._root, path)
            with open(number, "rb") as file:  # noqa: PTH123 (a descriptor)
                found = os.fstat(number)
                data = file.read(limit + 1)
        except FileNotFoundError:
            return "deleted"
        except NotRegular:
            return "special file"
        except OSError:
            return "unreadable"
        if len(data) > limit or is_binary(data[:SNIFF_BYTES]):
            return "too large" if len(data) > limit else "binary"
        if is_private_key(data, path) and not self._order.repository.allows(path):
            return "secret"
        stamp = Stamp(found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        return _Read(stamp, hashlib.blake2b(data, digest_size=16).digest(), data)

    def _put_into_place(self, number: int, folder: Path, base: _Base) -> Built:
        facts = self._facts | {"mode": self._order.mode}
        write_manifest(folder, sorted(self._rows.values(), key=lambda row: row.path), self._skipped, facts)
        now = time.time()
        pointer = Pointer(
            format=engine.FORMAT, generation=number, built_at=now, checked_at=now, files=checksums(folder)
        )
        write_pointer(self._home, pointer)
        return self._built(folder, pointer, base, unchanged=len(self._rows) - sum(self._counts.values()))

    def _nothing_new(self, base: _Base, pointer: Pointer) -> Built:
        """Note that somebody looked: nothing has changed, so nothing is written."""
        assert base.folder is not None
        checked = Pointer(
            format=pointer.format,
            generation=pointer.generation,
            built_at=pointer.built_at,
            checked_at=time.time(),
            files=pointer.files,
        )
        write_pointer(self._home, checked)
        return self._built(base.folder, checked, base, unchanged=len(base.files))

    def _built(self, folder: Path, pointer: Pointer, base: _Base, *, unchanged: int) -> Built:
        with open_manifest(folder) as manifest:
            totals = manifest.totals()
            skipped = manifest.skipped()
            by_reason = manifest.skipped_by_reason()
        return Built(
            generation=pointer.generation,
            files=totals["files"],
            chunks=totals["chunks"],
            lines=totals["lines"],
            bytes=size_of(folder),
            source_bytes=totals["sourceBytes"],
            removed=self._removed,
            unchanged=unchanged,
            skipped=by_reason,
            skipped_files=[(row.path, row.reason) for row in skipped[:NAMED_SKIPS]],
            rebuilt=base.rebuilt,
            **self._counts,
        )

    def _tell_now_and_then(self) -> None:
        now = time.monotonic()
        if now - self._told_at >= TELL_S:
            self._told_at = now
            self._tell(self._step)
