"""What a build is asked to do, and what it tells: values that go between the gateway and the process that builds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from toolpost.parts.workspace.spec import Limits, Repository

Mode = Literal["all", "code", "prose"]
Phase = Literal["scan", "parse", "write"]


class BuildOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A build, as its process reads it from stdin."""

    name: str
    root: str
    home: str
    forbidden: list[str]
    allowed: list[str]
    mode: Mode
    incremental: bool
    force: bool
    wait_s: float
    limits: Limits
    avoid: list[str]
    """Files that an attempt before this one never came to an end with."""

    @property
    def repository(self) -> Repository:
        """The repository that it is about."""
        forbidden = frozenset(Path(path) for path in self.forbidden)
        return Repository(
            name=self.name,
            root=Path(self.root),
            home=Path(self.home),
            forbidden=forbidden,
            allowed=tuple(self.allowed),
        )


class Step(msgspec.Struct, frozen=True, kw_only=True, tag="step"):
    """How far it has come: files while they are parsed, steps of the phase otherwise."""

    phase: Phase
    done: int
    total: int | None = None
    message: str = ""
    in_hand: str | None = None
    """A file that may take long, from before it is taken apart until the next step."""


class Built(msgspec.Struct, frozen=True, kw_only=True, tag="built"):
    """What came of it."""

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
    """Why nothing of the index before was used, if there was one."""


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """Why nothing came of it."""

    code: str
    message: str
    hint: str | None = None


Told = Step | Built | Failed

encode = msgspec.json.Encoder().encode
decode_order = msgspec.json.Decoder(BuildOrder).decode
decode_told = msgspec.json.Decoder(Told).decode


def order_of(
    repository: Repository,
    *,
    mode: Mode,
    incremental: bool,
    force: bool,
    wait_s: float,
    limits: Limits,
    avoid: Sequence[str] = (),
) -> BuildOrder:
    """Write an order."""
    return BuildOrder(
        name=repository.name,
        root=str(repository.root),
        home=str(repository.home),
        forbidden=sorted(str(path) for path in repository.forbidden),
        allowed=list(repository.allowed),
        mode=mode,
        incremental=incremental,
        force=force,
        wait_s=wait_s,
        limits=limits,
        avoid=list(avoid),
    )
