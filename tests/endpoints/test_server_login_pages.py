"""`/login/SERVER`: whose login it is, and what a page, a redirect or an address of another cannot do."""

import base64
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx2
import msgspec
import pytest

from tests.credentials.logging_in import find_link, log_in
from tests.hostile.attacks import attack
from tests.upstreams.servers.oauth_server import OAuthServer, serving_oauth
from tests.waiting import until
from tests.ways import IN_MEMORY
from toolpost.app import App, open_app, open_http
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId, ThreadId
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.credentials import gateway_logins as logins_module
from toolpost.credentials.grant import NAME
from toolpost.credentials.login_flow import PENDING_LIMIT, LoginAttempt
from toolpost.providers import caller_providers as owned_module
from toolpost.settings import Config
from toolpost.settings.callers import CallerSettings
from toolpost.upstreams.spec import AuthSpec, ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

LOCAL = Caller(id=CallerId("local"), transport="http", is_admin=True)


@asynccontextmanager
async def opened(server: OAuthServer, *, config: Config = IN_MEMORY, **options: Any) -> AsyncIterator[tuple[App, str]]:
    async with (
        serving_oauth(server) as url,
        open_app(config, bundled=False, servers=[ServerSpec(name="up", url=url, **options)]) as app,
        open_http(app) as front,
    ):
        yield app, front.removesuffix("/mcp")


async def has_login(app: App, owner: str = "") -> bool:
    return await app.servers.logins.vault.get("up", owner, NAME) is not None


def with_callers(monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("ANN", "token-of-ann-" + "a" * 30)
    monkeypatch.setenv("BOB", "token-of-bob-" + "b" * 30)
    callers = {"ann": CallerSettings(token="${ANN}", admin=True), "bob": CallerSettings(token="${BOB}")}
    return msgspec.structs.replace(IN_MEMORY, callers=callers)


async def test_the_page_says_whose_login_it_is_and_cannot_be_framed() -> None:
    server = OAuthServer()
    server.resource_metadata["scopes_supported"] = ["mail.read", "<b>"]
    async with opened(server) as (_, base), httpx2.AsyncClient() as browser:
        page = await browser.get(f"{base}/login/up")
        missing = await browser.get(f"{base}/login/nothing")
        posted = await browser.post(f"{base}/login/up")

    assert page.status_code == 200
    assert "<b>all callers</b>" in page.text
    assert "<code>mail.read</code>" in page.text
    assert "<code>&lt;b&gt;</code>" in page.text
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"
    assert "HttpOnly; SameSite=Lax" in page.headers["set-cookie"]
    assert (missing.status_code, posted.status_code) == (404, 405)


@attack(
    "stranger",
    "has a browser complete a login that it did not begin, or completes one twice",
    "refused: the redirect needs the cookie of the browser that began it, and works once",
)
async def test_a_redirect_works_once_and_in_the_browser_that_began_it() -> None:
    server = OAuthServer()
    async with opened(server) as (app, base), httpx2.AsyncClient() as mine, httpx2.AsyncClient() as other:
        link = await find_link(mine, f"{base}/login/up")
        redirect = (await mine.get(link)).headers["location"]
        foreign = await other.get(redirect)
        was_in = await has_login(app)
        link = await find_link(mine, f"{base}/login/up")
        redirect = (await mine.get(link)).headers["location"]
        done = await mine.get(redirect)
        replayed = await mine.get(redirect)
        forged = await mine.get(f"{base}/login/callback/up?code=x&state=abc.dXAK")
        empty = await mine.get(f"{base}/login/callback/up")

    assert (foreign.status_code, was_in) == (400, False)
    assert "begun in another browser" in foreign.text
    assert done.status_code == 200
    assert [page.status_code for page in (replayed, forged, empty)] == [400, 400, 400]
    assert "completed already" in replayed.text
    assert server.counts["authorization_code"] == 1, "a code was sent to the token endpoint for a refused redirect"


@attack(
    "stranger",
    "sends redirects with made-up states, each for another owner, to fill the gateway's memory",
    "refused before anything is made for that owner",
)
async def test_a_forged_state_leaves_nothing_behind() -> None:
    async with opened(OAuthServer(), credentials="caller") as (app, base), httpx2.AsyncClient() as browser:
        server_tokens = app.servers._access.server_tokens
        assert server_tokens is not None
        before = len(server_tokens._known)
        pages = []
        for number in range(20):
            named = base64.urlsafe_b64encode(f"up\nowner-{number}".encode()).decode().rstrip("=")
            pages.append(await browser.get(f"{base}/login/callback/up?code=x&state=abc.{named}"))
        after = len(server_tokens._known)

    assert {page.status_code for page in pages} == {400}
    assert after == before


async def test_owners_that_are_dropped_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owned_module, "OWNERS_LIMIT", 2)
    async with opened(OAuthServer(), credentials="caller") as (app, _):
        server_tokens, by_owner = app.servers._access.server_tokens, app.servers.providers["up"].by_owner
        assert server_tokens is not None
        assert by_owner is not None
        for number in range(5):
            await by_owner.of(f"owner-{number}")
        known = {owner for _, owner in server_tokens._known}

    assert known <= {"", "owner-3", "owner-4"}


