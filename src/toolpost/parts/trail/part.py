"""The decision trail as a part: its section, its tables, its plugin."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from toolpost.parts.base import Part
from toolpost.parts.trail.settings import TRAIL
from toolpost.registry import BUNDLED

if TYPE_CHECKING:
    from toolpost.gateway import Gateway
    from toolpost.host import Host, Provided


class TrailPart(Part):
    """What agents planned, decided and called, provable. Open where its plugin is loaded."""

    name = "trail"
    sections = (TRAIL,)
    migrations = "toolpost.parts.trail.migrations"
    commands = next(entry.commands for entry in BUNDLED if entry.name == "trail")

    @asynccontextmanager
    async def open(self, host: "Host") -> AsyncIterator["Provided"]:
        """Bring the plugin."""
        from toolpost.host import Provided

        if not host.wants_plugin("trail"):
            yield Provided()
            return
        from toolpost.parts.trail.calls import CallRecorder
        from toolpost.parts.trail.plugin import trail_plugin
        from toolpost.parts.trail.service import Trail
        from toolpost.providers.plugin_host import PluginCandidate

        trail = await Trail.open(host.store)
        # Those that a killed gateway has left: the store has just recorded what is known of them.
        await trail.close_lost_calls()
        recorder = CallRecorder(trail, TRAIL.of(host.config))

        def run(_gateway: "Gateway") -> AbstractAsyncContextManager[None]:
            return trail.open_following()

        yield Provided(
            plugins=[PluginCandidate(name="trail", load=lambda: trail_plugin(trail))],
            middleware=[recorder],
            services=[trail],
            run=run,
        )
