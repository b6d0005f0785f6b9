"""URIs of apps as clients see them, and who a tool is for."""

from typing import Any

import pytest

from tests.hostile.attacks import attack
from toolpost.contracts.apps import has_app, is_visible_to, qualify_definition, qualify_uri, split_uri


@pytest.mark.parametrize("own", ["ui://board/app.html", "ui://board", "ui://board/a__b", "ui://{id}/x"])
def test_a_uri_leads_back_to_its_provider(own: str) -> None:
    listed = qualify_uri("my_server-1", own)
    assert listed.startswith("ui://my_server-1__")
    assert split_uri(listed) == ("my_server-1", own)


@pytest.mark.parametrize("uri", ["ui://board/a__b", "ui://board", "file:///a__b", "skill://a__b", ""])
def test_other_uris_name_no_provider(uri: str) -> None:
    assert split_uri(uri) is None


def test_only_apps_are_renamed() -> None:
    assert qualify_uri("up", "file:///a") == "file:///a"
    plain = {"name": "a", "_meta": {"other": "ui://a"}}
    assert qualify_definition("up", plain) is plain
    for odd in ({"_meta": None}, {"_meta": {"ui": 3}}, {"_meta": {"ui": {"resourceUri": 3}}}):
        assert qualify_definition("up", odd) == odd


@pytest.mark.parametrize(
    ("ui", "model", "app"),
    [
        (None, True, True),
        ({}, True, True),
        ({"visibility": ["app"]}, False, True),
        ({"visibility": ["model"]}, True, False),
        ({"visibility": []}, False, False),
        ({"visibility": "app"}, True, True),
        ("app", True, True),
    ],
)
def test_who_a_tool_is_for(ui: Any, model: bool, app: bool) -> None:
    definition = {"name": "a", "_meta": {"ui": ui}}
    assert (is_visible_to("model", definition), is_visible_to("app", definition)) == (model, app)
    assert has_app(definition) == (isinstance(ui, dict) and bool(ui))


@attack("server", "names the page of another server as its own app", "the URI leads to itself")
def test_a_server_names_its_own_pages_alone() -> None:
    listed = qualify_definition("bad", {"_meta": {"ui": {"resourceUri": "ui://good__page"}}})
    assert split_uri(listed["_meta"]["ui"]["resourceUri"]) == ("bad", "ui://good__page")
