"""`${VAR}` and its like in any text of `toolpost.toml`, and the settings that are gone."""

import tomllib
from pathlib import Path

import pytest

from tests.settings.schema import settings_in
from toolpost.contracts.errors import BadConfiguration
from toolpost.parts.models.settings import MODELS
from toolpost.settings import load_config
from toolpost.settings.loader import config_schema
from toolpost.settings.removed import REMOVED, find_replacement
from toolpost.settings.variables import depends_on_user


def written(folder: Path, text: str) -> Path:
    (folder / "toolpost.toml").write_text(text)
    return folder / "toolpost.toml"


def test_any_text_may_refer_to_variables_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM", "red")
    monkeypatch.setenv("MODE", "both")
    (tmp_path / "url").write_text("https://in-a-file.example\n")
    config = load_config(
        written(
            tmp_path,
            """
            [http]
            listen = "${HOST:-127.0.0.1}:9000"
            public_url = "${file:url}"
            tags = ["${TEAM}", "$${TEAM}"]
            [discovery]
            mode = "${MODE}"
            [callers.ada]
            subjects = ["${TEAM}"]
            issuer = "https://a.example"
            claims = {team = ["${TEAM}"]}
            [models.small]
            url = "http://127.0.0.1:1/v1"
            description = "of ${TEAM}"
            [login]
            enabled = true
            provider = {issuer = "https://${TEAM}.example", client_id = "x"}
            [servers.a]
            command = "${NOT_SET_ANYWHERE}"
            tags = ["${TEAM}"]
            [http.oauth.issuers.a]
            issuer = "https://a.example"
            """,
        )
    )

    assert config.address == ("127.0.0.1", 9000)
    assert config.http.public_url == "https://in-a-file.example"
    assert config.http.tags == ["red", "${TEAM}"]
    assert config.discovery.mode == "both"
    assert (config.callers["ada"].subjects, config.callers["ada"].claims) == (["red"], {"team": ["red"]})
    assert MODELS.of(config)["small"].description == "of red"
    # Not everybody who reads the file has what its servers need.
    assert (config.servers["a"].command, config.servers["a"].tags) == ("${NOT_SET_ANYWHERE}", ["red"])


def test_a_variable_that_is_missing_is_named_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(
        BadConfiguration, match=r"http\.tags\[0\]: the environment variable NOT_SET_ANYWHERE is not set"
    ):
        load_config(written(tmp_path, '[http]\ntags = ["${NOT_SET_ANYWHERE}"]\n'))


def test_secrets_are_read_where_they_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ada").write_text("ada-token\n")
    text = '[callers.ada]\ntoken = "${file:ada}"\n[callers.bob]\ntoken = "${BOB_TOKEN}"\n'
    config = load_config(written(tmp_path, text))

    assert config.callers["bob"].token == "${BOB_TOKEN}"
    assert config.secret_files == [tmp_path / "ada"]
    with pytest.raises(BadConfiguration, match=r"callers\.bob\.token: the environment variable BOB_TOKEN is not set"):
        config.caller_tokens()
    monkeypatch.setenv("BOB_TOKEN", " ")
    with pytest.raises(BadConfiguration, match=r"callers\.bob\.token is empty"):
        config.caller_tokens()
    monkeypatch.setenv("BOB_TOKEN", "bob-token")
    assert config.caller_tokens() == {"ada": "ada-token", "bob": "bob-token"}


@pytest.mark.parametrize(
    ("text", "depends"),
    [
        (None, False),
        ("literal", False),
        ("${file:ada.hash}", False),
        ("$${VAR}", False),
        ("${VAR}", True),
        ("x${VAR:-y}", True),
        ("${file:~/ada.hash}", True),
        ("${userHome}/x", True),
        ("${keychain:a/b}", True),
    ],
)
def test_what_a_user_can_choose_is_known(text: str | None, depends: bool) -> None:
    assert depends_on_user(text) is depends


@pytest.mark.parametrize("key", REMOVED)
def test_a_setting_that_is_gone_is_refused_with_what_replaced_it(key: str, tmp_path: Path) -> None:
    name = key.replace("*", "one")
    table, _, last = name.rpartition(".")
    text = f"[{table}]\n{last} = 1\n" if table else f"{last} = 1\n"
    with pytest.raises(BadConfiguration) as refused:
        load_config(written(tmp_path, text))

    assert tomllib.loads(text)
    assert f"`{name}` is gone: {REMOVED[key]}." in refused.value.message
    assert find_replacement(f"{name}x") is None


EARLIER = (Path(__file__).parent / "earlier_settings.txt").read_text().split()
"""All settings before some were removed; `*` is the name of an entry."""


def test_a_setting_of_an_earlier_version_is_known_or_has_a_replacement() -> None:
    schema = config_schema()
    known = set(settings_in(schema, schema["$defs"]))

    assert {"http.listen", "servers.*.command", "http.oauth.issuers.*.issuer"} <= known
    assert [key for key in EARLIER if key not in known and find_replacement(key) is None] == []
    assert [key for key in REMOVED if key in known] == []
