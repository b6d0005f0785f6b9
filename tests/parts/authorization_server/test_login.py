"""Clients log in at the gateway: the whole way, and what attackers try on it."""

import asyncio
import logging
import time
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from threading import Event
from typing import Any, cast
from urllib.parse import urlencode

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from tests.hostile.attacks import attack
from tests.hostile.test_removed_callers import END, rest_of, stream
from tests.parts.authorization_server.conftest import (
    PASSPHRASE,
    REDIRECT,
    Gateway,
    OpenGateway,
    Pkce,
    config_of,
    query_of,
)
from tests.waiting import until
from tests.ways import ENVELOPE, IN_MEMORY, STATELESS
from tests.wire.callers import ERAS, names
from toolpost.app import open_app
from toolpost.app.reload import apply_config
from toolpost.audit import AuditFilter
from toolpost.base.passphrase import hash_passphrase, is_passphrase
from toolpost.endpoints.http.request import HttpRequest
from toolpost.parts import Api, TokenIssuer
from toolpost.parts.authorization_server import PART, pace, passphrase, records, routes
from toolpost.parts.authorization_server import server as login_server
from toolpost.parts.authorization_server.clients import LoginClient
from toolpost.parts.authorization_server.routes import find_address
from toolpost.parts.authorization_server.server import AuthorizationServer
from toolpost.store import Script, Statement

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

ADMITTED = 400


