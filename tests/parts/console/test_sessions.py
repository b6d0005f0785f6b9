"""Who may change anything from a browser: the one-time secret, the cookie, and requests that other pages send."""

import hashlib
import re
import time
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.hostile.attacks import attack
from tests.parts.console.conftest import API, OpenSite, Site
from toolpost.base.ids import CallerId
from toolpost.endpoints.http.request import HttpRequest
from toolpost.parts.console.gateway_id import GatewayId
from toolpost.parts.console.sessions import ConsoleSessions
from toolpost.store import open_store
from toolpost.store.key_values import Item

pytestmark = [pytest.mark.anyio, pytest.mark.wire, pytest.mark.every_store]

CALLERS = """
[callers.ann]
token = "${file:ann.token}"
admin = true
[callers.bob]
token = "${file:bob.token}"
"""
ANN, BOB = "the-token-of-ann-with-32-characters", "the-token-of-bob-with-32-characters"


@pytest.fixture
def callers(tmp_path: Path) -> str:
    (tmp_path / "ann.token").write_text(ANN)
    (tmp_path / "bob.token").write_text(BOB)
    return CALLERS


async def may_write(site: Site, **headers: str) -> httpx2.Response:
    """Send the smallest change there is: a verification of the audit changes nothing, but counts as one."""
    return await site.http.post(f"{API}/calls/verify", json={}, headers=headers)


async def test_reading_needs_nothing_and_changes_need_the_secret(site: OpenSite, store_url: str) -> None:
    async with site(store=store_url) as opened:
        before = await opened.get("/session")
        refused = await may_write(opened)
        await opened.log_in()
        after = await opened.get("/session")
        accepted = await may_write(opened)

    assert (before["caller"], before["isAdmin"], before["mayChange"]) == ("local", True, False)
    assert (refused.status_code, refused.json()["error"]["details"]) == (
        403,
        {"needs": "secret", "at": f"{API}/session"},
    )
    assert "toolpost console" in refused.json()["error"]["hint"]
    assert (after["mayChange"], accepted.status_code) == (True, 200)


async def test_a_secret_can_be_used_once_and_its_cookie_survives_a_restart(site: OpenSite, store_url: str) -> None:
    async with site(store=store_url) as opened:
        secret = await opened.issue()
        first = await opened.post("/session", secret=secret)
        second = await opened.post("/session", secret=secret)
        guessed = await opened.post("/session", secret="k" * 32)
        port = opened.http.base_url.port
        (cookie,) = opened.http.cookies.jar
    assert first.status_code == 200
    assert [answer.status_code for answer in (second, guessed)] == [403, 403]
    assert second.json()["error"]["hint"] == "run `toolpost console` for a new one"
    sent = first.headers["set-cookie"]
    assert re.fullmatch(
        rf"toolpost_console_{port}=[\w.-]+; Path=/api; Max-Age=2592000; HttpOnly; SameSite=Strict", sent
    )
    async with site(store=store_url, port=port) as again:
        name = f"toolpost_console_{port}"
        again.http.headers["X-Toolpost-Session-Secret"] = first.json()["sessionSecret"]
        kept = await may_write(again, Cookie=f"{name}={cookie.value}")
        until, rest = str(cookie.value).split(".", 1)
        longer = await may_write(again, Cookie=f"{name}={int(until) + 1}.{rest}")
        other = await may_write(again, Cookie=f"toolpost_console_1={cookie.value}")
    assert [answer.status_code for answer in (kept, longer, other)] == [200, 403, 403]


async def test_a_secret_is_stored_as_a_digest_and_is_not_valid_for_ever(tmp_path: Path) -> None:
    async with open_store(f"sqlite:{tmp_path / 'store.db'}") as store:
        sessions = ConsoleSessions(store, GatewayId("one"))
        secret = await sessions.issue(8420)
        (item,) = await store.key_values.items("console")
        assert item.id == hashlib.sha256(f"one\n8420\n{secret}".encode()).hexdigest()
        assert secret not in str(item)
        old = Item(owner=CallerId("local"), id=item.id, value={"expires": time.time() - 1})
        await store.key_values.put("console", old)
        assert not await sessions.redeem(secret, request_to(8420))
        await sessions.open()
        assert await store.key_values.items("console") == []


