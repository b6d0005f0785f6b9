"""The chat page, as a person uses it."""

import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import APIResponse, Browser, Page, Route, expect

from tests.browser.conftest import FOLDERS, let_in, new_secret
from tests.hostile.attacks import attack
from toolpost.parts.agents.settings import AGENTS
from toolpost.settings import load_config

pytestmark = pytest.mark.wire


@pytest.fixture(autouse=True)
def known(request: pytest.FixtureRequest) -> None:
    """Let the browser of a test change something: without a token, that needs the gateway's secret."""
    if "page" in request.fixturenames and "chat" in request.fixturenames:
        let_in(request.getfixturevalue("page"), request.getfixturevalue("chat"))
    if "doomed_chat" in request.fixturenames:
        let_in(request.getfixturevalue("page"), request.getfixturevalue("doomed_chat")[0])


def say(page: Page, text: str) -> None:
    expect(page.locator("#send")).to_be_visible()
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def answered(page: Page, text: str) -> None:
    """Wait for the end of the answer to a message; that nothing runs is true before the message is shown, too."""
    expect(page.locator(".user").last).to_have_text(text)
    expect(page.locator("#send")).to_be_visible()


def test_a_conversation_with_tools_as_they_run(page: Page, chat: str) -> None:
    page.goto(chat)
    say(page, "say **Hello** from `the agent`")
    expect(page.locator(".assistant strong")).to_have_text("Hello")
    expect(page.locator(".assistant code")).to_have_text("the agent")
    answered(page, "say **Hello** from `the agent`")

    say(page, 'call time__current_time {"timezone": "Asia/Tokyo"}')
    tool = page.locator("details.tool.done")
    expect(tool.locator("summary")).to_contain_text('time__current_time { "timezone": "Asia/Tokyo" }')
    tool.locator("summary").click()
    expect(tool).to_contain_text('"utcOffset":"+09:00"')
    answered(page, 'call time__current_time {"timezone": "Asia/Tokyo"}')

    say(page, 'call time__current_time {"timezone": "Nowhere/Land"}')
    expect(page.locator("details.tool.failed")).to_be_visible()
    answered(page, 'call time__current_time {"timezone": "Nowhere/Land"}')
    say(page, "fail")
    expect(page.locator(".note.bad")).to_contain_text("no can do")
    answered(page, "fail")
    expect(page.locator("#threads [aria-current]")).to_have_text("say **Hello** from `the agent`")

    page.reload()
    expect(page.locator("details.tool.done summary")).to_contain_text('time__current_time { "timezone": "Asia/Tokyo" }')
    expect(page.locator("details.tool.failed")).to_have_count(1)
    expect(page.locator(".note.bad")).to_contain_text("no can do")


def test_a_browser_without_the_secret_is_asked_for_it(browser: Browser, chat: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(chat)
    say(page, "say hello")
    asked = page.get_by_role("dialog", name="Changes need the secret")
    asked.get_by_label("Address or secret").fill("guessed")
    page.keyboard.press("Enter")
    expect(asked).to_contain_text("was used already, or is too old")
    url = chat.removesuffix("/chat")
    asked.get_by_label("Address or secret").fill(f"{url}/#secret={new_secret(FOLDERS[url], url)}")
    page.keyboard.press("Enter")
    expect(page.locator(".assistant")).to_have_text("hello")
    context.close()


def test_without_an_agent_the_page_says_how_to_add_one(page: Page, agentless_chat: str, tmp_path: Path) -> None:
    page.goto(agentless_chat)
    empty = page.locator("#messages .empty")
    expect(empty.get_by_role("heading")).to_have_text("No agent is configured")
    expect(empty).to_contain_text("toolpost[agents]")
    expect(page.locator("#no-threads")).to_be_visible()
    expect(page.get_by_role("textbox", name="Message")).to_be_disabled()

    (tmp_path / "shown.toml").write_text(empty.locator("pre").inner_text())
    agents = AGENTS.of(load_config(tmp_path / "shown.toml"))
    assert {name: agent.kind for name, agent in agents.items()} == {"claude": "claude", "gemini": "acp"}


def test_a_page_without_conversations_says_how_to_begin(
    page: Page, doomed_chat: tuple[str, "subprocess.Popen[str]"]
) -> None:
    page.goto(doomed_chat[0])
    empty = page.locator("#messages .empty")
    expect(empty.get_by_role("heading")).to_have_text("Nothing was said here yet")
    expect(empty).to_contain_text("Write a message below")
    expect(page.locator("#no-threads")).to_contain_text("No conversations yet")

    say(page, "say hello")
    expect(page.locator(".assistant")).to_have_text("hello")
    expect(empty).to_have_count(0)
    expect(page.locator("#no-threads")).to_be_hidden()
    page.get_by_role("button", name="New chat").click()
    expect(empty).to_have_count(1)
    expect(page.locator("#no-threads")).to_be_hidden()


def test_an_answer_grows_and_can_be_cancelled(page: Page, chat: str) -> None:
    page.goto(chat)
    say(page, "stream 10000 10")
    expect(page.locator(".assistant")).to_contain_text("word3")
    expect(page.locator("#threads .running")).to_have_count(1)
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".note")).to_have_text("(cancelled)")
    answered(page, "stream 10000 10")

    say(page, "count")
    expect(page.locator(".assistant").last).to_have_text("2")


