"""Which URIs a template matches, and the values in them."""

import pytest

from toolpost.authoring.uri_template import parse_template


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("notes://{title}", "notes://today", {"title": "today"}),
        ("notes://{title}", "notes://to%20day", {"title": "to day"}),
        ("notes://{title}", "notes://a/b", None),
        ("notes://{title}", "notes://", None),
        ("notes://{a}/{b}.txt", "notes://x/y.txt", {"a": "x", "b": "y"}),
        ("notes://{a}/{b}.txt", "notes://x/yXtxt", None),
        ("file:///{+path}", "file:///a/b/c", {"path": "a/b/c"}),
        ("file:///{path*}", "file:///a/b/c", {"path": "a/b/c"}),
        ("find://x{?q,most}", "find://x", {}),
        ("find://x{?q,most}", "find://x?q=a%26b&most=3&other=1", {"q": "a&b", "most": "3"}),
        ("find://{where}{?q}", "find://here?q=", {"where": "here", "q": ""}),
        # What would lead out of its place is no match.
        ("notes://{title}", "notes://..%2Fkeys", None),
        ("notes://{title}", "notes://..", None),
        ("notes://{title}", "notes://a%5Cb", None),
        ("notes://{title}", "notes://a%00", None),
        ("file:///{+path}", "file:///a/../../etc/passwd", None),
        ("file:///{+path}", "file:///a/%2e%2e/etc", None),
        ("file:///{+path}", "file:///..%5c..%5cetc", None),
        ("file:///{+path}", "file:///a..b/c", {"path": "a..b/c"}),
    ],
)
def test_values_are_found(template: str, uri: str, values: dict[str, str] | None) -> None:
    assert parse_template(template).match(uri) == values


@pytest.mark.parametrize(
    "template", ["a://{b", "a://b}", "a://{b}{b}", "a://{?q}/x", "a://{b,c}", "a://{b-c}", "a://{}", "a://{#b}"]
)
def test_templates_that_are_not_supported_are_refused(template: str) -> None:
    with pytest.raises(ValueError, match="a://"):
        parse_template(template)
