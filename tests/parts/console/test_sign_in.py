"""People sign in to the console at npm's `oidc-provider`: who gets in, with which role, and whose answers do not count."""

import hashlib
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import anyio
import httpx2
import pytest

from tests.conformance.test_conformance import PLACE
from tests.hostile.attacks import attack
from tests.parts.authorization_server import conftest
from tests.parts.authorization_server.test_provider import provider_for
from tests.parts.console.conftest import API, OpenSite, Site
from tests.parts.console.test_stored_callers import PLUGINS
from tests.parts.console.test_tools import TOKENS, tokens
from tests.waiting import until
from toolpost import Forbidden
from toolpost.endpoints.auth.people import ROLES as ROLE_NAMES
from toolpost.endpoints.auth.roster import Admission
from toolpost.endpoints.http.request import HttpRequest
from toolpost.endpoints.http.routes import HttpContext, JsonApi, Route
from toolpost.parts.console import sign_in

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.wire,
    pytest.mark.every_store,
    pytest.mark.skipif(
        not (PLACE / "oidc-provider").exists(), reason="oidc-provider is not there: scripts/node-servers"
    ),
]

__all__ = ["tokens"]  # a fixture

ROLES = """
[console.roles]
viewer = ["watch"]
operator = ["ops"]
administrator = ["sre"]
session_s = 600
"""
SETTINGS = """
[login]
enabled = true
[login.provider]
issuer = "{issuer}"
client_id = "gateway"
client_secret = "${{file:secret}}"
[callers.ann]
token = "${{TOKEN_ANN}}"
admin = true
[callers.ben]
token = "${{TOKEN_BEN}}"
"""


@dataclass
class Provided:
    """A provider, and the port of the gateway that it sends people back to."""

    issuer: str
    port: int
    text: str

    async def put(self, person: str, *groups: str) -> None:
        """Log the next person in as this one, who is in these groups."""
        async with httpx2.AsyncClient() as http:
            await http.get(f"{self.issuer}/as/{person}")
            await http.get(f"{self.issuer}/groups/{person}/{','.join(groups)}")


@pytest.fixture
def provided(tmp_path: Path) -> Iterator[Provided]:
    port = conftest.free_port()
    (tmp_path / "secret").write_text("secret: of the gateway, at least 32 bytes")
    own = f"http://127.0.0.1:{port}"
    with provider_for(f"{own}/authorize/callback", f"{own}/api/console/sign-in/callback") as issuer:
        yield Provided(issuer, port, SETTINGS.format(issuer=issuer) + ROLES)


