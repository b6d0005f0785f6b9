"""The login pages in a real browser."""

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.cli.conftest import open_process
from tests.hostile.attacks import attack
from tests.parts.authorization_server.conftest import PASSPHRASE, Pkce, free_port
from toolpost.base.passphrase import hash_passphrase

# To start a browser and a gateway takes ten seconds; the headers are tested without them, too.
pytestmark = [pytest.mark.wire, pytest.mark.soak]


class Site:
    """An application that receives codes, and a page that puts the login into a frame."""

    def __init__(self) -> None:
        self.framed = ""
        self.answers: list[dict[str, str]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                if parts.path == "/callback":
                    site.answers.append(dict(parse_qsl(parts.query)))
                body = f'<h1>{parts.path}</h1><iframe src="{site.framed}"></iframe>' if site.framed else "<h1>done</h1>"
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def site() -> Iterator[Site]:
    opened = Site()
    thread = threading.Thread(target=opened.server.serve_forever)
    thread.start()
    yield opened
    opened.server.shutdown()
    thread.join()
    opened.server.server_close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("login")
    port = free_port()
    (folder / "toolpost.toml").write_text(
        f'[http]\nlisten = "127.0.0.1:{port}"\n[plugins]\nbundled = ["time"]\n[login]\nenabled = true\n'
        f'[callers.ada]\npassphrase_hash = "{hash_passphrase(PASSPHRASE)}"\n'
    )
    with open_process(("serve", "--json"), folder, dict(os.environ)) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"].removesuffix("/mcp")


def authorize_url(gateway: str, site: Site, name: str = "Browser test") -> str:
    redirect = f"{site.url}/callback"
    registered = httpx2.post(
        f"{gateway}/register",
        json={"redirect_uris": [redirect], "client_name": name, "token_endpoint_auth_method": "none"},
    ).json()
    query = {
        "response_type": "code",
        "client_id": registered["client_id"],
        "redirect_uri": redirect,
        "state": "s",
        "code_challenge": Pkce().challenge,
        "code_challenge_method": "S256",
    }
    return f"{gateway}/authorize?{urlencode(query)}"


def test_a_person_logs_in_and_allows(page: Page, gateway: str, site: Site) -> None:
    page.goto(authorize_url(gateway, site, "<img src=x onerror=alert(1)>"))
    expect(page.locator("main")).to_contain_text("<img src=x onerror=alert(1)> wants to use tools")
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Passphrase or token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("do not match")
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Passphrase or token").fill(PASSPHRASE)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading")).to_have_text("Allow access?")
    expect(page.locator("li").first).to_contain_text("time__")
    page.get_by_role("button", name="Allow", exact=True).click()
    page.wait_for_url(f"{site.url}/callback?*")

    assert site.answers[0]["state"] == "s"
    assert site.answers[0]["iss"] == gateway
    assert site.answers[0]["code"]


@attack("stranger", "puts the login into a frame of its own page (clickjacking)", "the browser shows nothing of it")
def test_the_pages_are_not_shown_in_a_frame(browser: Browser, gateway: str, site: Site) -> None:
    context = browser.new_context()
    page, refused = context.new_page(), list[str]()
    page.on("console", lambda message: refused.append(message.text))
    site.framed = authorize_url(gateway, site)
    page.goto(f"{site.url}/frame")
    page.wait_for_timeout(1000)
    shown = page.frames[1].locator("input").count()
    context.close()

    assert shown == 0
    assert any("frame" in text.lower() for text in refused), refused
