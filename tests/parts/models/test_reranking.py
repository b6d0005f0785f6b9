"""The reranker of the search asks the models of the router."""

from collections.abc import Mapping

import msgspec
import pytest

from tests.discovery.test_reranker import QUERY, candidates, outcomes
from tests.parts.models.endpoints import FakeEndpoint
from tests.plugins.office import OFFICE
from tests.ways import AUTOMATIC, plugin_of
from toolpost.app import open_app
from toolpost.contracts.errors import BadConfiguration
from toolpost.parts.models.settings import MODELS, ModelSettings
from toolpost.settings import Config
from toolpost.settings.model import DiscoverySettings, RerankerSettings

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


def config_of(models: Mapping[str, ModelSettings], *names: str) -> Config:
    discovery = DiscoverySettings(mode="automatic", reranker=RerankerSettings(models=list(names), timeout_s=20))
    return MODELS.put(msgspec.structs.replace(AUTOMATIC, discovery=discovery), dict(models))


async def test_the_best_model_reranks_and_the_next_one_if_it_fails(endpoint: FakeEndpoint) -> None:
    models = {
        "broken": ModelSettings(url=endpoint.url, preference=1.0),
        "reranks": ModelSettings(url=endpoint.url, preference=0.0),
        "good": ModelSettings(url=endpoint.url),
    }
    config = config_of(models, "broken", "reranks")
    async with open_app(config, plugins=[plugin_of(each) for each in OFFICE]) as app:
        found = await app.finder.find(QUERY)
        counted = outcomes(app)
        text = app.monitor.metrics()

    shown = candidates(endpoint.requests[-1])
    assert found.is_reranked
    assert found.names[:4] == shown[::-1][:4]
    assert counted == {"ok": 1}
    assert [request["model"] for request in endpoint.requests] == ["broken", "reranks"]
    assert 'toolpost_model_attempts_total{model="reranks"} 1' in text


async def test_the_local_ranking_stands_when_no_model_answers(endpoint: FakeEndpoint) -> None:
    config = config_of({"broken": ModelSettings(url=endpoint.url)}, "broken")
    async with open_app(config, plugins=[plugin_of(each) for each in OFFICE]) as app:
        found = await app.finder.find(QUERY)
        assert outcomes(app) == {"failed": 1}
    assert not found.is_reranked
    assert found.names


@pytest.mark.parametrize("models", [{}, {"small": ModelSettings(agent="someone")}])
async def test_a_model_that_cannot_rerank_is_an_error_at_the_start(models: dict[str, ModelSettings]) -> None:
    with pytest.raises(BadConfiguration, match="called `small`"):
        async with open_app(config_of(models, "small")):
            pass
