"""Parts that come with Toolpost: a gateway loads what it uses, and nothing else."""

import json
import subprocess
import sys

import pytest

from toolpost.manifest import BUNDLED

pytestmark = pytest.mark.wire

SCRIPT = """
import anyio, json, sys
from toolpost.app import open_app
from toolpost.settings import Config, PluginSettings, StoreSettings

async def main() -> None:
    plugins = PluginSettings(bundled=sys.argv[1:])
    async with open_app(Config(store=StoreSettings(url="sqlite::memory:"), plugins=plugins)) as app:
        print(json.dumps([sorted(app.contributions.parts), sorted(sys.modules)]))

anyio.run(main)
"""

SERVICES = {
    "apis": {"toolpost.parts.openapi.document", "toolpost.parts.openapi.tools", "yaml"},
    "approvals": {"toolpost.parts.approvals.service", "nacl"},
    "bus": {"toolpost.parts.bus.service", "toolpost.parts.bus.plugin"},
    "export": {"toolpost.parts.export.exporter"},
    "login": {"toolpost.parts.authorization_server.server", "toolpost.endpoints.auth.oauth"},
    "models": {"toolpost.parts.models.router", "toolpost.parts.models.plugin"},
    "results": {"toolpost.parts.results.limiter"},
    "trail": {"toolpost.parts.trail.service"},
    "workspace": {"toolpost.parts.workspace.service"},
    "agents": {"acp", "claude_agent_sdk", "toolpost.parts.agents.acp_agent"},
    "chat": {"toolpost.parts.agents.api.routes", "toolpost.parts.agents.plugins.schedule"},
    "index": {"tantivy", "tree_sitter"},
}


@pytest.mark.parametrize(
    ("bundled", "loaded"),
    [
        ((), ()),
        (("approvals",), ("approvals",)),
        (("bus",), ("bus",)),
        (("models",), ("models",)),
        (("results",), ("results",)),
        (("trail",), ("trail",)),
        (("workspace",), ("workspace",)),
    ],
)
def test_a_gateway_loads_the_parts_that_it_uses(bundled: tuple[str, ...], loaded: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", SCRIPT, *bundled]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    parts, modules = json.loads(ran.stdout)

    assert parts == sorted(entry.name for entry in BUNDLED)
    assert {name for name, of in SERVICES.items() if of & set(modules)} == set(loaded)
