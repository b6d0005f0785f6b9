"""Arguments in requests: every style of OpenAPI, and values that try to leave their place."""

from typing import Any

import pytest

from tests.hostile.attacks import attack
from tests.parts.openapi.fake_api import describe, takes
from toolpost.contracts.errors import InvalidArguments
from toolpost.parts.openapi.document import BadDocument, parse_document
from toolpost.parts.openapi.operations import Operation, find_operations
from toolpost.parts.openapi.serialize import ApiRequest, write_request

ARRAY = ["blue", "black", "b&w"]
OBJECT = {"R": 100, "G": 200}


def operation_of(*parameters: dict[str, Any], path: str = "/pets", **more: Any) -> Operation:
    import json

    document = describe({"method": "get", "path": path, "operationId": "get", "parameters": parameters, **more})
    found = find_operations(parse_document(json.dumps(document).encode(), "test"), "pets")
    assert not found.omitted, found.omitted
    return found.usable[0]


def written(*parameters: dict[str, Any], path: str = "/pets", **arguments: Any) -> ApiRequest:
    return write_request(operation_of(*parameters, path=path), arguments, frozenset({("query", "key")}))


def query_of(request: ApiRequest) -> str:
    return "&".join(f"{name}={value}" for name, value in request.query)


@pytest.mark.parametrize(
    ("style", "explode", "value", "expected"),
    [
        # The tables of the specification, 3.0.3 "Style Values" and 3.1 "Style Examples".
        ("simple", False, "blue", "blue"),
        ("simple", False, ARRAY, "blue,black,b%26w"),
        ("simple", True, ARRAY, "blue,black,b%26w"),
        ("simple", False, OBJECT, "R,100,G,200"),
        ("simple", True, OBJECT, "R=100,G=200"),
        ("label", False, "blue", ".blue"),
        ("label", True, ARRAY, ".blue.black.b%26w"),
        ("label", False, ARRAY, ".blue,black,b%26w"),
        ("label", True, OBJECT, ".R=100.G=200"),
        ("label", False, OBJECT, ".R,100,G,200"),
        ("matrix", False, "blue", ";color=blue"),
        ("matrix", True, ARRAY, ";color=blue;color=black;color=b%26w"),
        ("matrix", False, ARRAY, ";color=blue,black,b%26w"),
        ("matrix", True, OBJECT, ";R=100;G=200"),
        ("matrix", False, OBJECT, ";color=R,100,G,200"),
        ("simple", False, 7, "7"),
        ("simple", False, True, "true"),
    ],
)
def test_styles_in_the_path(style: str, explode: bool, value: Any, expected: str) -> None:
    color = takes("path", "color", {}, style=style, explode=explode)
    assert written(color, path="/in/{color}/x", color=value).path == f"/in/{expected}/x"


@pytest.mark.parametrize(
    ("style", "explode", "value", "expected"),
    [
        ("form", True, "a b&c=d#e+f", "color=a%20b%26c%3Dd%23e%2Bf"),
        ("form", True, ARRAY, "color=blue&color=black&color=b%26w"),
        ("form", False, ARRAY, "color=blue,black,b%26w"),
        ("form", True, OBJECT, "R=100&G=200"),
        ("form", False, OBJECT, "color=R,100,G,200"),
        ("spaceDelimited", False, ARRAY, "color=blue%20black%20b%26w"),
        ("spaceDelimited", True, ARRAY, "color=blue&color=black&color=b%26w"),
        ("pipeDelimited", False, ARRAY, "color=blue%7Cblack%7Cb%26w"),
        ("deepObject", True, OBJECT, "color[R]=100&color[G]=200"),
        ("deepObject", True, {"a": {"b": 1}, "c": [1, 2]}, "color[a][b]=1&color[c]=1&color[c]=2"),
        ("form", True, None, ""),
        ("form", True, [], ""),
    ],
)
def test_styles_in_the_query(style: str, explode: bool, value: Any, expected: str) -> None:
    assert query_of(written(takes("query", "color", {}, style=style, explode=explode), color=value)) == expected


