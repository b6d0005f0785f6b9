"""A section that would have no effect is an error, for every part, and says what to add."""

from pathlib import Path

import msgspec
import pytest

from tests.ways import IN_MEMORY
from toolpost.app import open_app
from toolpost.contracts.errors import BadConfiguration
from toolpost.registry import BUNDLED
from toolpost.settings import Config, PluginSettings, load_config
from toolpost.settings.section import Section, find_idle_sections

WITH_PLUGINS = {section.name: entry for entry in BUNDLED if entry.plugins for section in entry.load().sections}


def section_of(name: str) -> Section[object]:
    return next(each for entry in BUNDLED for each in entry.load().sections if each.name == name)


def with_section(name: str, plugins: PluginSettings) -> Config:
    return section_of(name).put(msgspec.structs.replace(IN_MEMORY, plugins=plugins), section_of(name).default)


def test_there_are_parts_with_plugins() -> None:
    assert {"trail", "bus", "workspace", "models", "approvals", "results"} <= WITH_PLUGINS.keys()


@pytest.mark.parametrize("name", sorted(WITH_PLUGINS))
def test_a_section_whose_plugin_is_not_loaded(name: str) -> None:
    plugin = WITH_PLUGINS[name].plugins[0]
    idle = find_idle_sections(with_section(name, PluginSettings(bundled=["time"])))

    assert list(idle) == [name]
    assert idle[name].message == f"[{name}] has no effect: the plugin `{plugin}` is not loaded."
    assert idle[name].hint == f'add `bundled = ["time", "{plugin}"]` to [plugins], or remove [{name}]'
    assert not find_idle_sections(with_section(name, PluginSettings(bundled=[plugin])))
    assert not find_idle_sections(with_section(name, PluginSettings(only="time")))


@pytest.mark.parametrize(
    "text",
    [
        '[trail]\ndeciding_agents = ["a"]\n',
        "[results]\nlimit_bytes = 100_000\n",
        '[models.small]\nurl = "http://127.0.0.1:1/v1"\n',
        '[approvals.rules.pay]\ntools = ["*"]\nvoters = ["ann"]\n',
        '[harness]\nsessions = 2\n[agents.a]\nkind = "acp"\ncommand = "a"\n',
    ],
)
def test_a_section_that_works_by_itself(text: str, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(text)

    assert find_idle_sections(load_config(tmp_path / "toolpost.toml")) == {}


def test_a_section_that_needs_another(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text("[harness]\nsessions = 2\n")
    idle = find_idle_sections(load_config(tmp_path / "toolpost.toml"))

    assert {name: (error.message, error.hint) for name, error in idle.items()} == {
        "harness": ("[harness] has no effect without [agents].", "add [agents.NAME], or remove [harness]")
    }


def test_a_project_without_a_file_has_none(tmp_path: Path) -> None:
    assert find_idle_sections(load_config(folder=tmp_path)) == {}


@pytest.mark.anyio
@pytest.mark.parametrize("name", sorted(WITH_PLUGINS))
async def test_the_gateway_does_not_start_with_it(name: str) -> None:
    with pytest.raises(BadConfiguration, match="has no effect"):
        async with open_app(with_section(name, PluginSettings())):
            pass
