"""Build the next generation of an index from the files on disk. Runs in a process of its own (`__main__.py`).

An incremental build hard-links the files of the previous generation, deletes the chunks of files that changed or are gone,
and adds new ones. A file whose size and times are unchanged is not read.
"""

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

from toolpost.parts.workspace import engine
from toolpost.parts.workspace.build_messages import BuildOrder, BuildStep, BuildSummary
from toolpost.parts.workspace.generations import (
    GenerationPointer,
    IndexDamaged,
    check_generation,
    checksums,
    make_generation_folder,
    read_pointer,
    remove_others,
    size_of,
    write_pointer,
)
from toolpost.parts.workspace.git.files import NotARegularFile, open_below
from toolpost.parts.workspace.indexed_files import FileRow, FileStamp, SkippedRow, open_manifest, write_manifest
from toolpost.parts.workspace.languages import Language, language_of, language_of_first_line
from toolpost.parts.workspace.masking import mask
from toolpost.parts.workspace.scan import ScanResult
from toolpost.parts.workspace.secrets import is_private_key, style_of
from toolpost.parts.workspace.symbols import Chunk, chunks_of
from toolpost.parts.workspace.text import SNIFF_BYTES, decode, is_binary

MAX_NAMED_SKIPS: Final = 50
REPORT_S: Final = 0.1
LARGE_CHARS: Final = 16_384
"""A smaller file is parsed quickly, whatever it contains."""

Report = Callable[[BuildStep], None]


@dataclass(kw_only=True)
class _BaseGeneration:
    """The generation that a build starts from; without a pointer there is none."""

    pointer: GenerationPointer | None = None
    folder: Path | None = None
    files: dict[str, FileRow] = field(default_factory=dict)
    skipped: dict[str, SkippedRow] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    rebuilt: str | None = None
    """Why the previous index is not used, if there was one."""


@dataclass(kw_only=True)
class _BuildPlan:
    """Which files stay as they are, which have to be read, and which are skipped."""

    kept: dict[str, FileRow] = field(default_factory=dict)
    to_read: list[str] = field(default_factory=list)
    skipped: list[SkippedRow] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _FileContent:
    """The bytes of a file, with the stamp of exactly these bytes."""

    stamp: FileStamp
    hash: bytes
    data: bytes


