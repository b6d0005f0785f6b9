"""The console during an incident: from the first line of the overview to the cause, the log, and the setting that helps."""

from collections.abc import Iterator

import httpx2
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import open_console
from tests.browser.test_console import SMALL, Gateway, open_with_secret, toml
from tests.browser.test_hostile_pages import CALL, HEADERS

pytestmark = [pytest.mark.wire]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("incident")
    (folder / "toolpost.toml").write_text("[audit]\nsample = 1.0\n\n" + toml("small", SMALL, "pictures"))
    with open_console(folder, "--log-level", "info") as address:
        yield Gateway(address.partition("/#")[0], address, folder)


def call(gateway: Gateway, tool: str, count: int) -> None:
    body = {**CALL, "params": {**CALL["params"], "name": tool, "arguments": {"text": "x"}}}  # type: ignore[dict-item]
    for _ in range(count):
        answer = httpx2.post(f"{gateway.url}/mcp", json=body, headers={**HEADERS, "mcp-name": tool})
        assert answer.status_code == 200, answer.text


def test_from_a_fire_to_its_cause(page: Page, gateway: Gateway) -> None:
    call(gateway, "small__spoil", 12)
    open_with_secret(page, gateway)
    first = page.get_by_role("region", name="Needs attention").get_by_role("listitem").first
    expect(first).to_contain_text("12 of 12 calls of small__spoil failed within 5 minutes")
    expect(first).to_contain_text("All with HANDLER_ERROR: before")
    expect(page.get_by_role("region", name="Servers").get_by_role("row").filter(has_text="small")).to_contain_text(
        "100 %"
    )
    first.get_by_role("link", name="Show the failed calls").click()
    page.get_by_role("link", name="small__spoil").first.click()

    expect(page.get_by_role("region", name="Error")).to_contain_text("before")
    expect(page.get_by_role("list", name="Log")).to_contain_text("call failed")
    expect(page.get_by_text("Hash before")).not_to_be_visible()
    page.get_by_role("link", name="Run again").click()
    expect(page.locator("h1")).to_have_text("small__spoil")
    expect(page.get_by_label("Arguments as JSON")).to_have_value('{\n  "text": "x"\n}')


def test_the_log_is_live_and_filtered(page: Page, gateway: Gateway) -> None:
    open_with_secret(page, gateway, "/logs?server=small")
    expect(page.get_by_role("status").filter(has_text="live")).to_be_visible()
    lines = page.get_by_role("list", name="Log")
    before = lines.get_by_role("listitem").filter(has_text="call failed").count()
    call(gateway, "small__spoil", 1)
    expect(lines.get_by_role("listitem").filter(has_text="call failed")).to_have_count(before + 1)
    page.get_by_role("button", name="Pause").click()
    call(gateway, "small__spoil", 1)
    expect(page.get_by_role("status").filter(has_text="paused, 1 new")).to_be_visible()
    expect(lines.get_by_role("listitem").filter(has_text="call failed")).to_have_count(before + 1)
    page.get_by_role("button", name="Go on").click()
    expect(lines.get_by_role("listitem").filter(has_text="call failed")).to_have_count(before + 2)
    page.get_by_label("Level").select_option("error")
    expect(page.get_by_role("heading", name="No line matches")).to_be_visible()
    assert page.url == f"{gateway.url}/logs?server=small&level=error"


def test_settings_are_edited_after_a_look_at_the_difference(page: Page, gateway: Gateway) -> None:
    open_with_secret(page, gateway, "/servers/small")
    page.get_by_role("button", name="Edit settings").click()
    expect(page.get_by_role("button", name="Show what changes")).to_be_disabled()
    page.get_by_label("Tools to leave out").fill("spoil")
    page.get_by_role("button", name="Show what changes").click()
    expect(page.get_by_role("region", name="What changes")).to_contain_text('deny = ["spoil"]')
    page.get_by_role("button", name="Change it").click()
    expect(page.get_by_role("region", name="Settings")).to_contain_text('"spoil"')
    assert 'deny = ["spoil"]' in (gateway.folder / "toolpost.toml").read_text()
    page.get_by_role("link", name="Servers", exact=True).first.click()
    page.get_by_role("button", name="Stop small").click()
    expect(page.get_by_role("row").filter(has_text="small")).to_contain_text("stopped")
    page.get_by_role("button", name="Start small").click()
    expect(page.get_by_role("row").filter(has_text="small")).to_contain_text("ready")
