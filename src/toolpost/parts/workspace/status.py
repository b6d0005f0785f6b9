"""The status tools: state and age of each index, what has changed since, and what is configured and installed."""

import importlib.metadata
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import anyio
import anyio.to_thread

from toolpost import NoIndex, ToolpostError
from toolpost.base import JsonObject
from toolpost.parts.workspace import optional
from toolpost.parts.workspace.generations import size_of
from toolpost.parts.workspace.git.changes import open_work_tree
from toolpost.parts.workspace.git.repository import RepositoryRefused
from toolpost.parts.workspace.languages import LANGUAGES, language_of
from toolpost.parts.workspace.open_index import OpenIndex, OpenIndexes
from toolpost.parts.workspace.scan import ScanResult, scan
from toolpost.parts.workspace.spec import Repository, WorkspaceLimits, WorkspaceSpec

MAX_NAMED_CHANGES: Final = 50
_LIBRARIES: Final = ("tantivy", "tree-sitter", "google-re2", "pathspec")
_WATCH_LIBRARIES: Final = ("watchfiles",)


async def index_status(
    repository: Repository, indexes: OpenIndexes, limits: WorkspaceLimits, threads: anyio.CapacityLimiter
) -> JsonObject:
    """Describe an index and what has changed since it was built. Scans the repository in a thread of `threads`."""
    status: JsonObject = {"repo": repository.name, "root": str(repository.root), "exists": False, "damaged": False}
    scanned = await _scan_in_thread(repository, limits, threads) if repository.root.is_dir() else None
    status["git"] = scanned.git if scanned is not None else None
    try:
        index = await anyio.to_thread.run_sync(indexes.get, repository)
    except NoIndex as error:
        return status | {"damaged": bool(error.details.get("damaged")), "message": error.message}
    status |= await anyio.to_thread.run_sync(_describe_index, index)
    if scanned is None:
        scanned = await _scan_in_thread(repository, limits, threads)
    changed = await anyio.to_thread.run_sync(_count_changes, index, scanned)
    return status | {"exists": True, "changed": changed, "stale": any(changed[kind] for kind in _KINDS_OF_CHANGE)}


def _describe_index(index: OpenIndex) -> JsonObject:
    pointer = index.pointer
    with index.read_manifest() as manifest:
        facts, totals = manifest.facts(), manifest.totals()
        languages, skipped = manifest.languages(), manifest.skipped_by_reason()
    return {
        "generation": pointer.generation,
        "builtAt": datetime.fromtimestamp(pointer.built_at, UTC).isoformat(timespec="milliseconds"),
        "ageSeconds": round(max(0.0, time.time() - pointer.built_at), 3),
        "mode": facts["mode"],
        **totals,
        "bytes": size_of(index.folder),
        "languages": languages,
        "skipped": skipped,
        "indexedGit": facts.get("git"),
    }


_KINDS_OF_CHANGE: Final = ("added", "modified", "deleted")


def _count_changes(index: OpenIndex, scanned: ScanResult) -> JsonObject:
    """Compare the index with the disk by size and times, without reading files."""
    with index.read_manifest() as manifest:
        known = {row.path: row for row in manifest.files()}
        left_out = {row.path for row in manifest.skipped()}
        mode = manifest.facts()["mode"]
    added = [
        path
        for path in scanned.files
        if path not in known
        and path not in left_out
        and ((language := language_of(path)) is None or mode in ("all", language.family))
    ]
    modified = [path for path, stamp in scanned.files.items() if path in known and known[path].stamp != stamp]
    deleted = [path for path in known if path not in scanned.files]
    paths = [*modified, *added, *deleted][:MAX_NAMED_CHANGES]
    return {"added": len(added), "modified": len(modified), "deleted": len(deleted), "paths": paths}


async def _scan_in_thread(
    repository: Repository, limits: WorkspaceLimits, threads: anyio.CapacityLimiter
) -> ScanResult:
    # Abandoned on cancellation: a scan may take longer than the deadline of the call. The limiter bounds such threads.
    return await anyio.to_thread.run_sync(scan, repository, limits, abandon_on_cancel=True, limiter=threads)


async def check_status(spec: WorkspaceSpec, indexes: OpenIndexes, watch_problems: Mapping[str, str]) -> JsonObject:
    """Return settings, languages, installed libraries, limits, and warnings with codes."""
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
    libraries = {name: _installed_version(name) for name in (*_LIBRARIES, *_WATCH_LIBRARIES)}
    if missing := [name for name, version in libraries.items() if version is None]:
        warnings.append(_warning("PART_MISSING", f"Not installed: {', '.join(missing)}. {optional.EXTRA_HINT}"))
    for repository in spec.repositories:
        warnings += await anyio.to_thread.run_sync(
            _warnings_of, repository, indexes, not set(missing) & set(_LIBRARIES)
        )
    warnings += [_warning("WATCH_FAILING", problem, name) for name, problem in watch_problems.items()]
    return {
        "repositories": [
            {"repo": repository.name, "root": str(repository.root), "index": str(repository.index_dir)}
            for repository in spec.repositories
        ],
        "languages": languages,
        "capabilities": libraries,
        "limits": {
            "fileBytes": spec.limits.file_bytes,
            "files": spec.limits.files,
            "lineChars": spec.limits.line_chars,
            "buildSeconds": spec.build_limit_s,
            "inFlight": spec.in_flight,
        },
        "warnings": warnings,
    }


def _warnings_of(repository: Repository, indexes: OpenIndexes, can_read: bool) -> list[JsonObject]:
    if not repository.root.is_dir():
        return [_warning("ROOT_MISSING", f"There is no folder {repository.root}.", repository.name)]
    if not os.access(repository.root, os.R_OK | os.X_OK):
        return [_warning("ROOT_UNREADABLE", f"{repository.root} may not be read.", repository.name)]
    warnings = []
    if can_read:
        try:
            if (tree := open_work_tree(repository.root)) is not None:
                tree.index.close()
        except RepositoryRefused as error:
            message = f"{error} Its .gitignore files count, and nothing else of git."
            warnings.append(_warning("REPOSITORY_REFUSED", message, repository.name))
        try:
            indexes.get(repository)
        except NoIndex as error:
            code = "INDEX_DAMAGED" if error.details.get("damaged") else "NO_INDEX"
            warnings.append(_warning(code, error.message, repository.name))
    return warnings


async def workspace_status(spec: WorkspaceSpec, indexes: OpenIndexes, threads: anyio.CapacityLimiter) -> JsonObject:
    """Return the status of each repository; those that fail are listed in `failures`."""
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


def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