def request_to(port: int) -> HttpRequest:
    scope = {"method": "POST", "path": f"{API}/session", "headers": [], "server": ("127.0.0.1", port)}
    return HttpRequest(scope, anyio.sleep_forever, lambda _: anyio.sleep(0))


@attack(
    "caller",
    "has the cookie or a secret of one gateway, and shows it to another that shares its store",
    "both are valid at the project and the port they were made for; with a store of many machines, on that machine alone",
)
async def test_cookies_and_secrets_of_another_gateway(site: OpenSite, store_url: str, tmp_path: Path) -> None:
    async with site(store=store_url, log_in=True) as one:
        (cookie,) = one.http.cookies.jar
        async with site(store=store_url) as two:
            name = f"toolpost_console_{two.http.base_url.port}"
            session_secret = one.http.headers["X-Toolpost-Session-Secret"]
            shown = await may_write(
                two, Cookie=f"{name}={cookie.value}", **{"X-Toolpost-Session-Secret": session_secret}
            )
            other = await two.post("/session", secret=await one.issue())
            own = await two.post("/session", secret=await two.issue())
        port = one.http.base_url.port
    assert [answer.status_code for answer in (shown, other, own)] == [403, 403, 200]

    # The same path and the same port, on another machine.
    kept = tmp_path / ".toolpost" / "gateway-id"
    assert kept.exists() == store_url.startswith("postgresql:")
    if kept.exists():
        assert kept.stat().st_mode & 0o077 == 0
        kept.unlink()
        async with site(store=store_url, port=port) as elsewhere:
            elsewhere.http.headers["X-Toolpost-Session-Secret"] = session_secret
            assert (await may_write(elsewhere, Cookie=f"{cookie.name}={cookie.value}")).status_code == 403


@attack(
    "stranger",
    "has a server on another port of this machine, to which the browser sends the console's cookie, and uses it itself",
    "the cookie is valid only with a session secret, which the page keeps where no other port can read it",
)
@pytest.mark.parametrize("session_secret", ["", "guessed"])
async def test_a_cookie_that_another_port_has_received(site: OpenSite, session_secret: str) -> None:
    async with site(log_in=True) as opened:
        accepted = await may_write(opened)
        opened.http.headers["X-Toolpost-Session-Secret"] = session_secret
        refused = await may_write(opened)
        seen = await opened.get("/session")
    assert (accepted.status_code, refused.status_code, seen["mayChange"]) == (200, 403, False)


HEADERS = {
    "a page of another port of this machine": {"Origin": "http://127.0.0.1:3000", "Sec-Fetch-Site": "same-site"},
    "the same, in a browser that sends no Sec-Fetch-Site": {"Origin": "http://127.0.0.1:3000"},
    "a page whose origin is hidden": {"Sec-Fetch-Site": "cross-site"},
    "a form, which cannot send the header": {"X-Toolpost": ""},
}


@attack(
    "stranger",
    "has a page on another port of this machine, to which the browser sends the console's cookie, change something",
    "Origin and Sec-Fetch-Site must be the console's own, and a header must be there that no page may send unasked",
)
@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS)
async def test_changes_that_another_page_sends(site: OpenSite, headers: dict[str, str]) -> None:
    async with site(log_in=True) as opened:
        refused = await may_write(opened, **headers)
        secret = await opened.issue()
        logged_in = await opened.http.post(f"{API}/session", json={"secret": secret}, headers=headers)
        own = f"http://127.0.0.1:{opened.http.base_url.port}"
        accepted = await may_write(opened, **{"Origin": own, "Sec-Fetch-Site": "same-origin"})

    assert (refused.status_code, logged_in.status_code, accepted.status_code) == (403, 403, 200)
    assert "set-cookie" not in logged_in.headers


READS = [f"{API}/session", f"{API}/events", f"{API}/views", "/api/servers", "/metrics", "/mcp"]


@attack(
    "stranger",
    "has a web page load addresses of a gateway without tokens as images, frames or styles, to keep it busy or to learn names",
    "requests of other origins without an `Origin` header are refused, and the answers may not be embedded",
)
@pytest.mark.parametrize("path", READS)
@pytest.mark.parametrize("other", ["cross-site", "same-site"])
async def test_reads_that_another_page_sends(site: OpenSite, path: str, other: str) -> None:
    async with site() as opened:
        headers = {"Sec-Fetch-Site": other, "Sec-Fetch-Mode": "no-cors"}
        async with opened.http.stream("GET", path, headers=headers) as refused:
            assert refused.status_code == 403


