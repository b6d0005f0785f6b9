"""An index that follows its repository: what changes on disk is indexed in the background, once it is left alone."""

import logging
import time
from collections.abc import Callable
from pathlib import PurePath
from typing import Final

import anyio
import anyio.to_thread

from toolpost.base.events import event
from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import NoIndex, ToolpostError
from toolpost.parts.workspace.build_order import Mode
from toolpost.parts.workspace.build_process import build_repository
from toolpost.parts.workspace.build_queue import Turns
from toolpost.parts.workspace.file_events import PATHS_LIMIT, Notices, open_notices
from toolpost.parts.workspace.folders import folders_of
from toolpost.parts.workspace.open_index import Indexes
from toolpost.parts.workspace.scan import own_prefix, work_tree_of
from toolpost.parts.workspace.secrets import holds_secrets, is_hidden
from toolpost.parts.workspace.spec import Repository, WorkspaceSpec
from toolpost.upstreams.process import tree as process_tree

_log = logging.getLogger("toolpost.parts.workspace")

LOOK_S: Final = 15.0
"""How often it is looked for changes where they cannot be watched."""
RETRY_LIMIT_S: Final = 60.0
_CHANGES: Final = ("added", "changed", "renamed", "removed")

OnBuilt = Callable[[JsonObject], None]
"""Told what came of each build that changed something."""
OnTrouble = Callable[[str, str], None]
"""Told the name of a repository and what is wrong, once."""


class Watch:
    """Keeps the index of one repository up to date. What fails is said and tried again; it never raises."""

    def __init__(
        self,
        spec: WorkspaceSpec,
        repository: Repository,
        indexes: Indexes,
        turns: Turns,
        *,
        on_built: OnBuilt | None = None,
        on_trouble: OnTrouble | None = None,
    ) -> None:
        self._spec = spec
        self._repository = repository
        self._indexes = indexes
        self._turns = turns
        self._on_built = on_built
        self._on_trouble = on_trouble
        self._phase = "starting"
        self._blind: str | None = None
        """Why changes are not watched, and it is looked for them instead."""
        self._problem: str | None = None
        """Why the last build failed."""
        self._failures = 0
        self._took_s = 0.0
        self._rested_at = 0.0

    @property
    def problem(self) -> str | None:
        """What is wrong, if anything is."""
        return self._problem or self._blind

    def as_object(self) -> JsonObject:
        """Say how it is doing: `starting`, `watching`, `indexing`, `polling` or `failing`."""
        state = "failing" if self._problem else "polling" if self._blind else self._phase
        return {"state": state} | ({"message": self.problem} if self.problem else {})

    async def run(self) -> None:
        """Follow, until cancelled."""
        while True:
            try:
                await self._follow()
            except Exception as error:  # noqa: BLE001 (whatever it is, the gateway serves on)
                reason = _reason(error)
                if reason != self._blind:
                    self._say("changes are not watched", reason)
                self._blind = reason
                await anyio.sleep(max(LOOK_S, 4 * self._took_s))
                await self._build()

    async def _follow(self) -> None:
        """Watch the folders that there are; it ends when there are others."""
        folders = await anyio.to_thread.run_sync(folders_of, self._repository)
        async with open_notices(folders) as notices:
            notices.check()
            self._blind = None
            # Watched first and built then: what happened before is found by looking, what happens after is noticed.
            is_done = await self._build()
            while True:
                has_changed = await self._changed(notices, None if is_done else self._retry_s)
                if has_changed and await anyio.to_thread.run_sync(folders_of, self._repository) != folders:
                    return
                is_done = await self._build()

    async def _changed(self, notices: Notices, limit_s: float | None) -> bool:
        """Wait for changes that matter; False if none came in time."""
        with anyio.move_on_after(limit_s):
            while True:
                paths = await notices.taken(settle_s=self._spec.settle_s)
                if await anyio.to_thread.run_sync(self._matter, paths):
                    # After a long build a long rest: what is done in the background leaves the machine to others.
                    await anyio.sleep(max(0.0, self._rested_at - time.monotonic()))
                    return True
        return False

    def _matter(self, paths: frozenset[str]) -> bool:
        """Say whether any of these is a file that may be indexed: what git ignores, and does not know all the same, is none."""
        if len(paths) > PATHS_LIMIT:
            return True
        root, own = self._repository.root, own_prefix(self._repository)
        below = (PurePath(path).relative_to(root).as_posix() for path in paths)
        seen = [path for path in below if not is_hidden(path) and not (own and f"{path}/".startswith(own))]
        seen = [path for path in seen if not holds_secrets(path) or self._repository.allows(path)]
        if not seen:
            return False
        tree = work_tree_of(self._repository)
        if tree is None:
            return True
        matter = any(tree.knows(path) or not tree.ignore.leave_out(f"{tree.prefix}{path}") for path in seen)
        tree.index.close()
        return matter

    async def _build(self) -> bool:
        """Bring the index up to date; says whether it worked."""
        async with self._turns.spared(self._repository.name):
            self._phase, started = "indexing", time.monotonic()
            try:
                with anyio.fail_after(self._spec.build_limit_s):
                    built = await self._built()
            except TimeoutError:
                self._failed(f"The build took longer than {self._spec.build_limit_s:g} s.")
            except Exception as error:  # noqa: BLE001 (whatever it is, the gateway serves on)
                self._failed(_reason(error))
            else:
                self._problem, self._failures = None, 0
                self._tell(built)
            self._phase = "watching"
            self._took_s = time.monotonic() - started
            self._rested_at = time.monotonic() + min(self._took_s, RETRY_LIMIT_S)
        return self._problem is None

    async def _built(self) -> JsonObject:
        mode = await anyio.to_thread.run_sync(self._mode)
        return await build_repository(
            self._spec,
            self._repository,
            _Background(),
            mode=mode,
            incremental=True,
            force=False,
            on_step=lambda _: None,
        )

    def _mode(self) -> Mode:
        """Return what the index holds by now: an update leaves it at that."""
        try:
            with self._indexes.index(self._repository).reading() as manifest:
                mode: Mode = manifest.facts()["mode"]
                return mode
        except NoIndex:
            return "all"

    @property
    def _retry_s(self) -> float:
        return min(2.0 ** min(self._failures, 10), RETRY_LIMIT_S)

    def _failed(self, reason: str) -> None:
        self._failures += 1
        if reason != self._problem:
            self._say("index not updated", reason)
        self._problem = reason

    def _say(self, what: str, reason: str) -> None:
        event(_log, logging.WARNING, what, repo=self._repository.name, reason=reason)
        if self._on_trouble is not None:
            self._on_trouble(self._repository.name, reason)

    def _tell(self, built: JsonObject) -> None:
        if any(built[kind] for kind in _CHANGES):
            event(_log, logging.INFO, "index updated", **{name: built[name] for name in ("repo", *_CHANGES, "seconds")})
            if self._on_built is not None:
                self._on_built(built)


def _reason(error: Exception) -> str:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error.message if isinstance(error, ToolpostError) else f"{type(error).__name__}: {error}"


class _Background:
    """Runs a build that no call waits for."""

    async def run(
        self,
        command: list[str],
        *,
        env: dict[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002 (as the context has it)
        check: bool = True,  # noqa: ARG002 (the build says itself how it ended)
        keep_bytes: int = 16_384,
        on_line: process_tree.LineListener | None = None,
    ) -> process_tree.CompletedCommand:
        """Run it to its end, which comes with ours at the latest."""
        return await process_tree.run(command, env=env, input=input, tail_bytes=keep_bytes, on_line=on_line)
