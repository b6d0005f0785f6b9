"""The console's pages of tools, in a real browser: find a tool, repair a rejected call in the form, run it, take it elsewhere."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import new_secret
from tests.browser.test_console import ALL, AXE, COLORS, RUN_AXE
from tests.cli.conftest import TOOLPOST, open_process

pytestmark = [pytest.mark.wire, pytest.mark.soak]

TOKENS = {name: f"the-token-of-{name}-with-32-characters" for name in ("ann", "ben")}
CONFIG = '[plugins]\nbundled = ["time"]\nload = ["lab:plugin"]\n'
CALLERS = """
[callers.ann]
token = "${TOKEN_ANN}"
admin = true
[callers.ben]
token = "${TOKEN_BEN}"
tools = ["lab__show"]
"""
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("console")
    (made / "toolpost.toml").write_text(CONFIG)
    return made


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[str]:
    """Return the address of a gateway that asks for no token."""
    with open_process(("serve", "--listen", "127.0.0.1:0", "--json"), folder, ENVIRONMENT) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"].removesuffix("/mcp")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a gateway with two callers, one of them an administrator."""
    made = tmp_path_factory.mktemp("guarded")
    (made / "toolpost.toml").write_text(CONFIG + CALLERS)
    environment = ENVIRONMENT | {f"TOKEN_{name.upper()}": token for name, token in TOKENS.items()}
    with open_process(("serve", "--listen", "127.0.0.1:0", "--json"), made, environment) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"].removesuffix("/mcp")


@pytest.fixture
def inside(page: Page, gateway: str, folder: Path) -> Page:
    """Open the console as the person who started the gateway does: by an address with a secret."""
    page.goto(f"{gateway}/#secret={new_secret(folder, gateway)}")
    # A view is shown when the secret has been used.
    expect(page.locator("main h1")).to_be_visible()
    return page


def run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    ended = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT | environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, (command, ended.stdout, ended.stderr)
    return ended.stdout


def start(page: Page) -> None:
    page.get_by_role("button", name="Run", exact=True).click()


def test_a_tool_is_found_as_an_agent_would_find_it(page: Page, gateway: str) -> None:
    page.goto(f"{gateway}/tools")
    rows = page.get_by_role("region", name="Tools").get_by_role("row")
    expect(rows).to_have_count(6)  # five tools, and the header
    expect(page.get_by_role("status")).to_contain_text("5 tools")
    page.get_by_label("Server").select_option("time")
    expect(rows).to_have_count(3)
    page.keyboard.press("Escape")
    page.locator("h1").click()
    page.keyboard.press("/")
    page.keyboard.type("have goods delivered")
    best = page.get_by_role("region", name="Tools that fit").get_by_role("row").nth(1)
    expect(best).to_contain_text("lab__order")
    expect(best).to_contain_text("description: delivered")
    assert float(best.locator("td").first.inner_text()) > 0.5
    box = page.get_by_role("region", name="Tools that fit")
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth"), "the cost is in sight, whatever the descriptions"
    page.reload()
    expect(page.get_by_role("searchbox")).to_have_value("have goods delivered")
    best.get_by_role("link").click()
    expect(page.locator("h1")).to_have_text("lab__order")

    page.get_by_role("link", name="Contract", exact=True).click()
    contract = page.get_by_role("region", name="Arguments")
    expect(contract.get_by_role("row").filter(has_text="items[].count")).to_contain_text("whole number")
    expect(contract.get_by_role("row").filter(has_text="deliver.street")).to_contain_text('by: "post"')
    page.get_by_text("As JSON").click()
    expect(page.get_by_role("region", name="Definition")).to_contain_text('"inputSchema"')
    page.get_by_role("link", name="History").click()
    expect(page.get_by_text("the first that is kept")).to_be_visible()
    page.goto(f"{gateway}/tools/lab__nothing")
    expect(page.get_by_role("alert")).to_contain_text("Unknown tool")


def test_a_call_from_a_link_says_so_and_does_not_run(inside: Page, gateway: str) -> None:
    page, asked = inside, list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{gateway}/tools/lab__order?arguments=%7B%22customer%22%3A%22Eve%22%7D")
    note = page.get_by_role("note")
    expect(note).to_contain_text("from a link")
    expect(page.get_by_role("textbox", name="customer")).to_have_value("Eve")
    assert not any("/api/console/call" in url and url.endswith("/call") for url in asked)
    page.get_by_role("textbox", name="customer").fill("Ann")
    expect(note).to_have_count(0)
    expect(page).to_have_url(re.compile("Ann"))
    page.reload()
    expect(page.get_by_role("textbox", name="customer")).to_have_value("Ann")
    expect(note).to_have_count(0)  # what was typed in this tab is its own


