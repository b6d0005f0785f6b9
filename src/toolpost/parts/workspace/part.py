"""The code index as a part: its settings, its plugin, and the watchers that keep indexes up to date."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from toolpost import CapabilityMissing
from toolpost.parts.workspace.settings import WORKSPACE

if TYPE_CHECKING:
    from toolpost import Plugin
    from toolpost.fairness import Callers
    from toolpost.parts import Host
    from toolpost.parts.workspace.service import WorkspaceService
    from toolpost.parts.workspace.spec import WorkspaceSpec
    from toolpost.settings import Config


@asynccontextmanager
async def open_workspace(host: "Host") -> AsyncIterator[Sequence[object]]:
    """Provide the plugin, and watch the repositories if `workspace.watch` is set."""
    watches = WORKSPACE.of(host.config).watch and not host.for_one_command
    if not host.wants_plugin("workspace"):
        yield ()
        return
    from toolpost.parts import Background, PluginCandidate, Service
    from toolpost.parts.workspace.service import WorkspaceService

    service = WorkspaceService(read_workspace(host.config))

    watching = [Background(service.open_watching, while_plugin="workspace")] if watches else []
    load = PluginCandidate(name="workspace", load=lambda: _make_plugin(service, host.callers))
    yield [load, Service(service), *watching]


def read_workspace(config: "Config") -> "WorkspaceSpec":
    """Make the workspace of `[workspace]`; without `roots` it is the project."""
    from toolpost.parts.workspace.spec import WorkspaceLimits, spec_of

    settings = WORKSPACE.of(config)
    return spec_of(
        Path(config.project),
        settings.roots or ["."],
        index_dir=settings.index_dir,
        limits=WorkspaceLimits(file_bytes=settings.file_limit_bytes),
        settle_s=settings.settle_s,
        forbidden=frozenset(config.secret_files),
        allowed=settings.allow_secret_files,
    )


def _make_plugin(service: "WorkspaceService", callers: "Callers") -> "Plugin":
    """Make the plugin; raise `CapabilityMissing` if a library is missing, so that tools that cannot run are not listed."""
    from toolpost.parts.workspace.optional import EXTRA_HINT, missing_modules
    from toolpost.parts.workspace.plugin import workspace_plugin

    if missing := missing_modules():
        raise CapabilityMissing(f"the extra `workspace` is not installed ({', '.join(missing)})", hint=EXTRA_HINT)
    return workspace_plugin(service, callers)
