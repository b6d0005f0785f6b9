"""The console in a real browser: its pages, and stories of what people do there."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import anyio
import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import new_secret, open_console
from tests.browser.test_hostile_pages import CALL, HEADERS
from tests.cli.conftest import TOOLPOST
from toolpost.audit import AuditEntry
from toolpost.base.ids import CallerId, CallId, ToolName, TraceId
from toolpost.settings import load_config
from toolpost.store import open_store
from toolpost.store.audit import AuditLog

pytestmark = [pytest.mark.wire, pytest.mark.soak]

CHANGING = Path(__file__).parents[1] / "parts/console/changing.py"
SMALL = Path(__file__).parents[1] / "cli/servers/small.py"


@dataclass
class Gateway:
    """A gateway of this module, its folder, and the address with the secret."""

    url: str
    address: str
    folder: Path


def toml(name: str, script: Path, *args: str) -> str:
    words = json.dumps(["-S", "-E", str(script), *args])
    return f"[servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {words}\n\n"


HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>\u202e"


def tools(*required: str) -> str:
    """The tools of the changing server, with a description that tries to be HTML."""
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in required}, "required": required}
    return json.dumps([{"name": "pay", "description": HOSTILE, "inputSchema": schema}])


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("console")
    settings = f'[plugins]\nbundled = ["time"]\n\n# small and good\n{toml("fine", SMALL, "fine")}'
    (folder / "tools.json").write_text(tools("to"))
    settings += toml("lost", folder / "lost.py", "fine") + toml("bank", CHANGING, str(folder / "tools.json"), HOSTILE)
    (folder / "toolpost.toml").write_text(settings)
    with open_console(folder) as address:
        yield Gateway(address.partition("/#")[0], address, folder)


def call_time(gateway: Gateway, timezone: str = "UTC") -> None:
    body = {**CALL, "params": {**CALL["params"], "arguments": {"timezone": timezone}}}  # type: ignore[dict-item]
    assert httpx2.post(f"{gateway.url}/mcp", json=body, headers=HEADERS).status_code == 200


def open_with_secret(page: Page, gateway: Gateway, path: str = "/") -> None:
    """Open the console as who has the secret: the address with it works once, so others come from the store."""
    page.goto(f"{gateway.url}{path}#secret={new_secret(gateway.folder, gateway.url)}")
    expect(page.locator("main h1")).to_be_visible()
    assert "secret" not in page.url


def test_fix_a_failed_server(page: Page, gateway: Gateway) -> None:
    page.goto(gateway.address)
    page.get_by_role("link", name="Servers", exact=True).click()
    card = page.get_by_role("row").filter(has_text="lost")
    expect(card).to_contain_text("failed")
    card.get_by_role("link", name="lost").click()

    expect(page.locator("h1")).to_have_text("lost")
    expect(page.get_by_role("region", name="Output")).to_contain_text("can't open file")
    expect(page.locator("main")).to_contain_text("toolpost doctor lost")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("is not available")

    (gateway.folder / "lost.py").write_text(SMALL.read_text())
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_role("status").get_by_text("ready")).to_be_visible()
    expect(page.get_by_role("region", name="Output")).to_contain_text("small server here")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_add_and_remove_a_server(page: Page, gateway: Gateway) -> None:
    file = gateway.folder / "toolpost.toml"
    before = file.read_text()
    open_with_secret(page, gateway, "/servers")
    page.get_by_role("button", name="Add a server").click()
    page.get_by_label("Name", exact=True).fill("more")
    page.get_by_label("Command").fill(sys.executable)
    page.get_by_label("Arguments").fill(f"-S\n-E\n{SMALL}\ndies")
    page.get_by_role("button", name="Show what changes").click()
    diff = page.get_by_role("region", name="What changes")
    expect(diff).to_contain_text("[servers.more]")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("not available")
    expect(page.get_by_role("alert")).to_contain_text("Nothing was changed: go back and correct it")
    expect(page.get_by_role("alert").locator("code")).to_have_text("more")  # names are code, without backticks
    assert file.read_text() == before, "a server that does not start changes nothing"

    page.get_by_role("button", name="Back").click()
    page.get_by_label("Arguments").fill(f"-S\n-E\n{SMALL}\nfine")
    page.get_by_role("button", name="Show what changes").click()
    page.get_by_role("button", name="Add", exact=True).click()
    card = page.get_by_role("row").filter(has_text="more")
    expect(card).to_contain_text("ready")
    assert file.read_text().startswith(before)

    card.get_by_role("link", name="more").click()
    page.get_by_role("button", name="Remove").click()
    expect(diff).to_contain_text("[servers.more]")
    page.get_by_role("button", name="Remove it").click()
    expect(page.get_by_role("heading", name="Servers")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="more")).to_have_count(0)
    assert file.read_text().rstrip() == before.rstrip()


def test_calls_come_as_they_end_and_can_be_shared(page: Page, gateway: Gateway, browser: Browser) -> None:
    open_with_secret(page, gateway, "/calls")
    rows = page.get_by_role("region", name="Calls").get_by_role("row")
    expect(page.get_by_role("status").get_by_text("live")).to_be_visible()
    call_time(gateway)
    expect(rows.filter(has_text="time__current_time")).to_have_count(1)
    call_time(gateway, "Nowhere/Land")
    expect(rows.filter(has_text="time__current_time")).to_have_count(2)
    page.get_by_label("Outcome").select_option("ok")
    expect(rows.filter(has_text="time__current_time")).to_have_count(1)
    page.keyboard.press("Escape")
    page.locator("h1").click()
    page.keyboard.press("/")
    expect(page.get_by_label("Tool", exact=True)).to_be_focused()
    page.keyboard.type("*current*")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/calls\?tool=\*current\*&outcome=ok$"))
    page.reload()
    expect(rows.filter(has_text="time__current_time")).to_have_count(1)
    page.get_by_role("button", name="Verify the chain").click()
    expect(page.get_by_text("records are intact")).to_be_visible()
    page.get_by_role("link", name="time__current_time").click()
    expect(page.locator("main")).to_contain_text("sha256:")
    steps = page.get_by_role("list", name="Steps of this call").get_by_role("listitem")
    expect(steps.locator("strong")).to_have_text(["Before the queue", "Validation", "Function", "Audit"])
    expect(steps.nth(3)).to_contain_text(re.compile(r"\d+(\.\d+)? (µs|ms|s)"))
    expect(page.get_by_text("Trace id")).to_be_visible()


def test_without_the_secret_changes_ask_for_it(page: Page, gateway: Gateway) -> None:
    used = new_secret(gateway.folder, gateway.url)
    session = f"{gateway.url}/api/console/session"
    assert httpx2.post(session, json={"secret": used}, headers={"X-Toolpost": "1"}).status_code == 200
    page.goto(f"{gateway.url}/servers/fine")
    expect(page.get_by_role("banner")).to_contain_text("reading")
    page.get_by_role("button", name="Restart").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("toolpost console")
    dialog.get_by_label("Address or secret").fill(f"{gateway.url}/#secret={used}")
    dialog.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("dialog")).to_contain_text("was used already")
    page.get_by_label("Address or secret").fill(f"{gateway.url}/#secret={new_secret(gateway.folder, gateway.url)}")
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("banner")).not_to_contain_text("reading")
    expect(page.locator("dl.facts")).to_contain_text(re.compile(r"Restarts[1-9]"))


def test_log_out(page: Page, gateway: Gateway) -> None:
    open_with_secret(page, gateway)
    expect(page.get_by_role("banner")).not_to_contain_text("reading")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("banner")).to_contain_text("reading")
    expect(page.get_by_role("button", name="Log out")).to_have_count(0)
    assert page.context.cookies(f"{gateway.url}/api") == []


def test_the_file_that_toolpost_console_opens_lets_the_browser_in(page: Page, gateway: Gateway, tmp_path: Path) -> None:
    opener = tmp_path / "browser"
    opener.write_text(f'#!/bin/sh\ncp "${{1#file://}}" {tmp_path / "page.html"}\n')
    opener.chmod(0o755)
    command = [TOOLPOST, "console", "--url", gateway.url]
    process = subprocess.Popen(command, cwd=gateway.folder, env=os.environ | {"BROWSER": f"{opener} %s"})
    while not (tmp_path / "page.html").exists():
        time.sleep(0.05)
    page.goto((tmp_path / "page.html").as_uri())
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    assert process.wait(60) == 0
    assert page.url == f"{gateway.url}/"


def test_accept_a_changed_contract(page: Page, gateway: Gateway) -> None:
    open_with_secret(page, gateway, "/servers/bank")
    (gateway.folder / "tools.json").write_text(tools("to", "amount"))
    page.get_by_role("button", name="Restart").click()
    expect(page.get_by_role("link", name="1 changed")).to_be_visible()
    page.get_by_role("link", name="Overview").click()
    item = page.get_by_role("listitem").filter(has_text="bank__pay has changed")
    item.get_by_role("link", name="Decide about the change").click()

    expect(page.locator("h1")).to_have_text("bank__pay")
    card = page.locator("section.card").filter(has_text="input.required-added")
    expect(card).to_contain_text("breaking")
    expect(card.get_by_role("region", name="Example")).to_contain_text('"to"')
    diff = page.get_by_role("region", name="Definition before and now")
    expect(diff.locator("tr.new").filter(has_text="amount").first).to_be_visible()
    page.get_by_role("button", name="Quarantine").click()
    expect(page.get_by_role("region", name="What changes")).to_contain_text('contracts = "enforce"')
    page.get_by_role("dialog").get_by_role("button", name="Quarantine").click()
    expect(page.get_by_text("It is not run until you accept the change.")).to_be_visible()
    page.get_by_role("button", name="Accept the change").click()
    expect(page.get_by_text("Every tool is as it was promised")).to_be_visible()
    locked = json.loads((gateway.folder / "toolpost.lock").read_text())["tools"]
    assert locked["bank__pay"]["definition"]["inputSchema"]["required"] == ["to", "amount"]
    assert page.title() == "Contracts · Toolpost"


def test_text_of_servers_stays_text(page: Page, gateway: Gateway) -> None:
    open_with_secret(page, gateway, "/servers/bank")
    output = page.get_by_role("region", name="Output")
    expect(output).to_contain_text("<img src=x onerror=")
    expect(output).to_contain_text("\\u{202e}")  # what turns the direction of a text is shown as its code point
    expect(page.get_by_role("region", name="Settings")).to_contain_text("<script>")
    assert page.locator("main img, main script").count() == 0
    assert page.title() == "bank · Servers · Toolpost"


PATHS = ("/", "/tools", "/servers", "/servers/bank", "/contracts", "/calls")
AXE = Path(__file__).parents[2] / ".venv/node/node_modules/axe-core/axe.min.js"
RUN_AXE = """async (rules) => (await axe.run(document, { resultTypes: ["violations"], ...rules })).violations
    .filter((found) => ["serious", "critical"].includes(found.impact))
    .map((found) => `${found.id}: ${found.nodes.map((node) => node.html).join(" | ").slice(0, 300)}`)"""


ALL: dict[str, object] = {}
COLORS: dict[str, object] = {"runOnly": ["color-contrast"]}


@pytest.mark.parametrize(("theme", "paths", "rules"), [("light", PATHS, ALL), ("dark", ("/", "/servers/bank"), COLORS)])
def test_no_serious_problem_for_people_who_use_aids(
    browser: Browser, gateway: Gateway, theme: str, paths: tuple[str, ...], rules: dict[str, object]
) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: scripts/node-servers gets it")
    # The policy would refuse a script that a test brings; what it refuses is another test's.
    context = browser.new_context(bypass_csp=True, color_scheme=theme)  # type: ignore[arg-type]
    page = context.new_page()
    call_time(gateway)
    problems = {}
    for path in paths:
        page.goto(f"{gateway.url}{path}")
        expect(page.locator("main h1")).to_be_visible()
        page.wait_for_timeout(150)
        page.add_script_tag(path=str(AXE))
        problems[path] = page.evaluate(RUN_AXE, rules)
    context.close()
    assert [problem for found in problems.values() for problem in found] == []


def test_the_policy_stops_what_a_text_could_do(browser: Browser, gateway: Gateway) -> None:
    context = browser.new_context()
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for path in (*PATHS, "/contracts/bank__pay"):
        page.goto(f"{gateway.url}{path}")
        expect(page.locator("main h1")).to_be_visible()
    assert [url for url in asked if not url.startswith(f"{gateway.url}/")] == [], "no request to another origin"
    broken = page.evaluate(
        """async () => {
            const found = [];
            document.addEventListener("securitypolicyviolation", (event) => found.push(event.effectiveDirective));
            const script = document.createElement("script");
            try { script.textContent = "document.title = 'owned'"; } catch { found.push("script text"); }
            script.append(document.createTextNode("document.title = 'owned'"));
            document.body.append(script);
            try { document.body.innerHTML = "<img src=x>"; } catch { found.push("innerHTML"); }
            const style = document.createElement("div");
            style.setAttribute("style", "display: none");
            const image = document.createElement("img");
            image.src = "https://example.com/x.png";
            document.body.append(style, image);
            await fetch("https://example.com/").catch(() => found.push("fetch"));
            await new Promise((resolve) => setTimeout(resolve, 100));
            return found;
        }"""
    )
    assert {"script text", "innerHTML", "fetch", "img-src", "connect-src", "style-src-attr"} <= set(broken)
    assert page.title() != "owned"
    context.close()


def test_a_phone_and_a_keyboard_reach_everything(browser: Browser, gateway: Gateway) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 780}, has_touch=True)
    page = context.new_page()
    for path in PATHS:
        page.goto(f"{gateway.url}{path}")
        expect(page.locator("main h1")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    page.get_by_role("button", name="Menu").tap()
    page.get_by_role("link", name="Servers", exact=True).tap()
    expect(page.locator("h1")).to_have_text("Servers")
    expect(page.get_by_role("link", name="Calls", exact=True)).to_be_hidden()
    page.get_by_role("button", name="Menu").focus()
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Contracts", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Contracts")
    page.get_by_role("button", name="Menu").tap()
    page.get_by_label("Theme").select_option("dark")
    page.reload()
    expect(page.get_by_label("Theme")).to_have_value("dark")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    context.close()


def test_an_empty_installation_shows_the_first_steps_quickly(browser: Browser, tmp_path: Path) -> None:
    state = {"XDG_DATA_HOME": str(tmp_path / "data")}
    with open_console(tmp_path, **state) as address:
        context = browser.new_context()
        page = context.new_page()
        sizes: list[int] = []
        page.on("response", lambda response: sizes.append(len(response.body())))
        page.goto(address)
        expect(page.get_by_role("heading", name="First steps")).to_be_visible()
        took = page.evaluate("performance.now()")
        expect(page.locator("main")).to_contain_text("toolpost install")
        page.get_by_role("link", name="Add a server").click()
        expect(page.get_by_role("heading", name="No servers yet")).to_be_visible()
        page.get_by_role("button", name="Add a server").click()
        page.get_by_label("What it is").select_option("text")
        pasted = {"mcpServers": {"first": {"command": sys.executable, "args": ["-S", "-E", str(SMALL), "fine"]}}}
        page.get_by_label("The file").fill(json.dumps(pasted))
        page.get_by_role("button", name="Show what changes").click()
        page.get_by_role("button", name="Add", exact=True).click()
        expect(page.get_by_role("row").filter(has_text="first")).to_contain_text("ready")
        assert (tmp_path / "toolpost.toml").read_text().startswith("[servers.first]")
        context.close()
    assert sum(sizes) < 150 * 1024
    assert took < 5_000, "a second on a machine that does nothing else"


CALLS = 100_000


def fill_audit(folder: Path, count: int) -> None:
    """Record so many calls, as a gateway would."""

    async def fill() -> None:
        async with open_store(load_config(folder / "toolpost.toml").store_url) as store:
            for first in range(0, count, 2_000):
                async with anyio.create_task_group() as tasks:
                    for number in range(first, first + 2_000):
                        tasks.start_soon(record, store.audit, number)

    async def record(audit: AuditLog, number: int) -> None:
        at = datetime.fromtimestamp(1_760_000_000 + number, UTC).isoformat(timespec="milliseconds")
        await audit.append(
            AuditEntry(
                at_utc=at.replace("+00:00", "Z"),
                call_id=CallId(f"c-{number}"),
                trace_id=TraceId(f"{number:032x}"),
                caller=CallerId("local"),
                tool=ToolName(f"desk__tool_{number % 7}"),
                source="desk",
                contract="sha256:" + "0" * 64,
                schema_version=1,
                tooling_version="1",
                arguments="sha256:" + "1" * 64,
                outcome="ok" if number % 10 else "error",
                code=None if number % 10 else "HANDLER_ERROR",
                duration_ms=1.5,
                result=None,
            )
        )

    with ThreadPoolExecutor(1) as pool:  # Playwright has an event loop in this thread
        pool.submit(anyio.run, fill).result()


SCROLL = """async () => {
    const box = document.scrollingElement;
    const waits = [];
    for (let step = 0; step < 60; step += 1) {
        const began = performance.now();
        box.scrollTop = step % 2 ? box.scrollHeight : box.scrollTop + 2000;
        await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
        waits.push(performance.now() - began);
    }
    waits.sort((one, other) => one - other);
    return { median: waits[30], worst: waits.at(-1), rows: document.querySelectorAll(".table tbody tr").length,
        loaded: Number(document.querySelector(".table table").getAttribute("aria-rowcount")) - 1 };
}"""


@pytest.mark.soak
def test_a_hundred_thousand_calls_scroll_as_twenty_do(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text("")
    fill_audit(tmp_path, CALLS)
    with open_console(tmp_path) as address:
        url = address.partition("/#")[0]
        context = browser.new_context(viewport={"width": 1100, "height": 760})
        page = context.new_page()
        began = time.monotonic()
        page.goto(f"{url}/calls")
        expect(page.get_by_role("link", name=re.compile("desk__tool")).first).to_be_visible()
        opened_s = time.monotonic() - began
        found = page.evaluate(SCROLL)
        began = time.monotonic()
        page.get_by_label("Code", exact=True).select_option("HANDLER_ERROR")
        expect(page.get_by_role("row").filter(has_text="HANDLER_ERROR").first).to_be_visible()
        filtered_s = time.monotonic() - began
        page.goto(address)
        expect(page.get_by_role("heading", name="Last hour")).to_be_visible()
        page.goto(f"{url}/calls?tool=desk__tool_3")
        page.get_by_role("button", name="Verify the chain").click()
        expect(page.get_by_text(f"all {CALLS} records are intact")).to_be_visible()
        page.get_by_role("link", name="desk__tool_3").first.click()
        # Of calls before this gateway started there is what the audit has.
        expect(page.locator("main")).to_contain_text("How long each step took is not known")
        expect(page.get_by_role("list", name="Calls of this trace")).to_contain_text("1.5 ms")
        context.close()
    print({"opened_s": round(opened_s, 2), "filtered_s": round(filtered_s, 2), **found})
    assert found["rows"] < 100
    assert found["loaded"] > 1_000
    # Generous, for a machine that does much else: a frame has 17 ms, and two of them pass in each step.
    assert found["median"] < 100
    assert max(opened_s, filtered_s) < 20
