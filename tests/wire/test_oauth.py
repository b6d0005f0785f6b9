"""Access tokens of an authorization server that runs in a process of its own: who comes in, as whom, and who does not."""

import base64
import http.client
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import jwt
import msgspec
import pytest
from mcp import Client
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from tests.hostile.attacks import attack
from tests.upstreams.behind import hostile, text_of
from tests.ways import BEHAVIOURS, IN_MEMORY, STATELESS, plugin_of
from tests.wire.authorization_server import AuthorizationServer, open_authorization_server
from tests.wire.callers import ERAS, client_of, names
from tests.wire.test_callers import LISTING, OPENING
from tests.wire.test_callers import ask as send
from tests.wire.test_visibility import small
from toolpost.app import App, open_app, open_http
from toolpost.app.reload import apply_config
from toolpost.audit import AuditFilter
from toolpost.endpoints.auth import oauth_keys, roster
from toolpost.settings import Config, load_config
from toolpost.testing import data_of
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

RESOURCE = "https://tools.example.com/mcp"
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture(scope="module")
def issuer() -> Iterator[AuthorizationServer]:
    with open_authorization_server() as server:
        yield server


class Project:
    """A folder with a configuration that trusts an authorization server."""

    def __init__(self, folder: Path, issuer: AuthorizationServer) -> None:
        self.folder = folder
        self.issuer = issuer

    def load(self, text: str, *, resource: str = RESOURCE, more: str = "", common: str = "") -> Config:
        """Write and load a configuration with `more` of the issuer, and what is `common` to all issuers."""
        oauth = (
            f'[http]\npublic_url = "{resource.removesuffix("/mcp")}"\n[http.oauth]\n{common}\n'
            f'[http.oauth.issuers.main]\nissuer = "{self.issuer.issuer}"\n{more}\n'
        )
        (self.folder / "toolpost.toml").write_text(oauth + text)
        config = load_config(self.folder / "toolpost.toml")
        return msgspec.structs.replace(
            config, store=IN_MEMORY.store, http=msgspec.structs.replace(config.http, listen="127.0.0.1:0")
        )


@pytest.fixture
def project(tmp_path: Path, issuer: AuthorizationServer) -> Project:
    return Project(tmp_path, issuer)


@asynccontextmanager
async def served(config: Config, *specs: ServerSpec) -> AsyncIterator[tuple[App, str]]:
    plugins = [plugin_of(BEHAVIOURS)]
    async with open_app(config, plugins=plugins, bundled=False, servers=specs) as app, open_http(app) as url:
        yield app, url


async def ask(url: str, token: str | None, path: str = "/mcp", verb: str = "POST") -> tuple[int, Any, str]:
    """Return status, body and challenge."""

    def asked() -> tuple[int, Any, str]:
        connection = http.client.HTTPConnection(url.split("/")[2], timeout=20)
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        try:
            connection.request(verb, path, json.dumps(PING) if verb == "POST" else None, headers)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(body), answer.headers.get("www-authenticate", "")

    return await anyio.to_thread.run_sync(asked)


ROLES = """
[callers.ada]
subjects = ["ada"]
tags = ["a"]
[callers.agents]
clients = ["agent-7", "agent-8"]
tools = ["does__echo"]
[callers.reader]
scopes = ["tools:read"]
tools = ["two__*"]
"""


@pytest.mark.parametrize("mode", ERAS)
async def test_claims_say_who_somebody_is_and_what_they_see(mode: str, project: Project) -> None:
    tokens = {
        "ada": project.issuer.token(RESOURCE, header={"alg": "ES256"}),
        "agent": project.issuer.token(RESOURCE, sub="u1", azp="agent-7", header={"alg": "EdDSA"}),
        "reader": project.issuer.token(RESOURCE, sub="u2", scope="other tools:read", header={"typ": "at+jwt"}),
        "list": project.issuer.token([RESOURCE, "https://else.example"], sub="u3", scp=["tools:read"]),
    }
    seen: dict[str, list[str]] = {}
    async with served(project.load(ROLES), small("one", "a"), small("two", "b")) as (app, url):
        for name, token in tokens.items():
            async with client_of(url, token, mode) as client:
                seen[name] = await names(client)
                await client.call_tool(seen[name][0], {"text": "x"})
        entries = await app.store.audit.entries(AuditFilter(), limit=10)

    assert seen == {"ada": ["one__echo"], "agent": ["does__echo"], "reader": ["two__echo"], "list": ["two__echo"]}
    assert {record.entry.caller for record in entries} == {"ada", "agents:u1", "reader:u2", "reader:u3"}


