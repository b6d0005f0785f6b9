"""Who a browser is to the console: people who sign in, tokens, second tabs, and callers that are made there."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.conftest import open_console
from tests.conformance.test_conformance import PLACE
from tests.hostile.attacks import attack
from tests.parts.authorization_server.conftest import free_port
from tests.parts.authorization_server.test_provider import provider_for

pytestmark = [
    pytest.mark.wire,
    pytest.mark.soak,
    pytest.mark.skipif(
        not (PLACE / "oidc-provider").exists(), reason="oidc-provider is not there: scripts/node-servers"
    ),
]

ANN, BEN = "the-token-of-ann-with-32-characters", "the-token-of-ben-with-32-characters"
CONFIG = """
[plugins]
bundled = ["time", "bus"]
[login]
enabled = true
[login.provider]
issuer = "{issuer}"
client_id = "gateway"
client_secret = "${{file:secret}}"
[callers.ann]
token = "${{file:ann.token}}"
admin = true
[callers.ben]
token = "${{file:ben.token}}"
[console.roles]
viewer = ["watch"]
administrator = ["sre"]
"""


@dataclass
class Site:
    """A gateway with a provider on another site, and its folder."""

    url: str
    issuer: str
    folder: Path

    def put(self, *groups: str) -> None:
        """Put u-ada, who is logged in at the provider, into these groups."""
        httpx2.get(f"{self.issuer}/groups/u-ada/{','.join(groups)}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("people")
    for name, text in (("secret", "secret: of the gateway, at least 32 bytes"), ("ann.token", ANN), ("ben.token", BEN)):
        (folder / name).write_text(text)
    port = free_port()
    own = f"http://127.0.0.1:{port}"
    # On another site than the gateway, so that cookies are sent as they are where it matters.
    with provider_for(f"{own}/api/console/sign-in/callback", host="localhost") as issuer:
        (folder / "toolpost.toml").write_text(CONFIG.format(issuer=issuer))
        with open_console(folder, "--listen", f"127.0.0.1:{port}"):
            yield Site(own, issuer, folder)


def sign_in(page: Page) -> None:
    page.get_by_role("dialog", name="Sign in").get_by_role("button", name="Sign in with localhost").click()


def give_token(page: Page, token: str) -> None:
    dialog = page.get_by_role("dialog", name="Sign in")
    dialog.get_by_label("Token").fill(token)
    dialog.get_by_role("button", name="Go on").click()


def who(page: Page) -> str:
    expect(page.locator("main h1")).to_be_visible()
    return page.locator(".who").inner_text()


def test_a_person_signs_in_and_a_second_tab_needs_no_login(page: Page, site: Site) -> None:
    site.put("watch")
    page.goto(f"{site.url}/calls?code=TIMEOUT")
    sign_in(page)
    expect(page.locator("main h1")).to_have_text("Calls")
    assert re.search("u-ada.*viewer", who(page), re.DOTALL)
    assert page.url == f"{site.url}/calls?code=TIMEOUT"

    second = page.context.new_page()
    second.goto(f"{site.url}/servers")
    assert "u-ada" in who(second)
    expect(second.get_by_role("dialog")).to_have_count(0)

    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("dialog", name="Sign in")).to_be_visible()
    second.reload()
    expect(second.get_by_role("dialog", name="Sign in")).to_be_visible()


def test_a_person_without_a_role_is_told_so(page: Page, site: Site) -> None:
    site.put("others")
    page.goto(f"{site.url}/")
    sign_in(page)
    expect(page.get_by_role("dialog", name="Sign in")).to_contain_text("none of your groups has a role")
    assert "#" not in page.url


def test_a_token_for_a_new_colleague(page: Page, site: Site) -> None:
    """What decides about more than this session needs a new sign-in, in another tab; what was filled in stays."""
    site.put("sre")
    page.goto(f"{site.url}/callers")
    sign_in(page)
    page.get_by_role("button", name="New caller").click()
    form = page.get_by_role("dialog", name="New caller")
    form.get_by_label("Name").fill("cleo")
    form.get_by_label("only these:").check()
    form.get_by_label(re.compile(r"\btime\b")).check()
    expect(form.get_by_role("status", name="Preview")).to_contain_text("of 1 server")
    form.get_by_role("button", name="Make the token").click()
    with page.context.expect_page() as opened:
        page.get_by_role("dialog", name="This needs you to sign in once more.").get_by_role(
            "button", name="Sign in again"
        ).click()
    made = page.get_by_role("dialog", name="The token of cleo")
    token = made.get_by_role("region", name="Token").inner_text()
    assert opened.value != page
    seen = httpx2.get(f"{site.url}/api/console/session", headers={"Authorization": f"Bearer {token}"})
    assert seen.json()["caller"] == "cleo"
    made.get_by_role("button", name="I have copied it").click()
    assert token not in page.content()

    page.get_by_role("link", name="cleo", exact=True).click()
    expect(page.locator("main")).to_contain_text("by console:u-ada")
    expect(page.locator("main details")).to_have_count(1)
    page.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog", name="Revoke cleo?").get_by_role("button", name="Revoke it").click()
    expect(page.get_by_role("row").filter(has_text="cleo")).to_have_count(0)
    seen = httpx2.get(f"{site.url}/api/console/session", headers={"Authorization": f"Bearer {token}"})
    assert seen.status_code == 401


def test_a_tab_gives_its_token_to_a_second_one_and_to_no_third_after_the_end(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/servers")
    give_token(page, BEN)
    assert "ben" in who(page)

    second = page.context.new_page()
    second.goto(f"{site.url}/tools")
    assert "ben" in who(second)
    # Not in what outlives the tabs.
    assert BEN not in second.evaluate("JSON.stringify(localStorage) + document.cookie")

    second.get_by_role("button", name="Log out").click()
    for each in (page, second):
        expect(each.get_by_role("dialog", name="Sign in")).to_be_visible()
    # A tab that was logged out stays so, whoever the others are.
    give_token(page, ANN)
    assert "ann" in who(page)
    second.reload()
    expect(second.get_by_role("dialog", name="Sign in")).to_be_visible()


def test_a_token_that_is_refused_is_not_passed_around(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/servers")
    give_token(page, "wrong")
    expect(page.get_by_role("dialog", name="Sign in")).to_contain_text("not the token of any caller")
    second = page.context.new_page()
    second.goto(f"{site.url}/servers")
    expect(second.get_by_role("dialog", name="Sign in")).to_be_visible()


@attack(
    "stranger",
    "has a page on another port of this machine ask the tabs of the console for the token, or use the cookie of a person",
    "the tabs talk over a channel of their origin alone, and the cookie needs a secret that no other origin can read",
)
def test_a_page_of_another_port(browser: Browser, site: Site) -> None:
    site.put("sre")
    context: BrowserContext = browser.new_context()
    console = context.new_page()
    console.goto(f"{site.url}/servers")
    give_token(console, ANN)
    assert "ann" in who(console)
    person = browser.new_context()
    signed_in = person.new_page()
    signed_in.goto(f"{site.url}/servers")
    sign_in(signed_in)
    assert "u-ada" in who(signed_in)

    # The provider's port, by the name of the gateway: another origin on the same site, whose requests have the cookies.
    strange = site.issuer.replace("localhost", "127.0.0.1")
    heard = []
    for tabs in (context, person):
        page = tabs.new_page()
        page.goto(f"{strange}/.well-known/openid-configuration")
        heard.append(page.evaluate(LISTEN))
        read = page.evaluate(READ, f"{site.url}/api/console/session")
        assert read == "TypeError: Failed to fetch"
        # Sent all the same, and refused.
        page.evaluate(SEND, f"{site.url}/api/console/session/end")
    signed_in.reload()
    assert "u-ada" in who(signed_in)
    context.close()
    person.close()
    assert heard == [[], []]


LISTEN = """async () => {
  const channel = new BroadcastChannel("toolpost"), heard = [];
  channel.onmessage = ({ data }) => heard.push(data);
  channel.postMessage({ wants: "token" });
  // Whatever was sent before this answer of a server has come by then.
  for (let turn = 0; turn < 20; turn++) await fetch(location.href);
  return heard;
}"""
READ = (
    """(url) => fetch(url, { credentials: "include", headers: { "X-Toolpost": "1" } }).then((r) => r.text(), String)"""
)
SEND = """(url) => fetch(url, { method: "POST", mode: "no-cors", credentials: "include", body: "{}" }).then(() => {}, () => {})"""
