"""What a workspace is: its repositories, where their indexes are kept, and the limits."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from toolpost.base.nearest import nearest_name
from toolpost.contracts.errors import NotFound
from toolpost.parts.workspace.query import glob_pattern

BUILD_LIMIT_S: Final = 600.0
IN_FLIGHT_LIMIT: Final = 64
SETTLE_S: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of an index."""

    file_bytes: int = 2 * 1024 * 1024
    """A larger file is not indexed."""
    files: int = 250_000
    line_chars: int = 5_000
    """A file whose lines are longer than this on average is taken for a minified one, and not indexed."""


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A folder that may be read, and its index."""

    name: str
    root: Path
    home: Path
    """Where its index is."""
    forbidden: frozenset[Path] = frozenset()
    """Files that nobody gets to see, such as those that hold tokens."""
    allowed: tuple[str, ...] = ()
    """Globs of files that may be read although their names say that they hold secrets."""

    def allows(self, path: str) -> bool:
        """Say whether a file whose name tells of secrets may be read all the same."""
        return any(re.fullmatch(glob_pattern(glob), path) for glob in self.allowed)


@dataclass(frozen=True, kw_only=True)
class WorkspaceSpec:
    """Everything that is set."""

    repositories: tuple[Repository, ...]
    limits: Limits = field(default_factory=Limits)
    build_limit_s: float = BUILD_LIMIT_S
    in_flight: int = IN_FLIGHT_LIMIT
    """Questions that may be asked at once."""
    settle_s: float = SETTLE_S
    """How long files that are watched must be left alone before they are indexed."""

    def named(self, name: str | None) -> tuple[Repository, ...]:
        """Return the repository of this name, or all of them."""
        if name is None:
            return self.repositories
        return (self.one(name),)

    def one(self, name: str) -> Repository:
        """Return the repository of this name."""
        for repository in self.repositories:
            if repository.name == name:
                return repository
        names = [repository.name for repository in self.repositories]
        near = nearest_name(name, names)
        known = f"the workspace has {', '.join(f'`{known}`' for known in names)}"
        raise NotFound(
            f"The workspace has no repository `{name[:200]}`.",
            hint=f"did you mean `{near}`? {known}" if near else known,
        )


def spec_of(
    project: Path,
    roots: list[str],
    *,
    index_dir: str = ".toolpost/workspace",
    limits: Limits | None = None,
    build_limit_s: float = BUILD_LIMIT_S,
    in_flight: int = IN_FLIGHT_LIMIT,
    settle_s: float = SETTLE_S,
    forbidden: frozenset[Path] = frozenset(),
    allowed: Sequence[str] = (),
) -> WorkspaceSpec:
    """Make a workspace of folders, relative to the project; each is a repository, called as its folder is."""
    project = project.resolve()
    hidden = frozenset(path.resolve() for path in forbidden)
    found: dict[str, Repository] = {}
    for root in roots:
        folder = (project / Path(root).expanduser()).resolve()
        if any(folder == known.root for known in found.values()):
            continue
        name = _free_name(folder.name or "root", found)
        key = hashlib.blake2b(str(folder).encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
        home = project / Path(index_dir).expanduser() / f"{name}-{key}"
        found[name] = Repository(name=name, root=folder, home=home, forbidden=hidden, allowed=tuple(allowed))
    return WorkspaceSpec(
        repositories=tuple(found.values()),
        limits=limits or Limits(),
        build_limit_s=build_limit_s,
        in_flight=in_flight,
        settle_s=settle_s,
    )


def _free_name(name: str, taken: dict[str, Repository]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
