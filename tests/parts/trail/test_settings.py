"""`[trail]`: what would have no effect is an error."""

from pathlib import Path

import pytest

from toolpost.contracts.errors import BadConfiguration
from toolpost.settings import load_config
from toolpost.settings.section import find_idle_sections


def find_idle(folder: Path, text: str) -> dict[str, BadConfiguration]:
    (folder / "toolpost.toml").write_text(text)
    return find_idle_sections(load_config(folder / "toolpost.toml"))


@pytest.mark.parametrize("agents", ['["a"]', '["a", "*"]'])
def test_agents_that_exist_may_have_to_decide(agents: str, tmp_path: Path) -> None:
    assert find_idle(tmp_path, f'[trail]\ndeciding_agents = {agents}\n[agents.a]\ncommand = "a"\n') == {}


def test_an_agent_that_does_not_exist_cannot_decide(tmp_path: Path) -> None:
    idle = find_idle(tmp_path, '[trail]\ndeciding_agents = ["a"]\n[agents.b]\ncommand = "b"\n')

    assert list(idle) == ["trail.deciding_agents"]
    assert "trail.deciding_agents has no effect: " in idle["trail.deciding_agents"].message
    assert idle["trail.deciding_agents"].hint
