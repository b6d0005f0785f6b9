"""The specification of a workspace: repositories, the folders of their indexes, and limits."""

import hashlib
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from toolpost import NotFound
from toolpost.base import nearest_name
from toolpost.parts.workspace.query import glob_pattern

BUILD_LIMIT_S: Final = 600.0
IN_FLIGHT_LIMIT: Final = 64
SETTLE_S: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class WorkspaceLimits:
    """Limits of an index."""

    file_bytes: int = 2 * 1024 * 1024
    """A larger file is not indexed."""
    files: int = 250_000
    line_chars: int = 5_000
    """A file with longer lines on average counts as minified, and is not indexed."""


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A folder that may be read, and its index."""

    name: str
    root: Path
    index_dir: Path
    """The folder of its index."""
    forbidden: frozenset[Path] = frozenset()
    """Files that are never shown, such as those with tokens of callers."""
    allowed: tuple[str, ...] = ()
    """Globs of files that may be read although their names suggest secrets."""

    def allows(self, path: str) -> bool:
        """Whether a file may be read although its name suggests secrets."""
        return any(re.fullmatch(glob_pattern(glob), path) for glob in self.allowed)


@dataclass(frozen=True, kw_only=True)
class WorkspaceSpec:
    """A workspace as it is configured."""

    repositories: tuple[Repository, ...]
    limits: WorkspaceLimits = field(default_factory=WorkspaceLimits)
    build_limit_s: float = BUILD_LIMIT_S
    in_flight: int = IN_FLIGHT_LIMIT
    """How many calls may run at once."""
    settle_s: float = SETTLE_S
    """How long watched files must be unchanged before they are indexed."""

    def select(self, name: str | None) -> tuple[Repository, ...]:
        """Return the repository with this name, or all of them for None. Raises `NotFound`."""
        if name is None:
            return self.repositories
        return (self.find(name),)

    def find(self, name: str) -> Repository:
        """Return the repository with this name. Raises `NotFound`."""
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
    limits: WorkspaceLimits | None = None,
    build_limit_s: float = BUILD_LIMIT_S,
    in_flight: int = IN_FLIGHT_LIMIT,
    settle_s: float = SETTLE_S,
    forbidden: frozenset[Path] = frozenset(),
    allowed: Sequence[str] = (),
) -> WorkspaceSpec:
    """Make a workspace from folders, relative to the project; each is a repository with the name of its folder."""
    project = project.resolve()
    hidden = frozenset(path.resolve() for path in forbidden)
    repositories: dict[str, Repository] = {}
    for root in roots:
        folder = (project / Path(root).expanduser()).resolve()
        if any(folder == known.root for known in repositories.values()):
            continue
        own_name = folder.name or "root"
        names = itertools.chain([own_name], (f"{own_name}-{number}" for number in itertools.count(2)))
        name = next(name for name in names if name not in repositories)
        key = hashlib.blake2b(str(folder).encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
        own_dir = project / Path(index_dir).expanduser() / f"{name}-{key}"
        repositories[name] = Repository(
            name=name, root=folder, index_dir=own_dir, forbidden=hidden, allowed=tuple(allowed)
        )
    return WorkspaceSpec(
        repositories=tuple(repositories.values()),
        limits=limits or WorkspaceLimits(),
        build_limit_s=build_limit_s,
        in_flight=in_flight,
        settle_s=settle_s,
    )
