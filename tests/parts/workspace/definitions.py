"""Writes the definitions of the workspace's tools as they are now: `python -m tests.parts.workspace.definitions`."""

import json
from pathlib import Path

from toolpost.base.ids import META_KEY, PluginName
from toolpost.contracts.contract import contract_of
from toolpost.parts.workspace.plugin import workspace_plugin
from toolpost.parts.workspace.service import WorkspaceService
from toolpost.parts.workspace.spec import spec_of


def main() -> None:
    kept = {}
    for tool in workspace_plugin(WorkspaceService(spec_of(Path.cwd(), ["."]))).toolpost_tools():
        definition = contract_of(tool.terms, plugin=PluginName("workspace")).definition
        kept[definition["name"]] = {
            "inputSchema": definition["inputSchema"],
            "outputSchema": definition["outputSchema"],
            "schemaVersion": definition["_meta"][META_KEY]["schemaVersion"],
        }
    path = Path(__file__).parent / "definitions.json"
    path.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
