"""Servers that are used with tokens got in exchange for the callers' own: each call with those of its caller, or not at all."""

import json
import logging
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.hostile.attacks import attack
from tests.upstreams.servers.oauth_server import OAuthServer, serving_oauth
from tests.wire.authorization_server import AuthorizationServer, open_authorization_server
from tests.wire.callers import ERAS, client_of
from tests.wire.test_oauth import RESOURCE, Project
from toolpost.app import open_app, open_http
from toolpost.app.reload import apply_config
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.contracts.errors import BadConfiguration
from toolpost.credentials.subjects import TOKENS_LIMIT, SubjectTokens
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings

pytestmark = [pytest.mark.anyio, pytest.mark.wire, pytest.mark.soak]

AGENT = "an-agents-token-of-the-test-0123456789"


@pytest.fixture(scope="module")
def issuer() -> Iterator[AuthorizationServer]:
    with open_authorization_server() as server:
        yield server


@pytest.fixture
def project(tmp_path: Path, issuer: AuthorizationServer, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("STATIC_TOKEN", "static-token-of-the-test-0123456789")
    return Project(tmp_path, issuer)


def configure(project: Project, server: OAuthServer, *, subject: str = "caller", issuer: str | None = None) -> Config:
    """Have the people of the project's authorization server call a server that another one guards."""
    token = 'subject_token = "of-all-who-come-0123456789"\n' if subject == "configured" else ""
    config = project.load(
        '[callers.people]\nscopes = ["tools"]\n[callers.static]\ntoken = "${STATIC_TOKEN}"\n'
        f'[servers.up]\nurl = "{server.base}/mcp"\n'
        f'[servers.up.auth]\ntype = "token_exchange"\nsubject = "{subject}"\nissuer = "{server.base}"\n{token}'
        f'client_id = "gateway"\nsubject_issuer = "{issuer or project.issuer.issuer}"\n'
    )
    return msgspec.structs.replace(config, store=StoreSettings(url=f"sqlite:{project.folder / 'state.db'}"))


def token_of(project: Project, name: str, **claims: Any) -> str:
    return project.issuer.token(RESOURCE, sub=name, scope="tools", **claims)


async def call(url: str, token: str, mode: str = ERAS[0]) -> Any:
    """Call the server's tool; returns its text, or the error."""
    async with client_of(url, token, mode) as client:
        result = await client.call_tool("up__echo", {"text": "hi"})
    text = result.content[0].text  # type: ignore[union-attr]
    return json.loads(text) if result.is_error else text


@pytest.mark.parametrize("mode", ERAS)
@attack(
    "caller", "calls a server that is used with tokens in exchange for the callers'", "never another caller's token"
)
async def test_each_call_is_made_with_what_its_callers_token_was_exchanged_for(
    mode: str, project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = OAuthServer()
    ann, ben = (token_of(project, name) for name in ("ann", "ben"))
    async with serving_oauth(server):
        config = configure(project, server)
        async with open_app(config, bundled=False) as app, open_http(app) as url:
            texts = [await call(url, token, mode) for token in (ann, ben, ann)]
            by_ann = len(server.seen_tokens)
            await call(url, ann, mode)
            seen_last = server.seen_subjects[by_ann:]
            static = await call(url, "static-token-of-the-test-0123456789", mode)
            forms = len(server.forms)
            server.token_error = 400, "invalid_request"
            server.expire_all()
            refused = await call(url, ben, mode)
            again = await call(url, ben, mode)

    assert texts == ["hi", "hi", "hi"]
    assert {form["subject_token"] for form in server.forms} == {ann, ben}
    assert {form["subject_token_type"].rpartition(":")[2] for form in server.forms} == {"access_token"}
    assert forms == 2, "a token is exchanged once"
    assert set(seen_last) == {ann}
    assert static["code"] == "CREDENTIAL_REQUIRED"
    assert project.issuer.issuer in static["hint"]
    assert refused["code"] == "UPSTREAM_UNAVAILABLE"
    assert again["code"] == "CREDENTIAL_REQUIRED", "a token that was refused is not sent again"
    assert len(server.forms) == forms + 1
    written = b"".join(file.read_bytes() for file in project.folder.rglob("*") if file.is_file())
    for secret in (ann, ben, *server.exchanged):
        assert secret not in str([static, refused, again, caplog.text])
        assert secret.encode() not in written


async def test_a_call_after_a_restart_waits_for_its_callers_token(project: Project) -> None:
    """An agent goes on for a caller who has not come to this gateway yet: its token is not known, and no other one is used."""
    server = OAuthServer()
    ann, ben = (token_of(project, name) for name in ("ann", "ben"))
    caller = Caller(id=CallerId("people:ann"), transport="agent")
    async with serving_oauth(server):
        config = configure(project, server)
        async with open_app(config, bundled=False) as app, open_http(app) as url:
            await call(url, ann)
        async with open_app(config, bundled=False) as app, open_http(app) as url:
            app.roster.delegate(AGENT.encode(), caller, ())
            stored = await call(url, AGENT)
            server.expire_all()
            await call(url, ben)
            before = len(server.seen_tokens)
            without = await call(url, AGENT)
            with_none = server.seen_subjects[before:]
            await call(url, ann)
            after = await call(url, AGENT)
            last = server.seen_subjects[-1]

    assert stored == "hi", "what was got for her is hers"
    assert without["code"] == "CREDENTIAL_REQUIRED"
    assert with_none == []
    assert (after, last) == ("hi", ann)


async def test_tokens_of_another_issuer_are_not_shown(project: Project) -> None:
    server = OAuthServer()
    server.open_methods = {"server/discover", "tools/list"}
    async with serving_oauth(server):
        config = configure(project, server, issuer="https://else.example")
        async with open_app(config, bundled=False) as app, open_http(app) as url:
            error = await call(url, token_of(project, "ann"))

    assert error["code"] == "CREDENTIAL_REQUIRED"
    assert server.forms == []


async def test_a_setting_that_is_changed_takes_the_tokens_of_those_who_are_there(project: Project) -> None:
    server = OAuthServer()
    ann = token_of(project, "ann")
    async with serving_oauth(server):
        async with (
            open_app(configure(project, server, subject="configured"), bundled=False) as app,
            open_http(app) as url,
        ):
            await call(url, ann)
            await apply_config(app, partial(configure, project, server))
            text = await call(url, ann)

    assert text == "hi"
    assert server.seen_subjects[-1] == ann


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('credentials = "shared"\n', 'is "shared", but auth.subject'),
        ('auth.type = "client_credentials"\n', "needs type `token_exchange`"),
        ('auth.subject_token = "x"\n', "no `subject_token`"),
    ],
)
def test_settings_that_contradict_are_refused(line: str, message: str, project: Project) -> None:
    auth = {"type": '"token_exchange"', "subject": '"caller"', "issuer": '"https://as.example"', "client_id": '"me"'}
    known = "".join(f"auth.{name} = {value}\n" for name, value in auth.items() if f"auth.{name} " not in line)
    with pytest.raises(BadConfiguration, match=message):
        project.load(
            f'[servers.up]\nurl = "https://up.example/mcp"\n{known}{line}', common='others = "allow"'
        ).resolve_server("up")


def test_tokens_are_kept_until_they_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, now = SubjectTokens(), time.time()
    for number in range(TOKENS_LIMIT + 2):
        tokens.keep("ann", b"t%d" % number, issuer="a", expires_at=now + 10 + number)
    tokens.keep("ann", b"other", issuer="b", expires_at=now + 5)
    tokens.keep("", b"nobodys", issuer="a", expires_at=now + 10)
    found = [tokens.find("ann", "a"), tokens.find("ann", "b"), tokens.find("ann", "c"), tokens.find("", "a")]
    tokens.drop("ann", f"t{TOKENS_LIMIT + 1}")
    dropped = tokens.find("ann", "a")
    monkeypatch.setattr(time, "time", lambda: now + 100)
    late = tokens.find("ann", "a")

    assert found == [f"t{TOKENS_LIMIT + 1}", "other", None, None]
    assert dropped == f"t{TOKENS_LIMIT}"
    assert late is None
    assert tokens._by_owner == {}