class Build:
    """One build of one repository. Searches see nothing of it before its last step, `write_pointer`."""

    def __init__(self, order: BuildOrder, scan: ScanResult, facts: dict[str, Any], report: Report) -> None:
        self._order = order
        self._index_dir = order.repository.index_dir
        self._root = order.repository.root
        self._scan = scan
        self._facts = facts
        self._report = report
        self._reported_at = 0.0
        self._step = BuildStep(phase="parse", done=0)
        self._rows: dict[str, FileRow] = {}
        self._skipped: list[SkippedRow] = []
        self._removed = 0
        self._counts = dict.fromkeys(("added", "changed", "renamed"), 0)

    def run(self) -> BuildSummary:
        """Build and publish the new generation; if nothing has changed, keep the previous one."""
        base = self._read_base()
        plan = self._make_plan(base)
        gone = [path for path in base.files if path not in plan.kept]
        self._skipped = plan.skipped
        skips_before = {path: row.reason for path, row in base.skipped.items()}
        is_same = (
            not (plan.to_read or gone)
            and {row.path: row.reason for row in plan.skipped} == skips_before
            and base.facts.get("mode") == self._order.mode
        )
        if base.pointer is not None and is_same:
            return self._keep_generation(base, base.pointer)
        number, folder = make_generation_folder(self._index_dir, base.folder)
        try:
            self._write_generation(folder, base, plan)
            self._report(BuildStep(phase="write", done=1, message="checking the index"))
            built = self._publish(number, folder, base)
        except BaseException:
            # Also on cancellation: a half-written generation would take disk space until the next build.
            remove_others(self._index_dir, base.pointer.generation if base.pointer else None)
            raise
        remove_others(self._index_dir, number)
        return built

    def _read_base(self) -> _BaseGeneration:
        """Read the previous generation; a damaged one is not used."""
        if not self._order.incremental:
            with contextlib.suppress(IndexDamaged):
                had_one = read_pointer(self._index_dir) is not None
                return _BaseGeneration(rebuilt="asked for" if had_one else None)
        try:
            pointer = read_pointer(self._index_dir)
            if pointer is None:
                remove_others(self._index_dir, None)
                return _BaseGeneration()
            folder = check_generation(self._index_dir, pointer)
            remove_others(self._index_dir, pointer.generation)
            with open_manifest(folder) as manifest:
                files = {row.path: row for row in manifest.files()}
                skipped = {row.path: row for row in manifest.skipped()}
                return _BaseGeneration(
                    pointer=pointer, folder=folder, files=files, skipped=skipped, facts=manifest.facts()
                )
        except IndexDamaged as damage:
            return _BaseGeneration(rebuilt=damage.message)

    def _make_plan(self, base: _BaseGeneration) -> _BuildPlan:
        plan = _BuildPlan(skipped=list(self._scan.skipped))
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

    def _is_unchanged(self, before: FileStamp | None, stamp: FileStamp, base: _BaseGeneration) -> bool:
        if self._order.force or before != stamp:
            return False
        # A file written during the last build may have been written again with the same times ("racy", as git calls it).
        assert base.pointer is not None
        return max(stamp.mtime_ns, stamp.ctime_ns) < (float(base.facts.get("scannedAt", 0)) - 0.05) * 1e9

    def _write_generation(self, folder: Path, base: _BaseGeneration, plan: _BuildPlan) -> None:
        gone = {path: row for path, row in base.files.items() if path not in plan.kept and path not in plan.to_read}
        by_hash = {row.hash: path for path, row in gone.items()}
        index = engine.open_engine(folder)
        writer = index.writer(engine.HEAP_BYTES, 1)
        for path in gone:
            writer.delete_documents_by_term("path", path)
        for number, path in enumerate(plan.to_read):
            self._step = BuildStep(phase="parse", done=number, total=len(plan.to_read), message=path)
            # Not for every file: a repository may have a hundred thousand.
            if (now := time.monotonic()) - self._reported_at >= REPORT_S:
                self._reported_at = now
                self._report(self._step)
            self._index_file(writer, path, base.files.get(path), by_hash)
        self._removed = len(gone) - self._counts["renamed"]
        self._rows |= plan.kept
        self._report(BuildStep(phase="write", done=0, message="writing the index"))
        writer.commit()
        writer.wait_merging_threads()
        # Remove the files that no segment uses, and the locks of the writers.
        writer = index.writer(15_000_000, 1)
        writer.garbage_collect_files()
        writer.rollback()
        for lock in folder.glob("*.lock"):
            lock.unlink(missing_ok=True)

    def _index_file(self, writer: Any, path: str, before: FileRow | None, gone: dict[bytes, str]) -> None:
        """Read a file; index it if it has changed, or note why it is skipped."""
        content = self._read_file(path)
        if isinstance(content, str):
            if before is not None:
                writer.delete_documents_by_term("path", path)
            if content != "deleted":
                # Only these reasons follow from the content: the others are checked again next time.
                is_final = content in ("binary", "secret")
                self._skipped.append(SkippedRow(path, content, self._scan.files[path] if is_final else None))
            return
        if before is not None and before.hash == content.hash and self._order.mode in ("all", before.family):
            self._rows[path] = dataclasses.replace(before, stamp=content.stamp)
            return
        if before is not None:
            writer.delete_documents_by_term("path", path)
        text = decode(content.data).text
        language = language_of(path) or language_of_first_line(text[:200].split("\n", 1)[0])
        if not self._is_wanted(language):
            return
        lines = text.count("\n") + (not text.endswith("\n"))
        if len(text) > self._order.limits.line_chars * max(1, lines):
            self._skipped.append(SkippedRow(path, "minified", content.stamp))
            return
        if path in self._order.avoid:
            self._skipped.append(SkippedRow(path, "too complex", content.stamp))
            return
        # Masked before indexing: otherwise a search for a credential would confirm that it exists.
        masked = mask(text, style_of(path, language))
        chunks = self._parse(path, masked, language)
        for chunk in chunks:
            writer.add_document(engine.document_of(chunk, path, language))
        kind = "changed" if before is not None else "renamed" if gone.pop(content.hash, None) else "added"
        self._counts[kind] += 1
        self._rows[path] = FileRow(
            path,
            content.stamp,
            content.hash,
            language.name,
            language.family,
            lines,
            len(chunks),
            masked=masked is not text,
        )

    def _parse(self, path: str, text: str, language: Language) -> list[Chunk]:
        """Split a file into chunks. A large one is announced first: a parser cannot be cancelled, and the gateway kills this
        process if it takes too long (`build_process.STUCK_S`)."""
        if language.grammar is None or len(text) < LARGE_CHARS:
            return chunks_of(text, language)
        self._report(replace(self._step, message=path, slow_file=path))
        chunks = chunks_of(text, language)
        self._report(replace(self._step, message=path))
        return chunks

    def _read_file(self, path: str) -> _FileContent | str:
        """Return the content of a file, or the reason why it is skipped."""
        limit = self._order.limits.file_bytes
        try:
            descriptor = open_below(self._root, path)
            with open(descriptor, "rb") as file:  # noqa: PTH123 (a descriptor)
                status = os.fstat(descriptor)
                data = file.read(limit + 1)
        except FileNotFoundError:
            return "deleted"
        except NotARegularFile:
            return "special file"
        except OSError:
            return "unreadable"
        if len(data) > limit or is_binary(data[:SNIFF_BYTES]):
            return "too large" if len(data) > limit else "binary"
        if is_private_key(data, path) and not self._order.repository.allows(path):
            return "secret"
        stamp = FileStamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        return _FileContent(stamp, hashlib.blake2b(data, digest_size=16).digest(), data)

    def _publish(self, number: int, folder: Path, base: _BaseGeneration) -> BuildSummary:
        facts = self._facts | {"mode": self._order.mode}
        write_manifest(folder, sorted(self._rows.values(), key=lambda row: row.path), self._skipped, facts)
        now = time.time()
        pointer = GenerationPointer(
            format=engine.FORMAT, generation=number, built_at=now, checked_at=now, files=checksums(folder)
        )
        write_pointer(self._index_dir, pointer)
        return self._summarize(folder, pointer, base, unchanged=len(self._rows) - sum(self._counts.values()))

    def _keep_generation(self, base: _BaseGeneration, pointer: GenerationPointer) -> BuildSummary:
        """Write only when the index was last compared with the disk."""
        assert base.folder is not None
        checked = GenerationPointer(
            format=pointer.format,
            generation=pointer.generation,
            built_at=pointer.built_at,
            checked_at=time.time(),
            files=pointer.files,
        )
        write_pointer(self._index_dir, checked)
        return self._summarize(base.folder, checked, base, unchanged=len(base.files))

    def _summarize(
        self, folder: Path, pointer: GenerationPointer, base: _BaseGeneration, *, unchanged: int
    ) -> BuildSummary:
        with open_manifest(folder) as manifest:
            totals = manifest.totals()
            skipped = manifest.skipped()
            by_reason = manifest.skipped_by_reason()
        return BuildSummary(
            generation=pointer.generation,
            files=totals["files"],
            chunks=totals["chunks"],
            lines=totals["lines"],
            bytes=size_of(folder),
            source_bytes=totals["sourceBytes"],
            removed=self._removed,
            unchanged=unchanged,
            skipped=by_reason,
            skipped_files=[(row.path, row.reason) for row in skipped[:MAX_NAMED_SKIPS]],
            rebuilt=base.rebuilt,
            **self._counts,
        )
