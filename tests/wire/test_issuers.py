"""Several authorization servers, opaque tokens, groups and roles, and tokens for one endpoint alone."""

import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.attacks import attack
from tests.wire.authorization_server import AuthorizationServer, open_authorization_server
from tests.wire.test_oauth import RESOURCE, Project, ask, served
from tests.wire.test_visibility import small
from toolpost.audit import AuditFilter
from toolpost.contracts.errors import BadConfiguration, Forbidden
from toolpost.credentials import fetch
from toolpost.endpoints.auth import oauth_keys
from toolpost.parts.approvals.voter import identify_voter

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

ADMITTED = 400
"""The status of a ping without a session, which is refused by the SDK: its caller was let in."""


INTROSPECTING = """
[http.oauth.issuers.NAME]
issuer = "https://NAME"
introspection_url = "https://NAME/introspect"
introspection_client = "gateway"
introspection_secret = "${X}"
"""


@pytest.fixture(scope="module")
def issuer() -> Iterator[AuthorizationServer]:
    with open_authorization_server() as server:
        yield server


@pytest.fixture(scope="module")
def other() -> Iterator[AuthorizationServer]:
    with open_authorization_server() as server:
        yield server


@pytest.fixture
def project(tmp_path: Path, issuer: AuthorizationServer) -> Project:
    return Project(tmp_path, issuer)


def two_issuers(other: AuthorizationServer, project: Project) -> str:
    return f"""
[http.oauth.issuers.other]
issuer = "{other.issuer}"
[callers.ada]
subjects = ["ada"]
issuer = "{project.issuer.issuer}"
[callers.eve]
subjects = ["ada", "eve"]
issuer = "{other.issuer}"
"""


@attack("stranger", "has the same `sub` at another trusted issuer", "is another caller")
async def test_the_same_subject_is_another_person_at_another_issuer(
    project: Project, other: AuthorizationServer
) -> None:
    config = project.load(two_issuers(other, project))
    tokens = [project.issuer.token(RESOURCE, sub="ada"), other.token(RESOURCE, sub="ada")]
    async with served(config) as (app, url):
        statuses = [(await ask(url, token))[0] for token in tokens]
        callers = [str(admission.caller.id) for admission in app.roster._verified.values()]
        metadata = await ask(url, None, "/.well-known/oauth-protected-resource/mcp", "GET")
        unknown, _, _ = await ask(url, project.issuer.token(RESOURCE, sub="eve"))

    assert statuses == [ADMITTED, ADMITTED]
    assert callers == ["ada", "eve"]
    assert metadata[1]["authorization_servers"] == [project.issuer.issuer, other.issuer]
    assert unknown == 403, "eve is known at the other issuer only"


@attack("server", "signs tokens in the name of another trusted issuer (mix-up)", "401: its keys are not the other's")
async def test_an_issuer_cannot_speak_for_another(project: Project, other: AuthorizationServer) -> None:
    forged = [
        other.token(RESOURCE, iss=project.issuer.issuer),
        other.token(RESOURCE, iss=project.issuer.issuer, header={"kid": "RS256-1"}),
        other.token(RESOURCE, iss=f"{other.issuer}/"),
        other.token(RESOURCE, iss=other.issuer.replace("http", "HTTP")),
    ]
    async with served(project.load(two_issuers(other, project))) as (_, url):
        answers = [await ask(url, token) for token in forged]

    assert [status for status, _, _ in answers] == [401] * 4
    assert all('error="invalid_token"' in challenge for _, _, challenge in answers)


async def test_unmapped_tokens_are_accepted_of_the_main_issuer_only(
    project: Project, other: AuthorizationServer
) -> None:
    text = f'[http.oauth.issuers.other]\nissuer = "{other.issuer}"\n'
    async with served(project.load(text, common='others = "allow"')) as (_, url):
        main, _, _ = await ask(url, project.issuer.token(RESOURCE, sub="x"))
        second, _, _ = await ask(url, other.token(RESOURCE, sub="x"))

    assert (main, second) == (ADMITTED, 403)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[http.oauth.issuers.b]\nissuer = "https://b"\n[callers.x]\nsubjects = ["x"]\n', "whose tokens"),
        ("[http.oauth.issuers.b]\n", "http.oauth.issuers.b.issuer is not set"),
        ('[http.oauth.issuers.b]\nissuer = "http://b.example"\n', "issuers.b.issuer must be an https URL"),
        ('[http.oauth.issuers.b]\nissuer = "https://b"\nintrospection_url = "https://b/i"\n', "needs a client"),
        (INTROSPECTING.replace("NAME", "b") + INTROSPECTING.replace("NAME", "c"), "two of them introspect"),
    ],
)
def test_issuers_that_cannot_be_told_apart_are_refused(text: str, message: str, project: Project) -> None:
    with pytest.raises(BadConfiguration, match=message):
        project.load(text, common='others = "allow"')


