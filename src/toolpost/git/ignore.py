"""What a work tree leaves out: .gitignore of each folder, `info/exclude` of the repository, and the user's own file.

Patterns are a stranger's. They are compiled by `pathspec` to RE2, whose time is linear in a name whatever the pattern is, and
their number and length are bounded.
"""

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from toolpost.contracts.errors import CapabilityMissing
from toolpost.git.config import read_user_config, user_folder
from toolpost.git.files import Unreadable, read_file
from toolpost.git.repository import GitRepository

NAME: Final = ".gitignore"
_FILE_LIMIT: Final = 256 * 1024
_LINES_LIMIT: Final = 5_000
_LINE_LIMIT: Final = 1_000

Rules = tuple[tuple[str, Any], ...]
"""Patterns with the folder that they count for, outer ones first; the last that says anything decides."""


@dataclass(kw_only=True)
class IgnoreRules:
    """The rules of one work tree, read as its folders are looked at."""

    top: Path
    base: Rules = ()
    """What counts for all of it."""
    _known: dict[str, Rules] = field(default_factory=dict)

    def within(self, folder: str) -> Rules:
        """Return the rules for what lies in a folder, given by its path from the top; empty for the top itself."""
        known = self._known.get(folder)
        if known is None:
            above = self.within(folder.rpartition("/")[0]) if folder else self.base
            own = _read_rules(self.top, f"{folder}/{NAME}" if folder else NAME)
            known = self._known[folder] = above if own is None else (*above, (folder, own))
        return known

    def leave_out(self, path: str) -> bool:
        """Say whether a file, or a folder that it lies in, is ignored."""
        parts = path.split("/")
        folder = ""
        for number, name in enumerate(parts, 1):
            inner = f"{folder}/{name}" if folder else name
            if is_ignored(inner, self.within(folder), is_folder=number < len(parts)):
                return True
            folder = inner
        return False


def rules_of(repository: GitRepository) -> IgnoreRules:
    """Return the rules of a repository's work tree."""
    found = [_read_rules(repository.common_dir, "info/exclude")]
    try:
        place = _user_file()
        found.insert(0, _read_rules(place.parent, place.name))
    except (OSError, RuntimeError):
        pass
    return IgnoreRules(top=repository.top, base=tuple(("", one) for one in found if one is not None))


def _user_file() -> Path:
    chosen = read_user_config().get("core.excludesfile")
    return (Path(chosen[-1]).expanduser() if chosen and chosen[-1] else user_folder() / "ignore").resolve()


def is_ignored(path: str, rules: Rules, *, is_folder: bool) -> bool:
    """Ask the innermost rules first; those of a folder see paths from there."""
    for folder, spec in reversed(rules):
        relative = path[len(folder) + 1 :] if folder else path
        named = relative.encode("utf-8", "replace").decode() if not relative.isascii() else relative
        verdict = spec.check_file(f"{named}/" if is_folder else named).include
        if verdict is not None:
            return bool(verdict)
    return False


def _read_rules(folder: Path, name: str) -> Any:
    """Compile a file of patterns; None if there is none, or it is no regular file of a sound size, or says nothing."""
    try:
        data = read_file(folder, name, _FILE_LIMIT)
    except Unreadable:
        return None
    if not data:
        return None
    lines = data.decode("utf-8", "replace").splitlines()[:_LINES_LIMIT]
    lines = [line for line in lines if line.strip() and not line.startswith("#") and len(line) <= _LINE_LIMIT]
    return _compile(lines) if lines else None


def _compile(lines: list[str]) -> Any:
    spec = _spec_type()
    try:
        return spec.from_lines(lines)
    except ValueError:
        return spec.from_lines([line for line in lines if _is_sound(line)])


def _is_sound(line: str) -> bool:
    try:
        _spec_type().from_lines([line])
    except ValueError:
        return False
    return True


def _spec_type() -> Any:
    """Return what compiles patterns; `pathspec` is optional, and loaded when a work tree is first looked through."""
    try:
        return importlib.import_module("pathspec").GitIgnoreSpec
    except ImportError as error:
        raise CapabilityMissing(
            "the reader of .gitignore files, `pathspec`, is not installed.",
            hint="pip install 'toolpost[workspace]'",
            module="pathspec",
        ) from error
