"""URLs that come from servers lead the gateway nowhere inside its own network."""

import httpx2
import pytest

from tests.hostile.attacks import attack
from tests.upstreams.servers.http_server import HttpServer, serving
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.credentials import fetch
from toolpost.credentials.fetch import Fetcher, Reach, UnsafeUrl, reach_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("address", "reach"),
    [
        ("93.184.216.34", Reach.INTERNET),
        ("2606:4700::1111", Reach.INTERNET),
        ("10.1.2.3", Reach.PRIVATE),
        ("100.64.0.1", Reach.PRIVATE),
        ("fd00::1", Reach.PRIVATE),
        ("127.0.0.2", Reach.LOOPBACK),
        ("::1", Reach.LOOPBACK),
        ("::ffff:127.0.0.1", Reach.LOOPBACK),
        ("64:ff9b::a01:203", Reach.PRIVATE),
        ("2002:7f00:1::", Reach.LOOPBACK),
        ("169.254.169.254", Reach.NEVER),
        ("::ffff:169.254.169.254", Reach.NEVER),
        ("fe80::1%eth0", Reach.NEVER),
        ("0.0.0.0", Reach.NEVER),
        ("224.0.0.1", Reach.NEVER),
        ("fec0::1", Reach.PRIVATE),
        ("64:ff9b:1::a9fe:a9fe", Reach.NEVER),
        ("::a00:1", Reach.NEVER),
    ],
)
def test_addresses_are_told_apart(address: str, reach: Reach) -> None:
    assert reach_of(address) is reach


def resolve_as(monkeypatch: pytest.MonkeyPatch, names: dict[str, str]) -> None:
    real = fetch._look_up

    async def look_up(host: str, port: int) -> list[str]:
        return await real(names.get(host, host), port)

    monkeypatch.setattr(fetch, "_look_up", look_up)


@attack(
    "server",
    "names metadata and endpoints inside the gateway's network",
    "they are not fetched: not by address, by name, without TLS, nor after a redirect",
)
@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/token",
        "https://localhost/token",
        "https://[::1]/token",
        "https://10.0.0.7/token",
        "https://169.254.169.254/latest/meta-data",
        "https://inside.example/token",
        "http://as.example/token",
        "file:///etc/passwd",
        "https://0/token",
        "https://2130706433/token",
    ],
)
async def test_a_server_on_the_internet_leads_nowhere_inside(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_as(
        monkeypatch,
        {"mcp.example": "93.184.216.34", "as.example": "93.184.216.34", "inside.example": "127.0.0.1"},
    )
    fetcher = Fetcher(["https://mcp.example/mcp"])

    with pytest.raises((UnsafeUrl, UpstreamUnavailable)) as refusal:
        await fetcher.send(httpx2.Request("GET", url))

    assert "cannot connect" not in refusal.value.message


@pytest.mark.wire
async def test_a_server_inside_has_its_authorization_server_inside() -> None:
    server = HttpServer()
    async with serving(server) as url:
        response = await Fetcher([url]).send(httpx2.Request("GET", url.replace("/mcp", "/.well-known/x")))
        with pytest.raises(UnsafeUrl, match="inside this network"):
            await Fetcher(["https://10.0.0.7/mcp"]).send(httpx2.Request("GET", url))

    assert response.status_code == 405


@attack(
    "server",
    "has its own name resolve to an address inside, to lift the limit on its addresses",
    "a name opens nothing: only an address in `url` does, and for others there is `auth.issuer`",
)
@pytest.mark.parametrize("exempt", [(), ("https://login.corp/", "https://10.0.0.9/")])
async def test_a_name_that_resolves_inside_opens_nothing(
    exempt: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"evil.example": "127.0.0.1", "also.evil.example": "10.0.0.7", "login.corp": "10.0.0.8"}
    resolve_as(monkeypatch, names)
    fetcher = Fetcher(["https://evil.example/mcp"], exempt=exempt)

    for url in ("https://127.0.0.1/x", "https://10.0.0.7/x", "https://also.evil.example/x", "https://login.corp:8/x"):
        with pytest.raises(UnsafeUrl, match="inside this network") as refusal:
            await fetcher.send(httpx2.Request("GET", url))
        assert "auth.issuer" in (refusal.value.hint or "")


@pytest.mark.wire
async def test_an_issuer_that_is_configured_may_be_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_as(monkeypatch, {"mcp.example": "93.184.216.34", "login.corp": "127.0.0.1"})
    async with serving(HttpServer()) as url:
        issuer = url.replace("127.0.0.1", "login.corp").removesuffix("/mcp")
        response = await Fetcher(["https://mcp.example/mcp"], exempt=[issuer]).send(
            httpx2.Request("GET", f"{issuer}/x")
        )

    assert response.status_code == 405


@pytest.mark.wire
async def test_redirects_are_not_followed() -> None:
    inside, server = HttpServer(), HttpServer()
    async with serving(inside) as target, serving(server) as url:
        server.status, server.location = 302, target
        response = await Fetcher([url]).send(httpx2.Request("POST", url, data={"secret": "x"}))

    assert response.status_code == 302
    assert inside.methods == []