def test_a_reload_goes_on_with_the_turn_that_runs(page: Page, chat: str) -> None:
    page.goto(chat)
    say(page, "say first things first")
    answered(page, "say first things first")
    say(page, "stream 150 80")
    expect(page.locator(".assistant").last).to_contain_text("word3")
    page.reload()

    expect(page.locator(".user")).to_have_count(2)
    expect(page.locator(".assistant").first).to_have_text("first things first")
    expect(page.locator("#cancel")).to_be_visible()
    expect(page.locator(".assistant").last).to_contain_text("word0 word1 word2")
    expect(page.locator(".assistant").last).to_contain_text("word149")
    answered(page, "stream 150 80")
    page.reload()
    expect(page.locator(".assistant").last).to_contain_text(re.compile("^word0 .*word149"))


def test_messages_written_while_the_page_loads_go_to_one_conversation(page: Page, chat: str) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/api/agents", hold)
    page.goto(chat)
    say(page, "say first")
    say(page, "say second")
    while not held:
        page.wait_for_timeout(20)
    held[0].continue_()

    expect(page.locator(".assistant")).to_have_text(["first", "second"])
    page.unroute("**/api/agents")
    page.reload()
    expect(page.locator(".user")).to_have_text(["say first", "say second"])


def test_what_others_say_meanwhile_is_shown(page: Page, chat: str) -> None:
    page.goto(chat)
    say(page, "say first things first")
    answered(page, "say first things first")
    expect(page).to_have_url(re.compile("/chat/t-"))
    thread = page.url.rpartition("/")[2]
    path = chat.removesuffix("/chat") + f"/api/threads/{thread}/messages"
    spoken = httpx2.post(path, json={"text": "say by somebody else"}, timeout=30)
    assert spoken.json()["text"] == "by somebody else"

    expect(page.locator(".user").last).to_have_text("say by somebody else")
    expect(page.locator(".assistant").last).to_have_text("by somebody else")
    expect(page.locator(".assistant")).to_have_count(2)
    say(page, "count")
    expect(page.locator(".assistant").last).to_have_text("3")


def test_what_is_said_while_the_page_looks_for_what_others_said_stays(page: Page, chat: str) -> None:
    page.goto(chat)
    say(page, "say first things first")
    answered(page, "say first things first")
    path = chat.removesuffix("/chat") + f"/api/threads/{page.url.rpartition('/')[2]}"
    looks: list[Route] = []
    held: list[tuple[Route, APIResponse]] = []

    def hold(route: Route) -> None:
        """Let the page see that there is something new, and keep back what it reads then."""
        looks.append(route)
        if len(looks) == 2:
            held.append((route, route.fetch()))
        else:
            route.continue_()

    page.route(path, hold)
    httpx2.post(f"{path}/messages", json={"text": "say by somebody else"}, timeout=30)
    while not held:
        page.wait_for_timeout(20)
    say(page, "stream 100 50")
    expect(page.locator(".assistant").last).to_contain_text("word3")
    route, late = held[0]
    with page.expect_response(path):
        route.fulfill(response=late)

    expect(page.locator(".assistant").last).to_contain_text("word99")
    answered(page, "stream 100 50")


def test_a_gateway_that_is_killed_is_told_of(page: Page, doomed_chat: tuple[str, "subprocess.Popen[str]"]) -> None:
    url, gateway = doomed_chat
    page.goto(url)
    say(page, "stream 10000 10")
    expect(page.locator(".assistant")).to_contain_text("word3")
    gateway.kill()
    expect(page.locator(".note.bad")).to_contain_text("The connection to the gateway broke. What was said is kept")
    answered(page, "stream 10000 10")

    say(page, "say anybody there?")
    expect(page.locator(".note.bad").last).to_contain_text("The gateway cannot be reached.")


