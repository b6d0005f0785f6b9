"""Every tool that comes with Toolpost is called through a client, and every argument of it is proven to matter."""

import msgspec
import pytest

from tests.discovery import test_automatic_eval, test_automatic_mcp
from tests.parts.approvals import test_tools as of_approvals
from tests.parts.bus import test_arguments as of_bus
from tests.parts.conversations import test_bundled_plugins as of_agents
from tests.parts.models import test_arguments as of_models
from tests.parts.results import test_wire as of_results
from tests.parts.trail import test_tools as of_trail
from tests.parts.workspace import test_tools as of_workspace
from tests.proofs import PROVEN
from tests.providers import test_time_plugin as of_time
from tests.ways import BOTH, QUICK_WAYS
from toolpost.app import open_app
from toolpost.cli.doctor.tools import findings_of_tools

pytestmark = pytest.mark.anyio

PROVING = (
    of_approvals,
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


async def test_no_bundled_tool_has_a_form_that_models_reject() -> None:
    config = msgspec.structs.replace(BOTH, parts=of_agents.CONFIG.parts)
    async with open_app(config) as app:
        tools = [tool for provider in app.plugin_host.providers for tool in provider.tools.values()]
        found = [(each.tool, each.place, each.message) for each in findings_of_tools(tools, ())]

    assert len(tools) > 50
    assert not found