@dataclass
class Browser:
    """What a person's browser and the console's page in it do."""

    url: str
    http: httpx2.AsyncClient
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def headers(self) -> dict[str, str]:
        return {
            "X-Toolpost": "1",
            "X-Toolpost-Session-Secret": self.secret,
            "Origin": self.url,
            "Sec-Fetch-Site": "same-origin",
        }

    async def begin(self, **body: Any) -> httpx2.Response:
        digest = hashlib.sha256(self.secret.encode()).hexdigest()
        body = {"sessionSecretHash": digest, "to": "/servers"} | body
        return await self.http.post(f"{self.url}{API}/sign-in", json=body, headers=self.headers)

    async def go(self, **body: Any) -> str:
        """Go to the provider, and return the address at which it sends the person back."""
        begun = await self.begin(**body)
        assert begun.status_code == 200, begun.text
        target = str(begun.json()["location"])
        for _ in range(8):
            if target.startswith(f"{self.url}/"):
                break
            answer = await self.http.get(target)
            assert answer.status_code in (302, 303), answer.text
            target = str(answer.url.join(answer.headers["location"]))
        assert target.startswith(f"{self.url}{API}/sign-in/callback?"), target
        return target

    async def come_back(self, target: str) -> str:
        """Return the path that the browser goes on with."""
        back = await self.http.get(target)
        assert back.status_code == 303, back.text
        location = str(back.headers["location"])
        assert location.startswith(f"{self.url}/"), location
        return location.removeprefix(self.url)

    async def sign_in(self, **body: Any) -> str:
        return await self.come_back(await self.go(**body))

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.http.get(f"{self.url}{API}{path}", headers=self.headers | headers)

    async def post(self, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        return await self.http.post(f"{self.url}{API}{path}", json=body or {}, headers=self.headers | headers)

    def cookies(self) -> str:
        return "; ".join(f"{one.name}={one.value}" for one in self.http.cookies.jar if one.domain.startswith("127."))


Open = Callable[..., AbstractAsyncContextManager[tuple[Site, Browser]]]


@pytest.fixture
def opened(site: OpenSite, provided: Provided) -> Open:
    """Open a gateway with the provider, and a browser in which nobody is signed in."""

    @asynccontextmanager
    async def opened(store: str = "sqlite::memory:", text: str = "") -> AsyncIterator[tuple[Site, Browser]]:
        async with site(text or provided.text, *PLUGINS, token=TOKENS["ann"], store=store, port=provided.port) as made:
            async with httpx2.AsyncClient(timeout=60) as http:
                yield made, Browser(f"http://127.0.0.1:{provided.port}", http)

    return opened


ACTIONS: dict[str, tuple[str, Any]] = {
    "see": ("GET /overview", None),
    "see callers": ("GET /callers/usage", None),
    "verify": ("POST /calls/verify", None),
    "run": ("POST /call", {"tool": "zoo__feed", "arguments": {"animal": "owl"}}),
    "restart": ("POST /server/act", {"name": "none", "action": "restart"}),
    "remove a caller": ("POST /callers/remove", {"name": "none"}),
    "edit servers": ("POST /servers/plan", {"remove": "none"}),
    "act as another": ("POST /call", {"tool": "zoo__feed", "arguments": {"animal": "owl"}, "caller": "ben"}),
}


@pytest.mark.parametrize(
    ("group", "role", "may"),
    [
        ("watch", "viewer", ["see", "see callers", "verify"]),
        ("ops", "operator", ["see", "see callers", "verify", "run", "restart"]),
        ("sre", "administrator", [action for action in ACTIONS if action != "edit servers"]),
    ],
)
async def test_a_role_comes_from_a_group_and_says_what_a_person_may_do(
    opened: Open, provided: Provided, store_url: str, group: str, role: str, may: list[str]
) -> None:
    await provided.put("u-ada", group, "other")
    async with opened(store_url) as (_, browser):
        to = await browser.sign_in()
        session = (await browser.get("/session")).json()
        statuses = {}
        for action, (request, body) in ACTIONS.items():
            method, path = request.split(" ")
            answer = await (browser.get(path) if method == "GET" else browser.post(path, body))
            statuses[action] = answer.status_code

    assert to == "/servers"
    assert (session["person"], session["role"], session["caller"]) == ("u-ada", role, "console:u-ada")
    assert session["mayChange"] == (role != "viewer")
    # 404 for what is not there.
    assert [action for action, status in statuses.items() if status in (200, 404)] == may
    assert {status for action, status in statuses.items() if action not in may} <= {403}


async def test_without_a_group_there_is_no_access(opened: Open, provided: Provided, caplog: Any) -> None:
    await provided.put("u-ada", "other")
    async with opened() as (_, browser):
        to = await browser.sign_in()
        assert (await browser.get("/session")).status_code == 401
    assert to == "/#sign-in=role"
    assert "no role" in str([record.__dict__ for record in caplog.records])


async def test_a_group_that_is_removed_ends_with_the_session_or_the_setting(
    opened: Open, provided: Provided, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await provided.put("u-ada", "sre")
    async with opened(store_url) as (_, browser):
        await browser.sign_in()
        await provided.put("u-ada", "watch")
        before = (await browser.get("/session")).json()["role"]
        await browser.sign_in()
        after = (await browser.get("/session")).json()["role"]
        kept, secret = browser.cookies(), browser.secret
    assert (before, after) == ("administrator", "viewer")

    less = provided.text.replace('viewer = ["watch"]', 'viewer = ["others"]')
    async with opened(store_url) as (_, browser):
        browser.secret = secret
        assert (await browser.get("/session", Cookie=kept)).status_code == 200, "a restart ends nothing"
    async with opened(store_url, less) as (_, browser):
        browser.secret = secret
        assert (await browser.get("/session", Cookie=kept)).status_code == 401
    async with opened(store_url) as (site, browser):
        browser.secret = secret
        await site.app.store.scripts.run(_expire)
        assert (await browser.get("/session", Cookie=kept)).status_code == 401


def _expire() -> Any:
    from toolpost.store import Statement

    yield Statement("UPDATE console_sessions SET expires_at = expires_at - 601")


async def test_what_decides_about_commands_needs_an_administrator_who_signed_in_again(
    opened: Open, provided: Provided, monkeypatch: pytest.MonkeyPatch
) -> None:
    await provided.put("u-ada", "sre")
    plan = ("/servers/plan", {"name": "new", "entry": {"command": "true"}})
    async with opened() as (_, browser):
        await browser.sign_in()
        stale = await browser.post(*plan)
        to = await browser.sign_in(fresh=True, to="/servers?add=1")
        fresh = await browser.post(*plan)
        at = time.time() + 301
        monkeypatch.setattr(time, "time", lambda: at)
        late = await browser.post(*plan)
    assert (stale.status_code, to, fresh.status_code, late.status_code) == (403, "/servers?add=1", 200, 403)
    for refused in (stale, late):
        assert refused.json()["error"]["details"] == {"needs": "sign-in", "at": f"{API}/sign-in"}


async def test_a_change_is_logged_with_the_name_of_the_person(
    opened: Open, provided: Provided, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await provided.put("u-ada", "sre")
    async with opened() as (site, browser):
        await browser.sign_in(fresh=True)
        await browser.get("/overview")
        await browser.post("/calls/verify")
        await browser.post("/callers/preview")
        made = await browser.post("/callers/add", {"name": "cleo"})
        await browser.post("/call", {"tool": "zoo__feed", "arguments": {"animal": "owl"}})
        (row,) = [row for row in (await browser.get("/callers/usage")).json()["callers"] if row["caller"] == "cleo"]
        entries = (await site.get("/calls"))["calls"]
    records = [record for record in caplog.records if record.name == "toolpost.changes"]
    assert made.status_code == 200
    assert row["madeBy"] == "console:u-ada"
    assert [entry["caller"] for entry in entries] == ["console:u-ada"]
    texts = [str(record.__dict__) for record in records]
    assert len(texts) == 2, texts
    assert all("console:u-ada" in text and "u-ada" in text and "administrator" in text for text in texts)
    assert f"POST {API}/callers/add" in texts[0]
    assert made.json()["token"] not in caplog.text


async def test_the_cookie_of_a_session(opened: Open, provided: Provided) -> None:
    await provided.put("u-ada", "watch")
    async with opened() as (_, browser):
        target = await browser.go()
        back = await browser.http.get(target)
        sent = [value for name, value in back.headers.multi_items() if name == "set-cookie"]
        ended = await browser.post("/session/end")
        again = await browser.get("/session")
    (session,) = [value for value in sent if "_session_" in value]
    assert session.split("; ")[1:] == ["Path=/", "Max-Age=600", "HttpOnly", "SameSite=Lax"]
    assert any("_sign_in_" in value and "Max-Age=0" in value for value in sent)
    assert (ended.status_code, again.status_code) == (200, 401)


async def test_a_stream_ends_soon_after_the_session(
    opened: Open, provided: Provided, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in, "CHECKED_S", 0.5)
    await provided.put("u-ada", "watch")
    async with opened() as (_, browser):
        await browser.sign_in()
        seen, ended = anyio.Event(), anyio.Event()

        async def listen() -> None:
            headers = browser.headers | {"Accept": "text/event-stream"}
            async with browser.http.stream("GET", f"{browser.url}{API}/events", headers=headers) as stream:
                assert stream.status_code == 200
                async for _ in stream.aiter_bytes():
                    seen.set()
            ended.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await seen.wait()
            await browser.post("/session/end")
            with anyio.fail_after(60):
                await ended.wait()


@attack(
    "stranger",
    "has the cookie of a person who is signed in, from a server on another port, or has their browser send it",
    "the cookie is nothing without the session secret, which pages of this port alone can read; MCP and metrics take none",
)
async def test_a_stolen_cookie(opened: Open, provided: Provided) -> None:
    await provided.put("u-ada", "sre")
    async with opened() as (_, browser):
        await browser.sign_in(fresh=True)
        cookie = browser.cookies()
        assert (await browser.get("/session")).status_code == 200
        statuses = []
        async with httpx2.AsyncClient(base_url=browser.url, headers={"Cookie": cookie}) as thief:
            for secret in ("", "guessed", hashlib.sha256(browser.secret.encode()).hexdigest()):
                own = {"X-Toolpost": "1"} | ({"X-Toolpost-Session-Secret": secret} if secret else {})
                statuses.append((await thief.get(f"{API}/session", headers=own)).status_code)
                statuses.append((await thief.post(f"{API}/calls/verify", json={}, headers=own)).status_code)
            whole = {"X-Toolpost": "1", "X-Toolpost-Session-Secret": browser.secret}
            for path in ("/metrics", "/mcp"):
                statuses.append((await thief.get(path, headers=whole)).status_code)
        foreign = [
            await browser.post("/calls/verify", **headers)
            for headers in (
                {"Origin": "http://127.0.0.1:3000", "Sec-Fetch-Site": "same-site"},
                {"Sec-Fetch-Site": "cross-site"},
                {"X-Toolpost": ""},
            )
        ]
        other = await browser.http.post(
            f"{browser.url}/api/servers/none/restart",
            json={},
            headers=browser.headers | {"Origin": "http://127.0.0.1:3000"},
        )
    assert statuses == [401] * len(statuses)
    assert [answer.status_code for answer in (*foreign, other)] == [403] * 4


@attack(
    "stranger",
    "brings an answer of the provider to another browser or a second time, mixes up state, code or issuer, or begins a sign-in"
    " for a browser that is not theirs",
    "nobody is signed in",
)
async def test_answers_of_the_provider_count_once_where_they_were_asked_for(opened: Open, provided: Provided) -> None:
    await provided.put("u-ada", "sre")
    async with opened() as (_, browser):
        ends = []
        back = await browser.go()
        kept = browser.cookies()
        async with httpx2.AsyncClient(timeout=60) as other:
            ends.append(await Browser(browser.url, other).come_back(back))  # without what was begun
        assert await browser.come_back(back) == "/servers"
        signed_in = browser.cookies()
        again = await browser.http.get(back, headers={"Cookie": kept})  # the state is right, the code was used
        ends.append(again.headers["location"].removeprefix(browser.url))
        assert not any("session" in value for name, value in again.headers.multi_items() if name == "set-cookie")
        first = await browser.go()
        second = await browser.go()
        ends.append(await browser.come_back(_with(second, code=_query(first)["code"])))
        ends.append(await browser.come_back(_with(await browser.go(), iss="https://evil.example")))
        ends.append(await browser.come_back(_with(await browser.go(), state="A" * 43)))
        ends.append(await browser.come_back(_with(await browser.go(), state="ü\ud800")))
        ends.append(await browser.come_back(f"{browser.url}{API}/sign-in/callback?error=access_denied"))
        # What was begun, changed.
        begun = await browser.go()
        name, value = next((one.name, one.value) for one in browser.http.cookies.jar if "sign_in" in one.name)
        assert value is not None
        changed = await browser.http.get(
            begun, headers={"Cookie": f"{name}={value[:-1]}{'0' if value[-1] != '0' else '1'}"}
        )
        ends.append(changed.headers["location"].removeprefix(browser.url))
        # A sign-in of the attacker, in the browser of another person: it has not the secret of it.
        async with httpx2.AsyncClient(timeout=60) as other:
            attacker = Browser(browser.url, other)
            await attacker.sign_in()
            forced = await browser.get("/session", Cookie=attacker.cookies())
        still = await browser.get("/session", Cookie=signed_in)
    assert all(end.startswith("/#sign-in=") for end in ends), ends
    assert (forced.status_code, still.status_code) == (401, 200)


def _query(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


def _with(url: str, **params: str) -> str:
    return urlsplit(url)._replace(query=urlencode(_query(url) | params, errors="replace")).geturl()


BAD = {
    "another site": {"to": "//evil.example/"},
    "another site, for browsers that turn it around": {"to": "/\\evil.example/"},
    "an address": {"to": "https://evil.example/"},
    "a line break": {"to": "/\r\nSet-Cookie: a=b"},
    "no hash": {"sessionSecretHash": ""},
    "something that is no hash": {"sessionSecretHash": "x" * 64},
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
async def test_where_a_sign_in_may_lead(opened: Open, body: dict[str, str]) -> None:
    async with opened() as (_, browser):
        refused = await browser.begin(**body)
    assert refused.status_code == 400
    assert "set-cookie" not in refused.headers


async def test_a_sign_in_begins_on_the_own_page(opened: Open, provided: Provided) -> None:
    async with opened() as (_, browser):
        shown = (await browser.http.get(f"{browser.url}{API}/sign-in")).json()
        foreign = [
            await browser.http.post(
                f"{browser.url}{API}/sign-in", json={"sessionSecretHash": "0" * 64}, headers=headers
            )
            for headers in (
                {"X-Toolpost": "1", "Origin": "http://127.0.0.1:3000"},
                {"Origin": browser.url},
                {"X-Toolpost": "1", "Host": f"localhost:{provided.port}"},
            )
        ]
    assert shown == {"provider": "127.0.0.1"}
    assert [answer.status_code for answer in foreign] == [403] * 3


async def test_a_token_says_who_it_is_also_in_a_browser_that_is_signed_in(opened: Open, provided: Provided) -> None:
    await provided.put("u-ada", "sre")
    async with opened() as (_, browser):
        await browser.sign_in()
        ben = (await browser.get("/session", Authorization=f"Bearer {TOKENS['ben']}")).json()
        wrong = await browser.get("/session", Authorization="Bearer wrong")
    assert (ben["caller"], ben["isAdmin"], ben["person"], wrong.status_code) == ("ben", False, None, 401)


async def test_roles_without_a_provider_are_an_error(site: OpenSite) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        async with site(ROLES):
            pass
    assert "login.provider" in str(raised.value.exceptions) or "login.provider" in repr(raised.value)


async def test_without_roles_nobody_signs_in(opened: Open, provided: Provided) -> None:
    async with opened(text=provided.text.replace(ROLES, "")) as (_, browser):
        shown = (await browser.http.get(f"{browser.url}{API}/sign-in")).json()
        refused = await browser.begin()
        callback = await browser.http.get(f"{browser.url}{API}/sign-in/callback?code=a&state=b")
    assert (shown, refused.status_code, callback.status_code) == ({"provider": None}, 403, 403)


async def test_an_end_at_one_gateway_is_one_at_all(opened: Open, provided: Provided, store_url: str) -> None:
    """Two gateways of a store behind one address: here one after the other, with nothing kept in between but the store."""
    await provided.put("u-ada", "watch")
    async with opened(store_url) as (_, browser):
        await browser.sign_in()
        kept, secret = browser.cookies(), browser.secret

        async def is_known() -> bool:
            return (await browser.get("/session")).status_code == 200

        await until(is_known)
        await browser.post("/session/end")
    async with opened(store_url) as (_, browser):
        browser.secret = secret
        assert (await browser.get("/session", Cookie=kept)).status_code == 401


DOCS = Path(__file__).parents[3] / "docs/parts/console.md"


def documented() -> dict[str, tuple[str, bool]]:
    """Return the least role of each request, as documented, and whether it needs a fresh sign-in."""
    found: dict[str, tuple[str, bool]] = {}
    for line in DOCS.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 5 or not cells[1].startswith("`"):
            continue
        role = next(role for role, cell in zip(ROLE_NAMES, cells[2:], strict=True) if cell)
        for request in re.findall(r"`(\w+ /[\w/]*)`", cells[1]):
            # What is said of a request in a later row is about a part of it.
            found.setdefault(request, (role, cells[4] == "again"))
    return found


async def test_the_table_of_roles_is_that_of_the_routes(site: OpenSite, monkeypatch: pytest.MonkeyPatch) -> None:
    routes: list[Route] = []
    make = JsonApi.__init__

    def note(api: JsonApi, http: HttpContext, own: Sequence[Route], **options: Any) -> None:
        routes.extend(own)
        make(api, http, own, **options)

    monkeypatch.setattr(JsonApi, "__init__", note)
    async with site() as opened:
        admission = opened.app.roster.admit_person("u", name="u", role="administrator", signed_in_at=0, until=0)
    own = [route for route in routes if route.path.startswith(f"{API}/")]
    needs = {
        f"{route.method} {route.path.removeprefix(API)}": (route.required_role, needs_fresh(route, admission))
        for route in own
    }
    assert len(own) > 25
    assert needs == documented()
    assert all(route.required_role in ROLE_NAMES for route in routes)
    # Without a role of its own, a route of any part that changes something is not for viewers.
    assert not [
        route for route in routes if route.required_role == "viewer" and not route.is_reading and not route.role
    ]


def needs_fresh(route: Route, admission: Admission) -> bool:
    if route.check is None:
        return False
    headers = [(b"host", b"x"), (b"origin", b"http://x"), (b"x-toolpost", b"1")]
    scope = {"method": route.method, "path": route.path, "headers": headers}
    request = HttpRequest(scope, anyio.sleep_forever, lambda _: anyio.sleep(0))
    try:
        route.check(request, admission)
    except Forbidden as error:
        return bool(error.details["needs"] == "sign-in")
    return False
