"""The page of approvals, as voters use it."""

import json
import os
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Page, expect

from tests.cli.conftest import open_process
from tests.ways import ENVELOPE, STATELESS

pytestmark = pytest.mark.wire

TOKENS = {name: f"the-token-of-{name}-with-32-characters" for name in ("ann", "ben", "bot")}
CONFIG = """
[plugins]
bundled = ["time", "approvals"]
[approvals.rules.clock]
tools = ["time__*"]
voters = ["ann", "ben"]
votes = 2
"""
EVIL = "<img src=x onerror=document.title='broken'>"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a gateway whose clock needs two approvals."""
    folder = tmp_path_factory.mktemp("approvals")
    callers = "".join(f'[callers.{name}]\ntoken = "${{TOKEN_{name.upper()}}}"\n' for name in TOKENS)
    (folder / "toolpost.toml").write_text(CONFIG + callers)
    environment = {f"TOKEN_{name.upper()}": token for name, token in TOKENS.items()}
    with open_process(("serve", "--listen", "127.0.0.1:0", "--json"), folder, os.environ | environment) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"].removesuffix("/mcp")


def call(gateway: str, timezone: str) -> Any:
    """Call the clock as the bot; returns the result."""
    name = "time__current_time"
    headers = {
        "authorization": f"Bearer {TOKENS['bot']}",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": STATELESS,
        "mcp-method": "tools/call",
        "mcp-name": name,
    }
    params = {"name": name, "arguments": {"timezone": timezone}, "_meta": ENVELOPE}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = httpx2.post(f"{gateway}/mcp", headers=headers, json=body)
    return answer.json()["result"]


def enter(page: Page, address: str, voter: str) -> None:
    page.goto(address)
    page.get_by_role("textbox", name="Token").fill(TOKENS[voter])
    page.keyboard.press("Enter")


def round_of(refusal: Any) -> str:
    assert refusal["isError"], refusal
    return str(refusal["structuredContent"]["error"]["details"]["round_id"])


def test_two_voters_see_the_call_and_approve_it(page: Page, gateway: str) -> None:
    found = round_of(call(gateway, "Asia/Tokyo"))
    enter(page, f"{gateway}/approvals", "ann")
    shown = page.locator(f'[data-round="{found}"]')
    expect(shown.locator(".arguments")).to_contain_text('"timezone": "Asia/Tokyo"')
    expect(shown).to_contain_text("Requested by bot; 2 of ann, ben must approve")
    shown.locator("summary").first.click()
    expect(shown.get_by_role("region", name="Contract")).to_contain_text("inputSchema")
    expect(shown.locator("details code")).to_contain_text("sha256:")
    shown.get_by_role("button", name="Approve").click()
    expect(shown).to_contain_text("You voted: approve.")
    expect(shown.locator(".votes")).to_have_count(0)
    assert "1 of 2" in call(gateway, "Asia/Tokyo")["structuredContent"]["error"]["message"]

    # The other voter, in the same tab: a round that was decided elsewhere says so by itself.
    headers = {"authorization": f"Bearer {TOKENS['ben']}"}
    httpx2.post(f"{gateway}/api/approvals/vote", headers=headers, json={"round_id": found, "choice": "approve"})
    expect(shown.locator(".tally")).to_contain_text("ABSOLUTE, approved: 2 of 2 approvals · approved by ann, ben")
    assert not call(gateway, "Asia/Tokyo").get("isError")
    assert round_of(call(gateway, "Asia/Tokyo")) != found


def test_a_denial_and_a_round_that_appears_meanwhile(page: Page, gateway: str) -> None:
    enter(page, f"{gateway}/approvals", "ben")
    expect(page.locator("main")).to_contain_text("You vote as ben")
    found = round_of(call(gateway, EVIL))
    shown = page.locator(f'[data-round="{found}"]')
    expect(shown.locator(".arguments")).to_contain_text(EVIL)
    shown.get_by_role("button", name="Deny").click()
    expect(shown.locator(".tally")).to_contain_text("denied by ben")
    assert "denied" in call(gateway, EVIL)["structuredContent"]["error"]["message"]
    assert page.title() == "Approvals · Toolpost", "text stays text"
    reversed_text = round_of(call(gateway, "Asia/\u202eoykoT\u200b"))
    hidden = page.locator(f'[data-round="{reversed_text}"]')
    expect(hidden.locator(".arguments")).to_contain_text("Asia/\\u{202e}oykoT\\u{200b}")
    # What comes later comes below: it moves no button.
    assert page.locator("[data-round]").last.get_attribute("data-round") == hidden.get_attribute("data-round")


@pytest.mark.soak
def test_who_asked_may_see_and_not_vote(page: Page, gateway: str) -> None:
    found = round_of(call(gateway, "Europe/Rome"))
    enter(page, f"{gateway}/approvals", "bot")
    shown = page.locator(f'[data-round="{found}"]')
    expect(shown).to_contain_text("You may see this round, and not vote in it.")
    expect(shown.locator(".votes")).to_have_count(0)


@pytest.mark.soak
def test_a_vote_that_fails_says_why(page: Page, gateway: str) -> None:
    found = round_of(call(gateway, "Europe/Oslo"))
    enter(page, f"{gateway}/approvals", "ann")
    shown = page.locator(f'[data-round="{found}"]')
    expect(shown.locator(".votes").get_by_role("button")).to_have_text(["Approve", "Deny"])
    page.route("**/api/approvals/vote", lambda route: route.abort())
    shown.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("alert")).to_contain_text("The gateway cannot be reached")
    page.unroute("**/api/approvals/vote")
    shown.get_by_role("button", name="Approve").click()
    expect(shown).to_contain_text("You voted: approve.")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_the_chat_leads_to_it(page: Page, gateway: str) -> None:
    enter(page, f"{gateway}/chat", "ann")
    page.get_by_role("link", name="Approvals").click()
    # The token goes along within the tab.
    expect(page.locator("main")).to_contain_text("You vote as ann")


def test_the_policy_is_that_of_all_views(gateway: str) -> None:
    policies = [httpx2.get(f"{gateway}{path}").headers["content-security-policy"] for path in ("/chat", "/approvals")]
    assert policies[0] == policies[1]
    assert "default-src 'none'" in policies[1]
