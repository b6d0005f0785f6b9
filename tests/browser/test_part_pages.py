"""The views of parts: the bus, MCP tasks; what they show to whom, and that an absent part leaves no trace."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import open_console
from tests.browser.test_console import ALL, AXE, RUN_AXE
from tests.ways import ENVELOPE, STATELESS

pytestmark = [pytest.mark.wire, pytest.mark.soak]

TOKENS = {name: f"the-token-of-{name}-with-32-characters" for name in ("ann", "ben", "cal")}
CONFIG = """
[plugins]
bundled = ["time", "bus"]
load = ["lab:plugin"]
[tasks]
after_s = 0
[callers.ann]
token = "${TOKEN_ANN}"
admin = true
[callers.ben]
token = "${TOKEN_BEN}"
[callers.cal]
token = "${TOKEN_CAL}"
tools = ["time__*"]
"""
EVIL = "<img src=x onerror=document.title='broken'>"
TASKS: dict[str, Any] = {
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}
}


class Gateway:
    """A gateway with a bus and MCP tasks, and calls to it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def call(self, caller: str, tool: str, /, *, meta: dict[str, Any] | None = None, **arguments: Any) -> Any:
        headers = {
            "authorization": f"Bearer {TOKENS[caller]}",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": STATELESS,
            "mcp-method": "tools/call",
            "mcp-name": tool,
        }
        params = {"name": tool, "arguments": arguments, "_meta": ENVELOPE | (meta or {})}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        result = httpx2.post(f"{self.url}/mcp", headers=headers, json=body).json()["result"]
        assert not result.get("isError"), result
        return result

    def get(self, caller: str, path: str) -> httpx2.Response:
        return httpx2.get(f"{self.url}{path}", headers={"authorization": f"Bearer {TOKENS[caller]}"})


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("parts")
    (folder / "toolpost.toml").write_text(CONFIG)
    tokens = {f"TOKEN_{name.upper()}": token for name, token in TOKENS.items()}
    with open_console(folder, PYTHONPATH=str(Path(__file__).parent), **tokens) as address:
        yield Gateway(address.partition("/#")[0])


def enter(page: Page, address: str, caller: str) -> None:
    page.goto(address)
    page.get_by_role("textbox", name="Token").fill(TOKENS[caller])
    page.keyboard.press("Enter")


def test_the_board_shows_workers_the_queue_and_what_became_of_tasks(page: Page, gateway: Gateway) -> None:
    for task in ("t-done", "t-blocked", "t-waits"):
        gateway.call("ben", "bus__submit_task", bead_id=task, payload={"do": EVIL})
    worker = gateway.call("ben", "bus__register_worker", name="wendy")["structuredContent"]["worker"]
    for end, given in (("worker_done", {"result": {"answer": [42, EVIL]}}), ("task_failed", {"reason": f"no {EVIL}"})):
        task = gateway.call("ben", "bus__poll_task", name=worker, timeout_ms=1000)["structuredContent"]["task"]
        held = {"bead_id": task["bead_id"], "lease_token": task["lease_token"]}
        gateway.call("ben", "bus__ack_task", name=worker, **held)
        gateway.call("ben", f"bus__{end}", **held, **given)

    enter(page, f"{gateway.url}/bus", "ben")
    # The next task is offered to the worker as soon as it is free.
    expect(page.get_by_role("region", name="Workers").locator("tbody tr")).to_contain_text(["wendypending"])
    expect(page.get_by_role("region", name="Workers")).to_contain_text("t-waits")
    expect(page.get_by_role("region", name="Needs a person")).to_contain_text(f"no {EVIL}")
    page.get_by_label("Show").select_option("done")
    row = page.get_by_role("region", name="Tasks", exact=True).locator("tbody tr")
    expect(row).to_have_count(1)
    row.get_by_role("link").click()
    expect(page.get_by_role("region", name="Result")).to_contain_text("42")
    expect(page.get_by_role("region", name="Payload")).to_contain_text(EVIL)
    expect(page.get_by_role("region", name="Attempts")).to_contain_text("wendy")
    page.reload()
    expect(page.get_by_role("region", name="Result")).to_contain_text("42")
    page.get_by_role("link", name="Close").click()
    expect(page.get_by_role("region", name="Result")).to_have_count(0)
    # What happens meanwhile comes by itself.
    gateway.call("ben", "bus__submit_task", bead_id="t-later")
    expect(page.get_by_role("region", name="Queue")).to_contain_text("t-later")
    assert page.title() == "Bus · Toolpost", "text stays text"


def test_everybody_reads_what_the_tools_would_tell(gateway: Gateway) -> None:
    gateway.call("ben", "bus__submit_task", bead_id="t-of-ben", payload={"secret": 1})
    admin = gateway.get("ann", "/api/bus/task?id=t-of-ben").json()
    hidden = [
        gateway.get("cal", path).status_code for path in ("/api/bus", "/api/bus/tasks", "/api/bus/task?id=t-of-ben")
    ]
    bad = [
        gateway.get("ben", path).status_code
        for path in ("/api/bus/tasks?state=x", "/api/bus/tasks?cursor=x", "/api/bus/task?id=no")
    ]

    assert admin["payload"] == {"secret": 1}
    assert hidden == [403] * 3, "cal does not see the tools of the bus"
    assert bad == [400, 400, 404]
    assert httpx2.get(f"{gateway.url}/api/bus").status_code == 401


