"""How an index is doing, and what the workspace can do."""

import importlib.metadata
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import anyio
import anyio.to_thread

from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import NoIndex, ToolpostError
from toolpost.git.changes import open_work_tree
from toolpost.git.repository import RepositoryRefused
from toolpost.parts.workspace import optional
from toolpost.parts.workspace.generations import size_of
from toolpost.parts.workspace.languages import LANGUAGES, language_of
from toolpost.parts.workspace.manifest import FileRow
from toolpost.parts.workspace.open_index import Indexes, OpenIndex
from toolpost.parts.workspace.scan import Scan, scan
from toolpost.parts.workspace.spec import Limits, Repository, WorkspaceSpec

NAMED_CHANGES: Final = 50
_PARTS: Final = ("tantivy", "tree-sitter", "google-re2", "pathspec")
_PARTS_OF_WATCHING: Final = ("watchfiles",)


async def index_status(
    repository: Repository, indexes: Indexes, limits: Limits, threads: anyio.CapacityLimiter
) -> JsonObject:
    """Say what an index holds, and what has changed since. Files are looked at in one of `threads`."""
    shown: JsonObject = {"repo": repository.name, "root": str(repository.root), "exists": False, "damaged": False}
    found = await _scanned(repository, limits, threads) if repository.root.is_dir() else None
    shown["git"] = found.git if found is not None else None
    try:
        index = await anyio.to_thread.run_sync(indexes.index, repository)
    except NoIndex as error:
        return shown | {"damaged": bool(error.details.get("damaged")), "message": error.message}
    shown |= await anyio.to_thread.run_sync(_of_index, index)
    if found is None:
        found = await _scanned(repository, limits, threads)
    changed = await anyio.to_thread.run_sync(_changes, index, found)
    return shown | {"exists": True, "changed": changed, "stale": any(changed[kind] for kind in _KINDS_OF_CHANGE)}


def _of_index(index: OpenIndex) -> JsonObject:
    pointer = index.pointer
    with index.reading() as manifest:
        facts, totals = manifest.facts(), manifest.totals()
        languages, skipped = manifest.languages(), manifest.skipped_by_reason()
    return {
        "generation": pointer.generation,
        "builtAt": _moment(pointer.built_at),
        "ageSeconds": round(max(0.0, time.time() - pointer.built_at), 3),
        "mode": facts["mode"],
        **totals,
        "bytes": size_of(index.folder),
        "languages": languages,
        "skipped": skipped,
        "indexedGit": facts.get("git"),
    }


_KINDS_OF_CHANGE: Final = ("added", "modified", "deleted")


def _changes(index: OpenIndex, found: Scan) -> JsonObject:
    """Compare with the disk by size and times: nothing is read."""
    with index.reading() as manifest:
        known = {row.path: row for row in manifest.files()}
        left_out = {row.path for row in manifest.skipped()}
        mode = manifest.facts()["mode"]
    added = [path for path in found.files if path not in known and path not in left_out and _is_wanted(path, mode)]
    modified = [path for path, stamp in found.files.items() if path in known and _differs(known[path], stamp)]
    deleted = [path for path in known if path not in found.files]
    paths = [*modified, *added, *deleted][:NAMED_CHANGES]
    return {"added": len(added), "modified": len(modified), "deleted": len(deleted), "paths": paths}


def _is_wanted(path: str, mode: str) -> bool:
    language = language_of(path)
    return language is None or mode in ("all", language.family)


def _differs(row: FileRow, stamp: Any) -> bool:
    return bool(row.stamp != stamp)


async def _scanned(repository: Repository, limits: Limits, threads: anyio.CapacityLimiter) -> Scan:
    # Abandoned, not awaited: a repository may be larger than its reader's deadline. Such threads are bounded.
    return await anyio.to_thread.run_sync(scan, repository, limits, abandon_on_cancel=True, limiter=threads)


async def check_status(spec: WorkspaceSpec, indexes: Indexes, troubles: Mapping[str, str]) -> JsonObject:
    """Say what is configured, what is available, and what deserves a warning."""
    warnings: list[JsonObject] = []
    languages = [
        {
            "name": language.name,
            "family": language.family,
            "suffixes": list(language.suffixes),
            "symbols": language.grammar is not None,
            "available": language.grammar is None or optional.has(language.grammar[0]),
        }
        for language in LANGUAGES
    ]
    for language in languages:
        if not language["available"]:
            warnings.append(_warning("LANGUAGE_MISSING", f"The grammar of {language['name']} is not installed."))
    parts = {name: _version(name) for name in (*_PARTS, *_PARTS_OF_WATCHING)}
    if missing := [name for name, version in parts.items() if version is None]:
        warnings.append(_warning("PART_MISSING", f"Not installed: {', '.join(missing)}. {optional.EXTRA_HINT}"))
    for repository in spec.repositories:
        warnings += await anyio.to_thread.run_sync(_warnings_of, repository, indexes, not set(missing) & set(_PARTS))
    warnings += [_warning("WATCH_FAILING", trouble, name) for name, trouble in troubles.items()]
    return {
        "repositories": [
            {"repo": repository.name, "root": str(repository.root), "index": str(repository.home)}
            for repository in spec.repositories
        ],
        "languages": languages,
        "capabilities": parts,
        "limits": {
            "fileBytes": spec.limits.file_bytes,
            "files": spec.limits.files,
            "lineChars": spec.limits.line_chars,
            "buildSeconds": spec.build_limit_s,
            "inFlight": spec.in_flight,
        },
        "warnings": warnings,
    }


def _warnings_of(repository: Repository, indexes: Indexes, can_read: bool) -> list[JsonObject]:
    if not repository.root.is_dir():
        return [_warning("ROOT_MISSING", f"There is no folder {repository.root}.", repository.name)]
    if not os.access(repository.root, os.R_OK | os.X_OK):
        return [_warning("ROOT_UNREADABLE", f"{repository.root} may not be read.", repository.name)]
    warnings = []
    if can_read:
        warnings += _git_warnings(repository)
        try:
            indexes.index(repository)
        except NoIndex as error:
            code = "INDEX_DAMAGED" if error.details.get("damaged") else "NO_INDEX"
            warnings.append(_warning(code, error.message, repository.name))
    return warnings


def _git_warnings(repository: Repository) -> list[JsonObject]:
    try:
        if (tree := open_work_tree(repository.root)) is not None:
            tree.index.close()
    except RepositoryRefused as error:
        message = f"{error} Its .gitignore files count, and nothing else of git."
        return [_warning("REPOSITORY_REFUSED", message, repository.name)]
    return []


async def workspace_status(spec: WorkspaceSpec, indexes: Indexes, threads: anyio.CapacityLimiter) -> JsonObject:
    """Say how each repository's index is doing; one that fails is named with its reason, and the others go on."""
    repositories, failures = [], []
    for repository in spec.repositories:
        try:
            repositories.append(await index_status(repository, indexes, spec.limits, threads))
        except ToolpostError as error:
            failures.append({"repo": repository.name, "code": error.code.value, "message": error.message})
    totals = {
        key: sum(repository.get(key, 0) for repository in repositories) for key in ("files", "chunks", "lines", "bytes")
    }
    return {"repositories": repositories, "failures": failures, "totals": totals}


def _warning(code: str, message: str, repo: str | None = None) -> JsonObject:
    return {"code": code, "message": message} | ({"repo": repo} if repo else {})


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