@attack(
    "caller",
    "is admitted by the same OAuth rule as another person",
    "they are two callers with a state each",
)
async def test_two_who_come_in_by_one_rule_share_no_state(project: Project) -> None:
    tokens = [project.issuer.token(RESOURCE, sub=sub, scope="tools:read") for sub in ("u1", "u2", "u1")]
    config = project.load('[callers.reader]\nscopes = ["tools:read"]\n')
    counted = []
    async with served(config, hostile(strategy="per_session")) as (_, url):
        for token in tokens:
            async with client_of(url, token, STATELESS) as client:
                counted.append(text_of(await client.call_tool("up__count", {})))

    assert counted == ["1", "1", "2"]


async def test_a_session_belongs_to_a_subject_and_not_to_the_bytes_of_a_token(project: Project) -> None:
    first, second = (project.issuer.token(RESOURCE, sub="ada", jti=jti) for jti in ("1", "2"))
    other = project.issuer.token(RESOURCE, sub="bob", jti="3")
    config = project.load('[callers.ada]\nsubjects = ["ada"]\n[callers.bob]\nsubjects = ["bob"]\n')
    async with served(config) as (_, url):
        _, _, session = await send(url, first, OPENING)
        headers = {"mcp_session_id": session, "mcp_protocol_version": "2025-06-18"}
        statuses = [(await send(url, token, LISTING, **headers))[0] for token in (first, second, other)]

    assert first != second
    assert statuses == [200, 200, 404]


async def test_whoever_comes_without_a_token_learns_where_to_get_one(project: Project) -> None:
    config = project.load(ROLES, more='scopes = ["tools", "more"]')
    async with served(config) as (_, url):
        status, _, challenge = await ask(url, None)
        metadata = [
            await ask(url, None, f"/.well-known/oauth-protected-resource{path}", "GET") for path in ("", "/mcp")
        ]

    assert status == 401
    assert challenge == (
        'Bearer scope="tools more", '
        'resource_metadata="https://tools.example.com/.well-known/oauth-protected-resource/mcp"'
    )
    for got, answer, _ in metadata:
        assert got == 200
        assert answer["resource"] == RESOURCE
        assert answer["authorization_servers"] == [project.issuer.issuer]
        assert answer["scopes_supported"] == ["tools", "more"]


async def test_without_an_authorization_server_there_is_no_metadata() -> None:
    async with served(IN_MEMORY) as (_, url):
        status, _, _ = await ask(url, None, "/.well-known/oauth-protected-resource", "GET")

    assert status == 404


def _unsigned(issuer: AuthorizationServer) -> str:
    return jwt.encode({"iss": issuer.issuer, "aud": RESOURCE, "sub": "ada", "exp": time.time() + 60}, "", "none")


def _signed_with_the_public_key(issuer: AuthorizationServer) -> str:
    key = next(key for key in issuer.ask("/jwks")["keys"] if key["kty"] == "RSA")
    claims = {"iss": issuer.issuer, "aud": RESOURCE, "sub": "ada", "exp": int(time.time()) + 60}
    return jwt.encode(claims, key["n"].ljust(64), "HS256", headers={"kid": key["kid"]})


def _altered(issuer: AuthorizationServer) -> str:
    head, body, signature = issuer.token(RESOURCE, sub="bob").split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    other = base64.urlsafe_b64encode(json.dumps(claims | {"sub": "ada"}).encode()).decode().rstrip("=")
    return f"{head}.{other}.{signature}"


