"""The messages between the gateway and a build process: the order, and steps, summary or failure in return."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from toolpost.parts.workspace.spec import Repository, WorkspaceLimits

IndexMode = Literal["all", "code", "prose"]
BuildPhase = Literal["scan", "parse", "write"]


class BuildOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The order of a build; the process reads it from stdin."""

    name: str
    root: str
    index_dir: str
    forbidden: list[str]
    allowed: list[str]
    mode: IndexMode
    incremental: bool
    force: bool
    wait_s: float
    limits: WorkspaceLimits
    avoid: list[str]
    """Files that a previous attempt could not parse in time."""

    @property
    def repository(self) -> Repository:
        forbidden = frozenset(Path(path) for path in self.forbidden)
        return Repository(
            name=self.name,
            root=Path(self.root),
            index_dir=Path(self.index_dir),
            forbidden=forbidden,
            allowed=tuple(self.allowed),
        )


class BuildStep(msgspec.Struct, frozen=True, kw_only=True, tag="step"):
    """Progress: files while they are parsed, else steps of the phase."""

    phase: BuildPhase
    done: int
    total: int | None = None
    message: str = ""
    slow_file: str | None = None
    """A large file that is being parsed until the next step."""


class BuildSummary(msgspec.Struct, frozen=True, kw_only=True, tag="built"):
    """The outcome of a successful build."""

    generation: int
    files: int
    chunks: int
    lines: int
    bytes: int
    source_bytes: int
    added: int
    changed: int
    removed: int
    renamed: int
    unchanged: int
    skipped: dict[str, int]
    skipped_files: list[tuple[str, str]]
    rebuilt: str | None
    """Why the previous index was not used, if there was one."""


class BuildFailure(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The outcome of a failed build; the previous index is unchanged."""

    code: str
    message: str
    hint: str | None = None


BuildMessage = BuildStep | BuildSummary | BuildFailure

encode = msgspec.json.Encoder().encode
decode_order = msgspec.json.Decoder(BuildOrder).decode
decode_message = msgspec.json.Decoder(BuildMessage).decode


def make_order(
    repository: Repository,
    *,
    mode: IndexMode,
    incremental: bool,
    force: bool,
    wait_s: float,
    limits: WorkspaceLimits,
    avoid: Sequence[str] = (),
) -> BuildOrder:
    return BuildOrder(
        name=repository.name,
        root=str(repository.root),
        index_dir=str(repository.index_dir),
        forbidden=sorted(str(path) for path in repository.forbidden),
        allowed=list(repository.allowed),
        mode=mode,
        incremental=incremental,
        force=force,
        wait_s=wait_s,
        limits=limits,
        avoid=list(avoid),
    )
