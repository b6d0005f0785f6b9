"""A section that would have no effect is an error, for every part, and says what to add."""

from pathlib import Path

import msgspec
import pytest

from tests.ways import IN_MEMORY
from toolpost.app import open_app
from toolpost.contracts.errors import BadConfiguration
from toolpost.manifest import bundled_parts
from toolpost.parts.telemetry.doctor import TelemetryDoctor
from toolpost.settings import Config, load_config
from toolpost.settings.model import PluginSettings
from toolpost.settings.section import Section, find_idle_sections

WITH_PLUGINS = {section.name: part for part in bundled_parts() if part.plugins for section in part.sections}


def section_of(name: str) -> Section[object]:
    return next(each for part in bundled_parts() for each in part.sections if each.name == name)


def with_section(name: str, plugins: PluginSettings) -> Config:
    return section_of(name).put(msgspec.structs.replace(IN_MEMORY, plugins=plugins), section_of(name).default)


def test_there_are_parts_with_plugins() -> None:
    assert {"bus", "workspace", "models", "approvals", "results"} <= WITH_PLUGINS.keys()


@pytest.mark.parametrize("name", sorted(WITH_PLUGINS))
def test_a_section_whose_plugin_is_not_loaded(name: str) -> None:
    plugin = WITH_PLUGINS[name].plugins[0]
    idle = find_idle_sections(with_section(name, PluginSettings(bundled=["time"])))

    assert list(idle) == [name]
    assert idle[name].message == f"[{name}] has no effect: the plugin `{plugin}` is not loaded."
    assert idle[name].hint == f'add `bundled = ["time", "{plugin}"]` to [plugins], or remove [{name}]'
    assert not find_idle_sections(with_section(name, PluginSettings(bundled=[plugin])))
    assert not find_idle_sections(with_section(name, PluginSettings(only="time")))


@pytest.mark.parametrize("name", sorted(WITH_PLUGINS))
def test_a_section_whose_plugin_is_disabled(name: str) -> None:
    plugin = WITH_PLUGINS[name].plugins[0]
    idle = find_idle_sections(with_section(name, PluginSettings(bundled=[plugin], disable=[plugin])))

    assert idle[name].message == f"[{name}] has no effect: the plugin `{plugin}` is disabled."
    assert idle[name].hint == f"remove it from plugins.disable, or remove [{name}]"