def test_a_rejected_call_is_repaired_in_the_form(inside: Page, gateway: str) -> None:
    page = inside
    page.goto(f"{gateway}/tools/lab__order")
    editor = page.get_by_label("Arguments as JSON")
    wrong = {
        "custommer": "Ann",
        "number": "12345678901234567890",
        "speed": "fats",
        "items": [],
        "deliver": {"by": "post"},
    }
    editor.fill(json.dumps(wrong))
    # What the form does not know is in it too: nothing is lost, and nothing is hidden.
    expect(page.get_by_role("textbox", name="custommer")).to_have_value('"Ann"')
    start(page)

    def field(pointer: str) -> Any:
        return page.locator(f'.field[data-pointer="{pointer}"]')

    expect(field("/customer").locator(".issues").first).to_contain_text("needs customer")
    expect(field("/items").locator(".issues")).to_contain_text("at least 1 item")
    expect(field("/deliver/street").locator(".issues")).to_contain_text("needs street")
    expect(page.get_by_role("region", name="Result")).to_contain_text("INVALID_PARAMS")
    field("/number").get_by_role("button", name="without quotes").click()
    field("/speed").get_by_role("button", name='did you mean "fast"?').click()
    field("/customer").get_by_role("button", name="rename custommer to customer").click()
    expect(field("/customer").locator("input")).to_have_value("Ann")
    expect(field("/custommer")).to_have_count(0)
    assert '"number": 12345678901234567890' in editor.input_value()
    field("/items").get_by_role("button", name="Add an item").click()
    field("/items/0/name").locator("input").fill("tea")
    field("/deliver").locator(".form-choice select").select_option('by: "pickup"')
    expect(field("/deliver/street")).to_have_count(0)
    start(page)

    result = page.get_by_role("region", name="Result")
    expect(result.locator(".badge")).to_have_text("ok")
    expect(result).to_contain_text('"number": 12345678901234567890')
    expect(page.locator(".issues")).to_have_count(0)
    made = {"number": 12345678901234567890, "speed": "fast", "items": [{"name": "tea"}], "deliver": {"by": "pickup"}}
    assert json.loads(editor.input_value()) == {"customer": "Ann"} | made
    # The arguments are in the address, for others and for a reload.
    expect(page).to_have_url(re.compile(r"arguments=.*pickup"))
    page.reload()
    expect(field("/items/0/name").locator("input")).to_have_value("tea")
    # Text that is no JSON stays where it is, and changes nothing.
    editor.fill('{"customer": ')
    expect(page.get_by_role("alert")).to_contain_text("This is not JSON")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()
    page.get_by_role("button", name="Reset").click()
    expect(editor).to_have_value(re.compile(r'^\{\s+"items": \[\],'))


def test_progress_is_shown_and_a_call_is_cancelled(inside: Page, gateway: str) -> None:
    page = inside
    page.goto(f"{gateway}/tools/lab__wait")
    start(page)
    expect(page.get_by_text(re.compile(r"step \d+ · \d+ of 100"))).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("The call was cancelled.")).to_be_visible()
    page.get_by_label("seconds").fill("0.5")
    start(page)
    expect(page.get_by_role("region", name="Result")).to_contain_text("done")


def test_every_kind_of_content_is_shown_and_none_is_interpreted(inside: Page, gateway: str) -> None:
    page = inside
    page.goto(f"{gateway}/tools/lab__show")
    start(page)
    result = page.get_by_role("region", name="Result")
    data = result.get_by_role("region", name="Data")
    expect(data.get_by_role("row")).to_have_count(3)
    expect(data).to_contain_text("12345678901234567890")
    expect(data).to_contain_text("<b>b</b>")
    expect(result.get_by_text("<script>document.title='broken'</script>")).to_be_visible()
    assert result.locator("img").evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 1
    assert result.locator("audio").get_attribute("src") is not None
    expect(result.get_by_role("link", name="https://example.com/a")).to_have_attribute("rel", "noopener noreferrer")
    assert result.locator("a[href^='javascript']").count() == 0
    expect(result.get_by_text("javascript:alert(1)")).to_be_visible()
    expect(result.get_by_role("region", name="Resource")).to_have_text("notes")
    expect(result.get_by_role("link", name="Save 3 bytes")).to_have_attribute("download", "result")
    assert page.title().startswith("lab__show"), "text stays text"
    result.get_by_role("button", name="Raw").click()
    expect(result.get_by_role("region", name="The whole result")).to_contain_text('"resource_link"')


def test_the_same_call_runs_elsewhere(inside: Page, gateway: str, folder: Path) -> None:
    page = inside
    page.goto(f"{gateway}/tools/lab__order")
    arguments = {
        "customer": 'It\'s "Ann" \\ $HOME `id` é\n',
        "number": 12345678901234567890,
        "items": [{"name": "tea"}],
        "deliver": {"by": "pickup"},
        "note": None,
    }
    page.get_by_label("Arguments as JSON").fill(json.dumps(arguments))
    for answer in run_snippets(page, folder, {}):
        assert answer == arguments


