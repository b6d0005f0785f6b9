"""Every tool that comes with Toolpost is called through a client, and every argument of it is proven to matter."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from tests import ignoring
from tests.discovery import test_automatic_eval, test_automatic_mcp
from tests.parts.agents import test_bundled_plugins as of_agents
from tests.parts.approvals import test_gossip as of_gossip
from tests.parts.approvals import test_tools as of_approvals
from tests.parts.bus import test_arguments as of_bus
from tests.parts.models import test_arguments as of_models
from tests.parts.results import test_wire as of_results
from tests.parts.time import test_plugin as of_time
from tests.parts.trail import test_tools as of_trail
from tests.parts.workspace import test_tools as of_workspace
from tests.proofs import PROVEN
from tests.ways import BOTH, QUICK_WAYS, ROOT
from toolpost.app import open_app
from toolpost.cli.doctor.tools import findings_of_tools

pytestmark = pytest.mark.anyio

PROVING = (
    of_approvals,
    of_gossip,
    of_bus,
    test_automatic_eval,
    test_automatic_mcp,
    of_agents,
    of_models,
    of_results,
    of_time,
    of_trail,
    of_workspace,
)
"""Where the proofs are: importing them writes down what they prove."""


async def test_no_argument_of_a_bundled_tool_goes_without_a_proof() -> None:
    config = msgspec.structs.replace(BOTH, parts=of_agents.CONFIG.parts)
    async with open_app(config) as app, QUICK_WAYS[0].client_of(app) as client:
        listed = (await client.list_tools()).tools

    assert {tool.name: set(tool.input_schema.get("properties", {})) for tool in listed} == PROVEN


@pytest.mark.soak
@pytest.mark.parametrize("module", PROVING, ids=lambda module: module.__name__)
def test_every_proof_fails_without_its_argument(module: ModuleType, tmp_path: Path) -> None:
    report = tmp_path / "claims.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.ignoring", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = os.environ | {ignoring.REPORT: str(report)}
    ended = subprocess.run(
        [*command, str(module.__file__)], cwd=ROOT, env=environment, capture_output=True, check=False
    )
    assert report.exists(), ended.stdout.decode()
    failed: dict[str, bool] = json.loads(report.read_text())

    assert failed
    assert [claim for claim, has_failed in failed.items() if not has_failed] == []


async def test_no_bundled_tool_has_a_form_that_models_reject() -> None:
    config = msgspec.structs.replace(BOTH, parts=of_agents.CONFIG.parts)
    async with open_app(config) as app:
        tools = [tool for provider in app.plugins.providers for tool in provider.tools.values()]
        found = [(each.tool, each.place, each.message) for each in findings_of_tools(tools, ())]

    assert len(tools) > 50
    assert not found
