"""The code index as a part: its settings, its plugin, and the watchers that keep indexes up to date."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from toolpost.contracts.errors import CapabilityMissing
from toolpost.part_base import Part, PartDoctor
from toolpost.parts.workspace.settings import WORKSPACE
from toolpost.registry import BUNDLED

if TYPE_CHECKING:
    from toolpost.authoring import Plugin
    from toolpost.gateway import Gateway
    from toolpost.host import Host, Provided
    from toolpost.parts.workspace.service import WorkspaceService
    from toolpost.parts.workspace.spec import WorkspaceSpec
    from toolpost.settings import Config
    from toolpost.shares import Callers


class WorkspacePart(Part):
    """Open where its plugin is loaded, and for `toolpost serve --only workspace`."""

    name = "workspace"
    sections = (WORKSPACE,)
    commands = next(entry.commands for entry in BUNDLED if entry.name == "workspace")

    def doctor(self) -> PartDoctor:
        from toolpost.parts.workspace.doctor import WorkspaceDoctor

        return WorkspaceDoctor()

    @asynccontextmanager
    async def open(self, host: "Host") -> AsyncIterator["Provided"]:
        """Provide the plugin, and watch the repositories if `workspace.watch` is set."""
        from toolpost.host import Provided

        watches = WORKSPACE.of(host.config).watch and not host.is_brief
        if not host.wants_plugin("workspace"):
            yield Provided()
            return
        from toolpost.parts.workspace.service import WorkspaceService
        from toolpost.providers.plugin_host import PluginCandidate

        service = WorkspaceService(read_workspace(host.config))

        def run(_gateway: "Gateway") -> AbstractAsyncContextManager[None]:
            return service.open_watching() if watches and host.plugins.serves("workspace") else nullcontext()

        load = PluginCandidate(name="workspace", load=lambda: _make_plugin(service, host.callers))
        yield Provided(plugins=[load], services=[service], run=run)


def read_workspace(config: "Config") -> "WorkspaceSpec":
    """Make the workspace of `[workspace]`; without `roots` it is the project."""
    from toolpost.parts.workspace.spec import WorkspaceLimits, spec_of

    settings = WORKSPACE.of(config)
    return spec_of(
        Path(config.project),
        settings.roots or ["."],
        index_dir=settings.index_dir,
        limits=WorkspaceLimits(file_bytes=settings.file_limit_bytes, files=settings.files),
        build_limit_s=settings.build_timeout_s,
        settle_s=settings.settle_s,
        forbidden=frozenset(config.secret_files),
        allowed=settings.allow_secret_files,
    )


def _make_plugin(service: "WorkspaceService", callers: "Callers") -> "Plugin":
    """Make the plugin; raise `CapabilityMissing` if a library is missing, so that tools that cannot run are not listed."""
    from toolpost.parts.workspace.optional import EXTRA_HINT, missing_modules
    from toolpost.parts.workspace.plugin import workspace_plugin

    if missing := missing_modules():
        raise CapabilityMissing(f"{', '.join(missing)} is missing: {EXTRA_HINT} brings it")
    return workspace_plugin(service, callers)
