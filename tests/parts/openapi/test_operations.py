"""Operations of a document: names, selection, answers, Swagger 2.0, and the reasons for those that are no tools."""

import json
import re
from typing import Any

import pytest

from tests.hostile.attacks import assert_linear, attack, thread_cpu_s
from tests.parts.openapi.fake_api import answers, describe, takes
from toolpost.parts.openapi import tools
from toolpost.parts.openapi.document import BadDocument, Document, Unusable, parse_document
from toolpost.parts.openapi.operations import find_base, find_operations
from toolpost.parts.openapi.schemas import Converter
from toolpost.parts.openapi.tools import TOOLS_LIMIT, ApiTools, OperationTool, make_tools


def document_of(raw: dict[str, Any]) -> Document:
    return parse_document(json.dumps(raw).encode(), "test")


def tools_of(*operations: dict[str, Any], **more: Any) -> ApiTools:
    options = {key: more.pop(key) for key in ("allow", "deny", "has_results", "hidden") if key in more}
    return make_tools(document_of(describe(*operations, **more)), "pets", **options)


def only(made: ApiTools) -> OperationTool:
    assert len(made.tools) == 1, made
    return made.tools[0]


def names_of(made: ApiTools) -> list[str]:
    return [tool.operation.name for tool in made.tools]


def test_names_are_ids_or_methods_and_paths_and_do_not_depend_on_others() -> None:
    unnamed = {"method": "get", "path": "/pets/{id}/toys"}
    twice = [{"method": method, "path": "/twice", "operationId": "same"} for method in ("get", "post")]
    strange = {"method": "put", "path": "/a", "operationId": "pets.list/all ünd"}
    long = {"method": "get", "path": "/b", "operationId": "x" * 100}
    made = tools_of(unnamed, *twice, strange, long)
    names = names_of(made)
    assert names[:4] == ["get_pets_id_toys", "same_get_twice", "same_post_twice", "pets_list_all__nd"]
    assert names[4] == "x" * 58
    assert names_of(tools_of(long, strange, *reversed(twice), unnamed)) == [names[i] for i in (4, 3, 1, 2, 0)]


def test_long_names_end_at_a_word_and_have_a_hash_only_if_two_would_be_the_same() -> None:
    long = "actions/list-selected-repositories-enabled-for-the-actions-of-an-organization"
    same = [{"method": "get", "path": f"/{end}", "operationId": f"{'y' * 60}_{end}"} for end in ("a", "b")]
    names = names_of(tools_of({"method": "get", "path": "/c", "operationId": long}, *same))

    assert names[0] == "actions_list-selected-repositories-enabled-for-the-actions"
    assert len({*names}) == 3
    assert all(re.fullmatch("y+_[0-9a-f]{8}", name) for name in names[1:])


def test_hints_follow_the_method() -> None:
    hints = {
        tool.operation.method: tool.terms.annotations
        for tool in tools_of(
            *({"method": m, "path": "/a"} for m in ("get", "head", "post", "put", "patch", "delete"))
        ).tools
    }
    assert hints["GET"]["readOnlyHint"] is hints["HEAD"]["readOnlyHint"] is True
    assert [hints[method].get("destructiveHint") for method in ("PUT", "PATCH", "DELETE", "POST")] == [
        True,
        True,
        True,
        None,
    ]
    assert [hints[method].get("idempotentHint") for method in ("PUT", "PATCH", "DELETE", "POST")] == [
        True,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("allow", "deny", "expected"),
    [
        (["*"], [], ["list", "add", "del", "shops"]),
        (["tag:pets"], [], ["list", "add", "del"]),
        (["tag:pets"], ["DELETE *"], ["list", "add"]),
        (["GET /*"], [], ["list", "shops"]),
        (["/shops*"], [], ["shops"]),
        (["*s*"], ["shops"], ["list"]),
        (["post /pets"], [], ["add"]),
    ],
)
def test_operations_are_selected_by_tag_path_method_and_name(
    allow: list[str], deny: list[str], expected: list[str]
) -> None:
    operations: list[dict[str, Any]] = [
        {"method": "get", "path": "/pets", "operationId": "list", "tags": ["pets"]},
        {"method": "post", "path": "/pets", "operationId": "add", "tags": ["pets"]},
        {"method": "delete", "path": "/pets/{id}", "operationId": "del", "tags": ["pets", "admin"]},
        {"method": "get", "path": "/shops", "operationId": "shops"},
    ]
    made = tools_of(*operations, allow=allow, deny=deny)
    assert names_of(made) == expected
    assert len(made.tools) + len(made.unselected) == 4