@attack(
    "server",
    "sends a code of another one (mix-up), or says nothing about itself though it always does",
    "refused, before the code is sent anywhere; the issuer is compared as text",
)
@pytest.mark.parametrize("said", ["https://evil.example", "/", ""])
async def test_the_issuer_of_a_redirect_is_compared_as_text(said: str) -> None:
    server = OAuthServer()
    async with opened(server) as (app, base), httpx2.AsyncClient() as browser:
        link = await find_link(browser, f"{base}/login/up")
        redirect = (await browser.get(link)).headers["location"]
        parts = parse_qs(urlsplit(redirect).query)
        iss = {"/": f"&iss={parts['iss'][0]}/", "": ""}.get(said, f"&iss={said}")
        page = await browser.get(f"{base}/login/callback/up?code={parts['code'][0]}&state={parts['state'][0]}{iss}")
        is_in = await has_login(app)

    assert page.status_code == 400
    assert "issuer" in page.text
    assert not is_in
    assert server.forms == []


@attack(
    "server",
    "sends the browser on to an honest authorization server that does not name itself, to get the code (mix-up)",
    "refused, before the code is sent anywhere: each server has a redirect URI of its own",
)
async def test_a_redirect_for_another_server_is_refused() -> None:
    server = OAuthServer()
    server.metadata["authorization_response_iss_parameter_supported"] = None
    async with opened(server) as (app, base), httpx2.AsyncClient() as browser:
        link = await find_link(browser, f"{base}/login/up")
        parts = parse_qs(urlsplit((await browser.get(link)).headers["location"]).query)
        sent = f"code={parts['code'][0]}&state={parts['state'][0]}"
        pages = [await browser.get(f"{base}/login/callback{place}?{sent}") for place in ("/honest", "/", "")]
        is_in = await has_login(app)
        done = await browser.get(f"{base}/login/callback/up?{sent}")

    assert f"redirect_uri={quote(f'{base}/login/callback/up', safe='')}" in link
    assert [page.status_code for page in pages] == [400, 400, 404]
    assert not is_in
    assert done.status_code == 200
    assert server.counts["authorization_code"] == 1


async def test_a_refused_login_says_so_and_escapes_what_it_quotes() -> None:
    server = OAuthServer()
    server.authorize_error = "access_denied<script>"
    async with opened(server) as (app, base):
        page = await log_in(f"{base}/login/up")
        is_in = await has_login(app)

    assert page.status_code == 400
    assert "access_denied&lt;script&gt;" in page.text
    assert not is_in


