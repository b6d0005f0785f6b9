"""`[apis.NAME]`: what is refused, and how an API is reached by its settings."""

from pathlib import Path
from typing import Any

import pytest

from toolpost.base import REDACTED, conceal_known
from toolpost.contracts import BadConfiguration
from toolpost.credentials.values import CallerValue
from toolpost.parts.openapi.settings import APIS, ApiSettings, check_api, resolve_api
from toolpost.settings import Config
from toolpost.settings.section import credential_users


def make_api(**settings: Any) -> ApiSettings:
    return ApiSettings(**({"document": "pets.json", "base": "https://api.example/v1"} | settings))


@pytest.mark.parametrize(
    ("name", "settings", "said", "hint"),
    [
        (
            "my api",
            {},
            "apis.`my api`: a name may contain letters, digits, `-` and single `_`.",
            "rename it to `my-api`",
        ),
        ("a__b", {}, "apis.`a__b`: a name may contain", "rename it to `a_b`"),
        ("a" * 33, {}, "an API's name has up to 32 characters", "shorten it"),
        ("pets", {"document": ""}, "apis.pets.document is missing", "a file, or to a URL"),
        ("pets", {"base": ""}, "apis.pets.base is missing", "`toolpost import openapi` writes both"),
        ("pets", {"base": "ftp://api.example"}, "apis.pets.base", ""),
        ("pets", {"base": "https://api.example?a=b"}, "apis.pets.base must have no query", "`security` or `headers`"),
        ("pets", {"headers": {"a b": "c"}}, "apis.pets.headers: `a b` is not a valid header name", ""),
    ],
)
def test_settings_that_cannot_work_are_refused(name: str, settings: dict[str, Any], said: str, hint: str) -> None:
    with pytest.raises(BadConfiguration) as refused:
        check_api(name, make_api(**settings))
    assert said in refused.value.message
    assert hint in (refused.value.hint or "")


def test_keys_are_in_the_environment_of_what_has_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETS_KEY", "s3cret")
    config = Config(project=str(tmp_path))
    keys = {"head": "${PETS_KEY}", "bearer": "x-${caller:TOKEN}-${PETS_KEY}", "literal": "$${PETS_KEY}"}
    spec = resolve_api(config, "pets", make_api(security=keys, headers={"X-Api-Token": "fixed-token"}))

    assert (spec.url, spec.is_mcp, spec.credentials) == ("https://api.example/v1", False, "caller")
    assert spec.env == {"head": "s3cret", "literal": "${PETS_KEY}"}
    assert spec.own_env == {"bearer": ("x-", CallerValue("TOKEN"), "-", "s3cret")}
    assert spec.secrets == ("fixed-token",)


def test_keys_are_concealed_in_logs(tmp_path: Path) -> None:
    resolve_api(Config(project=str(tmp_path)), "pets", make_api(security={"head": "never/logged"}))

    assert conceal_known("never/logged?key=never%2Flogged") == f"{REDACTED}?key={REDACTED}"


@pytest.mark.parametrize(
    ("settings", "credentials"),
    [
        ({"security": {"bearer": "fixed"}}, "shared"),
        ({"security": {"bearer": "$${caller:TOKEN}"}}, "shared"),
        ({"headers": {"X-Team": "${caller:TEAM}"}}, "caller"),
        ({"security": {"bearer": "${caller:TOKEN}"}}, "caller"),
        ({"security": {"bearer": "${caller:TOKEN}"}, "credentials": "shared"}, "shared"),
    ],
)
def test_whose_credentials_are_used(tmp_path: Path, settings: dict[str, Any], credentials: str) -> None:
    api = make_api(**settings)
    config = APIS.put(Config(project=str(tmp_path)), {"pets": api})

    assert resolve_api(config, "pets", api).credentials == credentials
    # `toolpost login` resolves these settings itself.
    assert (credential_users(config)["pets"].settings.credentials == "caller") == (
        credentials == "caller" and "security" in settings
    )


def test_what_is_not_set_is_named_by_its_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PETS_KEY", raising=False)
    config = Config(project=str(tmp_path))

    with pytest.raises(
        BadConfiguration, match=r"^apis\.pets\.security\.head: the environment variable PETS_KEY is not set"
    ):
        resolve_api(config, "pets", make_api(security={"head": "hunter2${PETS_KEY}"}))
    with pytest.raises(BadConfiguration, match=r"^apis\.pets\.base: the environment variable PETS_KEY is not set"):
        resolve_api(config, "pets", make_api(base="https://${PETS_KEY}"))