@attack(
    "stranger",
    "reaches a gateway without tokens through a proxy on its machine, and would be an administrator there",
    "forwarded requests of a proxy need a token, except for MCP; `toolpost serve` and `doctor` warn",
)
@pytest.mark.parametrize("header", ["Forwarded", "Via", "X-Forwarded-For", "X-Real-IP"])
async def test_requests_that_a_proxy_forwards(
    site: OpenSite, callers: str, header: str, caplog: pytest.LogCaptureFixture
) -> None:
    through = {header: "203.0.113.7"}
    async with site('http.allowed_hosts = ["gw.example"]', log_in=True) as opened:
        for host in ("gw.example", "127.0.0.1"):
            for path in (f"{API}/session", f"{API}/events", "/api/servers", "/metrics"):
                async with opened.http.stream("GET", path, headers={**through, "Host": host}) as refused:
                    assert refused.status_code == 403
        changed = await may_write(opened, **through)
        stopped = await opened.http.post("/api/servers/x/stop", json={}, headers=through)
        health = await opened.http.get("/healthz", headers=through)
    assert (changed.status_code, stopped.status_code, health.json()) == (403, 403, {"status": "ok"})
    assert "a proxy, and no token" in caplog.text
    caplog.clear()
    async with site(f'http.allowed_hosts = ["gw.example"]\n{callers}', token=ANN) as opened:
        assert (await opened.http.get(f"{API}/session", headers=through)).status_code == 200
    assert "a proxy, and no token" not in caplog.text


@pytest.mark.parametrize("path", [f"{API}/session", f"{API}/server?name=none", "/api/servers", "/api/servers/none"])
async def test_answers_are_neither_kept_nor_embedded(site: OpenSite, callers: str, path: str) -> None:
    async with site() as opened:
        for own in ("same-origin", "none"):
            answer = await opened.http.get(path, headers={"Sec-Fetch-Site": own})
            assert answer.status_code == (404 if "none" in path else 200)
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
            assert answer.headers["x-content-type-options"] == "nosniff"
    async with site(callers, token=ANN) as opened:
        # No page can have a browser send a token unasked.
        assert (await opened.http.get(f"{API}/session", headers={"Sec-Fetch-Site": "cross-site"})).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/servers/x", "/console/app.js", "/views/tasks/tasks.js", f"{API}/session", f"{API}/views"]
)
async def test_a_name_that_was_rebound_to_this_machine_is_refused(site: OpenSite, path: str) -> None:
    async with site() as opened:
        usual = await opened.http.get(path)
        rebound = await opened.http.get(path, headers={"Host": "evil.example"})
        foreign = await opened.http.get(path, headers={"Origin": "https://evil.example"})

    assert (usual.status_code, rebound.status_code, foreign.status_code) == (200, 421, 403)


async def test_where_callers_are_configured_a_token_is_needed_and_a_cookie_is_nothing(
    site: OpenSite, callers: str
) -> None:
    async with site(callers, token=ANN) as opened:
        await opened.log_in()  # the cookie is there, and must not stand for a caller
        assert (await opened.get("/session"))["caller"] == "ann"
        assert (await may_write(opened)).status_code == 200
        cookies = {"Cookie": "; ".join(f"{one.name}={one.value}" for one in opened.http.cookies.jar)}
        async with httpx2.AsyncClient(base_url=opened.http.base_url, headers=cookies) as stranger:
            assert (await stranger.get(f"{API}/session")).status_code == 401
            assert (await stranger.get("/servers")).status_code == 200  # the page, which asks for the token
        bob = {"Authorization": f"Bearer {BOB}"}
        seen = (await opened.http.get(f"{API}/session", headers=bob)).json()
        refused = await may_write(opened, **bob)
    assert (seen["caller"], seen["isAdmin"], seen["mayChange"], refused.status_code) == ("bob", False, False, 403)