# Claims

CLAIMS = """
[callers.admins]
groups = ["ops"]
roles = ["admin"]
[callers.keycloak]
claims = {"realm_access.roles" = ["tools"]}
[callers.verified]
claims = {"https://example.com/level" = ["2"], email_verified = ["true"]}
"""


MAPPED: list[tuple[dict[str, Any], str | None]] = [
    ({"groups": ["ops", "dev"], "roles": ["admin"]}, "admins:ada"),
    ({"groups": ["ops"]}, None),
    ({"groups": "ops", "roles": "admin"}, "admins:ada"),
    ({"groups": ["o", "p", "s"], "roles": ["admin"]}, None),
    ({"realm_access": {"roles": ["tools"]}}, "keycloak:ada"),
    ({"realm_access": "tools"}, None),
    ({"https://example.com/level": 2, "email_verified": True}, "verified:ada"),
    ({"https://example.com/level": 2, "email_verified": False}, None),
]


async def test_groups_roles_and_other_claims_map_to_callers(project: Project) -> None:
    async with served(project.load(CLAIMS)) as (app, url):
        for claims, caller in MAPPED:
            app.roster._verified.clear()
            status, _, _ = await ask(url, project.issuer.token(RESOURCE, **claims))
            found = [str(admission.caller.id) for admission in app.roster._verified.values()]

            assert (status, found) == ((403, []) if caller is None else (ADMITTED, [caller])), claims


# Opaque tokens


