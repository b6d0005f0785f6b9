"""Credentials of APIs: security schemes of the document, values of callers, OAuth, and what `toolpost config show` hides."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mcp import Client

from tests.hostile.attacks import attack
from tests.parts.openapi.fake_api import FakeApi, Reply, Seen, describe, open_gateway, takes
from toolpost.app import App
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.cli.main import main
from toolpost.credentials.grant import NAME, Grant, Registration, TokenTerms, encode_grant
from toolpost.credentials.vault import Vault
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.parts.openapi.client import merge_headers
from toolpost.parts.openapi.credentials import Filled
from toolpost.parts.openapi.serialize import ApiRequest
from toolpost.settings.callers import CallerSettings
from toolpost.settings.key_place import key_place_of
from toolpost.testing import error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

SCHEMES = {
    "head": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "ask": {"type": "apiKey", "in": "query", "name": "key"},
    "crumb": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "basic": {"type": "http", "scheme": "basic"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "oauth": {"type": "oauth2", "flows": {}},
}


def operation(name: str, *security: dict[str, list[str]], **more: Any) -> dict[str, Any]:
    return {"method": "get", "path": f"/{name}", "operationId": name, "security": list(security), **more}


DOCUMENT = describe(
    operation("head", {"head": []}, parameters=[takes("header", "x-key"), takes("header", "X-Other")]),
    operation("ask", {"ask": []}, parameters=[takes("query", "key"), takes("query", "filters", {"type": "object"})]),
    operation("crumb", {"crumb": []}),
    operation("basic", {"basic": []}),
    operation("either", {"oauth": []}, {"bearer": [], "head": []}),
    operation("open"),
    operation("locked", {"unset": []}),
    components={"securitySchemes": {**SCHEMES, "unset": {"type": "http", "scheme": "bearer"}}},
)


async def test_each_key_goes_where_its_scheme_says_and_only_where_it_is_asked_for(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PETS_KEY", "s3cret&key")
    keys = dict.fromkeys(("head", "ask", "crumb", "bearer"), "${PETS_KEY}") | {"basic": "ann:${PETS_KEY}"}
    async with (
        open_gateway(DOCUMENT, api.url, tmp_path, security=keys) as app,
        Client(open_memory_endpoint(app.call_handler, app.sdk)) as client,
    ):
        listed = {tool.name: tool.input_schema["properties"] for tool in (await client.list_tools()).tools}
        assert list(listed["pets__head"]) == ["X-Other"]
        assert list(listed["pets__ask"]) == ["filters"]
        await client.call_tool("pets__head", {})
        assert api.last.headers["x-key"] == "s3cret&key"
        await client.call_tool("pets__ask", {})
        assert api.last.target == "/ask?key=s3cret%26key"
        assert error_of(await client.call_tool("pets__ask", {"filters": {"key": "x"}}))["code"] == "INVALID_PARAMS"
        await client.call_tool("pets__crumb", {})
        assert api.last.headers["cookie"] == "sid=s3cret%26key"
        await client.call_tool("pets__basic", {})
        assert api.last.headers["authorization"] == f"Basic {base64.b64encode(b'ann:s3cret&key').decode()}"
        await client.call_tool("pets__either", {})
        assert (api.last.headers["authorization"], api.last.headers["x-key"]) == ("Bearer s3cret&key", "s3cret&key")
        await client.call_tool("pets__open", {})
        assert "authorization" not in api.last.headers
        assert b"s3cret" not in api.last.head
        api.replies["GET /ask"] = lambda seen: Reply(status=403, body={"message": f"bad key in {seen.target}"})
        refused = error_of(await client.call_tool("pets__ask", {}))
        assert "s3cret" not in json.dumps(refused)
        api.replies["GET /locked"] = Reply(status=401)
        assert "`security.unset`" in error_of(await client.call_tool("pets__locked", {}))["hint"]


@attack(
    "server",
    "is an API that returns the requests that it gets, keys and all",
    "callers see `(redacted)` in the place of every key and token",
)
@pytest.mark.parametrize("size", [0, 300_000], ids=["small", "large"])
async def test_keys_that_an_api_mirrors_are_masked(api: FakeApi, tmp_path: Path, size: int) -> None:
    def mirror(seen: Seen) -> Reply:
        if seen.target == "/either" and "authorization" not in seen.headers:
            return Reply(status=401)
        return Reply(body={"target": seen.target, "head": seen.head.decode("latin-1"), "filler": "x" * size})

    names = ("head", "ask", "crumb", "basic", "either", "open")
    api.replies = {
        **{f"GET /{name}": mirror for name in names},
        "GET /.well-known/oauth-authorization-server": Reply(
            body={"issuer": api.url, "token_endpoint": f"{api.url}/token", "authorization_endpoint": f"{api.url}/a"}
        ),
        "POST /token": Reply(body={"access_token": "issued-token-1", "token_type": "Bearer", "expires_in": 600}),
    }
    key, pair = "s3cret&key-1", base64.b64encode(b"ann:s3cret&key-1").decode()
    keys = dict.fromkeys(("head", "ask", "crumb"), key) | {"basic": f"ann:{key}"}
    auth = {"type": "client_credentials", "issuer": api.url, "client_id": "c", "client_secret": "s", "resource": ""}
    settings: dict[str, Any] = {"security": keys, "headers": {"X-Api-Token": "fixed-token-1"}, "auth": auth}
    async with open_gateway(DOCUMENT, api.url, tmp_path, **settings) as app:
        told = {name: json.dumps(await call_as(app, "ann", f"pets__{name}")) for name in names}
        sent = b"".join(seen.head for seen in api.seen).decode()

    for secret in (key, "s3cret%26key-1", pair, "fixed-token-1", "issued-token-1"):
        assert secret in sent
        assert [name for name, text in told.items() if secret in text] == []
    assert all("(redacted)" in text for text in told.values())


@attack("server", "is an API that returns a key in a header of its errors", "callers see `(redacted)` in its place")
async def test_keys_in_headers_are_masked(api: FakeApi, tmp_path: Path) -> None:
    key = "s3cr\u00e9t&key-1"
    api.replies["GET /head"] = lambda seen: Reply(status=404, headers={"x-request-id": f"of {seen.headers['x-key']}"})
    async with open_gateway(DOCUMENT, api.url, tmp_path, security={"head": key}) as app:
        told = json.dumps(await call_as(app, "ann", "pets__head"), ensure_ascii=False)

    assert api.last.headers["x-key"] == key
    assert key not in told
    assert "of (redacted)" in told


async def call_as(app: App, caller: str, tool: str, *, by: str | None = None) -> Any:
    acting = Caller(id=CallerId(caller), transport="http", acted_by=CallerId(by) if by is not None else None)
    admitted = app.gateway.admit(caller=acting, name=tool, arguments={})
    return json.loads((await app.gateway.call(admitted)).payload)


async def test_each_caller_uses_its_own_value(api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "headers": {"X-Team": "${caller:TEAM}"},
        "security": {"bearer": "${caller:TOKEN}", "head": "shared"},
        "callers": {name: CallerSettings(token=f"${{{name}_TOKEN}}") for name in ("ann", "bob")},
    }
    async with open_gateway(DOCUMENT, api.url, tmp_path, store=f"sqlite:{tmp_path / 'a.db'}", **settings) as app:
        vault = Vault(app.store, key_place_of(app.config))
        missing = await call_as(app, "ann", "pets__either")
        assert missing["code"] == "CREDENTIAL_REQUIRED"
        assert "toolpost auth set pets TEAM --caller ann" in missing["hint"]
        assert not api.seen
        await vault.put("pets", "ann", "TEAM", b"ann")
        # An operation that asks for no key needs none of the caller's.
        assert await call_as(app, "ann", "pets__open") == {"target": "/open"}
        assert (await call_as(app, "ann", "pets__either"))["details"]["names"] == ["TOKEN"]
        for owner, token in (("ann", "ann-token"), ("bob", "bob-token")):
            await vault.put("pets", owner, "TOKEN", token.encode())
            await vault.put("pets", owner, "TEAM", owner.encode())
        for owner in ("ann", "bob", "ann"):
            await call_as(app, owner, "pets__either")
            found = api.last.headers
            assert (found["authorization"], found["x-team"], found["x-key"]) == (
                f"Bearer {owner}-token",
                owner,
                "shared",
            )
        await call_as(app, "bob", "pets__either", by="ann")
        assert api.last.headers["authorization"] == "Bearer ann-token", "the rights of another, and not its credentials"
        await vault.put("pets", "ann", "TEAM", b"a\r\nX-Admin: 1")
        assert (await call_as(app, "ann", "pets__either"))["code"] == "CAPABILITY_MISSING"


async def test_oauth_asks_for_a_login_and_uses_its_token(api: FakeApi, tmp_path: Path) -> None:
    api.replies["GET /either"] = lambda seen: (
        Reply(body={"fine": True}) if "authorization" in seen.headers else Reply(status=401, body={"message": "who?"})
    )
    async with open_gateway(
        DOCUMENT, api.url, tmp_path, store=f"sqlite:{tmp_path / 'a.db'}", auth={"type": "oauth"}
    ) as app:
        error = await call_as(app, "ann", "pets__either")
        assert (error["code"], "toolpost login pets" in error["hint"]) == ("LOGIN_REQUIRED", True)
        terms = TokenTerms(url=api.url, issuer="https://issuer.example", token_endpoint="https://issuer.example/t")
        registration = Registration(client_id="c", issuer="https://issuer.example")
        grant = Grant(access_token="fresh-token", obtained_at=0.0, terms=terms, registration=registration)
        await Vault(app.store, key_place_of(app.config)).put("pets", "", NAME, encode_grant(grant))
        assert await call_as(app, "ann", "pets__either") == {"fine": True}
        assert api.last.headers["authorization"] == "Bearer fresh-token"
        await call_as(app, "ann", "pets__open")
        assert "authorization" not in api.last.headers


async def test_oauth_without_a_person_gets_a_token_by_itself(api: FakeApi, tmp_path: Path) -> None:
    api.replies["GET /either"] = lambda seen: (
        Reply(body={"fine": True}) if seen.headers.get("authorization") == "Bearer issued" else Reply(status=401)
    )
    metadata = {
        "issuer": api.url,
        "token_endpoint": f"{api.url}/token",
        "authorization_endpoint": f"{api.url}/authorize",
        "response_types_supported": ["code"],
    }
    api.replies["GET /.well-known/oauth-authorization-server"] = Reply(body=metadata)
    api.replies["POST /token"] = Reply(body={"access_token": "issued", "token_type": "Bearer", "expires_in": 600})
    auth = {"type": "client_credentials", "issuer": api.url, "client_id": "c", "client_secret": "s", "resource": ""}
    async with open_gateway(DOCUMENT, api.url, tmp_path, auth=auth) as app:
        for _ in range(2):
            assert await call_as(app, "ann", "pets__either") == {"fine": True}
        assert sum(seen.target == "/token" for seen in api.seen) == 1


async def test_a_new_token_that_is_refused_is_an_error_of_the_api(api: FakeApi, tmp_path: Path) -> None:
    metadata = {"issuer": api.url, "token_endpoint": f"{api.url}/token", "authorization_endpoint": f"{api.url}/a"}
    api.replies = {
        "GET /either": Reply(status=401),
        "GET /.well-known/oauth-authorization-server": Reply(body=metadata),
        "POST /token": Reply(body={"access_token": "issued", "token_type": "Bearer", "expires_in": 600}),
    }
    auth = {"type": "client_credentials", "issuer": api.url, "client_id": "c", "client_secret": "s", "resource": ""}
    async with open_gateway(DOCUMENT, api.url, tmp_path, auth=auth) as app:
        error = await call_as(app, "ann", "pets__either")
    assert (error["code"], "has just issued" in error["message"]) == ("UPSTREAM_UNAVAILABLE", True)
    assert sum(seen.target == "/either" for seen in api.seen) == 2


def test_what_is_configured_wins_over_what_an_argument_gives() -> None:
    request = ApiRequest(method="GET", path="/", headers=(("x-key", "argument"), ("Authorization", "argument")))
    filled = Filled(headers=(("X-Key", "configured"),))
    assert merge_headers(request, filled, "Bearer token") == [
        (b"X-Key", b"configured"),
        (b"authorization", b"Bearer token"),
    ]


def write_config(folder: Path) -> None:
    (folder / "pets.json").write_text(json.dumps(DOCUMENT))
    (folder / "toolpost.toml").write_text(
        '[apis.pets]\ndocument = "pets.json"\nbase = "https://api.example"\n'
        'security = { bearer = "${caller:TOKEN}", crumb = "l1teral", head = "${KEY}" }\n'
    )


def test_commands_know_apis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_config(tmp_path)
    run = CliRunner()
    done = run.invoke(main, ["auth", "set", "pets", "TOKEN"], input="value")
    assert (done.exit_code, "warning" in done.stderr) == (0, False), done.output
    listed = run.invoke(main, ["auth", "list", "--json"])
    assert json.loads(listed.stdout)["credentials"][0]["server"] == "pets"
    unused = run.invoke(main, ["auth", "set", "pets", "TOKN"], input="value")
    assert "apis.pets refers to ${caller:TOKN} yet; did you mean TOKEN?" in unused.stderr
    login = run.invoke(main, ["login", "pets", "--caller", "nobody"])
    assert "unknown caller" in login.stderr


def test_config_show_hides_literal_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_config(tmp_path)
    shown = CliRunner().invoke(main, ["config", "show"]).stdout
    assert "l1teral" not in shown
    assert "${KEY}" in shown