def run_snippets(page: Page, folder: Path, environment: dict[str, str]) -> Iterator[Any]:
    """Run the call as `toolpost call`, curl and Python; yields the data of each answer."""
    section = page.locator(".snippet")
    code = section.get_by_role("region", name="The same call")
    section.get_by_role("button", name="toolpost call").click()
    command = code.inner_text().replace("toolpost call", f"{TOOLPOST} call --json", 1)
    command = re.sub(r"^TOOLPOST_TOKEN=… ", "", command)
    yield json.loads(run(["bash", "-c", command], folder, environment))["data"]
    section.get_by_role("button", name="curl").click()
    answer = json.loads(run(["bash", "-c", code.inner_text()], folder, environment))
    yield answer["result"]["structuredContent"]["data"]
    section.get_by_role("button", name="Python").click()
    printed = json.loads(run([sys.executable, "-c", code.inner_text()], folder, environment))
    yield printed["structuredContent"]["data"]


def enter(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_role("textbox", name="Token").fill(TOKENS["ann"])
    page.keyboard.press("Enter")


@pytest.mark.soak
def test_the_same_call_runs_elsewhere_with_a_token(page: Page, guarded: str, tmp_path: Path) -> None:
    enter(page, f"{guarded}/tools/lab__show")
    for data in run_snippets(page, tmp_path, {"TOOLPOST_TOKEN": TOKENS["ann"]}):
        assert data[0] == {"name": "a", "size": 12345678901234567890}


def test_an_administrator_runs_as_another_caller(page: Page, guarded: str) -> None:
    enter(page, f"{guarded}/tools/lab__show")
    page.get_by_role("link", name="Who sees it").click()
    table = page.get_by_role("region", name="Who sees it")
    expect(table.get_by_role("row").nth(2)).to_contain_text("ben")
    page.get_by_role("link", name="Run", exact=True).click()
    page.get_by_label("Run as").select_option("ben")
    expect(page.get_by_text("The audit names both: ann as ben.")).to_be_visible()
    start(page)
    expect(page.get_by_role("region", name="Result").locator(".badge")).to_have_text("ok")
    # A caller that is no administrator sees its own tools, and nobody else.
    page.evaluate("(token) => sessionStorage.setItem('toolpost.token', token)", TOKENS["ben"])
    page.goto(f"{guarded}/tools")
    expect(page.get_by_role("region", name="Tools").get_by_role("row")).to_have_count(2)
    page.goto(f"{guarded}/tools/lab__show")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="Who sees it")).to_have_count(0)
    expect(page.get_by_label("Run as")).to_have_count(0)


@pytest.mark.parametrize(("theme", "rules"), [("light", ALL), pytest.param("dark", COLORS, marks=pytest.mark.soak)])
def test_no_serious_problem_for_people_who_use_aids(
    browser: Browser, gateway: str, folder: Path, theme: Any, rules: dict[str, object]
) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: scripts/node-servers gets it")
    # The policy would refuse a script that a test brings.
    context = browser.new_context(bypass_csp=True, color_scheme=theme)
    page = context.new_page()
    page.goto(f"{gateway}/#secret={new_secret(folder, gateway)}")
    expect(page.locator("main h1")).to_be_visible()
    found = []
    order = f"{gateway}/tools/lab__order"
    for address, shown in {
        f"{gateway}/tools?q=order": "An agent gets these",
        f"{order}?tab=contract": "Facts",
        f"{order}?tab=history": "the first that is kept",
        f"{order}?tab=callers": "Set by",
        f'{order}?arguments={{"number":"1","items":[{{}}],"deliver":{{"by":"post"}},"unknown":1}}': "to be changed: see the form",
    }.items():
        page.goto(address)
        if "arguments=" in address:
            start(page)
        expect(page.get_by_text(shown).first).to_be_visible()
        page.add_script_tag(path=str(AXE))
        found += page.evaluate(RUN_AXE, rules)
    context.close()
    assert found == []


@pytest.mark.soak
def test_six_thousand_tools_scroll_as_twenty_do(page: Page, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text('[plugins]\nbundled = []\nload = ["crowd:plugin"]\n')
    with open_process(("serve", "--listen", "127.0.0.1:0", "--json"), tmp_path, ENVIRONMENT) as process:
        assert process.stdout is not None
        gateway = json.loads(process.stdout.readline())["url"].removesuffix("/mcp")
        page.goto(f"{gateway}/tools")
        box = page.get_by_role("region", name="Tools")
        expect(page.get_by_role("status").filter(has_text="6,000 tools")).to_be_visible()
        # Only the rows in sight exist, however far one has scrolled.
        most = 0
        last = box.get_by_role("link", name="crowd__count_5999")
        for _ in range(60):
            page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
            page.wait_for_timeout(100)
            most = max(most, box.locator("tbody tr").count())
            if last.count():
                break
        expect(last).to_be_visible()
        assert most < 100
        page.get_by_role("searchbox").fill("count shelf 4711")
        best = page.get_by_role("region", name="Tools that fit").get_by_role("row").nth(1)
        expect(best).to_contain_text("crowd__count_4711")
