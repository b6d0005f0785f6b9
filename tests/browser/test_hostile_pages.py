"""Pages of other sites in a real browser, which try to use the gateway that runs on the same machine."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx2
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.conftest import CHROMIUM
from tests.hostile.attacks import attack
from tests.ways import ENVELOPE, STATELESS

pytestmark = pytest.mark.wire

EVIL = "evil.example"
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "time__current_time", "arguments": {"timezone": "UTC"}, "_meta": ENVELOPE},
}
HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": STATELESS,
    "mcp-method": "tools/call",
    "mcp-name": "time__current_time",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for which the evil site's name leads to this machine, as after DNS rebinding."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed: `apt-get install chromium` brings one")
    rules = f"--host-resolver-rules=MAP {EVIL} 127.0.0.1"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", rules])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def evil_site() -> Iterator[str]:
    """Serve an empty page at a name and a port that are not the gateway's."""

    class Empty(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>evil</title>")

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Empty) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{EVIL}:{server.server_port}/"
        server.shutdown()


def calls_on_record(gateway: str) -> int:
    """Count the calls that the gateway has answered."""
    lines = httpx2.get(f"{gateway}/metrics").text.splitlines()
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith("toolpost_calls_total"))


FETCH = """async ([url, options]) => {
    try { const answer = await fetch(url, options); return [answer.type, answer.status, await answer.text()] }
    catch (error) { return ["error", 0, ""] }
}"""

REQUESTS = {
    "a simple request of plain text": {"mode": "no-cors", "headers": {"content-type": "text/plain"}},
    "a form": {"mode": "no-cors", "headers": {"content-type": "application/x-www-form-urlencoded"}},
    "JSON, which asks for leave first": {"mode": "cors", "headers": HEADERS},
    "JSON with credentials": {"mode": "cors", "headers": HEADERS, "credentials": "include"},
}


@attack(
    "stranger",
    "has a web page in the operator's browser call a tool on localhost: plain text, a form, JSON, with and without credentials",
    "nothing is run and the page reads nothing: its Origin is refused, and so is each media type that browsers send unasked",
)
@pytest.mark.parametrize("options", REQUESTS.values(), ids=REQUESTS)
def test_a_call_from_another_site(page: Page, chat: str, evil_site: str, options: dict[str, object]) -> None:
    gateway = chat.removesuffix("/chat")
    before = calls_on_record(gateway)
    page.goto(evil_site)
    for path in ("/mcp", "/mcp/server/time", "/api/threads"):
        kind, status, text = page.evaluate(
            FETCH, [gateway + path, {"method": "POST", "body": json.dumps(CALL), **options}]
        )
        assert (kind, status, text) in (("error", 0, ""), ("opaque", 0, ""))

    assert calls_on_record(gateway) == before
    assert httpx2.post(f"{gateway}/mcp", json=CALL, headers=HEADERS).status_code == 200
    assert calls_on_record(gateway) == before + 1, "the same call by a client of this machine is run"
    assert httpx2.get(f"{gateway}/api/threads").json()["threads"] == []


@attack(
    "stranger",
    "rebinds its own name to 127.0.0.1, so that its page has the same origin as the gateway",
    "a Host that is not the gateway's own is refused with 421 on every path, before anything else is looked at",
)
def test_a_name_that_was_rebound(page: Page, chat: str) -> None:
    gateway = chat.removesuffix("/chat").replace("127.0.0.1", EVIL)
    opened = page.goto(f"{gateway}/chat")
    assert opened is not None
    seen = [
        page.evaluate(FETCH, [gateway + path, {"method": "POST", "body": json.dumps(CALL), "headers": HEADERS}])[1]
        for path in ("/mcp", "/api/threads")
    ]

    assert opened.status == 421
    assert seen == [421, 421]


@attack(
    "stranger",
    "shows the chat page in a frame of its own page, to have its buttons clicked",
    "the browser shows nothing: no page may frame it",
)
def test_a_frame(page: Page, chat: str, evil_site: str) -> None:
    page.goto(evil_site)
    page.evaluate(
        """(url) => new Promise((done) => {
            const frame = document.createElement("iframe");
            frame.onload = done;
            frame.src = url;
            document.body.append(frame);
        })""",
        chat,
    )
    (frame,) = [frame for frame in page.frames if frame != page.main_frame]

    assert frame.locator("#messages").count() == 0