def test_reserved_characters_stay_where_the_document_says_so_but_none_that_begins_a_parameter() -> None:
    where = takes("query", "where", allowReserved=True)
    assert query_of(written(where, where="/a?b:c&d=e#f+g")) == "where=/a?b:c%26d%3De%23f%2Bg"


@pytest.mark.parametrize(
    ("explode", "value", "expected"),
    [(False, "a", "a"), (False, ["a", "b"], "a,b"), (False, OBJECT, "R,100,G,200"), (True, OBJECT, "R=100,G=200")],
)
def test_headers(explode: bool, value: Any, expected: str) -> None:
    request = written(takes("header", "X-Color", {}, explode=explode), **{"X-Color": value})
    assert request.headers == (("X-Color", expected),)


@pytest.mark.parametrize(
    ("explode", "value", "expected"),
    [
        (True, "a;b=c, d\r\n", (("color", "a%3Bb%3Dc%2C%20d%0D%0A"),)),
        (False, ["a", "b;c"], (("color", "a,b%3Bc"),)),
        (True, ["a", "b"], (("color", "a"), ("color", "b"))),
        (True, {"R": 1}, (("R", "1"),)),
    ],
)
def test_cookies(explode: bool, value: Any, expected: Any) -> None:
    assert written(takes("cookie", "color", {}, explode=explode), color=value).cookies == expected


def test_a_parameter_with_a_media_type_is_json() -> None:
    where = {"in": "query", "name": "where", "content": {"application/json": {"schema": {"type": "object"}}}}
    assert query_of(written(where, where={"a": [1, "&"]})) == "where=%7B%22a%22%3A%5B1%2C%22%26%22%5D%7D"


@attack("agent", "put `..`, slashes or nothing into a path value", "the path keeps its segments")
@pytest.mark.parametrize(
    "value",
    ["..", ".", "", "../admin", "a/../../admin", "..\\admin", "%2e%2e", "%2e%2e%2fadmin", " ..", [], {}, None, "a/.."],
)
def test_a_path_value_cannot_leave_its_segment(value: Any) -> None:
    with pytest.raises(InvalidArguments):
        written(takes("path", "id", {}), path="/pets/{id}", id=value)


@attack("stranger", "leave `base` by the paths of a document", "no request is made")
@pytest.mark.parametrize("path", ["/../../admin/{id}", "/%2e%2e/admin/{id}", "/pets/./{id}"])
def test_a_document_cannot_leave_base(path: str) -> None:
    with pytest.raises(InvalidArguments):
        written(takes("path", "id", {}), path=path, id="1")


@attack("stranger", "describe billions of values by aliases and merges of YAML", "it is refused at once")
@pytest.mark.parametrize("line", ["[{}]", "{{<<: [{}], l{}: 1}}"])
def test_a_small_document_cannot_grow(line: str) -> None:
    levels = ["a0: &a0 {x: 1}"]
    for level in range(1, 12):
        levels.append(f"a{level}: &a{level} " + line.format(", ".join([f"*a{level - 1}"] * 9), level))
    with pytest.raises(BadDocument, match="stand for more than"):
        parse_document("\n".join(["openapi: 3.0.0", *levels]).encode(), "test")


def test_a_label_cannot_become_two_dots() -> None:
    with pytest.raises(InvalidArguments):
        written(takes("path", "id", {}, style="label"), path="/pets/{id}", id=".")


@pytest.mark.parametrize(
    ("value", "expected"),
    [("a/b", "a%2Fb"), ("a?b=c#d", "a%3Fb%3Dc%23d"), ("a\r\nX: y", "a%0D%0AX%3A%20y"), ("...", "..."), ("ä", "%C3%A4")],
)
def test_what_a_path_value_may_have_is_encoded(value: str, expected: str) -> None:
    assert written(takes("path", "id", {}), path="/pets/{id}.json", id=value).path == f"/pets/{expected}.json"


@attack("agent", "put a line break into a header value", "the call is refused before anything is sent")
@pytest.mark.parametrize(
    "value", ["a\r\nHost: evil", "a\nb", "a\0b", "a\x7fb", ["a", "b\r\n"], {"a": "\n"}, {"\r\nX": 1}]
)
def test_a_header_value_cannot_begin_another_header(value: Any) -> None:
    with pytest.raises(InvalidArguments, match="line breaks"):
        written(takes("header", "X-Color", {}), **{"X-Color": value})


