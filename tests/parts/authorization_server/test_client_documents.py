"""Clients whose id is the URL of a document about them (CIMD)."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import pytest

from tests.hostile.attacks import attack
from tests.parts.authorization_server.conftest import REDIRECT, OpenGateway, Pkce
from tests.waiting import until
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.credentials import fetch
from toolpost.parts.authorization_server import clients

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


class Documents:
    """A site with documents of clients."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.requests: list[str] = []

    def put(self, path: str, **members: Any) -> str:
        url = f"{self.url}{path}"
        usual = {"client_id": url, "client_name": "Documented", "redirect_uris": [REDIRECT]}
        document = {name: value for name, value in (usual | members).items() if value is not None}
        self.pages[path] = 200, {"content-type": "application/json"}, json.dumps(document).encode()
        return url


@pytest.fixture
def site() -> Iterator[Documents]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            documents.requests.append(self.path)
            status, headers, body = documents.pages.get(self.path, (404, {}, b""))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    documents = Documents(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield documents
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_a_client_is_known_by_its_document(open_gateway: OpenGateway, site: Documents) -> None:
    client = site.put("/client.json")
    async with open_gateway() as gateway:
        pkce = Pkce()
        page = await gateway.sign_in(await gateway.open_page(client, pkce))
        code = await gateway.get_code(client, pkce)
        tokens = await gateway.exchange(client, code, pkce)
        status = await gateway.ping(tokens.json()["access_token"])

    assert "Documented" in page.text
    assert f"<code>{client}</code>" in page.text, "its name is what it says of itself; its address is where it is"
    assert status == 400
    assert len(site.requests) == 1


@attack(
    "stranger",
    "shows documents that speak for another client, have a secret, redirect elsewhere, are huge or no JSON",
    "the client is not known, and nothing is redirected",
)
async def test_documents_that_cannot_be_trusted_are_no_clients(open_gateway: OpenGateway, site: Documents) -> None:
    wrong = [
        site.put("/other", client_id=f"{site.url}/client.json"),
        site.put("/slash", client_id=f"{site.url}/slash/"),
        site.put("/secret", client_secret="x"),
        site.put("/method", token_endpoint_auth_method="client_secret_post"),
        site.put("/script", redirect_uris=["javascript:alert(1)"]),
        site.put("/none", redirect_uris=None),
        site.put("/huge", logo="x" * 70_000),
        f"{site.url}/missing",
        f"{site.url}/redirect",
        f"{site.url}/a/../client.json",
        f"{site.url}/",
    ]
    site.put("/client.json")
    site.pages["/redirect"] = 302, {"location": f"{site.url}/client.json"}, b""
    async with open_gateway() as gateway:
        answers = [await gateway.begin(client, Pkce()) for client in wrong]

    assert [answer.status_code for answer in answers] == [400] * len(wrong)
    assert not any("location" in answer.headers for answer in answers)


@attack(
    "stranger",
    "names a client id inside the gateway's network (SSRF)",
    "it is not fetched by a gateway on the internet",
)
async def test_documents_cannot_lead_the_gateway_into_its_own_network(
    open_gateway: OpenGateway, site: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = site.put("/client.json")

    # As for a gateway whose own URL is on the internet.
    on_the_internet = property(lambda _: fetch.Reach.INTERNET, lambda _fetcher, _reach: None)
    monkeypatch.setattr(fetch.Fetcher, "_allowed", on_the_internet, raising=False)
    async with open_gateway() as gateway:
        ids = [client, "http://169.254.169.254/latest/meta-data", "https://localhost/client.json", "https://10.0.0.1/c"]
        answers = [await gateway.begin(name, Pkce()) for name in ids]

    assert [answer.status_code for answer in answers] == [400] * 4
    assert site.requests == []


@pytest.mark.parametrize("url", ["https://gateway.test", "https://127.0.0.2"])
@attack(
    "stranger",
    "names a client id inside the network of a gateway whose own name resolves to an address there (SSRF)",
    "it is not connected to",
)
async def test_the_gateways_own_name_does_not_open_its_network(
    url: str, open_gateway: OpenGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections: list[asyncio.StreamWriter] = []

    async def look_up(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        writer.close()

    async with (
        await asyncio.start_server(accept, "127.0.0.1", 0) as server,
        open_gateway(http=f'public_url = "{url}"') as gateway,
    ):
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setattr(fetch, "_look_up", look_up)
        answers = [
            await gateway.begin(f"https://{host}:{port}/client.json", Pkce())
            for host in ("client.test", "127.0.0.1", "gateway.test")
        ]

    assert [answer.status_code for answer in answers] == [400] * 3
    assert connections == []


@attack("stranger", "names clients whose documents never come", "the documents of other clients are fetched meanwhile")
async def test_a_slow_host_does_not_block_the_documents_of_others(
    open_gateway: OpenGateway, site: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = site.put("/client.json")
    monkeypatch.setattr(clients, "FETCH_S", 3)

    accepted: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        await reader.read(-1)
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server, open_gateway() as gateway:
        slow = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        begun = [asyncio.ensure_future(gateway.begin(f"{slow}/{number}", Pkce())) for number in range(8)]
        await until(lambda: accepted)
        answer = await gateway.begin(client, Pkce())
        is_waiting = not all(other.done() for other in begun)
        with anyio.fail_after(20):
            others = await asyncio.gather(*begun)

    assert answer.status_code == 302
    assert is_waiting
    assert [other.status_code for other in others] == [400] * 8


@attack("stranger", "names many clients that do not exist", "known documents stay, also while their host is away")
async def test_a_document_stays_known_while_its_host_does_not_answer(
    open_gateway: OpenGateway, site: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = site.put("/client.json")
    monkeypatch.setattr(clients, "CACHED", 3)
    async with open_gateway() as gateway:
        first = await asyncio.gather(gateway.begin(client, Pkce()), gateway.begin(client, Pkce()))
        for number in range(6):
            await gateway.begin(f"{site.url}/{number}", Pkce())
        second = await gateway.begin(client, Pkce())
        fetched = site.requests.count("/client.json")

        async def fail(*_: Any) -> Any:
            raise UpstreamUnavailable("away")

        monkeypatch.setattr(fetch.Fetcher, "send", fail)
        now = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: now() + clients.FRESH_S)
        third = await gateway.begin(client, Pkce())

    assert [answer.status_code for answer in (*first, second, third)] == [302] * 4
    assert fetched == 1


async def test_documents_can_be_turned_off(open_gateway: OpenGateway, site: Documents) -> None:
    client = site.put("/client.json")
    async with open_gateway("client_documents = false") as gateway:
        answer = await gateway.begin(client, Pkce())

    assert answer.status_code == 400
    assert site.requests == []
