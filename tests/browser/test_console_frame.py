"""The frame of the console: the command palette, tables, and that every view fits its window in both themes."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import open_console
from tests.browser.test_console import AXE, RUN_AXE, SMALL
from tests.browser.test_part_pages import TASKS, TOKENS, Gateway

pytestmark = pytest.mark.wire

LONG = "a-task-with-a-name-that-is-longer-than-the-window-of-a-phone-is-wide-and-then-some"
VIEWS = {
    "/": "Last hour",
    "/calls": "time__current_time",
    "/tools": "lab__order",
    "/tools?q=order": "An agent gets these",
    "/tools/lab__order": "The same call",
    "/tools/lab__order?tab=contract": "Schema version",
    "/servers": "lost.py",
    "/servers/fine": "Restarts",
    "/contracts": "Every tool is as it was promised",
    "/callers": "administrator",
    "/chat": "No agent is configured",
    "/bus": LONG,
    "/bus?task=t-1": "files",
    "/approvals": "No call waits for your vote",
    "/tasks": "lab__wait",
    "/nowhere": "It may be mistyped",
}
"""Each view, by a text that is there once it has its data."""

CONFIG = f"""
[plugins]
bundled = ["time", "bus", "approvals"]
load = ["lab:plugin"]
[tasks]
after_s = 0
[approvals.rules.orders]
tools = ["lab__order"]
voters = ["ann"]
votes = 1
[servers.fine]
command = {json.dumps(sys.executable)}
args = {json.dumps(["-S", "-E", str(SMALL), "fine"])}
[servers.lost]
command = {json.dumps(sys.executable)}
args = ["lost.py"]
[callers.ann]
token = "${{TOKEN_ANN}}"
admin = true
[callers.ben]
token = "${{TOKEN_BEN}}"
[callers.cal]
token = "${{TOKEN_CAL}}"
tools = ["time__*"]
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that has something to show in every view."""
    folder = tmp_path_factory.mktemp("frame")
    (folder / "toolpost.toml").write_text(CONFIG)
    tokens = {f"TOKEN_{name.upper()}": token for name, token in TOKENS.items()}
    with open_console(folder, PYTHONPATH=str(Path(__file__).parent), **tokens) as address:
        opened = Gateway(address.partition("/#")[0])
        opened.call("ben", "time__current_time", timezone="UTC")
        opened.call("ben", "lab__wait", meta=TASKS, seconds=0.01)
        for task in ("t-1", LONG):
            opened.call("ben", "bus__submit_task", bead_id=task, payload={"files": ["a" * 200]})
        yield opened


@pytest.fixture
def inside(page: Page, gateway: Gateway) -> Page:
    enter(page, gateway)
    return page


def enter(page: Page, gateway: Gateway) -> None:
    page.goto(gateway.url)
    page.get_by_role("textbox", name="Token").fill(TOKENS["ann"])
    page.keyboard.press("Enter")
    expect(page.locator("main h1")).to_have_text("Overview")


def look_for(page: Page, text: str, option: str) -> None:
    """Type into the palette, and choose an option without a pointer."""
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Search")
    expect(field).to_be_focused()
    page.keyboard.type(text)
    chosen = page.locator('[role=option][aria-selected="true"]')
    wanted = page.get_by_role("option", name=option).first
    expect(wanted).to_be_visible()
    for _ in range(page.get_by_role("option").count()):
        if chosen.inner_text() == wanted.inner_text():
            break
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_everything_is_found_by_keyboard_alone(inside: Page, gateway: Gateway) -> None:
    page, heading = inside, inside.locator("main h1")
    look_for(page, "contr", "View Contracts")
    expect(heading).to_have_text("Contracts")
    look_for(page, "fine", "Server fine")
    expect(heading).to_have_text("fine")
    look_for(page, "current_ti", "Tool time__current_time")
    expect(heading).to_have_text("time__current_time")
    look_for(page, "cal", "Caller cal")
    expect(page).to_have_url(re.compile(r"/calls\?caller=cal$"))
    page.goto(f"{gateway.url}/calls?tool=time__*")
    page.get_by_role("link", name="time__current_time").first.click()
    expect(heading).to_have_text("time__current_time")
    call = page.url.rpartition("/")[2]
    look_for(page, "bus", "View Bus")
    expect(heading).to_have_text("Bus")
    look_for(page, call, f"Call {call}")
    expect(page).to_have_url(re.compile(f"/calls/{call}$"))
    page.get_by_role("link", name="Bus", exact=True).focus()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("link", name="Bus", exact=True)).to_be_focused()
    expect(page).to_have_url(re.compile(f"/calls/{call}$"))


def test_tables_sort_by_their_headings_and_filters_are_in_the_address(inside: Page, gateway: Gateway) -> None:
    page = inside
    page.goto(f"{gateway.url}/servers")
    names = page.get_by_role("region", name="Servers").locator("tbody td:first-child")
    expect(names).to_have_text(["fine", "lost"])
    page.get_by_role("columnheader", name="Server").get_by_role("button").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(names).to_have_text(["lost", "fine"])
    expect(page.get_by_role("columnheader", name="Server")).to_have_attribute("aria-sort", "descending")
    page.reload()
    expect(names).to_have_text(["lost", "fine"])
    page.keyboard.press("/")
    page.keyboard.type("fine")
    expect(names).to_have_text(["fine"])
    page.reload()
    expect(names).to_have_text(["fine"])


FORMATS = """async () => {
    const { ago, bytes, count, ms, number, percent } = await import("/console/format.js");
    const now = Date.parse("2026-11-19T12:00:00Z");
    return {
        ago: ["11:59:58", "11:59:30", "11:58:00", "09:00:00", "12:05:00"].map((at) => ago(`2026-11-19T${at}Z`, now)),
        old: [ago("2026-11-17T12:00:00Z", now), ago("2026-01-02T12:00:00Z", now)],
        ms: [0.25, 1.5, 250, 2500, 125000].map(ms),
        numbers: [number(1234567), count(1, "tool"), count(1200, "tool"), bytes(1048576)],
        percent: [percent(1, 40), percent(1, 5), percent(0, 8)],
    };
}"""


def test_numbers_durations_and_times_are_written_in_one_way(inside: Page, gateway: Gateway) -> None:
    assert inside.evaluate(FORMATS) == {
        "ago": ["now", "30 s ago", "2 min ago", "3 h ago", "in 5 min"],
        "old": ["2 d ago", "2026-01-02"],
        "ms": ["250 µs", "1.5 ms", "250 ms", "2.50 s", "2 min"],
        "numbers": ["1,234,567", "1 tool", "1,200 tools", "1.0 MiB"],
        "percent": ["2.5 %", "20 %", "0 %"],
    }
    inside.goto(f"{gateway.url}/calls")
    moment = inside.get_by_role("region", name="Calls").locator("time").first
    expect(moment).to_contain_text(re.compile(r"now|ago"))
    expect(moment).to_have_attribute("title", re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d · \S+Z$"))


FITS = """() => {
    const found = [];
    const cut = "h1, h2, h3, button, .badge, th, .table td.number, .table td.main, #nav a";
    if (document.documentElement.scrollWidth > innerWidth) found.push(`sideways: ${document.documentElement.scrollWidth}`);
    for (const node of document.querySelectorAll("main *, header *, nav *")) {
        const style = getComputedStyle(node), box = node.getBoundingClientRect();
        if (!box.width || node.closest(".sr, textarea, select, thead")) continue;
        const isCut = node.scrollWidth > node.clientWidth + 1 && style.display !== "inline";
        if (node.matches(cut) && isCut && !node.closest("#threads"))
            found.push(`cut: ${node.localName} ${node.innerText.slice(0, 60)}`);
        if (/auto|scroll/.test(style.overflowY) && node.scrollHeight > node.clientHeight + 1)
            found.push(`scrolls: ${node.className}`);
        if (node.closest("main") && !node.closest("td *") && (box.right > innerWidth + 1 || box.left < -1))
            found.push(`outside: ${node.localName}.${node.className}`);
    }
    return found;
}"""


@pytest.mark.soak
@pytest.mark.parametrize("width", [1280, 1000, 800, 390])
def test_nothing_is_cut_or_scrolls_inside_the_page(browser: Browser, gateway: Gateway, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 844})
    page = context.new_page()
    enter(page, gateway)
    found: dict[str, list[str]] = {}
    for path, text in VIEWS.items():
        page.goto(f"{gateway.url}{path}")
        expect(page.get_by_text(text).first).to_be_visible()
        if problems := page.evaluate(FITS):
            found[path] = problems
    context.close()
    assert found == {}


@pytest.mark.soak
@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 1280), ("dark", 390)])
def test_no_serious_problem_for_people_who_use_aids(browser: Browser, gateway: Gateway, theme: str, width: int) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: scripts/node-servers gets it")
    # The policy would refuse a script that a test brings.
    context = browser.new_context(bypass_csp=True, color_scheme=theme, viewport={"width": width, "height": 844})  # type: ignore[arg-type]
    page = context.new_page()
    enter(page, gateway)
    found: dict[str, list[str]] = {}
    for path, text in VIEWS.items():
        page.goto(f"{gateway.url}{path}")
        expect(page.get_by_text(text).first).to_be_visible()
        if path == "/":
            page.keyboard.press("Control+k")
            expect(page.get_by_role("dialog")).to_be_visible()
        page.add_script_tag(path=str(AXE))
        if problems := page.evaluate(RUN_AXE, {}):
            found[path] = problems
    context.close()
    assert found == {}