FALSE: dict[str, Any] = {
    "expired": lambda s: s.token(RESOURCE, exp=int(time.time()) - 60),
    "without an end": lambda s: s.token(RESOURCE, exp=None),
    "not yet": lambda s: s.token(RESOURCE, nbf=int(time.time()) + 600),
    "for another server": lambda s: s.token("https://else.example/mcp"),
    "for nobody": lambda s: s.token(RESOURCE, aud=None),
    "another issuer": lambda s: s.token(RESOURCE, iss="https://evil.example"),
    "no issuer": lambda s: s.token(RESOURCE, iss=None),
    "nobody's": lambda s: s.token(RESOURCE, sub=None),
    "an unprintable name": lambda s: s.token(RESOURCE, sub="a\nb"),
    "an endless name": lambda s: s.token(RESOURCE, sub="a" * 300),
    "an id token": lambda s: s.token(RESOURCE, header={"typ": "dpop+jwt"}),
    "bound to a key": lambda s: s.token(RESOURCE, cnf={"jkt": "x"}),
    "an unknown key": lambda s: s.token(RESOURCE, header={"kid": "nobody-has-this"}),
    "no key": lambda s: s.token(RESOURCE, header={"kid": "ES256-1"}),
    "unsigned": _unsigned,
    "signed with the public key": _signed_with_the_public_key,
    "altered": _altered,
    "no token at all": lambda _: "noheader.nobody.nosignature",
}


@attack(
    "stranger",
    "shows access tokens that are expired, of another audience or issuer, unsigned, altered, or signed with the public key",
    "401 each time, and nothing of the token is repeated",
)
@pytest.mark.parametrize("kind", FALSE)
async def test_a_token_that_is_not_true_lets_nobody_in(kind: str, project: Project) -> None:
    token = FALSE[kind](project.issuer)
    async with served(project.load(ROLES)) as (_, url):
        status, answer, challenge = await ask(url, token)

    assert status == 401
    assert answer["error"]["data"] == {"code": "UNAUTHORIZED"}
    assert 'error="invalid_token"' in challenge
    assert "resource_metadata=" in challenge
    assert token.split(".")[1] not in json.dumps(answer) + challenge


async def test_missing_scope_and_unknown_person_are_forbidden(project: Project) -> None:
    config = project.load(ROLES, more='scopes = ["tools"]')
    async with served(config) as (_, url):
        lacking = await ask(url, project.issuer.token(RESOURCE, scope="other"))
        unknown = await ask(url, project.issuer.token(RESOURCE, sub="stranger", scope="tools"))
        known = await ask(url, project.issuer.token(RESOURCE, scope="tools"))

    assert (lacking[0], unknown[0], known[0]) == (403, 403, 400), "a ping without a session is the SDK's to refuse"
    assert 'error="insufficient_scope"' in lacking[2]
    assert 'scope="tools"' in lacking[2]
    assert lacking[1]["error"]["data"] == unknown[1]["error"]["data"] == {"code": "FORBIDDEN"}
    assert unknown[2] == ""


async def test_others_are_let_in_where_that_is_said(project: Project) -> None:
    config = project.load("", common='others = "allow"')
    async with served(config) as (app, url):
        async with client_of(url, project.issuer.token(RESOURCE, sub="stranger"), STATELESS) as client:
            answer = await client.call_tool("does__echo", {"text": "x"})
        admin, _, _ = await ask(url, project.issuer.token(RESOURCE, sub="stranger"), "/api/servers", "GET")
        entries = await app.store.audit.entries(AuditFilter(), limit=10)

    assert data_of(answer) == "x"
    assert admin == 403
    assert [record.entry.caller for record in entries] == ["oauth:stranger"]


async def test_named_tokens_go_on_beside_it(project: Project) -> None:
    (project.folder / "bob").write_text("bob-token")
    config = project.load(ROLES + '[callers.bob]\ntoken = "${file:bob}"\ntags = []\n')
    async with served(config) as (_, url), client_of(url, "bob-token", STATELESS) as client:
        assert await names(client) == []


class _Storage:
    """Keeps tokens, as a client has to."""

    tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        raise AssertionError(client_info)


