"""`toolpost models`, and the paths that it asks: circuits and statistics of a gateway that serves."""

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from click.testing import CliRunner, Result
from mcp import Client

from tests.parts.models.endpoints import FakeEndpoint
from tests.parts.models.test_tools import asked, config_of, refused
from tests.wire.callers import request, three_callers
from toolpost.app import open_app, open_http
from toolpost.cli.main import main as cli
from toolpost.parts.models import PART
from toolpost.parts.models.stats import ModelAttempt, Stats
from toolpost.store import open_part_store

pytestmark = pytest.mark.anyio


async def toolpost(project: Path, *arguments: str) -> Result:
    """Run a command in a thread of this process, beside the gateway."""
    config = ["--config", str(project / "toolpost.toml")]
    return await asyncio.to_thread(CliRunner().invoke, cli, [*arguments, *config])


@pytest.mark.wire
async def test_circuits_are_shown_and_reset(tmp_path: Path, endpoint: FakeEndpoint) -> None:
    url = f"sqlite:{tmp_path / 'store.db'}"
    entries = "".join(f'[models.{name}]\nurl = "{endpoint.url}"\n' for name in ("broken", "good"))
    (tmp_path / "toolpost.toml").write_text(f'[store]\nurl = "{url}"\n[http]\nlisten = "127.0.0.1:9"\n{entries}')
    async with open_app(config_of(endpoint, "broken", "good", url=url)) as app, open_http(app) as address:
        async with Client(address) as client:
            for _ in range(3):
                await refused(client, "router_call", prompt="haiku", models=["broken"])
            await asked(client, "router_call", prompt="haiku", models=["good"])

        async def models(*arguments: str) -> dict[str, Any]:
            ended = await toolpost(tmp_path, "models", *arguments, "--url", address, "--json")
            return {one["name"]: one for one in json.loads(ended.stdout)}

        metrics = app.monitor.metrics()
        before = await models()
        shown = (await toolpost(tmp_path, "models", "--url", address)).stdout
        unknown = await toolpost(tmp_path, "models", "reset", "brokn", "--url", address)
        after = await models("reset", "broken")
    alone = await toolpost(tmp_path, "models")

    assert [ended.exit_code for ended in (unknown, alone)] == [2, 3]
    assert [before[name]["circuit"]["state"] for name in ("broken", "good")] == ["open", "closed"]
    assert "broken" in shown
    assert "open" in shown
    assert "did you mean `broken`?" in unknown.stderr
    assert after["broken"]["circuit"] == {"state": "closed", "failures": 0, "retry_after_ms": 0}
    assert "not running" in alone.stdout
    assert "cannot connect" in alone.stderr
    assert "toolpost_model_circuits_open 1" in metrics
    assert 'toolpost_model_latency_seconds_count{model="good"} 1' in metrics
    assert 'toolpost_model_latency_seconds{model="good",quantile="0.95"}' in metrics


def test_statistics_are_shown_without_a_gateway(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'store.db'}"
    (tmp_path / "toolpost.toml").write_text(f'[store]\nurl = "{url}"\n')

    def stats(*options: str) -> Result:
        return CliRunner().invoke(cli, ["models", "--stats", *options, "--config", str(tmp_path / "toolpost.toml")])

    async def record() -> None:
        async with open_part_store(url, PART.name, PART.migrations) as store:
            found = Stats(store)
            found.record(ModelAttempt(name="small", is_success=True, seconds=0.1, output_tokens=5, cost=0.25))
            found.record(ModelAttempt(name="small", is_success=False, seconds=3))
            await found.flush()

    early = stats()
    anyio.run(record)
    (small,) = json.loads(stats("--json").stdout)
    table = stats().stdout

    assert (early.exit_code, early.stderr) == (0, "no model was asked yet\n")
    assert (small["name"], small["calls"], small["failures"], small["output_tokens"]) == ("small", 2, 1, 5)
    assert small["latency_ms"]["p50"] == pytest.approx(100, rel=0.1)
    assert [word in table for word in ("TOKENS OUT", "small", "0.25")] == [True] * 3


@pytest.mark.wire
async def test_only_administrators_see_models_over_http(tmp_path: Path, endpoint: FakeEndpoint) -> None:
    guarded = three_callers(tmp_path, "sqlite::memory:")
    config = msgspec.structs.replace(guarded, parts=config_of(endpoint, "good").parts)
    async with open_app(config) as app, open_http(app) as address:
        statuses = [(await request(address, "/api/models", name))[0] for name in ("ann", "ben", "mallory")]
        bad = (await request(address, "/api/models/reset", "ann", method="POST"))[0]

    assert statuses == [403, 200, 401]
    assert bad == 403