async def test_logging_out_ends_the_session_also_for_a_copy_of_its_cookie(site: OpenSite, store_url: str) -> None:
    async with site(store=store_url, log_in=True) as opened:
        (cookie,) = opened.http.cookies.jar
        session_secret, port = opened.http.headers["X-Toolpost-Session-Secret"], opened.http.base_url.port
        before = await opened.get("/session")
        foreign = await opened.http.post(f"{API}/session/end", json={}, headers={"Origin": "http://127.0.0.1:9"})
        kept = await may_write(opened)
        ended = await opened.post("/session/end")
        left = list(opened.http.cookies.jar)
        copied = await may_write(opened, Cookie=f"{cookie.name}={cookie.value}")
        again = await opened.post("/session/end")
        await opened.log_in()
        anew = await may_write(opened)
    assert (before["hasSession"], foreign.status_code, kept.status_code) == (True, 403, 200)
    assert (ended.status_code, left, copied.status_code, again.status_code) == (200, [], 403, 200)
    assert "Max-Age=0" in ended.headers["set-cookie"]
    assert anew.status_code == 200, "other sessions go on"
    async with site(store=store_url, port=port) as restarted:
        headers = {"Cookie": f"{cookie.name}={cookie.value}", "X-Toolpost-Session-Secret": session_secret}
        assert (await may_write(restarted, **headers)).status_code == 403


async def test_behind_tls_the_cookie_is_sent_by_tls_alone(site: OpenSite, callers: str) -> None:
    settings = 'http.allowed_hosts = ["gw.example"]\nhttp.allowed_origins = ["https://gw.example"]\n'
    async with site(settings + callers, token=ANN) as opened:
        host = {"Host": "gw.example", "X-Forwarded-For": "203.0.113.7"}
        proxied = {**host, "Origin": "https://gw.example", "Sec-Fetch-Site": "same-origin"}
        secure = await opened.http.post(f"{API}/session", json={"secret": await opened.issue()}, headers=proxied)
        own = f"http://127.0.0.1:{opened.http.base_url.port}"
        plain = await opened.http.post(f"{API}/session", json={"secret": await opened.issue()}, headers={"Origin": own})
    assert (secure.status_code, plain.status_code) == (200, 200)
    assert secure.headers["set-cookie"].endswith("; HttpOnly; SameSite=Strict; Secure")
    assert plain.headers["set-cookie"].endswith("; HttpOnly; SameSite=Strict")


CHANGES = {
    "/api/threads": {"title": "Monday"},
    "/api/approvals/vote": {"round_id": "7", "choice": "approve"},
    "/api/servers/none/restart": {},
}


@attack(
    "stranger",
    "gets hold of a tab of a gateway without tokens, and talks to an agent, votes or restarts a server from there",
    "a browser needs the secret for these as for all changes; programs of this machine use them as documented",
)
@pytest.mark.parametrize("path", CHANGES)
async def test_changes_of_other_parts_from_a_browser(site: OpenSite, callers: str, path: str) -> None:
    rules = '[approvals.rules.none]\ntools = ["none"]\nvoters = ["local"]\nvotes = 1\n'
    async with site(rules) as opened:
        own = {"Origin": f"http://127.0.0.1:{opened.http.base_url.port}", "Sec-Fetch-Site": "same-origin"}

        async def send(**headers: str) -> httpx2.Response:
            return await opened.http.post(path, json=CHANGES[path], headers=headers)

        program = await send()
        fetched = [await send(**{name: value}) for name, value in own.items()]
        await opened.log_in()
        known = await send(**own)
        foreign = await send(**{"Origin": "http://127.0.0.1:9", "Sec-Fetch-Site": "same-site"})
    assert program.status_code not in (403, 405), program.text
    assert [(each.status_code, each.json()["error"]["details"]["needs"]) for each in fetched] == [(403, "secret")] * 2
    assert known.status_code == program.status_code
    assert foreign.status_code == 403
    async with site(rules.replace("local", "ann") + callers, token=ANN) as opened:
        assert (await send(**own)).status_code == program.status_code, "with a token, nothing else is needed"


async def test_without_the_console_pages_of_parts_need_no_secret(site: OpenSite) -> None:
    async with site("[console]\nenabled = false\n") as opened:
        own = {"Origin": f"http://127.0.0.1:{opened.http.base_url.port}", "Sec-Fetch-Site": "same-origin"}
        made = await opened.http.post("/api/threads", json={"title": "Monday"}, headers=own)
    assert made.status_code == 201, made.text
