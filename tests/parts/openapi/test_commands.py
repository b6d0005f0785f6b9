"""`toolpost import openapi`, and what `doctor`, `lock`, `check` and `diff` make of an API."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.parts.openapi.fake_api import FakeApi, Reply, answers, describe, takes
from toolpost.cli.main import main

pytestmark = pytest.mark.wire

SECURITY = {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}, "oauth": {"type": "oauth2", "flows": {}}}


def document(**list_parameter: Any) -> dict[str, Any]:
    return describe(
        {
            "method": "get",
            "path": "/pets",
            "operationId": "listPets",
            "tags": ["pets"],
            "parameters": [takes("query", "limit", {"type": "integer"}, **list_parameter)],
            "responses": answers(
                {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
            ),
            "security": [{"key": []}],
        },
        {"method": "delete", "path": "/pets/{id}", "operationId": "deletePet", "tags": ["pets"]},
        {"method": "get", "path": "/away", "servers": [{"url": "https://other.example"}]},
        servers=[{"url": "https://pets.example/v1"}],
        components={"securitySchemes": SECURITY},
    )


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "api.json").write_text(json.dumps(document()))
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def settings(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "toolpost.toml").read_text())


def test_an_import_adds_the_api_and_keeps_the_rest_of_the_file(folder: Path) -> None:
    (folder / "toolpost.toml").write_text("# mine\n[limits]\ncalls = 7\n")
    shown = run("import", "openapi", "api.json", "--dry-run")
    assert "would be written" in shown.stdout
    assert "apis" not in settings(folder)
    done = run("import", "openapi", "api.json", "--name", "shop", "--deny", "DELETE *")
    assert done.exit_code == 0, done.output
    assert (folder / "toolpost.toml").read_text().startswith("# mine\n[limits]\ncalls = 7\n")
    assert settings(folder)["apis"]["shop"] == {
        "document": "api.json",
        "base": "https://pets.example/v1",
        "deny": ["DELETE *"],
        "security": {"key": "${SHOP_KEY}"},
    }
    assert "SHOP_KEY: set it before Toolpost starts" in done.stderr
    assert "GET /away is left out: it is at a server of its own" in done.stderr
    again = run("import", "openapi", "api.json", "--name", "shop")
    assert (again.exit_code, "already" in again.stderr) == (2, True)
    forced = run("import", "openapi", "api.json", "--name", "shop", "--force", "--json")
    assert json.loads(forced.stdout)["tools"] == ["shop__listPets", "shop__deletePet"]
    assert "deny" not in settings(folder)["apis"]["shop"]


def test_a_login_asks_for_the_scopes_of_the_selected_operations(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETS_CLIENT_ID", "toolpost")
    flow = {
        "authorizationUrl": "https://pets.example/auth",
        "tokenUrl": "https://pets.example/token",
        "scopes": {"pets:read": "see pets", "pets:write": "change pets", "admin": "everything"},
    }
    described = describe(
        {"method": "get", "path": "/pets", "operationId": "listPets", "security": [{"oauth": ["pets:read"]}]},
        {"method": "post", "path": "/pets", "operationId": "addPet", "security": [{"oauth": ["pets:write"]}]},
        servers=[{"url": "https://pets.example/v1"}],
        components={"securitySchemes": {"oauth": {"type": "oauth2", "flows": {"authorizationCode": flow}}}},
    )
    (folder / "api.json").write_text(json.dumps(described))
    for words, scopes in (
        ((), ["pets:read", "pets:write"]),
        (("--allow", "listPets"), ["pets:read"]),
        (("--deny", "GET *"), ["pets:write"]),
    ):
        assert run("import", "openapi", "api.json", "--force", *words).exit_code == 0
        assert settings(folder)["apis"]["pets"]["auth"]["scopes"] == scopes, words

    (folder / "toolpost.toml").write_text((folder / "toolpost.toml").read_text().replace("GET *", "POST *"))
    checked = " ".join(run("doctor").stdout.split())
    assert "logins ask for scopes that no selected operation needs: pets:write" in checked
    assert "logins do not ask for scopes that selected operations need: pets:read" in checked


@pytest.mark.anyio
async def test_an_import_from_a_url_keeps_a_copy(folder: Path, api: FakeApi) -> None:
    from anyio import to_thread

    api.replies["GET /openapi.json"] = Reply(body=document())
    url = f"{api.url}/openapi.json"
    done = await to_thread.run_sync(run, "import", "openapi", url)
    assert done.exit_code == 0, done.output
    assert settings(folder)["apis"]["pets"]["document"] == "pets.openapi.json"
    assert json.loads((folder / "pets.openapi.json").read_text()) == document()
    done = await to_thread.run_sync(run, "import", "openapi", url, "--follow", "--name", "live")
    assert settings(folder)["apis"]["live"]["document"] == url


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none.json",), "cannot be read"),
        (("api.json", "--allow", "tag:none"), "no operation"),
        (("bare.json",), "give it with --base"),
        (("api.json", "--name", "a__b"), "single `_`"),
        (("api.json", "--base", "ftp://x"), "apis.pets.base is not a valid HTTP URL"),
        (("api.json", "--base", "http://a:b@x"), "no user or password"),
    ],
)
def test_what_cannot_be_imported_is_explained(words: tuple[str, ...], said: str, folder: Path) -> None:
    (folder / "bare.json").write_text(json.dumps(describe()))
    done = run("import", "openapi", *words)
    assert done.exit_code != 0
    assert said in done.stderr
    assert not (folder / "toolpost.toml").exists()


def test_contracts_of_an_api_are_locked_and_changes_of_its_document_judged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PETS_KEY", "k")
    assert run("import", "openapi", "api.json").exit_code == 0
    assert run("lock").exit_code == 0
    assert "pets__listPets" in (folder / "toolpost.lock").read_text()
    assert run("check").exit_code == 0
    (folder / "api.json").write_text(json.dumps(document(required=True)))
    checked = run("check")
    assert checked.exit_code != 0
    diff = run("diff")
    assert "pets__listPets" in diff.stdout
    assert "breaking" in diff.stdout
    (folder / "api.json").write_text(json.dumps(document(description="at most so many")))
    assert "breaking" not in run("diff").stdout


def test_doctor_looks_at_documents(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolpost.parts.openapi.doctor.BUDGET_TOKENS", 10)
    assert run("import", "openapi", "api.json").exit_code == 0
    unset = run("doctor")
    assert "PETS_KEY is not set" in unset.stdout + unset.stderr
    text = (folder / "toolpost.toml").read_text()
    (folder / "toolpost.toml").write_text(text.replace("${PETS_KEY}", "x" * 20).replace("https:", "http:"))
    shown = run("doctor").stdout
    assert "2 tools of about" in shown
    assert "sent without encryption" in shown
    assert "tokens to list" in shown
    assert "1 operations are left out" in shown
