"""Truncated results with the TypeScript SDK, whose client validates them in its own way."""

import json
from pathlib import Path

import pytest

from tests.clients.test_other_clients import needs_node, run
from tests.conformance.test_conformance import NODE, PLACE, free_port, running
from tests.ways import TOOLPOST

pytestmark = [pytest.mark.wire, pytest.mark.soak, pytest.mark.timeout(120)]


@needs_node
@pytest.mark.parametrize(("version", "era"), [("v1", "legacy"), ("v2", "legacy"), ("v2", "modern")])
def test_the_typescript_client_accepts_truncated_results(version: str, era: str, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text("[results]\nlimit_bytes = 2000\n")
    port = free_port()
    command = [TOOLPOST, "serve", "--listen", f"127.0.0.1:{port}", "--plugin", "tests.plugins.bulk:plugin"]
    with running(command, port, tmp_path):
        script = Path(__file__).parent / "typescript_client.mjs"
        seen = json.loads(
            run(NODE, script, PLACE.parent, version, era, f"http://127.0.0.1:{port}/mcp", folder=tmp_path)
        )

    assert seen == [
        ["bulk__rows", False, True, True, True],
        ["bulk__exact", True, False, True, True],
        ["bulk__text", False, False, True, True],
        ["bulk__patterned", True, False, True, True],
    ]