def test_arguments_have_names_that_clients_accept_and_never_collide() -> None:
    parameters = [takes("path", "id"), takes("query", "id"), takes("query", "filter[name]"), takes("query", "$top")]
    parameters += [takes("query", "body")]
    body = {"required": True, "content": {"application/json": {"schema": {"type": "string"}}}}
    operation = {"method": "post", "path": "/pets/{id}", "parameters": parameters, "requestBody": body}
    schema = only(tools_of(operation)).terms.input_schema
    assert list(schema["properties"]) == ["id_path", "id_query", "filter_name", "top", "body_query", "body"]
    assert schema["required"] == ["id_path", "body"]


def test_a_parameter_of_the_operation_replaces_that_of_the_path_and_a_forgotten_one_is_added() -> None:
    raw = describe({"method": "get", "path": "/{a}/{b}", "parameters": [takes("query", "n", {"type": "integer"})]})
    raw["paths"]["/{a}/{b}"]["parameters"] = [takes("query", "n", {"type": "string"}), takes("path", "a")]
    properties = make_tools(document_of(raw), "pets").tools[0].terms.input_schema["properties"]
    assert properties == {"n": {"type": "integer"}, "a": {"type": "string"}, "b": {"type": "string"}}


def test_a_parameter_that_may_be_empty_accepts_that() -> None:
    flag = takes("query", "flag", {"enum": ["1", "0"]}, allowEmptyValue=True)
    schema = only(tools_of({"method": "get", "path": "/a", "parameters": [flag]})).terms.input_schema
    assert schema["properties"] == {"flag": {"anyOf": [{"enum": ["1", "0"]}, {"const": ""}]}}


def test_answers_become_output_schemas() -> None:
    pet = {"type": "object", "properties": {"name": {"type": "string"}}}
    plain = only(tools_of({"method": "get", "path": "/a", "responses": answers(pet)}))
    assert (plain.terms.output_schema, plain.is_wrapped) == (pet, False)
    listed = only(tools_of({"method": "get", "path": "/a", "responses": answers({"type": "array", "items": pet})}))
    assert listed.is_wrapped
    assert listed.terms.output_schema is not None
    assert listed.terms.output_schema["required"] == ["result"]
    both = only(tools_of({"method": "get", "path": "/a", "responses": {**answers(pet), "204": {"description": "-"}}}))
    assert both.terms.output_schema is not None
    assert both.terms.output_schema["properties"]["result"]["anyOf"][1] == {"type": "null"}
    csv = {"200": {"description": "-", "content": {"text/csv": {}}}}
    assert only(tools_of({"method": "get", "path": "/a", "responses": csv})).terms.output_schema is None
    off = tools_of({"method": "get", "path": "/a", "responses": answers(pet)}, has_results=False)
    assert only(off).terms.output_schema is None


def test_what_cannot_be_a_tool_has_a_reason() -> None:
    def refers(reference: str) -> dict[str, Any]:
        return {"requestBody": {"content": {"application/json": {"schema": {"$ref": reference}}}}}

    operations = [
        {"method": "post", "path": "/external", **refers("common.yaml#/Pet")},
        {"method": "post", "path": "/url", **refers("https://evil.example/x.json#/Pet")},
        {"method": "post", "path": "/file", **refers("file:///etc/passwd")},
        {"method": "post", "path": "/nowhere", **refers("#/components/schemas/None")},
        {"method": "post", "path": "/anchor", **refers("#pet")},
        {"method": "get", "path": "/elsewhere", "servers": [{"url": "https://other.example"}]},
        {"method": "get", "path": "/style", "parameters": [takes("header", "a", style="form")]},
        {"method": "get", "path": "/place", "parameters": [takes("body", "a")]},
        {"method": "get", "path": "/header", "parameters": [takes("header", "a b")]},
        {"method": "get", "path": "/fine"},
    ]
    made = tools_of(*operations)
    assert names_of(made) == ["get_fine"]
    reasons = {omission.path: omission.reason for omission in made.omitted}
    assert len(reasons) == 9
    assert all("another document" in reasons[path] for path in ("/external", "/url", "/file"))
    assert "leads nowhere" in reasons["/nowhere"]
    assert "server of its own" in reasons["/elsewhere"]


