"""The router as a part: its sections, tables, plugin, metrics and checks."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from toolpost.contracts import BadConfiguration
from toolpost.parts.models.settings import (
    CALL_TIMEOUT_S,
    GROUPS,
    MODELS,
    ROUTER,
    ModelSettings,
    enabled_models,
    read_key,
)
from toolpost.settings import make_idle

if TYPE_CHECKING:
    from toolpost.metrics import GaugeValues
    from toolpost.parts import Host, RerankingModel
    from toolpost.parts.models.agents import AgentPool
    from toolpost.parts.models.router import Model, Router
    from toolpost.parts.models.stats import Stats
    from toolpost.settings import Config


def works_without_plugin(config: "Config") -> bool:
    """Where there are models or groups, the plugin is loaded unasked."""
    return bool(MODELS.of(config) or GROUPS.of(config) or config.discovery.reranker.models)


def find_idle(config: "Config") -> Iterator[tuple[str, BadConfiguration]]:
    """Find a router with nothing to choose from."""
    is_loaded = "models" in config.plugins.bundled and "models" not in config.plugins.disable
    if ROUTER.of(config) != ROUTER.default and is_loaded and not works_without_plugin(config):
        yield make_idle("router", "there are no models", "add [models.NAME], or remove [router]")


@asynccontextmanager
async def open_models(host: "Host") -> AsyncIterator[Sequence[object]]:
    """Bring the plugin; statistics are written as long as this is open."""
    config = host.config
    used = enabled_models(config) or GROUPS.of(config) or config.discovery.reranker.models
    is_configured = bool(used) and not config.plugins.chosen
    if not host.wants_plugin("models", is_needed=is_configured):
        yield ()
        return
    from toolpost.parts import Api, Background, Gauges, SamplingModel, Service
    from toolpost.parts.models.agents import AgentPool
    from toolpost.parts.models.api import routes_of
    from toolpost.parts.models.groups import Groups, check_names
    from toolpost.parts.models.plugin import models_plugin
    from toolpost.parts.models.sampling import RouterSampler
    from toolpost.parts.models.stats import ModelMetrics, Stats

    stats = Stats(host.store, ModelMetrics(host.metrics))
    await stats.load()
    pool = AgentPool(host.principal_of)
    settings = ROUTER.of(config)
    check_names(GROUPS.of(config), config.servers)
    groups = Groups(settings=GROUPS.of(config), stats=stats)
    async with AsyncExitStack() as stack:
        router = _make_router(config, stats, pool, stack)
        router.breakers.update(groups.breakers)
        plugin = models_plugin(router)
        pool.attach(plugin)

        def read_gauges() -> "GaugeValues":
            failing = sum(not breaker.is_closed for breaker in router.breakers.values())
            return {"toolpost_model_circuits_open": ("Models and servers of groups that failed too often.", failing)}

        contributions: list[object] = [
            plugin,
            Service(router),
            Api(lambda http: routes_of(http, router)),
            Gauges(read_gauges),
            Background(stats.open_writing),
            *groups.make(),
        ]
        if settings.sampling:
            names = {name: model.model or name for name, model in enabled_models(config).items()}
            # Not agents: they act, and a server asks for a text alone.
            answering = {name: names[name] for name, model in router.models.items() if not model.acts}
            sampler = RouterSampler(router=router, timeout_s=CALL_TIMEOUT_S, models=answering)
            contributions.append(SamplingModel(sampler))
        if config.discovery.reranker.models:
            contributions.append(_make_reranking_model(config, router))
        try:
            yield contributions
        finally:
            await stats.try_flush()


def _make_reranking_model(config: "Config", router: "Router") -> "RerankingModel":
    from toolpost import Caller, CallerId
    from toolpost.parts import RerankingModel
    from toolpost.parts.models.endpoint import ModelPrompt
    from toolpost.parts.models.score import ScoreRequest

    settings = config.discovery.reranker
    for name in settings.models:
        if name not in router.models or router.models[name].acts:
            raise BadConfiguration(
                f"discovery.reranker.models: no model of [models] with a `url` is called `{name}`.",
                hint=f"known: {', '.join(name for name, model in router.models.items() if not model.acts) or 'none'}",
            )
    caller = Caller(id=CallerId("search"), transport="memory")

    async def complete(system: str, prompt: str) -> str:
        routed = await router.call(
            ModelPrompt.of_text(prompt, system=system, temperature=0),
            # Scored by what a search needs, not by what it is about.
            ScoreRequest(prompt="", tokens=len(prompt) // 4, deadline_s=CALL_TIMEOUT_S),
            caller=caller,
            timeout_s=CALL_TIMEOUT_S,
            only=settings.models,
        )
        return routed.completion.text

    return RerankingModel(complete)


def _make_router(config: "Config", stats: "Stats", pool: "AgentPool", stack: AsyncExitStack) -> "Router":
    from msgspec.structs import asdict

    from toolpost.parts.models.router import Router
    from toolpost.parts.models.score import Candidate, Scorer, ScoreWeights

    settings = ROUTER.of(config)
    enabled = enabled_models(config)
    models = {name: _make_model(config, name, model, pool, stack) for name, model in enabled.items()}
    candidates = [
        Candidate(
            name=name,
            domains=model.domains,
            skills=model.skills,
            description=model.description,
            context=model.context,
            input_price=model.input_price,
            output_price=model.output_price,
            preference=model.preference,
        )
        for name, model in enabled.items()
    ]
    return Router(
        models,
        Scorer(candidates, ScoreWeights(asdict(settings.weights))),
        stats,
        attempt_s=settings.attempt_s,
    )


def _make_model(config: "Config", name: str, model: ModelSettings, pool: "AgentPool", stack: AsyncExitStack) -> "Model":
    from toolpost.parts.models.agents import AgentModel
    from toolpost.parts.models.endpoint import BrokenModel, Endpoint, EndpointModel

    if model.agent is not None:
        return AgentModel(model.agent, pool)
    assert model.url is not None
    try:
        key = read_key(name, model, project=Path(config.project))
        network = config.resolve_network()
        endpoint = Endpoint(model.url, model=model.model or name, api=model.api, key=key, network=network)
    except BadConfiguration as error:
        return BrokenModel(error.message)
    stack.push_async_callback(endpoint.aclose)
    return EndpointModel(endpoint)
