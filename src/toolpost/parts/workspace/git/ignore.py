"""Ignore rules of a work tree: .gitignore of each folder, `info/exclude` of the repository, and the user's excludes file.

Patterns are untrusted: `pathspec` compiles them to RE2, whose time is linear in the name, and their number and length are
bounded.
"""

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from toolpost import CapabilityMissing
from toolpost.parts.workspace.git.config import find_user_ignore_file
from toolpost.parts.workspace.git.files import Unreadable, read_file
from toolpost.parts.workspace.git.repository import GitRepository

NAME: Final = ".gitignore"
_FILE_LIMIT: Final = 256 * 1024
_LINES_LIMIT: Final = 5_000
_LINE_LIMIT: Final = 1_000

Rules = tuple[tuple[str, Any], ...]
"""Compiled patterns, each with the folder that they apply to, outer ones first; the last that matches decides."""


@dataclass(kw_only=True)
class IgnoreRules:
    """The rules of one work tree; each .gitignore is read when its folder is first needed."""

    top: Path
    base: Rules = ()
    """Rules for the whole work tree."""
    _known: dict[str, Rules] = field(default_factory=dict)

    def within(self, folder: str) -> Rules:
        """Return the rules for the content of a folder, given by its path from the top; "" is the top itself."""
        known = self._known.get(folder)
        if known is None:
            above = self.within(folder.rpartition("/")[0]) if folder else self.base
            own = _read_rules(self.top, f"{folder}/{NAME}" if folder else NAME)
            known = self._known[folder] = above if own is None else (*above, (folder, own))
        return known

    def ignores(self, path: str) -> bool:
        """Whether a file, or one of the folders above it, is ignored."""
        parts = path.split("/")
        folder = ""
        for number, name in enumerate(parts, 1):
            inner = f"{folder}/{name}" if folder else name
            if is_ignored(inner, self.within(folder), is_folder=number < len(parts)):
                return True
            folder = inner
        return False


def rules_of(repository: GitRepository) -> IgnoreRules:
    found = [_read_rules(repository.common_dir, "info/exclude")]
    try:
        path = find_user_ignore_file()
        found.insert(0, _read_rules(path.parent, path.name))
    except (OSError, RuntimeError):
        pass  # No home directory, or a user's file that cannot be read: git goes on without it too.
    return IgnoreRules(top=repository.top, base=tuple(("", one) for one in found if one is not None))


def is_ignored(path: str, rules: Rules, *, is_folder: bool) -> bool:
    """Whether one file or folder is ignored; the folders above it are not considered. The innermost rules decide first."""
    for folder, spec in reversed(rules):
        relative = path[len(folder) + 1 :] if folder else path
        named = relative.encode("utf-8", "replace").decode() if not relative.isascii() else relative
        is_included = spec.check_file(f"{named}/" if is_folder else named).include
        if is_included is not None:
            return bool(is_included)
    return False


def _read_rules(folder: Path, name: str) -> Any:
    """Compile a file of patterns; None if it is missing, empty, too large or not a regular file.

    Raises `CapabilityMissing` without `pathspec`.
    """
    try:
        data = read_file(folder, name, _FILE_LIMIT)
    except Unreadable:
        return None
    if not data:
        return None
    # Like git, skip a byte order mark: with it the first pattern would match nothing.
    lines = data.decode("utf-8-sig", "replace").splitlines()[:_LINES_LIMIT]
    lines = [line for line in lines if line.strip() and not line.startswith("#") and len(line) <= _LINE_LIMIT]
    if not lines:
        return None
    spec = _load_spec_type()
    try:
        return spec.from_lines(lines)
    except ValueError:
        # git skips an invalid pattern, and the others count.
        return spec.from_lines([line for line in lines if _is_valid(spec, line)])


def _is_valid(spec: Any, line: str) -> bool:
    try:
        spec.from_lines([line])
    except ValueError:
        return False
    return True


def _load_spec_type() -> Any:
    # Imported when it is first used: it is part of an extra.
    try:
        return importlib.import_module("pathspec").GitIgnoreSpec
    except ImportError as error:
        raise CapabilityMissing(
            "the reader of .gitignore files, `pathspec`, is not installed.",
            hint="pip install 'toolpost[workspace]'",
            module="pathspec",
        ) from error