@attack(
    "server",
    "supports no PKCE with S256, or does not say that it does (downgrade)",
    "the login is not begun, unless the operator has set `assume_pkce`",
)
@pytest.mark.parametrize("methods", [None, ["plain"]])
async def test_pkce_is_not_downgraded(methods: list[str] | None) -> None:
    server = OAuthServer()
    server.metadata["code_challenge_methods_supported"] = methods
    async with opened(server) as (_, base), httpx2.AsyncClient() as browser:
        page = await browser.get(f"{base}/login/up")
    async with opened(server, auth=AuthSpec(assume_pkce=True)) as (_, base), httpx2.AsyncClient() as browser:
        link = await find_link(browser, f"{base}/login/up")

    assert page.status_code == 503
    assert "PKCE" in page.text
    assert "code_challenge_method=S256" in link


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"issuer": "https://evil.example"}, "names another issuer"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "publishes no metadata"),
        ({"token_endpoint": "http://169.254.169.254/token"}, "inside this network"),
        ({"authorization_endpoint": "http://good.example@127.0.0.1/authorize"}, "a user name in its URL"),
        ({"registration_endpoint": None}, "does not let clients register themselves"),
    ],
)
async def test_metadata_that_leads_elsewhere_is_refused(metadata: dict[str, Any], said: str) -> None:
    server = OAuthServer()
    server.metadata = metadata
    async with opened(server) as (_, base), httpx2.AsyncClient() as browser:
        page = await browser.get(f"{base}/login/up")

    assert page.status_code == 503
    assert said in page.text


class BadRegistration(OAuthServer):
    """Answers a registration with a secret, and without a client id."""

    async def _answer(self, path: str, *rest: Any) -> tuple[int, Any, dict[str, str]]:
        if path == "/register":
            return 201, {"client_secret": "s3cret-of-the-client", "redirect_uris": "none"}, {}
        return await super()._answer(path, *rest)


async def test_a_registration_that_cannot_be_used_is_not_quoted() -> None:
    async with opened(BadRegistration()) as (app, _):
        with pytest.raises(UpstreamUnavailable, match="refuses to register") as refusal:
            await app.servers.logins.begin("up", "", browser="x")

    assert "s3cret" not in "".join(traceback.format_exception(refusal.value))


@attack(
    "caller",
    "replaces the login that all callers share by its own, or uses another's address for a login",
    "only administrators may replace a shared login; an address is signed, for one server, and expires",
)
async def test_a_shared_login_is_the_administrators(monkeypatch: pytest.MonkeyPatch) -> None:
    server = OAuthServer()
    config = with_callers(monkeypatch)
    async with opened(server, config=config) as (app, base), httpx2.AsyncClient() as browser:
        stranger = await browser.get(f"{base}/login/up")
        pages = {
            name: await browser.get(
                f"{base}/login/up", headers={"authorization": f"Bearer token-of-{name}-{name[0] * 30}"}
            )
            for name in ("ann", "bob")
        }
        address = app.servers.logins.make_url("up", LOCAL)
        assert address is not None
        nobody = app.servers.logins.make_url("up", Caller(id=CallerId("bob"), transport="http"))
        forged = await browser.get(address[:-6] + "AAAAAA")
        other = await browser.get(address.replace("/login/up", "/login/down"))
        opened_by_ticket = await browser.get(address)
        monkeypatch.setattr(logins_module, "PENDING_S", -1.0)
        address = app.servers.logins.make_url("up", LOCAL) or ""
        late = await browser.get(address)

    assert stranger.status_code == 401
    assert {name: page.status_code for name, page in pages.items()} == {"ann": 200, "bob": 403}
    assert nobody is None
    assert [page.status_code for page in (forged, other, late)] == [400, 400, 400]
    assert opened_by_ticket.status_code == 200


@attack(
    "stranger",
    "opens the address of a login that was sent to another person, before or after that person has used it",
    "refused: the address is valid for the first browser that opens it, and for one login; agents get none that is",
)
async def test_an_address_is_valid_for_one_browser_and_one_login() -> None:
    async with opened(OAuthServer()) as (app, base), httpx2.AsyncClient() as mine, httpx2.AsyncClient() as other:
        address = app.servers.logins.make_url("up", LOCAL) or ""
        await find_link(mine, address)
        stolen = await other.get(address)
        links = [await find_link(mine, address) for _ in range(2)]
        redirects = [(await mine.get(link)).headers["location"] for link in links]
        done, second = [await mine.get(redirect) for redirect in redirects]
        again = await mine.get(address)
        agents = [
            app.servers.logins.make_url("up", replace(LOCAL, transport="agent")),
            app.servers.logins.make_url("up", replace(LOCAL, thread=ThreadId("t"))),
        ]

    assert (stolen.status_code, done.status_code, second.status_code, again.status_code) == (400, 200, 400, 400)
    assert "opened in another browser" in stolen.text
    assert "A login was completed" in second.text
    assert "A login was completed" in again.text
    assert agents == [f"{base}/login/up"] * 2