@pytest.mark.parametrize("mode", ERAS)
async def test_the_official_client_finds_its_own_way(mode: str, project: Project, free_port: int) -> None:
    resource = f"http://127.0.0.1:{free_port}/mcp"
    config = project.load(ROLES, resource=resource, more='scopes = ["tools"]')
    config = msgspec.structs.replace(config, http=msgspec.structs.replace(config.http, listen=f"127.0.0.1:{free_port}"))
    async with served(config) as (app, url):
        auth = ClientCredentialsOAuthProvider(url, _Storage(), "agent-7", "s7", issuer=project.issuer.issuer)
        async with httpx2.AsyncClient(auth=auth) as http_client:
            async with Client(streamable_http_client(url, http_client=http_client), mode=mode) as client:
                seen = await names(client)
                answer = await client.call_tool("does__echo", {"text": "x"})
        entries = await app.store.audit.entries(AuditFilter(), limit=10)

    assert seen == ["does__echo"]
    assert data_of(answer) == "x"
    assert [record.entry.caller for record in entries] == ["agents:agent-7"]


@pytest.fixture
def free_port() -> int:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


# Keys and time


async def test_keys_are_fetched_once_and_again_for_one_that_is_new(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched() -> int:
        return int(project.issuer.ask("/counts").get("/jwks", 0))

    before = fetched()
    async with served(project.load(ROLES)) as (_, url):
        first = [(await ask(url, project.issuer.token(RESOURCE)))[0] for _ in range(3)]
        once = fetched() - before
        project.issuer.ask("/rotate", {})
        early = [(await ask(url, project.issuer.token(RESOURCE)))[0] for _ in range(3)]
        none = fetched() - before
        monkeypatch.setattr(oauth_keys, "GAP_S", 0.0)
        late = (await ask(url, project.issuer.token(RESOURCE)))[0]
        twice = fetched() - before

    assert first == [400, 400, 400]
    assert once == 1
    assert early == [401, 401, 401], "whoever invents keys does not make us fetch"
    assert none == 1
    assert late == 400
    assert twice == 2


async def test_a_server_that_is_down_is_not_the_callers_fault(tmp_path: Path) -> None:
    with open_authorization_server() as issuer:
        project = Project(tmp_path, issuer)
        config, token = project.load(ROLES), issuer.token(RESOURCE)
    async with served(config) as (_, url):
        status, answer, _ = await ask(url, token)

    assert status == 503
    assert answer["error"]["data"] == {"code": "UPSTREAM_UNAVAILABLE"}


async def test_known_keys_go_on_while_the_server_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_authorization_server() as issuer:
        project = Project(tmp_path, issuer)
        tokens = [issuer.token(RESOURCE, jti=str(number)) for number in range(2)]
        async with served(project.load(ROLES)) as (_, url):
            before = (await ask(url, tokens[0]))[0]
            issuer_is_down = project.issuer.ask("/counts")
            monkeypatch.setattr(oauth_keys, "FRESH_S", 0.0)
            monkeypatch.setattr(oauth_keys, "GAP_S", 0.0)
            monkeypatch.setattr(oauth_keys, "fetch_json", _refused)
            after = (await ask(url, tokens[1]))[0]

    assert issuer_is_down
    assert (before, after) == (400, 400)


async def _refused(_fetcher: Any, _url: str) -> Any:
    raise ValueError("it is down")


async def test_a_token_that_expires_is_refused_on_an_open_connection(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = project.issuer.token(RESOURCE, sub="u", scope="tools:read")
    config = project.load('[callers.reader]\nscopes = ["tools:read"]\n')
    async with served(config) as (app, url), client_of(url, token, STATELESS) as client:
        await client.call_tool("does__echo", {"text": "x"})
        [admission] = app.roster._verified.values()
        held = admission.is_valid
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + roster.VERIFIED_S)
        later = admission.is_valid
        await client.call_tool("does__echo", {"text": "x"})
        verified_again = next(iter(app.roster._verified.values())) is not admission

    assert (held, later, verified_again) == (True, False, True)


async def test_a_rule_that_is_removed_holds_no_longer(project: Project) -> None:
    token = project.issuer.token(RESOURCE)
    async with served(project.load(ROLES)) as (app, url):
        before = (await ask(url, token))[0]
        await apply_config(app, lambda: project.load(ROLES.replace('"ada"', '"other"')))
        after = (await ask(url, token))[0]

    assert (before, after) == (400, 403)