def converted(schema: dict[str, Any], direction: Any = "request", **schemas: Any) -> dict[str, Any]:
    converter = Converter(document_of(describe(components={"schemas": schemas})), direction)
    return converter.complete(converter.convert(schema), 32_000)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"enum": ["a"], "type": "string", "nullable": True}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, {"type": "integer", "exclusiveMinimum": 1}),
        ({"type": "int"}, {"type": "integer"}),
        ({"type": "anything"}, {}),
        ({"type": "string", "minLength": "3", "pattern": "(?<=a)b", "enum": []}, {"type": "string"}),
        ({"enum": ["a", "a"], "example": "a", "xml": {}, "x-own": 1}, {"enum": ["a"]}),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"type": "object"}, {"type": "object", "additionalProperties": True}),
        ({"type": "string", "required": True}, {"type": "string"}),
    ],
)
def test_schemas_are_converted(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert converted(schema) == expected


def test_read_only_is_not_asked_for_and_write_only_not_promised() -> None:
    properties = {"id": {"readOnly": True}, "key": {"writeOnly": True}, "name": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["id", "key", "name"]}
    asked, promised = converted(schema), converted(schema, "answer")
    assert (list(asked["properties"]), asked["required"]) == (["key", "name"], ["key", "name"])
    assert (list(promised["properties"]), promised["required"]) == (["id", "name"], ["id", "name"])
    referring = {"type": "object", "properties": {"id": {"$ref": "#/components/schemas/Id"}}, "required": ["id"]}
    assert converted(referring, Id={"type": "string", "readOnly": True}) == {"type": "object", "properties": {}}


def test_recursive_schemas_are_kept_and_cycles_in_place_are_cut() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}}}
    assert converted({"$ref": "#/components/schemas/Node"}, Node=node) == {
        "$ref": "#/$defs/Node",
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
    }
    pet = {"oneOf": [{"$ref": "#/components/schemas/Cat"}], "discriminator": {"propertyName": "kind"}}
    cat = {"allOf": [{"$ref": "#/components/schemas/Pet"}, {"type": "object"}]}
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}}
    components = {"schemas": {"Pet": pet, "Cat": cat}}
    made = tools_of({"method": "post", "path": "/a", "requestBody": body}, components=components)
    definitions = only(made).terms.input_schema["$defs"]
    assert definitions["Pet"] == {"anyOf": [{"$ref": "#/$defs/Cat"}]}
    assert definitions["Cat"] == {"allOf": [{}, {"type": "object", "additionalProperties": True}]}


def test_a_schema_stays_within_its_size() -> None:
    schemas = {
        f"S{number}": {
            "type": "object",
            "properties": {"next": {"$ref": f"#/components/schemas/S{number + 1}"}, "x" * 99: {}},
        }
        for number in range(400)
    }
    found = converted({"$ref": "#/components/schemas/S0"}, "answer", S400={}, **schemas)
    assert 10_000 < len(json.dumps(found)) < 40_000
    assert {} in found["$defs"].values()


def test_swagger_is_read_as_openapi() -> None:
    raw = {
        "swagger": "2.0",
        "info": {"title": "Old"},
        "host": "old.example",
        "basePath": "/v1",
        "schemes": ["http", "https"],
        "consumes": ["application/json"],
        "securityDefinitions": {"basic": {"type": "basic"}},
        "paths": {
            "/pets": {
                "get": {
                    "parameters": [
                        {
                            "in": "query",
                            "name": "ids",
                            "type": "array",
                            "items": {"type": "integer"},
                            "collectionFormat": "pipes",
                        }
                    ],
                    "responses": {"200": {"schema": {"$ref": "#/definitions/Pet"}}},
                },
                "post": {
                    "parameters": [
                        {"in": "body", "name": "pet", "required": True, "schema": {"$ref": "#/definitions/Pet"}}
                    ]
                },
                "put": {
                    "parameters": [
                        {"in": "formData", "name": "photo", "type": "file", "required": True},
                        {"in": "formData", "name": "name", "type": "string"},
                    ]
                },
            }
        },
        "definitions": {"Pet": {"type": "object", "properties": {"name": {"type": "string", "x-nullable": True}}}},
    }
    document = document_of(raw)
    found = find_operations(document, "old")
    get, put, post = found.usable
    assert (get.parameters[0].style, get.parameters[0].explode) == ("pipeDelimited", False)
    assert (post.body and post.body.kind, put.body and put.body.kind) == ("json", "multipart")
    assert found.schemes == {"basic": {"type": "http", "scheme": "basic"}}
    assert find_base(document, None) == "https://old.example/v1"
    made = make_tools(document, "old")
    assert made.tools[0].terms.output_schema == {
        "$ref": "#/$defs/Pet",
        "$defs": {"Pet": {"type": "object", "properties": {"name": {"type": ["string", "null"]}}}},
    }
    assert made.tools[1].terms.input_schema["properties"]["body"]["properties"]["photo"]["anyOf"]


