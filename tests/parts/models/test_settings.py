"""Settings of models, the router and groups: what is refused, what is shown, what the doctor says."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from toolpost.cli.main import main
from toolpost.contracts.errors import BadConfiguration
from toolpost.parts.models.doctor import ModelsDoctor
from toolpost.parts.models.settings import GROUPS, MODELS, ROUTER, ModelSettings, read_key
from toolpost.settings import load_config

EVERYTHING = """\
[models.small]
url = "http://127.0.0.1:11434/v1"
model = "qwen3:4b"
api = "responses"
key = "${SMALL_KEY}"
context = 32000
input_price = 0.1
output_price = 0.4
skills = ["summaries"]
domains = ["law"]
description = "for everything short"
preference = 0.7

[models.helper]
agent = "claude"
enabled = false

[router]
attempt_s = 10
sampling = true

[router.weights]
cost = 3

[groups.pair]
servers = ["a", "b"]
idempotent = ["write"]

[servers.a]
command = "a"

[servers.b]
command = "b"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "toolpost.toml"
    path.write_text(text)
    return path


def test_everything_that_is_set_is_read_and_shown(tmp_path: Path) -> None:
    path = written(tmp_path, EVERYTHING)
    config = load_config(path)
    shown = CliRunner().invoke(main, ["config", "show", "--config", str(path)])
    again = written(tmp_path, shown.stdout)

    assert MODELS.of(config)["small"].model == "qwen3:4b"
    assert (ROUTER.of(config).weights.cost, ROUTER.of(config).weights.skill) == (3, 2)
    assert shown.exit_code == 0
    for section in (MODELS, ROUTER, GROUPS):
        assert section.of(load_config(again)) == section.of(config)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[models.x]\n", "either a `url` or an `agent`"),
        ('[models.x]\nurl = "http://h/v1"\nagent = "a"\n', "either a `url` or an `agent`"),
        ('[models.x]\nagent = "a"\nkey = "${A}"\n', "takes no key"),
        ('[models."a b"]\nurl = "http://h/v1"\n', "name may contain"),
        ('[models.x]\nurl = "http://h/v1"\ncontxt = 5\n', "contxt"),
        ('[models.x]\nurl = "http://h/v1"\ninput_price = -1\n', "input_price"),
        ('[groups.g]\nservers = ["a"]\n', "two or more"),
        ('[groups.g]\nservers = ["a", "a"]\n', "two or more"),
        ("[router]\nfailures = 0\n", "failures"),
        ("[router.weights]\ncost = -1\n", "cost"),
    ],
)
def test_settings_that_do_not_go_together(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration) as caught:
        load_config(written(tmp_path, text))
    assert said in f"{caught.value.message} {caught.value.hint}"


def test_keys_come_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K", "sk-2")
    (tmp_path / "key").write_text(" sk-1\n")
    of_file = ModelSettings(url="http://h", key="${file:key}")
    of_variable = ModelSettings(url="http://h", key="${K}")

    assert read_key("m", of_file, project=tmp_path) == "sk-1"
    assert read_key("m", of_variable, project=tmp_path) == "sk-2"
    assert read_key("m", ModelSettings(url="http://h"), project=tmp_path) is None
    monkeypatch.delenv("K")
    with pytest.raises(BadConfiguration, match="K is not set"):
        read_key("m", of_variable, project=tmp_path)
    with pytest.raises(BadConfiguration, match="cannot read"):
        read_key("m", ModelSettings(url="http://h", key="${file:nokey}"), project=tmp_path)


@pytest.mark.anyio
async def test_the_doctor_looks_at_keys_agents_and_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIN_KEY", "sk-plain")
    text = """
[models.keyless]
url = "http://127.0.0.1:1/v1"
key = "${NO_SUCH_KEY}"
[models.open]
url = "http://models.example/v1"
key = "${PLAIN_KEY}"
[models.fine]
url = "https://models.example/v1"
[models.helper]
agent = "nobody"
[groups.pair]
servers = ["a", "b"]
"""
    findings = await ModelsDoctor().check_setup(load_config(written(tmp_path, text)))
    told = [(finding.level, finding.message) for finding in findings]
    none = await ModelsDoctor().check_setup(load_config(written(tmp_path, '[plugins]\nbundled = ["models"]\n')))
    unused = await ModelsDoctor().check_setup(load_config(written(tmp_path, "")))

    expected = ["NO_SUCH_KEY is not set", "without encryption", "models.example", "no agent `nobody`", "no server `a`"]
    assert [words for words, (_, message) in zip(expected, told, strict=True) if words not in message] == []
    assert [str(level) for level, _ in told] == ["problem", "warning", "ok", "problem", "problem"]
    assert (len(none), len(unused)) == (1, 0)
