"""`[agents.NAME]` and `[agents]`: what can be set, and what is refused with a reason."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from toolpost.app import open_app
from toolpost.cli.main import main
from toolpost.contracts.errors import BadConfiguration
from toolpost.parts.agents.settings import AGENTS, ALL_AGENTS, AllAgentsSettings, read_agent
from toolpost.settings import Config, load_config


def loaded(folder: Path, text: str) -> Config:
    (folder / "toolpost.toml").write_text(text)
    return load_config(folder / "toolpost.toml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[agents.helper]", "agents.helper has no command"),
        ('[agents.helper]\ncommand = "x"\nkind = "acpp"', "agents.helper.kind"),
        ('[agents.helper]\ncommand = "x"\nmodle = "y"', "modle"),
        ('[agents."a b"]\ncommand = "x"', "an agent's name"),
        ('[agents.helper]\ncommand = "x"\ntools = [""]', "a pattern is empty"),
        ('agents = "helper"', "agents is a table: write"),
        ("[agents]\nsessions = 0", "agents.sessions"),
        ("[agents.sessions]\ncommand = 'x'", "`sessions` is a setting of [agents], so nothing"),
        ("[agents]\nsesions = 2", "unknown setting `agents.sesions`"),
    ],
)
def test_what_cannot_work_is_refused_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(BadConfiguration) as refused:
        loaded(tmp_path, text)

    assert told in refused.value.message


def test_settings_of_all_agents_stand_beside_the_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHICH", "helper")
    config = loaded(tmp_path, '[agents]\ndefault = "${WHICH}"\nsessions = 3\n[agents.helper]\ncommand = "x"')
    shown = CliRunner().invoke(main, ["config", "show", "--config", str(tmp_path / "toolpost.toml")]).output

    assert [*AGENTS.of(config)] == ["helper"]
    assert ALL_AGENTS.of(config) == AllAgentsSettings(default="helper", sessions=3)
    assert "\n[agents]\ndefault = " in shown
    assert "\n[agents.helper]\n" in shown


@pytest.mark.anyio
async def test_a_default_that_nobody_is_called_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text('[agents]\ndefault = "helpr"\n[agents.helper]\ncommand = "x"')

    with pytest.raises(BadConfiguration, match="helpr"):
        async with open_app(load_config(tmp_path / "toolpost.toml"), bundled=False):
            pass


def test_variables_are_filled_in_and_secrets_not_shown(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(
        '[agents.helper]\ncommand = "agent"\nargs = ["${WHERE}"]\nenv = { KEY = "${KEY}" }\ncwd = "work"\n'
        '[agents.off]\ncommand = "x"\nenabled = false'
    )
    config = load_config(tmp_path / "toolpost.toml")
    agent = read_agent(config, "helper", {"KEY": "secret", "WHERE": "here"})

    assert (agent.command, agent.env) == (("agent", "here"), {"KEY": "secret"})
    assert agent.cwd == tmp_path / "work"
    assert "secret" not in repr(agent)
    with pytest.raises(BadConfiguration, match="KEY"):
        read_agent(config, "helper", {"WHERE": "here"})
