"""Conversations as a part of a gateway: settings, HTTP API and chat, plugins for agents, gauges, checks."""

import importlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolpost.contracts import BadConfiguration
from toolpost.parts.agents.settings import AGENTS, ALL_AGENTS, read_agent

if TYPE_CHECKING:
    from toolpost.endpoints.http import HttpContext, Routes
    from toolpost.metrics import GaugeValues
    from toolpost.parts import Host, PluginCandidate
    from toolpost.parts.agents.agent import Agent, AgentSpec
    from toolpost.parts.agents.agents import ConfiguredAgent
    from toolpost.parts.agents.conversations import Conversations
    from toolpost.settings import Config

PLUGINS: Final = ("history", "tasks", "schedule", "delegate", "logs")
"""Modules of `plugins`, loaded where an agent is configured."""


@asynccontextmanager
async def open_agents(host: "Host", agents: "Mapping[str, Agent] | None" = None) -> AsyncIterator[Sequence[object]]:
    """Serve conversations; without an agent, every message is refused, with a hint on how to add one.

    `agents` are added to the configured ones, by name.
    """
    from toolpost.parts import Api, Background, ConsoleView, Gauges, HookSpecs, Service
    from toolpost.parts.agents import hookspecs

    service = _make_service(host, agents or {})

    @asynccontextmanager
    async def run() -> AsyncIterator[None]:
        async with service.open_running():
            await service.hooks.notify("toolpost_conversations", conversations=service)
            yield

    has_agents = bool(agents) or bool(AGENTS.of(host.config))
    yield [
        *(_make_candidate(name) for name in PLUGINS if has_agents and host.wants_plugin(name, is_needed=True)),
        Api(lambda http: _make_routes(http, service)),
        HookSpecs(hookspecs),
        ConsoleView("Chat", "/chat", Path(__file__).parent / "view/chat.js"),
        Gauges(lambda: _read_gauges(service)),
        service,
        Service(service),
        Background(run),
    ]


def _make_candidate(name: str) -> "PluginCandidate":
    from toolpost.parts import PluginCandidate

    reference = f"toolpost.parts.agents.plugins.{name}"
    return PluginCandidate(name=f"{reference}:make", load=lambda: importlib.import_module(reference).make())


def _make_routes(http: "HttpContext", service: "Conversations") -> "Sequence[Routes]":
    from toolpost.parts.agents.api.routes import routes_of

    return [routes_of(http, service)]


def _read_gauges(service: "Conversations") -> "GaugeValues":
    pool = service.pool
    return {
        "toolpost_agent_sessions": ("Open sessions of agents.", len(pool.sessions)),
        "toolpost_agent_turns_waiting": ("Turns that wait for a session.", pool.waiting),
        "toolpost_agent_warm_ratio": ("Part of all turns that found a warm session.", pool.metrics.warm_ratio),
    }


def _make_service(host: "Host", more_agents: "Mapping[str, Agent]") -> "Conversations":
    from toolpost.parts.agents.agents import AgentRegistry
    from toolpost.parts.agents.conversations import ConversationLimits, Conversations
    from toolpost.parts.agents.history import HistoryLimits
    from toolpost.parts.agents.hooks import Hooks
    from toolpost.parts.agents.session_pool import AgentMetrics, PoolLimits
    from toolpost.parts.agents.threads import Threads

    threads = Threads(host.store.scripts)
    config, store, settings = host.config, host.store, ALL_AGENTS.of(host.config)
    ready = _make_agents(config, more_agents)
    if settings.default is not None and settings.default not in ready:
        raise BadConfiguration(
            f"agents.default: unknown agent `{settings.default}`.",
            hint=f"known: {', '.join(ready)}" if ready else "add [agents.NAME]",
        )
    limits = ConversationLimits(
        pool=PoolLimits(size=settings.sessions, idle_s=settings.idle_s),
        history=HistoryLimits(tokens=settings.history_tokens),
    )
    return Conversations(
        threads,
        AgentRegistry(ready, threads, settings.default, host.token_for),
        Hooks(host.find_hooks),
        limits=limits,
        metrics=AgentMetrics(host.metrics),
        key_values=store.key_values,
        wakeups=store.wakeups,
        callers=host.callers,
    )


def _make_agents(config: "Config", more_agents: "Mapping[str, Agent]") -> "dict[str, ConfiguredAgent]":
    from toolpost.parts.agents.agent import AgentSpec
    from toolpost.parts.agents.agents import ConfiguredAgent, LazyAgent
    from toolpost.settings import make_concealer
    from toolpost.upstreams import ServerSpec

    specs = [_make_spec(config, name) for name, agent in AGENTS.of(config).items() if agent.enabled]
    for spec in specs:
        # This also remembers the secrets, so that logs and errors of this process conceal them.
        make_concealer(ServerSpec(name=spec.name, command=spec.command or None, env=spec.env))
    cwd = Path(config.project).absolute()
    return {spec.name: ConfiguredAgent(spec=spec, agent=LazyAgent(spec)) for spec in specs} | {
        name: ConfiguredAgent(spec=AgentSpec(name=name, kind="given", cwd=cwd), agent=agent)
        for name, agent in more_agents.items()
    }


def _make_spec(config: "Config", name: str) -> "AgentSpec":
    """Read one agent; a missing variable becomes its `problem`, raised when it is started, so that other agents work."""
    from toolpost.parts.agents.agent import AgentSpec

    try:
        return AgentSpec(**vars(read_agent(config, name)))
    except BadConfiguration as error:
        settings = AGENTS.of(config)[name]
        return AgentSpec(name=name, kind=settings.kind, problem=error.message.removesuffix("."), hint=error.hint)
