"""The official example servers of MCP Apps, and a plugin with an app, in a host on the official bridge, through the gateway.

`scripts/node-apps` puts the servers, the bridge and a bundler into `.venv/node-apps`; without them these tests are skipped.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import FrameLocator, Page, Route, expect

from tests.cli.conftest import open_process
from tests.ways import ROOT, STATELESS

PLACE = Path(sys.prefix) / "node-apps" / "node_modules"
SERVERS = PLACE / "@modelcontextprotocol"
NODE = shutil.which("node")
HERE = Path(__file__).parent / "apps"

NAMES = {"left": "basic-vanillajs", "right": "basic-vanillajs", "react": "basic-react", "budget": "budget-allocator"}
"""The servers by their names in the gateway: two instances of one, and a third whose app and tool have the same names."""

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        NODE is None or not all((SERVERS / f"server-{one}").exists() for one in NAMES.values()),
        reason=f"the example servers are not in {PLACE}: scripts/node-apps puts them there",
    ),
]

TIME = re.compile(r"\d{4}-\d\d-\d\dT")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the host as one script."""
    made = tmp_path_factory.mktemp("host") / "host.js"
    command = [str(PLACE / ".bin" / "esbuild"), "host.mjs", "--bundle", "--format=esm", f"--outfile={made}"]
    environment = os.environ | {"NODE_PATH": str(PLACE)}
    subprocess.run([*command, "--log-level=error"], cwd=HERE, env=environment, check=True)
    return made.read_text()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("gateway")
    with (folder / "toolpost.toml").open("w") as file:
        for name, package in NAMES.items():
            arguments = json.dumps([str(SERVERS / f"server-{package}" / "dist" / "index.js"), "--stdio"])
            file.write(f'[servers.{name}]\ncommand = "{NODE}"\nargs = {arguments}\n')
    serve = ("serve", "--listen", "127.0.0.1:0", "--json", "--plugin", "tests.plugins.counter:plugin")
    with open_process(serve, folder, os.environ | {"PYTHONPATH": str(ROOT)}) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]


def open_host(page: Page, bundle: str, gateway: str) -> None:
    """Serve host and sandbox on origins of their own, and the gateway on the host's."""

    def answer(route: Route) -> None:
        url = route.request.url
        if url.endswith("/mcp"):
            if route.request.method == "GET":
                route.fulfill(status=405)  # no stream of notifications: it would never end
                return
            headers = {
                name: value for name, value in route.request.headers.items() if name not in ("origin", "referer")
            }
            route.fulfill(response=route.fetch(url=gateway, headers=headers))
        elif url.startswith("http://sandbox.test"):
            route.fulfill(body=(HERE / "sandbox.html").read_text(), content_type="text/html")
        elif url.endswith("/host.js"):
            route.fulfill(body=bundle, content_type="text/javascript")
        else:
            route.fulfill(
                body='<!doctype html><script type="module" src="/host.js"></script>', content_type="text/html"
            )

    page.context.route("http://*.test/**", answer)
    page.goto("http://host.test/")
    page.wait_for_function("window.connect")


def app_of(page: Page, tool: str, *, is_strict: bool) -> FrameLocator:
    page.evaluate("([name, isStrict]) => window.show(name, isStrict)", [tool, is_strict])
    return page.frame_locator(f"[id='{tool}']").frame_locator("iframe")


def calls_of(page: Page) -> list[str]:
    calls: list[str] = page.evaluate("window.calls.splice(0)")
    return calls


@pytest.mark.parametrize("is_strict", [False, True], ids=["plain-host", "strict-host"])
@pytest.mark.parametrize("pin", [None, STATELESS], ids=["handshake", "modern"])
def test_apps_reach_their_own_servers(page: Page, bundle: str, gateway: str, pin: str | None, is_strict: bool) -> None:
    open_host(page, bundle, gateway)
    names = page.evaluate("pin => window.connect(pin)", pin)
    assert {"left__get-time", "right__get-time", "react__get-time", "counter__add"} <= set(names)

    # All of them are open at once, and the last one that was opened calls first: nothing depends on the order.
    left, right = (app_of(page, f"{name}__get-time", is_strict=is_strict) for name in ("left", "right"))
    react = app_of(page, "react__get-time", is_strict=is_strict)
    for app, name in ((react, "react"), (left, "left"), (right, "right"), (left, "left")):
        time = app.locator("code").first
        expect(time).to_have_text(TIME)
        before = time.inner_text()
        app.get_by_role("button", name="Get Server Time").click()
        expect(time).not_to_have_text(before)
        expect(time).to_have_text(TIME)
        assert calls_of(page) == [f"{name}__get-time"]

    budget = app_of(page, "budget__get-budget-data", is_strict=is_strict)
    expect(budget.locator("#status-bar")).not_to_contain_text("$0 / $0")


@pytest.mark.parametrize("is_strict", [False, True], ids=["plain-host", "strict-host"])
def test_an_app_of_a_plugin(page: Page, bundle: str, gateway: str, is_strict: bool) -> None:
    open_host(page, bundle, gateway)
    page.evaluate("window.connect(null)")
    app = app_of(page, "counter__show", is_strict=is_strict)
    expect(app.locator("#about")).to_have_text("show")
    expect(app.locator("#count")).to_have_text(re.compile(r"\d+"))
    before = int(app.locator("#count").inner_text())
    app.get_by_role("button").click()
    expect(app.locator("#count")).to_have_text(str(before + 1))
    assert calls_of(page) == ["counter__add"]