async def test_an_address_can_be_opened_again_after_an_error() -> None:
    server = OAuthServer()
    async with opened(server) as (app, _), httpx2.AsyncClient() as browser:
        address = app.servers.logins.make_url("up", LOCAL) or ""
        server.metadata = {"issuer": "https://evil.example"}
        failed = await browser.get(address)
        server.metadata = {}
        done = await log_in(address)

    assert (failed.status_code, done.status_code) == (503, 200)


@attack(
    "stranger",
    "has a browser or script open the page of a login again and again",
    "ten logins at most are pending, with one registration; nothing is begun for a picture or a frame",
)
async def test_pending_logins_are_limited() -> None:
    server = OAuthServer()
    async with opened(server) as (app, base), httpx2.AsyncClient() as browser:
        links = [await find_link(browser, f"{base}/login/up") for _ in range(15)]
        changes = await app.servers.logins.vault.list_changes("up", "")
        framed = [
            await browser.get(f"{base}/login/up", headers={"sec-fetch-dest": kind}) for kind in ("image", "iframe")
        ]
        page = await browser.get(f"{base}/login/up", headers={"sec-fetch-dest": "document"})
        done = await browser.get((await browser.get(links[-1])).headers["location"])

    assert len(changes) == PENDING_LIMIT
    assert len(server.clients) == 1
    assert [each.status_code for each in framed] == [403, 403]
    assert page.status_code == 200
    assert done.status_code == 200


@attack(
    "stranger",
    "sets the login's cookie from a neighboring host of the same domain",
    "over TLS its name has the prefix `__Host-`, which browsers let this host alone set",
)
async def test_the_cookie_is_bound_to_the_host_over_tls() -> None:
    public, headers = "https://gateway.example", {"host": "gateway.example"}
    http = msgspec.structs.replace(IN_MEMORY.http, public_url=public, allowed_hosts=["gateway.example"])
    config = msgspec.structs.replace(IN_MEMORY, http=http)
    async with opened(OAuthServer(), config=config) as (app, base), httpx2.AsyncClient(headers=headers) as browser:
        address = (app.servers.logins.make_url("up", LOCAL) or "").replace(public, base)
        page = await browser.get(address)
        cookie, _, rest = page.headers["set-cookie"].partition(";")
        fake = await browser.get(address, headers={"cookie": cookie.removeprefix("__Host-")})
        same = await browser.get(address, headers={"cookie": cookie})

    assert cookie.startswith("__Host-toolpost_login=")
    assert rest == " Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=900"
    assert (page.status_code, fake.status_code, same.status_code) == (200, 400, 200)


def test_the_page_names_the_host_that_the_login_leads_to() -> None:
    urls = ["https://as.example/a", "https://as.example:8443/a", "https://good.example@as.example/a"]

    hosts = [LoginAttempt(url=url, issuer="", scopes=()).host for url in urls]

    assert hosts == ["as.example", "as.example:8443", "as.example"]


async def test_another_name_of_the_gateway_leads_to_its_own_address() -> None:
    async with opened(OAuthServer()) as (_, base), httpx2.AsyncClient() as browser:
        away = await browser.get(f"{base.replace('127.0.0.1', 'localhost')}/login/up?x=1")
        misled = await browser.get(f"{base}/login/up", headers={"host": "evil.example"})

    assert (away.status_code, away.headers["location"]) == (303, f"{base}/login/up?x=1")
    assert misled.status_code in (400, 403, 421)


async def test_a_login_lists_the_tools_at_once() -> None:
    async with opened(OAuthServer()) as (app, base):
        await log_in(f"{base}/login/up")
        await until(lambda: app.servers.providers["up"].definitions is not None, limit_s=1.5)