@attack("agent", "name a property like another parameter", "the other parameter keeps its value")
@pytest.mark.parametrize("place", ["query", "cookie"])
def test_a_property_cannot_be_another_parameter(place: str) -> None:
    filters = takes(place, "filters", {"type": "object"}, explode=True)
    other = takes(place, "owner", {"type": "string"})
    with pytest.raises(InvalidArguments, match="must not have the property `owner`"):
        written(filters, other, filters={"owner": "somebody else"}, owner="me")


def test_a_property_cannot_be_a_key_of_the_configuration() -> None:
    with pytest.raises(InvalidArguments, match="must not have the property `key`"):
        written(takes("query", "filters", {"type": "object"}, explode=True), filters={"key": "another"})


def test_a_property_cannot_be_two_cookies() -> None:
    with pytest.raises(InvalidArguments):
        written(takes("cookie", "filters", {"type": "object"}, explode=True), filters={"a; admin": "1"})


def test_headers_that_decide_where_a_request_ends_are_no_parameters() -> None:
    names = ["Host", "Content-Length", "Transfer-Encoding", "Cookie", "Authorization", "Accept", "X-Fine"]
    operation = operation_of(*(takes("header", name) for name in names))
    assert [parameter.name for parameter in operation.parameters] == ["X-Fine"]


def body_of(content: dict[str, Any], body: Any) -> ApiRequest:
    return write_request(operation_of(requestBody={"content": content}), {"body": body}, frozenset())


def test_a_form() -> None:
    encoding = {"tags": {"style": "form", "explode": False}, "deep": {"style": "deepObject", "explode": True}}
    request = body_of(
        {"application/x-www-form-urlencoded": {"schema": {"type": "object"}, "encoding": encoding}},
        {"name": "a&b=c", "ids": [1, 2], "tags": ["x", "y"], "deep": {"a": 1}, "plain": {"b": 2}, "none": None},
    )
    assert request.body == b"name=a%26b%3Dc&ids=1&ids=2&tags=x,y&deep[a]=1&plain=%7B%22b%22%3A2%7D"
    assert request.media_type == "application/x-www-form-urlencoded"


def test_a_form_of_several_parts_cannot_be_broken_out_of() -> None:
    file = {"base64": "AAEC", "filename": 'a"\r\nContent-Type: evil\r\n\r\n.bin'}
    request = body_of(
        {"multipart/form-data": {"schema": {"type": "object"}, "encoding": {"file": {"contentType": "image/png"}}}},
        {"name": "Rex", "file": file, "about": {"a": 1}, "many": ["x", "y"], 'q"uote': "z"},
    )
    assert request.media_type is not None
    boundary = request.media_type.partition("boundary=")[2].encode()
    parts = request.body.split(b"--" + boundary)[1:-1]
    heads = [part.strip(b"\r\n").partition(b"\r\n\r\n")[0].lower() for part in parts]
    assert len(parts) == 6
    assert b"content-type: image/png" in heads[1]
    assert b"evil" not in b"\r\n".join(
        line for head in heads for line in head.split(b"\r\n") if line.startswith(b"content-type")
    )
    assert parts[1].endswith(b"\r\n\r\n\x00\x01\x02\r\n")
    assert b"application/json" in heads[2]
    assert b'name="q%22uote"' in heads[5]


@pytest.mark.parametrize(
    ("media_type", "value", "expected"),
    [
        ("application/json", {"a": None}, b'{"a":null}'),
        ("application/vnd.api+json", [1], b"[1]"),
        ("text/plain", "plain", b"plain"),
        ("application/xml", "<a/>", b"<a/>"),
        ("application/octet-stream", {"base64": "AP8="}, b"\x00\xff"),
        ("image/png", {"text": "png"}, b"png"),
    ],
)
def test_other_bodies(media_type: str, value: Any, expected: bytes) -> None:
    request = body_of({media_type: {"schema": {}}}, value)
    assert (request.body, request.media_type) == (expected, media_type)


def test_bad_base64_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="base64"):
        body_of({"application/octet-stream": {}}, {"base64": "no!"})