def test_yaml_means_what_version_1_2_says() -> None:
    text = b"""
openapi: 3.0.0
info: {title: Norway, version: 2020-01-01}
paths:
  /a:
    get:
      parameters:
        - {in: query, name: country, schema: {enum: [no, on, yes, 0o10, 012, 1e3, 12:30, true, ~]}}
      responses: {200: {description: fine}}
"""
    document = parse_document(text, "test")
    assert document.raw["info"]["version"] == "2020-01-01"
    operation = document.raw["paths"]["/a"]["get"]
    assert operation["parameters"][0]["schema"]["enum"] == ["no", "on", "yes", 8, 12, 1000.0, "12:30", True, None]
    assert list(operation["responses"]) == ["200"]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"hello",
        b"{",
        b"openapi: 4.0.0\npaths: {}",
        b"openapi: 3.0.0\npaths: []",
        b"a: &a [*a]",
        b"\xff\xfe\x00",
        b"!!python/object:os.x {}",
    ],
)
def test_what_is_no_document_is_refused(text: bytes) -> None:
    with pytest.raises(BadDocument):
        parse_document(text, "test")


def test_references_that_lead_to_themselves_end() -> None:
    raw = describe(components={"parameters": {"a": {"$ref": "#/components/parameters/a"}}})
    with pytest.raises(Unusable, match="leads to itself"):
        document_of(raw).follow({"$ref": "#/components/parameters/a"})


def test_the_base_is_that_of_the_document_and_relative_to_its_url() -> None:
    variables = {"region": {"default": "eu"}}
    document = document_of(describe(servers=[{"url": "https://{region}.example/v1/", "variables": variables}]))
    assert find_base(document, None) == "https://eu.example/v1"
    assert (
        find_base(document_of(describe(servers=[{"url": "/v2"}])), "https://a.example/docs/api.json")
        == "https://a.example/v2"
    )
    assert find_base(document_of(describe()), None) is None
    assert find_base(document_of(describe(servers=[{"url": "file:///etc"}])), None) is None


def make_many(count: int) -> Document:
    return document_of(describe(*({"method": "get", "path": f"/things/{number}"} for number in range(count))))


@attack(
    "repository",
    "describes an API with tens of thousands of operations",
    "the time to make tools grows with their number and no faster; 20,000 become tools, as of a server",
)
def test_the_cost_of_a_document_grows_with_its_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the contracts, which take most of the time, and one as long as the other.
    monkeypatch.setattr(tools, "_make_tool", lambda operation, *_: operation)

    def cost_s(count: int) -> float:
        document = make_many(count)
        return thread_cpu_s(lambda: make_tools(document, "things", deny=["/things/*9"]))

    assert_linear(cost_s, small=500)


def test_an_api_has_as_many_tools_as_a_server_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    document = make_many(12)
    assert vars(tools)["TOOLS_LIMIT"] == TOOLS_LIMIT == 20_000
    monkeypatch.setattr(tools, "TOOLS_LIMIT", 10)
    made = make_tools(document, "things")
    fewer = make_tools(document, "things", deny=["/things/1*"])

    assert [tool.operation.path for tool in made.tools] == [f"/things/{number}" for number in range(10)]
    (omission,) = made.omitted
    assert omission.reason == (
        "the last 2 of 12 operations: an API has at most 10 tools; select operations with `allow` and `deny`"
    )
    assert (len(fewer.tools), fewer.omitted) == (9, [])