def test_mcp_tasks_and_their_results(page: Page, gateway: Gateway) -> None:
    made = gateway.call("ben", "lab__wait", meta=TASKS, seconds=0.2)
    enter(page, f"{gateway.url}/tasks", "ben")
    rows = page.get_by_role("region", name="Tasks").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("completed")
    rows.get_by_role("link").click()
    expect(page.get_by_role("region", name="Result")).to_contain_text('"done"')
    page.get_by_label("Show").select_option("failed")
    expect(page.get_by_role("heading", name="No task has this status.")).to_be_visible()

    task = made["taskId"]
    assert gateway.get("cal", "/api/tasks").json()["tasks"] == []
    assert gateway.get("cal", f"/api/tasks/task?id={task}").status_code == 404
    assert gateway.get("ann", f"/api/tasks/task?id={task}").json()["caller"] == "ben"
    assert [gateway.get("ben", f"/api/tasks?{query}").status_code for query in ("status=x", "before=x")] == [400, 400]


def test_all_pages_lead_to_each_other(page: Page, gateway: Gateway) -> None:
    enter(page, f"{gateway.url}/chat", "ann")
    bar = page.get_by_role("navigation", name="Pages")
    expect(bar.get_by_role("listitem")).to_have_text(
        ["Overview", "Calls", "Logs", "Tools", "Servers", "Contracts", "Chat", "Bus", "Tasks", "Callers"]
    )
    expect(page.get_by_role("banner")).to_contain_text("ann")
    expect(bar.get_by_role("link", name="Chat")).to_have_attribute("aria-current", "page")
    bar.get_by_role("link", name="Bus").click()
    expect(page.locator("h1")).to_have_text("Bus")
    page.get_by_label("Theme").select_option("dark")
    bar.get_by_role("link", name="Tools").click()
    expect(page.locator("main h1")).to_have_text("Tools")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.get_by_role("link", name="Callers").click()
    expect(page.get_by_role("region", name="Callers").get_by_role("row").nth(3)).to_contain_text("tools time__*")
    bar.get_by_role("link", name="Tasks").click()
    expect(page.locator("main h1")).to_have_text("Tasks")
    page.set_viewport_size({"width": 390, "height": 780})
    page.reload()
    page.get_by_role("button", name="Menu").click()
    expect(bar.get_by_role("link", name="Tasks")).to_be_in_viewport(ratio=0.9)


def test_an_absent_part_leaves_no_trace(page: Page, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text('[plugins]\nbundled = ["time"]\n')
    with open_console(tmp_path) as address:
        gateway = address.partition("/#")[0]
        views = httpx2.get(f"{gateway}/api/console/views").json()["views"]
        gone = [
            httpx2.get(f"{gateway}{path}").status_code
            for path in ("/bus", "/api/bus", "/approvals", "/views/bus/bus.js")
        ]
        page.goto(f"{gateway}/tasks")
        bar = page.get_by_role("navigation", name="Pages")
        expect(bar.get_by_role("link", name="Tools")).to_be_visible()
        expect(bar.get_by_role("link", name="Bus")).to_have_count(0)
        page.goto(f"{gateway}/bus?task=t-1")
        expect(page.locator("main h1")).to_have_text("Nothing is at this address")
        page.locator("main").get_by_role("link", name="Tasks").click()
        expect(page.locator("main h1")).to_have_text("Tasks")
        page.goto(f"{gateway}/nowhere")
        page.get_by_role("button", name="Search tools, servers and calls").click()
        page.get_by_role("combobox", name="Search").fill("current_time")
        expect(page.locator("[role=option][aria-selected=true]")).to_contain_text("time__current_time")
        page.keyboard.press("Enter")
        expect(page.locator("main h1")).to_have_text("time__current_time")

    assert gone == [404] * 4
    assert {"Bus", "Approvals"}.isdisjoint(each["title"] for each in views)


def test_no_serious_problem_for_people_who_use_aids(browser: Browser, gateway: Gateway) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: scripts/node-servers gets it")
    # The policy would refuse a script that a test brings.
    context = browser.new_context(bypass_csp=True)
    page = context.new_page()
    gateway.call("ann", "bus__submit_task", bead_id="t-axe", payload={"a": 1})
    enter(page, f"{gateway.url}/tasks", "ann")
    found = []
    for path in ("/tasks", "/bus?task=t-axe", "/chat"):
        page.goto(f"{gateway.url}{path}")
        expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
        page.wait_for_timeout(150)
        page.add_script_tag(path=str(AXE))
        found += page.evaluate(RUN_AXE, ALL)
    context.close()
    assert found == []