@pytest.mark.parametrize(
    "text",
    [
        "[results]\nlimit_tokens = 25_000\n",
        '[models.small]\nurl = "http://127.0.0.1:1/v1"\n',
        '[approvals.rules.pay]\ntools = ["*"]\nvoters = ["ann"]\n',
        '[agents]\nsessions = 2\n[agents.a]\nkind = "acp"\ncommand = "a"\n',
    ],
)
def test_a_section_that_works_by_itself(text: str, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(text)

    assert find_idle_sections(load_config(tmp_path / "toolpost.toml")) == {}


HASH = "scrypt:15:8:1:AAAAAAAAAAAAAAAAAAAAAA:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
OAUTH = '[http]\npublic_url = "https://b.example"\n[http.oauth.issuers.a]\nissuer = "https://a.example"\n'
INTROSPECTION = 'introspection_url = "https://a.example/i"\nintrospection_client = "c"\nintrospection_secret = "${S}"\n'
IDLE = {
    "audit.keep_days": ("[audit]\nkeep_days = 3\n", "[audit]\nsample = 0.1\nkeep_days = 3\n"),
    "store.pool": ("[store]\npool = 3\n", '[store]\nurl = "postgresql://a/b"\npool = 3\n'),
    "network.client_key": ('[network]\nclient_key = "k"\n', '[network]\nclient_cert = "c"\nclient_key = "k"\n'),
    "discovery.reranker.timeout_s": (
        "[discovery.reranker]\ntimeout_s = 5\n",
        '[discovery.reranker]\ntimeout_s = 5\nmodels = ["m"]\n[models.m]\nurl = "http://127.0.0.1:1/v1"\n',
    ),
    "modes.minimal": ('[modes]\nminimal = ["a__*"]\n', '[modes]\nminimal = ["a__*"]\nmode = "minimal"\n'),
    "callers.a.issuer": (
        f'{OAUTH}[callers.a]\nsubjects = ["x"]\nissuer = "https://c.example"\n',
        f'{OAUTH}[callers.a]\nsubjects = ["x"]\nissuer = "https://a.example"\n',
    ),
    "callers.b.issuer": (
        f'{OAUTH}[http.oauth]\nothers = "allow"\n[callers.b]\ntoken = "${{file:t}}"\nissuer = "https://a.example"\n',
        f'{OAUTH}[http.oauth]\nothers = "allow"\n[callers.b]\ntoken = "${{file:t}}"\n',
    ),
    "callers.c.passphrase_hash": (
        f'[callers.c]\npassphrase_hash = "{HASH}"\n',
        f'[callers.c]\npassphrase_hash = "{HASH}"\n[login]\nenabled = true\n',
    ),
    "callers.d.passphrase_hash": (
        '[callers.d]\npassphrase_hash = "${file:p}"\n',
        '[callers.d]\npassphrase_hash = "${file:p}"\n[approvals.rules.a]\nvoters = ["d"]\n',
    ),
    "login": ("[login]\naccess_s = 60\n", "[login]\naccess_s = 60\nenabled = false\n"),
    "audit.archive": ('[audit]\narchive = "a"\n', '[audit]\narchive = "a"\ndays = 3\n'),
    "network.no_proxy": (
        '[network]\nno_proxy = ["a"]\n',
        '[network]\nno_proxy = ["a"]\n[servers.a]\nurl = "http://b"\nnetwork = {proxy = "http://c:1"}\n',
    ),
    "servers.a.auth.assertion": (
        '[servers.a]\nurl = "http://b"\n[servers.a.auth]\nassertion = "a"\n',
        '[servers.a]\nurl = "http://b"\n[servers.a.auth]\ntype = "jwt_bearer"\nassertion = "a"\n',
    ),
    "apis.a.auth.redirect_port": (
        '[apis.a]\ndocument = "d"\nbase = "http://b"\n[apis.a.auth]\ntype = "jwt_bearer"\nredirect_port = 99\n',
        '[apis.a]\ndocument = "d"\nbase = "http://b"\n[apis.a.auth]\nredirect_port = 99\n',
    ),
    "servers.a.client_extensions": (
        '[servers.a]\ncommand = "b"\nextensions = false\nclient_extensions = {"c/d" = {}}\n',
        '[servers.a]\ncommand = "b"\nclient_extensions = {"c/d" = {}}\n',
    ),
    "router": (
        '[plugins]\nbundled = ["models"]\n[router]\nsampling = true\n',
        '[router]\nsampling = true\n[models.a]\nurl = "http://127.0.0.1:1/v1"\n',
    ),
}


@pytest.mark.parametrize("place", IDLE)
def test_a_setting_that_needs_another(place: str, tmp_path: Path) -> None:
    found = []
    for text in IDLE[place]:
        (tmp_path / "toolpost.toml").write_text(text)
        found.append(find_idle_sections(load_config(tmp_path / "toolpost.toml")))

    assert list(found[0]) == [place]
    assert f"{place} has no effect: " in found[0][place].message
    assert found[0][place].hint
    assert found[1] == {}, "with what it needs"


def test_a_mode_that_would_serve_nothing(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text('[callers.a]\ntoken = "${file:t}"\nmode = "minimal"\n')

    assert (
        "would serve no tools" in find_idle_sections(load_config(tmp_path / "toolpost.toml"))["modes.minimal"].message
    )


REFUSED = {
    "for requests": '[export.a]\npath = "a"\nsecret = "${S}"\n',
    "of a webhook alone": '[export.a]\nkind = "otlp"\nurl = "http://127.0.0.1:1"\nsecret = "${S}"\n',
    "would not be introspected": f'{OAUTH}introspection_client = "c"\n[http.oauth]\nothers = "allow"\n',
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_setting_that_contradicts_another(reason: str, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(REFUSED[reason])
    with pytest.raises(BadConfiguration, match=reason):
        load_config(tmp_path / "toolpost.toml")


@pytest.mark.anyio
async def test_a_plugin_to_disable_that_is_not_there_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    config = msgspec.structs.replace(IN_MEMORY, plugins=PluginSettings(disable=["tiem", "time"]))
    async with open_app(config):
        pass

    assert [record.fields["plugin"] for record in caplog.records if record.msg == "no plugin to disable"] == ["tiem"]  # type: ignore[attr-defined]


@pytest.mark.anyio
async def test_tags_of_a_plugin_that_is_not_there_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    config = msgspec.structs.replace(IN_MEMORY, plugins=PluginSettings(tags={"tiem": ["a"], "time": ["a"]}))
    async with open_app(config):
        pass

    assert [record.fields["plugin"] for record in caplog.records if record.msg == "no plugin to tag"] == ["tiem"]  # type: ignore[attr-defined]


@pytest.mark.anyio
@pytest.mark.parametrize(("text", "count"), [("sample = 0.5", 1), ("sample = 0.5\nenabled = false", 0), ("", 0)])
async def test_telemetry_without_a_receiver_is_logged(
    text: str, count: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "toolpost.toml").write_text(f"[telemetry]\n{text}\n")
    config = load_config(tmp_path / "toolpost.toml")
    async with open_app(config):
        pass
    found = await TelemetryDoctor().check_setup(config)

    assert [record.msg for record in caplog.records].count("telemetry is off") == count
    assert len(found) == count


def test_a_section_that_needs_another(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text("[agents]\nsessions = 2\n")
    idle = find_idle_sections(load_config(tmp_path / "toolpost.toml"))

    assert {name: (error.message, error.hint) for name, error in idle.items()} == {
        "agents (all)": ("[agents] has no effect without [agents.NAME].", "add [agents.NAME], or remove [agents]")
    }


def test_a_project_without_a_file_has_none(tmp_path: Path) -> None:
    assert find_idle_sections(load_config(folder=tmp_path)) == {}


@pytest.mark.anyio
@pytest.mark.parametrize("name", sorted(WITH_PLUGINS))
async def test_the_gateway_does_not_start_with_it(name: str) -> None:
    with pytest.raises(BadConfiguration, match="has no effect"):
        async with open_app(with_section(name, PluginSettings())):
            pass
