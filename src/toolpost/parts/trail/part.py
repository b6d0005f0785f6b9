"""The decision trail as a part: its section, its tables, its plugin."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from toolpost.contracts import BadConfiguration
from toolpost.parts.trail.settings import ALL_AGENTS, TRAIL
from toolpost.settings import make_idle

if TYPE_CHECKING:
    from toolpost.parts import Host
    from toolpost.settings import Config


def is_required(config: "Config") -> bool:
    """Not without it where decisions are required: everything would pass."""
    return TRAIL.of(config).requires_decisions


def works_without_plugin(config: "Config") -> bool:
    """Where decisions are required, the plugin is loaded unasked."""
    return TRAIL.of(config).requires_decisions


def find_idle(config: "Config") -> Iterator[tuple[str, BadConfiguration]]:
    """Find agents that must decide and are not there, such as those with another name by mistake."""
    # Without the section, an application that embeds the gateway brings its agents.
    known = config.parts.get("agents") or {}
    for name in TRAIL.of(config).deciding_agents if known else ():
        if name not in (ALL_AGENTS, *known):
            yield make_idle("trail.deciding_agents", f"there is no agent `{name}`", f"add [agents.{name}]")


@asynccontextmanager
async def open_trail(host: "Host") -> AsyncIterator[Sequence[object]]:
    """Bring the plugin."""
    settings = TRAIL.of(host.config)
    # Where a decision is required, agents need the tool to record it.
    if not host.wants_plugin("trail", is_needed=settings.requires_decisions):
        yield ()
        return
    from toolpost.parts import Api, Background, CallMiddleware, Gauges, PluginCandidate, Service
    from toolpost.parts.trail.api import routes_of
    from toolpost.parts.trail.calls import CallRecorder
    from toolpost.parts.trail.plugin import trail_plugin
    from toolpost.parts.trail.service import Trail, TrailMetrics

    trail = await Trail.open(host.store, TrailMetrics(host.metrics))
    # Those that a killed gateway has left: the store has just recorded what is known of them.
    await trail.close_lost_calls()
    recorder = CallRecorder(trail, settings, chosen=host.config.plugins.chosen)

    def run() -> AbstractAsyncContextManager[None]:
        keep_s = None if settings.keep_days is None or host.for_one_command else settings.keep_days * 86_400
        return trail.open_following(keep_s=keep_s)

    yield [
        PluginCandidate(name="trail", load=lambda: trail_plugin(trail, settings.deciding_agents)),
        CallMiddleware(recorder),
        Api(lambda http: routes_of(http, trail)),
        Gauges(trail.read_gauges),
        Service(trail),
        Background(run),
    ]