class _Storage:
    """Keeps what a client has to keep."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Person:
    """Logs in where the official client leads to."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.answer: dict[str, str] = {}

    async def go(self, url: str) -> None:
        begun = await self.gateway.http.get(url)
        page = await self.gateway.sign_in(await self.gateway.http.get(begun.headers["location"]))
        done = await self.gateway.send_form(page, action="allow")
        self.answer = query_of(done.headers["location"])

    async def come_back(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(**self.answer)


@pytest.mark.parametrize("mode", ERAS)
async def test_the_official_client_logs_in_and_its_session_survives_a_refresh(
    mode: str, open_gateway: OpenGateway, store_url: str
) -> None:
    async with open_gateway("access_s = 5", store=store_url) as gateway:
        person, storage = Person(gateway), _Storage()
        auth = OAuthClientProvider(
            f"{gateway.url}/mcp",
            OAuthClientMetadata(redirect_uris=[AnyUrl(REDIRECT)], client_name="Official"),
            storage,
            person.go,
            person.come_back,
        )
        async with httpx2.AsyncClient(auth=auth, timeout=20) as http_client:
            transport = streamable_http_client(f"{gateway.url}/mcp", http_client=http_client)
            async with Client(transport, mode=mode) as client:
                seen = await names(client)
                first = storage.tokens
                # The client takes its token for over, and gets the next one within the same session.
                auth.context.token_expiry_time = 1.0
                await client.call_tool("does__echo", {"text": "x"})
                second = storage.tokens
        entries = await gateway.app.store.audit.entries(AuditFilter(), limit=10)

    assert seen == ["does__echo"]
    assert first is not None
    assert second is not None
    assert first.access_token != second.access_token
    assert {record.entry.caller for record in entries} == {"ada"}


async def test_the_metadata_says_what_there_is(open_gateway: OpenGateway) -> None:
    async with open_gateway() as gateway:
        answer = await gateway.http.get(f"{gateway.url}/.well-known/oauth-authorization-server")
        resource = await gateway.http.get(f"{gateway.url}/.well-known/oauth-protected-resource/mcp")
        refused = await gateway.http.post(f"{gateway.url}/mcp", json={})
        preflight = await gateway.http.options(f"{gateway.url}/token", headers={"origin": "https://inspector.example"})

    found = answer.json()
    assert found["issuer"] == gateway.url
    assert found["code_challenge_methods_supported"] == ["S256"]
    assert found["client_id_metadata_document_supported"] is True
    assert found["authorization_response_iss_parameter_supported"] is True
    assert answer.headers["access-control-allow-origin"] == "*"
    assert resource.json()["authorization_servers"] == [gateway.url]
    assert resource.json()["resource"] == f"{gateway.url}/mcp"
    assert refused.status_code == 401
    assert f"{gateway.url}/.well-known/oauth-protected-resource/mcp" in refused.headers["www-authenticate"]
    assert preflight.status_code == 204


async def test_login_is_off_by_default() -> None:
    async with open_app(IN_MEMORY, bundled=False, parts=[PART]) as app:
        assert app.contributions.parts == ["authorization_server"]
        assert not app.contributions.all(TokenIssuer)
        assert not app.contributions.all(Api)


# The page


async def test_the_consent_page_names_client_scopes_and_tools(open_gateway: OpenGateway) -> None:
    async with open_gateway() as gateway:
        client = (await gateway.register(client_name='<b onclick="x()">Evil & Sons</b>'))["client_id"]
        first = await gateway.open_page(client, Pkce())
        page = await gateway.sign_in(first)

    for shown in (first, page):
        assert "&lt;b onclick=&quot;x()&quot;&gt;Evil &amp; Sons&lt;/b&gt;" in shown.text
        assert "<b onclick" not in shown.text
    assert "<code>tools</code>" in page.text
    assert "<code>does__echo</code>" in page.text
    assert page.text.count("<li>") == 1, "the tools of this caller, and no others"
    assert "http://127.0.0.1:9" in page.text
    assert "<strong>ada</strong>" in page.text


@attack("stranger", "turns the text of the consent page around with its name", "such characters are dropped")
async def test_a_name_cannot_turn_the_page_around(open_gateway: OpenGateway) -> None:
    async with open_gateway() as gateway:
        client = (await gateway.register(client_name="Ed\u202eitor\u2066\x07"))["client_id"]
        first = await gateway.open_page(client, Pkce())
        page = await gateway.sign_in(first)

    for shown in (first, page):
        assert "<bdi>Editor</bdi>" in shown.text


@attack("stranger", "shows the consent page in a frame of its own site", "browsers refuse it, by two headers")
async def test_the_pages_cannot_be_framed(open_gateway: OpenGateway) -> None:
    async with open_gateway() as gateway:
        client = (await gateway.register())["client_id"]
        first = await gateway.open_page(client, Pkce())
        pages = [first, await gateway.sign_in(first), await gateway.http.get(f"{gateway.url}/authorize/consent")]

    for page in pages:
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert "script-src" not in page.headers["content-security-policy"]
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert page.headers["x-frame-options"] == "DENY"
        assert page.headers["cache-control"] == "no-store"


@attack(
    "stranger",
    "sends forms of the login from its own site, without a page, twice, or in another browser (login CSRF)",
    "none of them logs in or consents",
)
async def test_consent_cannot_be_skipped_forged_or_replayed(open_gateway: OpenGateway) -> None:
    async with open_gateway() as gateway:
        client = (await gateway.register())["client_id"]
        first = await gateway.open_page(client, Pkce())
        skipped = await gateway.send_form(first, action="allow")
        first = await gateway.open_page(client, Pkce())
        forged = await gateway.send_form(first, action="sign-in", origin="https://evil.example", name="ada")
        consent = await gateway.sign_in(first)
        again = await gateway.sign_in(first)
        guessed = await gateway.send_form(consent, action="allow", form="guessed")
        async with httpx2.AsyncClient(timeout=20) as other:
            elsewhere = [await other.get(str(first.url)), await other.get(f"{gateway.url}/authorize/callback?state=x")]
            gateway.http, own = other, gateway.http
            other.cookies.set("toolpost-login", "A" * 43)
            foreign = await gateway.send_form(consent, action="allow")
            gateway.http = own
        done = await gateway.send_form(consent, action="allow")
        replayed = await gateway.send_form(consent, action="allow")
        reopened = await gateway.http.get(str(first.url))

    assert skipped.status_code == 400, "nobody has logged in"
    assert forged.status_code == 403
    for page in (again, guessed, foreign, replayed, reopened, *elsewhere):
        assert page.status_code == 400, page.text
        assert "location" not in page.headers
    assert done.status_code == 303


@attack(
    "stranger",
    "puts a cookie of its own into a browser, in which a person then logs in (session fixation)",
    "the browser has another cookie from then on",
)
async def test_a_login_gives_the_browser_a_new_cookie(open_gateway: OpenGateway, store_url: str) -> None:
    async with open_gateway(store=store_url) as gateway:
        client = (await gateway.register())["client_id"]
        first, other = await gateway.open_page(client, Pkce()), await gateway.open_page(client, Pkce())
        planted = gateway.http.cookies["toolpost-login"]
        consent = await gateway.sign_in(first)
        own = gateway.http.cookies["toolpost-login"]
        async with httpx2.AsyncClient(timeout=20, cookies={"toolpost-login": planted}) as attacker:
            gateway.http, browser = attacker, gateway.http
            shown = [await attacker.get(str(page.url)) for page in (first, other)]
            sent = await gateway.send_form(consent, action="allow")
            gateway.http = browser
        done = await gateway.send_form(consent, action="allow")
        in_the_other_tab = await gateway.send_form(await gateway.sign_in(other), action="allow")

    assert planted != own
    assert [page.status_code for page in (*shown, sent)] == [400, 400, 400]
    assert done.status_code == 303
    assert in_the_other_tab.status_code == 303


async def test_a_person_can_deny(open_gateway: OpenGateway) -> None:
    async with open_gateway() as gateway:
        client = (await gateway.register())["client_id"]
        page = await gateway.sign_in(await gateway.open_page(client, Pkce()))
        denied = await gateway.send_form(page, action="deny")

    assert query_of(denied.headers["location"]) == {"error": "access_denied", "state": "st-1", "iss": gateway.url}


@attack(
    "stranger", "sends a cookie of 56 KB of quotes to the login", "it costs as much as any other cookie of its size"
)
async def test_a_cookie_does_not_hold_the_gateway(open_gateway: OpenGateway) -> None:
    async def measure(size: int) -> float:
        cookie = 'a="' + '\\"' * (size // 2) + '"'
        begun = time.thread_time()
        for path in ("/authorize", "/authorize/consent"):
            answer = await gateway.http.get(f"{gateway.url}{path}", headers={"cookie": cookie})
            assert answer.status_code in (302, 400), answer.text
        return time.thread_time() - begun

    async with open_gateway() as gateway:
        await measure(100)
        least = min([await measure(7_000) for _ in range(3)])
        assert min([await measure(56_000) for _ in range(3)]) < 20 * (least + 0.002)


@attack("stranger", "tries passphrases", "a login takes five, a name ten from one address within five minutes")
async def test_passphrases_cannot_be_tried_at_will(open_gateway: OpenGateway) -> None:
    async with open_gateway() as gateway:
        client = (await gateway.register())["client_id"]
        page = await gateway.open_page(client, Pkce())
        for _ in range(5):
            page = await gateway.sign_in(page, text="wrong")
        over = page.status_code
        page = await gateway.open_page(client, Pkce())
        for _ in range(4):
            page = await gateway.sign_in(page, text="wrong")
        page = await gateway.open_page(client, Pkce())
        for name in ("nobody", "token", ""):
            page = await gateway.sign_in(page, name=name)
            assert "do not match" in page.text
        page = await gateway.sign_in(await gateway.open_page(client, Pkce()), text="wrong")
        right = await gateway.sign_in(await gateway.open_page(client, Pkce()))

    assert over == 400
    assert "do not match" in right.text, "ten wrong ones: now the right one has to wait"


@attack("stranger", "tries many passphrases at the same time", "no more of them count than one after the other")
async def test_passphrases_cannot_be_tried_at_the_same_time(
    open_gateway: OpenGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare = is_passphrase

    def slowly(text: str, hashed: str) -> bool:
        time.sleep(0.1)  # it is slow on purpose
        return compare(text, hashed)

    async with open_gateway() as gateway:
        client = (await gateway.register())["client_id"]
        pages = [await gateway.open_page(client, Pkce()) for _ in range(20)]
        monkeypatch.setattr(passphrase, "is_passphrase", slowly)
        answers = await asyncio.gather(*(gateway.sign_in(page) for page in pages))
        later = await gateway.sign_in(await gateway.open_page(client, Pkce()))

    assert sum("<strong>ada</strong>" in answer.text for answer in answers) == passphrase.TRIES
    assert "<strong>ada</strong>" in later.text, "right ones are not counted"


@attack(
    "stranger",
    "has many passphrases compared at once, so that others wait for long",
    "few wait, the next are asked to come back, and known browsers have places of their own",
)
async def test_strangers_do_not_keep_a_person_waiting(
    open_gateway: OpenGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare, goes_on = is_passphrase, Event()

    def wait(text: str, hashed: str) -> bool:
        if text == "wrong":
            assert goes_on.wait(60)
        return compare(text, hashed)

    strangers = passphrase.STRANGERS_AT_ONCE + passphrase.WAITING
    async with open_gateway() as gateway:
        client = (await gateway.register())["client_id"]
        await gateway.sign_in(await gateway.open_page(client, Pkce()))
        page, browser = await gateway.open_page(client, Pkce()), gateway.http
        async with httpx2.AsyncClient(timeout=90) as stranger, anyio.create_task_group() as tasks:
            gateway.http = stranger
            pages = [await gateway.open_page(client, Pkce()) for _ in range(strangers + 1)]
            monkeypatch.setattr(passphrase, "is_passphrase", wait)
            for number, each in enumerate(pages[:-1]):
                # Names that do not exist as well: they cost the same.
                tasks.start_soon(gateway.sign_in, each, "ada" if number % 2 else "nobody", "wrong")
            server = cast("AuthorizationServer", gateway.app.contributions.first(TokenIssuer))
            limiter = server._passphrases._threads[False]
            await until(lambda: limiter.statistics().tasks_waiting == passphrase.WAITING)
            refused = [await gateway.sign_in(pages[-1], name="nobody", text="wrong")]
            counted = len(server._passphrases._tries["ada"])
            refused.append(await gateway.sign_in(refused[0], name="ada", text="wrong"))
            assert len(server._passphrases._tries["ada"]) == counted, "a try that was not compared does not count"
            gateway.http = browser
            known = await gateway.sign_in(page)
            goes_on.set()
        gateway.http = browser

    assert [answer.status_code for answer in refused] == [503, 503]
    assert all(int(answer.headers["retry-after"]) > 0 for answer in refused)
    assert "Try again" in refused[0].text
    assert "<strong>ada</strong>" in known.text


async def test_a_right_passphrase_during_the_limit_does_not_prolong_it(
    open_gateway: OpenGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_gateway() as gateway:
        client, started = (await gateway.register())["client_id"], time.monotonic()
        for _ in range(10):
            await gateway.sign_in(await gateway.open_page(client, Pkce()), text="wrong")
        clock = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: clock() + 200)
        limited = [await gateway.sign_in(await gateway.open_page(client, Pkce())) for _ in range(10)]
        passed = clock() - started
        monkeypatch.setattr(time, "monotonic", lambda: clock() + 301 + passed)
        right = await gateway.sign_in(await gateway.open_page(client, Pkce()))

    assert all("do not match" in page.text for page in limited)
    assert "<strong>ada</strong>" in right.text


BEHIND_PROXY = 'trusted_proxies = ["127.0.0.1"]'


async def guess(gateway: Gateway, client: str, address: str, count: int) -> None:
    """Try wrong passphrases from an address, in a browser of its own, behind the proxy on this machine."""
    browser = gateway.http
    async with httpx2.AsyncClient(timeout=20, headers={"x-forwarded-for": address}) as gateway.http:
        for _ in range(count):
            page = await gateway.sign_in(await gateway.open_page(client, Pkce()), text="wrong")
            assert "do not match" in page.text
    gateway.http = browser


async def sign_in_elsewhere(gateway: Gateway, client: str, address: str, cookies: httpx2.Cookies | None = None) -> bool:
    browser = gateway.http
    async with httpx2.AsyncClient(timeout=20, headers={"x-forwarded-for": address}, cookies=cookies) as gateway.http:
        page = await gateway.sign_in(await gateway.open_page(client, Pkce()))
    gateway.http = browser
    return "<strong>ada</strong>" in page.text


@attack("stranger", "keeps a person out by wrong passphrases for their name", "another address is not limited by it")
async def test_a_stranger_locks_no_one_out(open_gateway: OpenGateway) -> None:
    async with open_gateway(http=BEHIND_PROXY) as gateway:
        client = (await gateway.register())["client_id"]
        await guess(gateway, client, "203.0.113.7", 10)
        same = await sign_in_elsewhere(gateway, client, "203.0.113.7")
        other = await sign_in_elsewhere(gateway, client, "203.0.113.8")

    assert not same
    assert other


@attack(
    "stranger",
    "keeps a person out from many addresses",
    "guesses are limited for all of them together, and a browser that has logged in before is not",
)
async def test_strangers_together_lock_no_known_browser_out(
    open_gateway: OpenGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passphrase, "STRANGERS_TRIES", 4)
    async with open_gateway(http=BEHIND_PROXY) as gateway:
        client = (await gateway.register())["client_id"]
        await gateway.sign_in(await gateway.open_page(client, Pkce()))
        (remembered,) = (each for each in gateway.http.cookies.jar if each.name == "toolpost-remembered")
        forged = httpx2.Cookies({"toolpost-remembered": f"{'0' * 32}.{'0' * 64}"})
        for address in ("203.0.113.7", "203.0.113.8", "2001:db8::1", "2001:db8:0:1::1"):
            await guess(gateway, client, address, 1)
        new = await sign_in_elsewhere(gateway, client, "203.0.113.99")
        with_forged = await sign_in_elsewhere(gateway, client, "203.0.113.99", forged)
        own = await gateway.sign_in(await gateway.open_page(client, Pkce()))
        for _ in range(10):
            await gateway.sign_in(await gateway.open_page(client, Pkce()), text="wrong")
        own_after_ten = await gateway.sign_in(await gateway.open_page(client, Pkce()))

    assert (new, with_forged) == (False, False)
    assert "<strong>ada</strong>" in own.text
    assert "do not match" in own_after_ten.text, "a stolen cookie does not let its thief guess at will"
    assert remembered.expires is not None, "kept when the browser is closed"
    assert remembered.has_nonstandard_attr("HttpOnly")


@attack("caller", "uses the cookie of their own login for another name", "it counts for the name that logged in")
async def test_a_known_browser_is_known_for_its_person_alone(
    open_gateway: OpenGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passphrase, "STRANGERS_TRIES", 4)
    hashed = hash_passphrase(PASSPHRASE)
    people = "".join(f'[callers.{name}]\npassphrase_hash = "{hashed}"\n' for name in ("ada", "bob"))
    async with open_gateway(callers=people) as gateway:
        client = (await gateway.register())["client_id"]
        await gateway.sign_in(await gateway.open_page(client, Pkce()), name="bob")
        for _ in range(4):
            await gateway.sign_in(await gateway.open_page(client, Pkce()), name="ada", text="wrong")
        limited = await gateway.sign_in(await gateway.open_page(client, Pkce()), name="ada")
        bob = await gateway.sign_in(await gateway.open_page(client, Pkce()), name="bob")

    assert "do not match" in limited.text
    assert "<strong>bob</strong>" in bob.text


@attack(
    "stranger",
    "names another address in `X-Forwarded-For` for each guess",
    "the header counts only from proxies in `trusted_proxies`",
)
@pytest.mark.parametrize(
    ("peer", "forwarded", "counted"),
    [
        ("203.0.113.7", "", "203.0.113.7"),
        ("203.0.113.7", "198.51.100.1", "203.0.113.7"),
        ("127.0.0.1", "198.51.100.1", ""),
        ("10.0.0.5", "198.51.100.1", "198.51.100.1"),
        ("::ffff:10.0.0.5", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.5", "192.0.2.1, 198.51.100.1, 10.1.2.3", "198.51.100.1"),
        ("10.0.0.5", "192.0.2.1, 127.0.0.1", ""),
        ("10.0.0.5", "2001:db8::7", "2001:db8::/64"),
        ("10.0.0.5", "", ""),
        ("10.0.0.5", "192.0.2.1, somewhere", ""),
    ],
)
async def test_an_address_is_a_proxys_word_only_if_the_proxy_is_trusted(
    peer: str, forwarded: str, counted: str
) -> None:
    headers = [(b"x-forwarded-for", forwarded.encode())]
    scope = {"method": "POST", "path": "/", "headers": headers, "client": (peer, 50_000)}
    request = HttpRequest(scope, cast("Any", None), cast("Any", None))

    assert find_address(request, [ip_network("10.0.0.0/8")]) == counted


@attack(
    "stranger", "invents names, to be forgotten among them or to fill the memory", "only names of callers are counted"
)
async def test_invented_names_are_not_counted(open_gateway: OpenGateway) -> None:
    async with open_gateway() as gateway:
        client = (await gateway.register())["client_id"]
        pages = [
            await gateway.sign_in(await gateway.open_page(client, Pkce()), name=name, text="wrong")
            for name in ("nobody", "x" * 60_000, "ada")
        ]
        server = cast("AuthorizationServer", gateway.app.contributions.first(TokenIssuer))
        counted = set(server._passphrases._tries)

    assert all("do not match" in page.text for page in pages)
    assert counted == {"ada"}


async def test_a_caller_can_log_in_with_its_token(open_gateway: OpenGateway, tmp_path: Path) -> None:
    (tmp_path / "bob").write_text("token-of-bob")
    async with open_gateway(callers='[callers.bob]\ntoken = "${file:bob}"\n') as gateway:
        client = (await gateway.register())["client_id"]
        page = await gateway.sign_in(await gateway.open_page(client, Pkce()), name="bob", text="token-of-bob")

    assert "<strong>bob</strong>" in page.text


# Clients


@attack(
    "stranger", "has codes sent to an address that is not the client's (open redirect)", "400, and no redirect at all"
)
async def test_codes_are_sent_to_registered_addresses_only(open_gateway: OpenGateway) -> None:
    async with open_gateway() as gateway:
        client = (await gateway.register(redirect_uris=["https://app.example/cb", REDIRECT]))["client_id"]
        for uri in (
            "https://evil.example/cb",
            "https://app.example/cb/../evil",
            "https://app.example/cb?x=1",
            "https://app.example.evil.example/cb",
            "https://app.example:444/cb",
            "https://app.example@evil.example/cb",
            "http://127.0.0.1:9/other",
            "http://127.0.0.1.evil.example:9/callback",
            "//evil.example",
        ):
            answer = await gateway.begin(client, Pkce(), redirect_uri=uri)
            assert answer.status_code == 400, uri
            assert "location" not in answer.headers
        missing = await gateway.begin(client, Pkce(), redirect_uri=None)
        unknown = await gateway.begin("nobody", Pkce())
        twice = await gateway.http.get(
            f"{gateway.url}/authorize?{urlencode({'client_id': client})}&client_id=x&redirect_uri=https://evil.example"
        )
        port = await gateway.begin(client, Pkce(), redirect_uri="http://127.0.0.1:4711/callback")

    assert [missing.status_code, unknown.status_code, twice.status_code] == [400, 400, 400]
    assert not any("location" in each.headers for each in (missing, unknown, twice))
    assert port.status_code == 302, "an application on this machine may listen on any port"


@attack(
    "stranger",
    "registers a client, and sends people to its site by a link to the gateway (open redirect)",
    "they see a page; only this machine and the origin of a client's document are told of an error",
)
async def test_errors_are_not_sent_to_strangers(open_gateway: OpenGateway) -> None:
    uris = ["https://evil.example/cb", "evil.app:/cb", REDIRECT]
    async with open_gateway() as gateway:
        client = (await gateway.register(redirect_uris=uris))["client_id"]
        strange, app, local = [
            await gateway.begin(client, Pkce(), redirect_uri=uri, code_challenge_method="plain") for uri in uris
        ]
        fine = await gateway.begin(client, Pkce(), redirect_uri=uris[0])

    for page in (strange, app):
        assert page.status_code == 400
        assert "location" not in page.headers
        assert "code_challenge_method" in page.text
    assert query_of(local.headers["location"])["error"] == "invalid_request"
    assert query_of(local.headers["location"])["iss"] == gateway.url
    assert fine.headers["location"].startswith(f"{gateway.url}/authorize/consent?")


def test_a_document_speaks_for_its_own_origin() -> None:
    client = LoginClient(client_id="https://app.example/client.json", is_document=True, redirect_uris=None)
    assert client.may_follow("https://app.example/cb?error=x")
    assert not client.may_follow("https://evil.example/cb")
    assert not client.may_follow("http://app.example/cb")
    assert not client.model_copy(update={"is_document": False}).may_follow("https://app.example/cb")


@pytest.mark.parametrize(
    "uri",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "http://app.example/cb",
        "https://app.example/cb#x",
        "file:///etc",
        "search-ms:query=x",
        "ms-officecmd:x",
        "ssh://app.example/",
    ],
)
async def test_clients_cannot_register_addresses_that_are_no_applications(uri: str, open_gateway: OpenGateway) -> None:
    async with open_gateway() as gateway:
        body = {"redirect_uris": [uri], "token_endpoint_auth_method": "none"}
        answer = await gateway.http.post(f"{gateway.url}/register", json=body)

    assert answer.status_code == 400
    assert answer.json()["error"] in ("invalid_redirect_uri", "invalid_client_metadata")


@attack("stranger", "registers clients without end", "there are at most so many, and clients that are used stay")
async def test_registrations_do_not_displace_clients_in_use(
    open_gateway: OpenGateway, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "CLIENTS_LIMIT", 3)
    async with open_gateway(store=store_url) as gateway:
        client, tokens = await gateway.log_in()
        registered = [(await gateway.register())["client_id"] for _ in range(6)]
        statuses = [(await gateway.begin(each, Pkce())).status_code for each in registered]
        refreshed = await gateway.refresh(client, tokens["refresh_token"])

    assert statuses.count(302) == 2
    assert refreshed.status_code == 200


@attack(
    "stranger",
    "registers clients or begins logins faster than people log in, to have those of others removed",
    "one address may have 100 clients and 300 logins in ten minutes; beyond that it gets 429 with `Retry-After`",
)
async def test_registrations_and_logins_of_strangers_have_a_pace(
    open_gateway: OpenGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "REGISTRATIONS", 3)
    monkeypatch.setattr(routes, "LOGINS", 2)
    body = {"redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none"}
    async with open_gateway(http=BEHIND_PROXY) as gateway:
        clients = [(await gateway.register())["client_id"] for _ in range(3)]
        refused = await gateway.http.post(f"{gateway.url}/register", json=body)
        other = {"x-forwarded-for": "198.51.100.7"}
        admitted = await gateway.http.post(f"{gateway.url}/register", json=body, headers=other)
        begun = [await gateway.begin(client, Pkce()) for client in clients]

    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= pace.WINDOW_S
    assert refused.json()["error"] == "temporarily_unavailable"
    assert refused.headers["access-control-allow-origin"] == "*"
    assert admitted.status_code == 201
    assert [each.status_code for each in begun] == [302, 302, 429]
    assert "retry-after" in begun[-1].headers
    assert "ten minutes" in begun[-1].text


def test_the_pace_has_windows_and_a_limit_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr("toolpost.parts.authorization_server.pace.time.monotonic", lambda: now)
    monkeypatch.setattr(pace, "TOTAL", 5)
    limited = pace.Pace(2)
    first = [limited.take("a") for _ in range(3)]
    others = [limited.take(address) for address in "bcdef"]
    now += pace.WINDOW_S
    later = limited.take("a")

    assert first == [0.0, 0.0, pace.WINDOW_S]
    assert others == [0.0, 0.0, 0.0, pace.WINDOW_S, pace.WINDOW_S]
    assert later == 0.0


async def test_a_login_of_an_administrator_does_not_administrate(open_gateway: OpenGateway, tmp_path: Path) -> None:
    (tmp_path / "ada").write_text(PASSPHRASE.replace(" ", "-"))
    async with open_gateway(callers='[callers.ada]\ntoken = "${file:ada}"\nadmin = true\n') as gateway:
        client, pkce = (await gateway.register())["client_id"], Pkce()
        page = await gateway.sign_in(await gateway.open_page(client, pkce), text=PASSPHRASE.replace(" ", "-"))
        done = await gateway.send_form(page, action="allow")
        tokens = (await gateway.exchange(client, query_of(done.headers["location"])["code"], pkce)).json()
        answers = [
            await gateway.http.get(f"{gateway.url}/api/servers", headers={"authorization": f"Bearer {token}"})
            for token in (PASSPHRASE.replace(" ", "-"), tokens["access_token"])
        ]

    assert [answer.status_code for answer in answers] == [200, 403]


@attack("caller", "uses a token from a login for other paths than MCP's", "403: a person has allowed calls of tools")
async def test_a_token_from_a_login_is_for_mcp_only(open_gateway: OpenGateway) -> None:
    async with open_gateway() as gateway:
        _, tokens = await gateway.log_in()
        headers = {"authorization": f"Bearer {tokens['access_token']}", "x-toolpost": "1"}
        # Twice: from the verifier, and from the cache.
        statuses = [
            (await gateway.http.get(f"{gateway.url}{path}", headers=headers)).json().get("error", {}).get("message")
            for path in ("/login/does", "/login/does")
        ]
        allowed = await gateway.ping(tokens["access_token"])

    assert statuses == ["A token from a login is for MCP only"] * 2
    assert allowed == ADMITTED


async def test_registration_can_be_turned_off(open_gateway: OpenGateway) -> None:
    async with open_gateway("registration = false") as gateway:
        answer = await gateway.http.post(f"{gateway.url}/register", json={"redirect_uris": [REDIRECT]})
        metadata = await gateway.http.get(f"{gateway.url}/.well-known/oauth-authorization-server")

    assert answer.status_code == 400
    assert "registration_endpoint" not in metadata.json()


async def test_a_client_with_a_secret_must_show_it(open_gateway: OpenGateway) -> None:
    async with open_gateway() as gateway:
        registered = await gateway.register(token_endpoint_auth_method="client_secret_basic")
        client, secret = registered["client_id"], registered["client_secret"]
        gateway.secrets.append(secret)
        pkce = Pkce()
        code = await gateway.get_code(client, pkce)
        wrong = [
            await gateway.exchange(client, code, pkce),
            await gateway.exchange(client, code, pkce, client_secret="x"),
        ]
        right = await gateway.exchange(client, code, pkce, client_secret=secret)
        revoked = await gateway.http.post(
            f"{gateway.url}/revoke", data={"client_id": client, "token": right.json()["access_token"]}
        )

    assert registered["token_endpoint_auth_method"] == "client_secret_post"
    assert [answer.status_code for answer in wrong] == [401, 401]
    assert right.status_code == 200
    assert revoked.status_code == 401


# Codes and tokens


@attack("stranger", "leaves PKCE out, or downgrades it to `plain`", "there is no code")
async def test_pkce_cannot_be_left_out_or_downgraded(open_gateway: OpenGateway) -> None:
    async with open_gateway() as gateway:
        client, pkce = (await gateway.register())["client_id"], Pkce()
        for params in (
            {"code_challenge": None},
            {"code_challenge_method": "plain"},
            {"code_challenge": "short"},
            {"code_challenge": ""},
            {"response_type": "token"},
        ):
            answer = await gateway.begin(client, pkce, **params)
            assert answer.status_code == 302, params
            found = query_of(answer.headers["location"])
            assert found["error"] in ("invalid_request", "unsupported_response_type"), params
            assert (found["state"], found["iss"]) == ("st-1", gateway.url)
        code = await gateway.get_code(client, pkce)
        wrong = [
            await gateway.exchange(client, code, pkce, code_verifier=""),
            await gateway.exchange(client, code, pkce, code_verifier=pkce.challenge),
            await gateway.exchange(client, code, Pkce()),
        ]
        right = await gateway.exchange(client, code, pkce)

    assert [answer.status_code for answer in wrong] == [400, 400, 400]
    assert right.status_code == 200


@attack(
    "stranger",
    "injects a code: of another client, with another redirect, or for another server",
    "it is exchanged for nothing",
)
async def test_a_code_is_its_clients_own(open_gateway: OpenGateway) -> None:
    async with open_gateway() as gateway:
        client, other, pkce = (await gateway.register())["client_id"], (await gateway.register())["client_id"], Pkce()
        code = await gateway.get_code(client, pkce)
        injected = [
            await gateway.exchange(other, code, pkce),
            await gateway.exchange(client, code, pkce, redirect_uri="http://127.0.0.1:10/callback"),
            await gateway.exchange(client, code, pkce, resource="https://else.example/mcp"),
            await gateway.exchange(client, "guessed", pkce),
        ]
        right = await gateway.exchange(client, code, pkce, resource=f"{gateway.url}/mcp")

    assert [answer.status_code for answer in injected] == [400] * 4
    assert injected[2].json()["error"] == "invalid_target"
    assert right.status_code == 200


@attack("stranger", "uses a code a second time", "it is refused, and its tokens are revoked")
async def test_a_code_is_exchanged_once(open_gateway: OpenGateway, store_url: str) -> None:
    async with open_gateway(store=store_url) as gateway:
        client, pkce = (await gateway.register())["client_id"], Pkce()
        code = await gateway.get_code(client, pkce)
        tokens = (await gateway.exchange(client, code, pkce)).json()
        before = await gateway.ping(tokens["access_token"])
        again = await gateway.exchange(client, code, pkce)
        after = await gateway.ping(tokens["access_token"])
        refreshed = await gateway.refresh(client, tokens["refresh_token"])

    assert before == ADMITTED
    assert again.json()["error"] == "invalid_grant"
    assert after == 401
    assert refreshed.json()["error"] == "invalid_grant"


@attack("stranger", "uses a stolen refresh token after its client did", "all tokens of the login are revoked")
async def test_refresh_tokens_rotate_and_reuse_is_noticed(open_gateway: OpenGateway, store_url: str) -> None:
    async with open_gateway(store=store_url) as gateway:
        client, tokens = await gateway.log_in()
        other = (await gateway.register())["client_id"]
        foreign = await gateway.refresh(other, tokens["refresh_token"])
        second = (await gateway.refresh(client, tokens["refresh_token"])).json()
        both = [await gateway.ping(each["access_token"]) for each in (tokens, second)]
        as_access = await gateway.ping(second["refresh_token"])
        reused = await gateway.refresh(client, tokens["refresh_token"])
        after = await gateway.ping(second["access_token"])
        last = await gateway.refresh(client, second["refresh_token"])

    assert foreign.json()["error"] == "invalid_grant"
    assert second["refresh_token"] != tokens["refresh_token"]
    assert both == [ADMITTED, ADMITTED], "calls in flight with the token before are not cut off"
    assert as_access == 401
    assert reused.json()["error"] == "invalid_grant"
    assert after == 401
    assert last.json()["error"] == "invalid_grant"


async def test_revoking_a_token_ends_the_login_at_once(open_gateway: OpenGateway) -> None:
    async with open_gateway() as gateway:
        client, tokens = await gateway.log_in()
        stranger = (await gateway.register())["client_id"]
        before = await gateway.ping(tokens["access_token"])
        form = {"client_id": stranger, "token": tokens["refresh_token"]}
        foreign = await gateway.http.post(f"{gateway.url}/revoke", data=form)
        still = await gateway.ping(tokens["access_token"])
        done = await gateway.http.post(f"{gateway.url}/revoke", data=form | {"client_id": client})
        after = await gateway.ping(tokens["access_token"])

    assert (before, foreign.status_code, still, done.status_code, after) == (ADMITTED, 200, ADMITTED, 200, 401)


@attack("caller", "uses a token for one endpoint at another", "401")
async def test_a_token_for_one_endpoint_is_accepted_there_alone(open_gateway: OpenGateway) -> None:
    async with open_gateway() as gateway:
        _, tokens = await gateway.log_in(resource=f"{gateway.url}/mcp/server/does")
        token = tokens["access_token"]
        got = [await gateway.ping(token, path) for path in ("/mcp/server/does", "/mcp", "/mcp/server/else")]
        client = (await gateway.register())["client_id"]
        foreign = await gateway.begin(client, Pkce(), resource="https://else.example/mcp")

    assert got == [ADMITTED, 401, 401]
    assert query_of(foreign.headers["location"])["error"] == "invalid_target"


async def test_a_new_passphrase_ends_the_logins_with_the_old_one(open_gateway: OpenGateway, tmp_path: Path) -> None:
    async with open_gateway() as gateway:
        client, tokens = await gateway.log_in()
        before = await gateway.ping(tokens["access_token"])
        port = gateway.app.config.address[1]
        config = config_of(tmp_path, gateway.app.config.store_url, port)
        await apply_config(gateway.app, lambda: config)
        after = await gateway.ping(tokens["access_token"])
        refreshed = await gateway.refresh(client, tokens["refresh_token"])

    assert (before, after) == (ADMITTED, 401)
    assert refreshed.json()["error"] == "invalid_grant"


async def test_a_new_gateway_token_ends_the_logins_with_the_old_one(
    open_gateway: OpenGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLPOST_TOKEN", "first-gateway-token")
    async with open_gateway() as gateway:
        client, pkce = (await gateway.register())["client_id"], Pkce()
        page = await gateway.sign_in(await gateway.open_page(client, pkce), name="token", text="first-gateway-token")
        done = await gateway.send_form(page, action="allow")
        tokens = (await gateway.exchange(client, query_of(done.headers["location"])["code"], pkce)).json()
        before = await gateway.ping(tokens["access_token"])
        monkeypatch.setenv("TOOLPOST_TOKEN", "second-gateway-token")
        config = config_of(tmp_path, gateway.app.config.store_url, gateway.app.config.address[1])
        await apply_config(gateway.app, lambda: config)
        after = await gateway.ping(tokens["access_token"])
        refreshed = await gateway.refresh(client, tokens["refresh_token"])

    assert (before, after) == (ADMITTED, 401)
    assert refreshed.json()["error"] == "invalid_grant"


@attack(
    "stranger",
    "reads the database, and tries out tokens against the stored hash of a login",
    "it needs the store's key, and another store has another one",
)
async def test_secrets_of_callers_cannot_be_tried_out(
    open_gateway: OpenGateway, store_url: str, tmp_path: Path
) -> None:
    callers = f'[callers.ada]\npassphrase_hash = "{hash_passphrase(PASSPHRASE)}"\n'
    found: list[str] = []
    for store in (store_url, f"sqlite:{tmp_path / 'other.db'}"):
        async with open_gateway(callers=callers, store=store) as gateway:
            _, tokens = await gateway.log_in()
            digest = records.hash_of(tokens["access_token"])
            row = await gateway.app.store.scripts.read(partial(records.find_token, digest, "access"))
            assert row is not None
            found.append(row.identity.secrets_hash)

    assert len(set(found)) == 2, "the same settings and secrets"


@attack(
    "caller",
    "keeps streams open after its token has expired, or was revoked at another gateway",
    "they are closed when it is verified again",
)
async def test_streams_end_with_their_token(open_gateway: OpenGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_server, "CHECKED_S", 0.5)
    listen = {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE}
    message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": listen}
    modern = {"mcp_protocol_version": STATELESS, "mcp_method": "subscriptions/listen"}
    async with open_gateway("access_s = 5") as gateway:
        (_, kept), (_, revoked) = await gateway.log_in(), await gateway.log_in()
        async with (
            stream(gateway.url, kept["access_token"], "POST", "/mcp", message, **modern) as expiring,
            stream(gateway.url, revoked["access_token"], "POST", "/mcp", message, **modern) as lost,
        ):
            before = await rest_of(lost, 1.5)
            digest = records.hash_of(revoked["access_token"])
            found = await gateway.app.store.scripts.read(lambda: records.find_token(digest, "access"))
            assert found is not None
            grant = found.grant
            # As another gateway of the store does it: this one is not told.
            await gateway.app.store.scripts.run(lambda: records.revoke(grant))
            after = await rest_of(lost, 3)
            still = await rest_of(expiring, 0.2)
            expired = await rest_of(expiring, 6)

    assert before is None, "verified again meanwhile, and still valid"
    assert after is not None
    assert after.endswith(END)
    assert still is None
    assert expired is not None
    assert expired.endswith(END)


@attack("caller", "refreshes a login for ever", "it ends after `login_s`, and its last tokens with it")
async def test_a_login_ends_however_often_it_is_refreshed(open_gateway: OpenGateway, store_url: str) -> None:
    async with open_gateway("login_s = 60", store=store_url) as gateway:
        client, tokens = await gateway.log_in()
        second = (await gateway.refresh(client, tokens["refresh_token"])).json()
        rows = await gateway.app.store.scripts.run(_read_ends)
        await gateway.app.store.scripts.run(_begin_earlier)
        # The tokens themselves are not over: `login_s` may have been longer when they were issued.
        late = await gateway.refresh(client, second["refresh_token"])
        after = await gateway.ping(second["access_token"])

    assert second["expires_in"] <= 60
    assert all(end <= created + 60 for end, created in rows)
    assert len(rows) == 5
    assert late.json()["error"] == "invalid_grant"
    assert after == 401


async def test_refreshing_removes_tokens_that_are_over(
    open_gateway: OpenGateway, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_gateway(store=store_url) as gateway:
        client, tokens = await gateway.log_in()
        before = len(await gateway.app.store.scripts.run(_read_ends))
        # By now the code is over, and for long enough.
        monkeypatch.setattr(records, "_REUSE_S", -records.CODE_S - 1)
        refreshed = await gateway.refresh(client, tokens["refresh_token"])
        after = len(await gateway.app.store.scripts.run(_read_ends))

    assert refreshed.status_code == 200
    assert (before, after) == (3, 4), "two more, and the code is gone"


def _read_ends() -> Script[list[Any]]:
    rows = yield Statement(
        "SELECT t.expires_at, g.created_at FROM login_tokens t JOIN login_grants g ON g.id = t.login"
    )
    return list(rows)


def _begin_earlier() -> Script[None]:
    yield Statement("UPDATE login_grants SET created_at = created_at - 60")


async def test_an_access_token_ends(open_gateway: OpenGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "CODE_S", -1)
    async with open_gateway() as gateway:
        client, pkce = (await gateway.register())["client_id"], Pkce()
        late = await gateway.exchange(client, await gateway.get_code(client, pkce), pkce)

    assert late.json()["error"] == "invalid_grant"


@attack(
    "stranger",
    "reads the database, its backups, the logs and the audit",
    "there is no code, token or passphrase in them",
)
async def test_secrets_are_nowhere(open_gateway: OpenGateway, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    errors: list[Any] = []
    async with open_gateway() as gateway:
        client, tokens = await gateway.log_in()
        tokens = (await gateway.refresh(client, tokens["refresh_token"])).json()
        await gateway.ping(tokens["access_token"])
        errors.append((await gateway.refresh(client, gateway.secrets[2])).text)
        errors.append((await gateway.exchange(client, gateway.secrets[0], Pkce())).text)
        page = await gateway.open_page(client, Pkce())
        errors.append((await gateway.sign_in(page, text="wrong " + PASSPHRASE)).text)
        cookie = gateway.http.cookies["toolpost-login"]
    # What the client of this test logs is its own affair.
    logged = str([vars(record) for record in caplog.records if not record.name.startswith("http")])
    stored = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())

    assert len(gateway.secrets) == 5
    for secret in (*gateway.secrets, cookie, PASSPHRASE):
        assert secret.encode() not in stored
        assert secret not in logged
        assert secret not in str(errors)