class Opaque:
    """A project whose tokens are introspected."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.issuer = project.issuer

    def load(self, more: str = "") -> Any:
        (self.project.folder / "secret").write_text("s:\n")
        url = f"{self.issuer.issuer}/introspect"
        return self.project.load(
            '[callers.ada]\nsubjects = ["ada"]\n',
            more=f'introspection_url = "{url}"\nintrospection_client = "gateway"\n'
            f'introspection_secret = "${{file:secret}}"\n{more}',
        )

    def remember(self, token: str, **claims: Any) -> str:
        usual = {"active": True, "aud": RESOURCE, "sub": "ada", "exp": int(time.time()) + 600}
        known = {name: value for name, value in (usual | claims).items() if value is not None}
        self.issuer.ask("/remember", {token: known})
        return token

    def requests(self) -> int:
        return int(self.issuer.ask("/counts").get("/introspect", 0))


@pytest.fixture
def opaque(project: Project) -> Opaque:
    return Opaque(project)


async def test_an_opaque_token_is_introspected_once_and_again_when_it_may_have_been_revoked(
    opaque: Opaque, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = opaque.remember("opaque-1")
    before = opaque.requests()
    async with served(opaque.load()) as (app, url):
        first = [(await ask(url, token))[0] for _ in range(3)]
        once = opaque.requests() - before
        [admission] = app.roster._verified.values()
        opaque.remember("opaque-1", active=False)
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 61)
        revoked = [await ask(url, token) for _ in range(3)]
        asked = opaque.requests() - before

    assert first == [ADMITTED] * 3
    assert once == 1
    assert admission.caller.id == "ada"
    assert [status for status, _, _ in revoked] == [401] * 3
    assert asked == 2, "a token that is not active is not asked about each time"
    assert "opaque-1" not in str(revoked)


@attack("caller", "shows a cached opaque token after its end", "401: nothing is remembered past `exp`")
async def test_an_introspected_token_is_never_cached_past_its_end(opaque: Opaque) -> None:
    token = opaque.remember("opaque-2", exp=int(time.time()) + 60)
    async with served(opaque.load()) as (app, url):
        admitted, _, _ = await ask(url, token)
        [admission] = app.roster._verified.values()

    assert admitted == ADMITTED
    assert admission._until is not None
    assert admission._until <= time.time() + 60


FALSE: list[dict[str, Any] | None] = [
    {"active": False},
    {"active": "true"},
    {"exp": 1},
    {"exp": "tomorrow"},
    {"nbf": 10**11},
    {"aud": "https://else.example/mcp"},
    {"aud": None},
    {"iss": "https://evil.example"},
    {"cnf": {"jkt": "x"}},
    {"token_type": "DPoP"},
    {"sub": None},
    None,
]


@attack(
    "stranger",
    "shows opaque tokens that are inactive, over, of another audience or issuer, or bound to a key",
    "401 each time",
)
async def test_an_opaque_token_that_is_not_for_us_lets_nobody_in(opaque: Opaque) -> None:
    async with served(opaque.load()) as (_, url):
        for number, claims in enumerate(FALSE):
            token = f"false-{number}"
            if claims is not None:
                opaque.remember(token, **claims)
            status, answer, challenge = await ask(url, token)

            assert status == 401, claims
            assert token not in str(answer) + challenge


async def test_a_token_of_an_unknown_issuer_is_shown_to_no_other(opaque: Opaque) -> None:
    before = opaque.requests()
    token = opaque.issuer.token(RESOURCE, iss="https://else.example")
    async with served(opaque.load()) as (_, url):
        status, _, _ = await ask(url, token)

    assert (status, opaque.requests() - before) == (401, 0)


async def test_a_server_that_cannot_be_asked_is_not_the_callers_fault(opaque: Opaque) -> None:
    config = opaque.load()
    (opaque.project.folder / "secret").write_text("wrong")
    async with served(config) as (_, url):
        status, answer, _ = await ask(url, "opaque-3")

    assert status == 503
    assert answer["error"]["data"] == {"code": "UPSTREAM_UNAVAILABLE"}


# Audiences


@attack("caller", "shows a token for one endpoint at another one", "401, with the metadata of the right one")
async def test_a_token_for_one_endpoint_is_accepted_there_alone(project: Project) -> None:
    config = project.load('[callers.ada]\nsubjects = ["ada"]\n', common='audience_of = "endpoint"')
    paths = ["/mcp", "/mcp/server/one", "/mcp/server/two"]
    audiences = [RESOURCE, f"{RESOURCE}/server/one", f"{RESOURCE}/server/one/", "https://tools.example.com/mcpx"]
    got: list[list[int]] = []
    async with served(config, small("one", "a"), small("two", "b")) as (app, url):
        for audience in audiences:
            token = project.issuer.token(audience)
            # Twice: from the verifier, and from the cache.
            answers = [[(await ask(url, token, path))[0] for path in paths] for _ in range(2)]
            assert answers[0] == answers[1]
            got.append(answers[0])
        _, _, challenge = await ask(url, None, "/mcp/server/one")
        _, metadata, _ = await ask(url, None, "/.well-known/oauth-protected-resource/mcp/server/one", "GET")
        _, other, _ = await ask(url, None, "/.well-known/oauth-protected-resource/mcp/nothing", "GET")
        counted = app.gateway.metrics.tokens_rejected.value()

    assert got == [[ADMITTED, 401, 401], [401, ADMITTED, 401], [401, 401, 401], [401, 401, 401]]
    assert counted == 2 * sum(statuses.count(401) for statuses in got)  # and not the request without a token
    assert "https://tools.example.com/.well-known/oauth-protected-resource/mcp/server/one" in challenge
    assert metadata["resource"] == f"{RESOURCE}/server/one"
    assert other["resource"] == RESOURCE


@attack("agent", "votes at the command line with a token for one endpoint", "only tokens for the gateway prove a voter")
async def test_a_token_for_one_endpoint_does_not_vote(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    config = project.load('[callers.ada]\nsubjects = ["ada"]\n', common='audience_of = "endpoint"')

    async def identify(audience: str) -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO(project.issuer.token(audience)))
        return (await identify_voter(config, None)).id

    assert await identify(RESOURCE) == "ada"
    with pytest.raises(Forbidden, match="belongs to no caller who may vote"):
        await identify(f"{RESOURCE}/server/one")


# Fetched documents


@attack(
    "server",
    "names an address inside the gateway's network for its keys",
    "it is not fetched; only an issuer that is configured there may lead there",
)
async def test_metadata_cannot_lead_the_gateway_into_its_own_network(
    project: Project, other: AuthorizationServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The issuer counts as one on the internet; the other server is in our network.
    project.issuer.ask("/metadata", {"jwks_uri": f"{other.issuer}/jwks"})
    before = other.ask("/counts").get("/jwks", 0)
    on_the_internet = property(lambda _: fetch.Reach.INTERNET, lambda _fetcher, _reach: None)
    monkeypatch.setattr(fetch.Fetcher, "_allowed", on_the_internet, raising=False)
    monkeypatch.setattr(oauth_keys, "GAP_S", 0.0)
    try:
        async with served(project.load('[callers.ada]\nsubjects = ["ada"]\n')) as (app, url):
            status, _, _ = await ask(url, project.issuer.token(RESOURCE))
            entries = await app.store.audit.entries(AuditFilter(), limit=1)
    finally:
        project.issuer.ask("/metadata", {})

    assert status == 503
    assert other.ask("/counts").get("/jwks", 0) == before
    assert not entries