def test_conversations_are_listed_and_resumed(page: Page, chat: str) -> None:
    page.goto(chat)
    say(page, "say about apples")
    answered(page, "say about apples")
    page.get_by_role("button", name="New chat").click()
    expect(page.locator("#messages article")).to_have_count(0)
    say(page, "say about pears")
    answered(page, "say about pears")
    page.get_by_role("button", name="say about apples").first.click()

    expect(page.locator(".assistant")).to_have_text("about apples")
    say(page, "count")
    expect(page.locator(".assistant").last).to_have_text("2")
    page.go_back()
    expect(page.locator(".assistant")).to_have_text("about pears")


def test_a_token_is_asked_for_and_kept_in_the_tab(page: Page, guarded_chat: str) -> None:
    page.goto(guarded_chat)
    page.get_by_role("textbox", name="Token").fill("a wrong one")
    page.keyboard.press("Enter")
    expect(page.locator("dialog .problem")).to_contain_text("not the token")
    page.get_by_role("textbox", name="Token").fill("the-right-token-of-32-characters")
    page.keyboard.press("Enter")
    expect(page.locator("dialog")).to_have_count(0)
    say(page, "say hello")
    expect(page.locator(".assistant")).to_have_text("hello")
    answered(page, "say hello")
    page.reload()

    expect(page.locator(".assistant")).to_have_text("hello")
    assert page.evaluate("localStorage.length + document.cookie.length") == 0


ATTACKS = [
    "<img src=x onerror=window.owned=1>",
    "<script>window.owned=1</script>",
    "[click](javascript:window.owned=1)",
    "[click](JaVaScRiPt:window.owned=1) [click](data:text/html,<script>1</script>) [x](vbscript:x)",
    '[click](https://a.example/" onclick="window.owned=1)',
    "`<b onmouseover=window.owned=1>` **<svg onload=window.owned=1>** | <iframe srcdoc='<script>1</script>'> |",
]


@attack(
    "agent",
    "answers in HTML, scripts, `javascript:` links and event handlers",
    "the chat page shows text; nothing runs, and links lead to https alone",
)
@pytest.mark.parametrize("attack", ATTACKS)
def test_what_an_agent_says_is_only_ever_text(page: Page, chat: str, attack: str) -> None:
    page.goto(chat)
    say(page, f"say {attack} end")
    expect(page.locator(".assistant")).to_contain_text("end")
    answered(page, f"say {attack} end")

    assert page.evaluate("window.owned") is None
    assert page.locator("#messages :is(img, script, svg, iframe, b, [onclick])").count() == 0
    for link in page.locator(".assistant a").all():
        assert (link.get_attribute("href") or "").startswith("https:")


@attack(
    "agent",
    "finds a way to put HTML into the chat page",
    "the browser refuses it: Trusted Types and a content security policy without exceptions",
)
def test_a_page_that_is_injected_into_cannot_run_anything(page: Page, chat: str) -> None:
    page.goto(chat)

    with pytest.raises(Exception, match="TrustedHTML"):
        page.evaluate("document.body.innerHTML = '<b>x</b>'")


@attack(
    "stranger",
    "asks for files outside the chat page by dots and encoded dots",
    "404; no file is opened by a name from a request",
)
def test_the_files_of_the_page_are_all_that_is_served(chat: str) -> None:
    with urllib.request.urlopen(chat) as answer:
        policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    files = chat.replace("/chat", "/views/chat")
    for path in ("/../part.py", "/%2e%2e/part.py", "/nothing.js", "//etc/passwd"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{files}{path}")
        assert refused.value.code == 404
        refused.value.close()
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(chat, headers=headers))
        assert refused.value.code in (403, 421)
        refused.value.close()


MARKDOWN = """# Title
A *paragraph* with __bold__, ~~gone~~ and <https://example.com/x>.

1. one
   - inner
2. two

> quoted **text**

| a | b |
|---|---|
| 1 | `2` |

```python
print("<b>")

# not a title
```
"""


def test_markdown_is_rendered(page: Page, chat: str) -> None:
    page.goto(chat)
    page.evaluate(
        """async (text) => {
            const { render } = await import("/views/chat/markdown.js");
            // Not into the list of messages, which the page itself may still be filling.
            const rendered = document.createElement("section");
            rendered.id = "rendered";
            rendered.append(render(text));
            document.body.append(rendered);
        }""",
        MARKDOWN,
    )
    found = page.evaluate("[...document.querySelectorAll('#rendered *')].map(e => e.localName).join(' ')")

    assert found == (
        "h3 p em strong del a ol li ul li li blockquote p strong table thead tr th th tbody tr td td code pre code"
    )
    assert page.locator("#rendered pre").inner_text() == 'print("<b>")\n\n# not a title'
