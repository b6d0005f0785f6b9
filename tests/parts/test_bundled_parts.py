"""Parts that come with Toolpost: a gateway loads what it uses, and nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import toolpost.parts
from toolpost.manifest import bundled_parts, resolve

pytestmark = pytest.mark.wire

SCRIPT = """
import anyio, json, sys
from toolpost.app import open_app
from toolpost.settings import Config
from toolpost.settings.model import PluginSettings, StoreSettings

async def main() -> None:
    plugins = PluginSettings(bundled=sys.argv[1:])
    async with open_app(Config(store=StoreSettings(url="sqlite::memory:"), plugins=plugins)) as app:
        print(json.dumps([sorted(app.contributions.parts), sorted(sys.modules)]))

anyio.run(main)
"""

SERVICES = {
    "approvals": {"toolpost.parts.approvals.service", "nacl"},
    "authorization_server": {"toolpost.parts.authorization_server.server", "toolpost.endpoints.auth.oauth"},
    "bus": {"toolpost.parts.bus.service", "toolpost.parts.bus.plugin"},
    "export": {"toolpost.audit.exporter"},
    "models": {"toolpost.parts.models.router", "toolpost.parts.models.plugin"},
    "openapi": {"toolpost.parts.openapi.document", "toolpost.parts.openapi.tools", "yaml"},
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

    assert parts == sorted(part.name for part in bundled_parts())
    assert {name for name, of in SERVICES.items() if of & set(modules)} == set(loaded)


NEW_PART = """
from toolpost.manifest import Command, Part

PART = Part(name="lamps", opens="nowhere:open_lamps", commands={"lamps": Command("nowhere:lamps", "Switch lamps.")})
"""

HELP = """
import sys
import toolpost.parts
toolpost.parts.__path__.append(sys.argv.pop())
from toolpost.cli.main import main
main(["--help"])
"""


def test_a_new_folder_is_a_part(tmp_path: Path) -> None:
    (tmp_path / "lamps").mkdir()
    (tmp_path / "lamps/__init__.py").write_text(NEW_PART)
    command = [sys.executable, "-c", HELP, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)

    (products,) = [line for line in ran.stdout.splitlines() if line.strip().startswith("Products")]
    assert "lamps" in products.split()


def test_a_part_has_the_name_of_its_folder() -> None:
    for manifest in Path(toolpost.parts.__path__[0]).glob("*/__init__.py"):
        folder = manifest.parent.name
        assert resolve(f"toolpost.parts.{folder}:PART").name == folder


def test_manifests_refer_to_what_is_there() -> None:
    for part in bundled_parts():
        commands = [command.reference for command in (*part.commands.values(), *part.importers.values())]
        functions = (part.opens, part.doctor, part.is_required, part.works_without_plugin, part.find_idle)
        for reference in (*commands, *part.settings, *functions):
            assert reference is None or resolve(reference) is not None


def test_manifests_import_nothing_else() -> None:
    script = "import sys; from toolpost.manifest import bundled_parts; bundled_parts(); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    loaded = {name for name in ran.stdout.split() if name.startswith("toolpost")}

    packages = {part.opens.split(".part:")[0] for part in bundled_parts() if isinstance(part.opens, str)}
    own = {"toolpost", "toolpost.base", "toolpost.base.lazy_names", "toolpost.manifest", "toolpost.parts"}
    assert loaded == own | packages
