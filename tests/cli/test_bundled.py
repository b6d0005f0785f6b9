"""The plugins that come with Toolpost are served where they are asked for, and nowhere else."""

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import PLUGIN, Run
from tests.cli.test_first_use import FINE
from toolpost.contracts.errors import BadConfiguration
from toolpost.settings import Config, load_config
from toolpost.settings.model import PluginSettings
from toolpost.testing import acp_agent_command


def plugins_in(run: Run, *words: str) -> set[str]:
    """List the plugins and servers whose tools a command lists."""
    ended = run("tools", "--json", *words)
    assert ended.code == 0, ended.err
    return {tool["name"].partition("__")[0] for tool in ended.json}


def test_without_any_configuration_there_is_the_time(invoke: Run) -> None:
    assert plugins_in(invoke) == {"time"}
    assert plugins_in(invoke, "--with", "bus") == {"time", "bus"}
    assert plugins_in(invoke, *PLUGIN) == {"demo"}
    assert plugins_in(invoke, *PLUGIN, "--with", "workspace") == {"demo", "workspace"}


@pytest.mark.wire
def test_a_configuration_lists_what_it_names(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "client.json").write_text(json.dumps({"mcpServers": {"fine": FINE}}))
    of_a_client = plugins_in(invoke, "--config", "client.json")
    (tmp_path / "toolpost.toml").write_text("")
    of_an_empty_file = plugins_in(invoke)
    (tmp_path / "toolpost.toml").write_text('[plugins]\nbundled = ["bus"]\n')

    assert of_a_client == {"fine"}
    assert of_an_empty_file == set()
    assert plugins_in(invoke) == {"bus"}
    assert plugins_in(invoke, "--with", "time", "--with", "bus") == {"bus", "time"}


def test_an_unknown_name_is_refused_with_the_nearest(invoke: Run, tmp_path: Path) -> None:
    typed = invoke("tools", "--with", "workspce")
    (tmp_path / "toolpost.toml").write_text('[plugins]\nbundled = ["buss"]\n')
    with pytest.raises(
        BadConfiguration, match=r"toolpost.toml: plugins.bundled: unknown bundled plugin `buss`"
    ) as raised:
        load_config(folder=tmp_path)

    assert raised.value.hint == "did you mean `bus`?"
    assert typed.code == 2
    assert "unknown bundled plugin `workspce`; did you mean `workspace`?" in typed.err


def test_tools_that_cannot_run_are_not_listed(invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolpost.parts.workspace.optional.has", lambda name: name != "tantivy")
    named = invoke("tools", "--with", "workspace", "--with", "bus", "--json")
    (tmp_path / "toolpost.toml").write_text('[plugins]\nbundled = ["time", "workspace", "bus"]\n')
    listed = invoke("tools", "--json")
    typed = invoke("workspace", "status")

    assert (named.code, named.out) == (1, "")
    assert (
        "error: plugin `workspace` could not be loaded: the extra `workspace` is not installed (tantivy)" in named.err
    )

    assert {tool["name"].partition("__")[0] for tool in listed.json} == {"time", "bus"}
    assert "the extra `workspace` is not installed (tantivy); pip install 'toolpost[workspace]'" in listed.err
    assert typed.code != 0
    assert "pip install 'toolpost[workspace]'" in typed.err


@pytest.mark.wire
def test_agents_have_all_their_tools_without_the_extra(
    invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, *args = acp_agent_command()
    agent = f"[agents.script]\ncommand = {json.dumps(command)}\nargs = {json.dumps(args)}\n"
    (tmp_path / "toolpost.toml").write_text(agent)
    with_all = plugins_in(invoke)
    monkeypatch.setitem(sys.modules, "acp", None)  # as if it were not installed
    without = invoke("tools", "--json")
    doctor = invoke("doctor", "--json")

    assert with_all == {"delegate", "history", "logs", "schedule", "tasks"}
    assert {tool["name"].partition("__")[0] for tool in without.json} == with_all
    assert "pip install 'toolpost[agents]' brings it" in json.dumps(doctor.json["groups"][0])


def test_doctor_says_what_an_extra_would_bring(invoke: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolpost.cli.doctor.setup.is_installed", lambda _: False)
    monkeypatch.setattr("toolpost.parts.workspace.doctor.has", lambda _: False)
    found = invoke("doctor", "--json").json["groups"][0]["findings"]
    told = [finding["message"] for finding in found if finding["check"] == "extras"]

    assert len(told) == 3
    assert "PostgreSQL" in told[0]
    assert "keychain" in told[1]
    assert "indexes and searches code; pip install 'toolpost[workspace]' brings it" in told[2]


def test_the_lock_of_an_author_has_the_authors_tools_alone(invoke: Run, tmp_path: Path) -> None:
    ended = invoke("lock", *PLUGIN)
    text = (tmp_path / "toolpost.lock").read_text()

    assert ended.code == 0, ended.err
    assert "demo__echo" in text
    assert not [name for name in ("time__", "bus__", "workspace__") if name in text]


def test_code_that_names_no_plugin_gets_none() -> None:
    assert Config().plugins == PluginSettings()
    assert PluginSettings().bundled == []
