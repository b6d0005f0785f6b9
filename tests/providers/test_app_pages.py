"""Pages of apps that get a script in front."""

import base64
from typing import Any

import pytest

from tests.hostile.attacks import assert_linear, attack, thread_cpu_s
from toolpost.providers.app_pages import adapt_contents, add_script


@attack(
    "server",
    "names a tool so that the script in front of its app's page ends early",
    "the name stays a text inside the script",
)
def test_a_name_cannot_end_the_script() -> None:
    page = add_script("<p>", "up", {"</script><img src=x onerror=alert(1)>": "up__x"})
    assert page.count("</script>") == 1
    assert page.endswith("</script><p>")


@attack("server", "sends an app's page with thousands of comments at its start", "the page is read once")
def test_comments_before_a_doctype_cost_no_more_than_their_length() -> None:
    assert_linear(lambda size: thread_cpu_s(lambda: add_script("<!-- a -->" * size + "<p>", "up", {})), small=20_000)


@pytest.mark.parametrize(
    "start", ["<!doctype html>", "\n<!-- a > b -->\n<!DOCTYPE html SYSTEM 'about:legacy-compat'>", ""]
)
def test_a_doctype_stays_first(start: str) -> None:
    page = add_script(f"{start}<html>", "up", {})
    assert page.startswith(f"{start}<script>")
    assert page.endswith("</script><html>")


def test_what_is_no_page_of_an_app_stays_as_it_is() -> None:
    html = "text/html;profile=mcp-app"
    items: list[Any] = [
        {"uri": "file:///a.html", "mimeType": html, "text": "<p>"},
        {"uri": "ui://a", "mimeType": "text/html", "text": "<p>"},
        {"uri": "ui://a", "mimeType": html, "blob": "not base64"},
        {"uri": "ui://a", "mimeType": html, "blob": base64.b64encode(b"<p>").decode()},
        3,
    ]
    result = adapt_contents({"contents": items, "later": 1}, "up", {})
    assert result["later"] == 1
    assert result["contents"][0] is items[0]
    assert result["contents"][1] == {"uri": "ui://up__a", "mimeType": "text/html", "text": "<p>"}
    assert result["contents"][2]["blob"] == "not base64"
    assert base64.b64decode(result["contents"][3]["blob"]).decode() == add_script("<p>", "up", {})
    assert result["contents"][4] == 3
    assert adapt_contents(result, "up", None)["contents"][1]["text"] == "<p>"
    for other in ({}, {"contents": None}, {"contents": [{"uri": 3}]}):
        assert adapt_contents(other, "up", {}) is other
