"""What a real server asks during a call of the playground, answered by a person in a real browser."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import new_secret, open_console
from tests.upstreams.behind import SERVERS

pytestmark = [pytest.mark.wire, pytest.mark.soak]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("requests")
    text = ""
    for name, args in (("old", ["handshake"]), ("new", [])):
        words = json.dumps([str(SERVERS / "asking.py"), *args])
        text += f"[servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {words}\n"
    (made / "toolpost.toml").write_text(text)
    return made


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[str]:
    with open_console(folder) as address:
        yield address.partition("/#")[0]


def ask(page: Page, gateway: str, folder: Path, tool: str, what: str) -> Locator:
    """Run a tool that asks; returns what is shown of its question."""
    page.goto(f"{gateway}/tools/{tool}#secret={new_secret(folder, gateway)}")
    page.get_by_label("Arguments as JSON").fill(json.dumps({"what": what}))
    page.get_by_role("button", name="Run", exact=True).click()
    return page.get_by_role("alertdialog")


@pytest.mark.parametrize("server", ["old", "new"])
def test_a_form_is_filled_in_or_declined(page: Page, gateway: str, folder: Path, server: str) -> None:
    asked = ask(page, gateway, folder, f"{server}__ask", "form")
    expect(asked).to_contain_text(f"{server} asks you for something")
    expect(asked).to_contain_text("Who are you?")
    expect(asked).to_contain_text("Something that is required is missing")
    name = asked.get_by_role("textbox", name="name")
    expect(name).to_be_focused()
    name.fill("Ann <b>Lee</b>")
    expect(asked).not_to_contain_text("Something that is required is missing")
    asked.get_by_role("button", name="Accept").click()
    result = page.get_by_role("region", name="Result")
    expect(result).to_contain_text('"content": {"name": "Ann <b>Lee</b>"}')
    expect(asked).to_have_count(0)

    for button, action in (("Decline", "decline"), ("Dismiss", "cancel")):
        page.get_by_role("button", name="Run", exact=True).click()
        asked.get_by_role("button", name=button).click()
        expect(result).to_contain_text(f'"action": "{action}"')


def test_an_address_is_shown_and_not_opened(page: Page, gateway: str, folder: Path) -> None:
    opened: list[str] = []
    page.on("request", lambda request: opened.append(request.url))
    asked = ask(page, gateway, folder, "old__ask", "url")
    expect(asked).to_contain_text("Go there")
    link = asked.get_by_role("link", name="https://example.com/pay")
    expect(link).to_have_attribute("rel", "noopener noreferrer")
    asked.get_by_role("button", name="Accept").click()
    expect(page.get_by_role("region", name="Result")).to_contain_text('"action": "accept"')
    assert [url for url in opened if not url.startswith(gateway)] == []


def test_folders_are_named_and_sampling_is_refused(page: Page, gateway: str, folder: Path) -> None:
    asked = ask(page, gateway, folder, "old__ask", "roots")
    asked.get_by_role("button", name="Add an item").click()
    asked.get_by_label(re.compile("^uri")).fill("file:///work")
    asked.get_by_role("button", name="Accept").click()
    result = page.get_by_role("region", name="Result")
    expect(result).to_contain_text('"uri": "file:///work"')
    page.get_by_label("Arguments as JSON").fill('{"what": "sampling"}')
    page.get_by_role("button", name="Run", exact=True).click()
    expect(result).to_contain_text("-32601")
    expect(asked).to_have_count(0)


def test_leaving_the_page_ends_the_call_and_its_question(page: Page, gateway: str, folder: Path) -> None:
    asked = ask(page, gateway, folder, "old__ask", "form")
    expect(asked).to_be_visible()
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.get_by_text("The call was cancelled.")).to_be_visible()
    expect(asked).to_have_count(0)
    page.get_by_role("link", name="Calls", exact=True).click()
    expect(page.get_by_role("row").filter(has_text="cancelled").first).to_be_visible()
