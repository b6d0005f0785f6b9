"""The form that the console makes of a JSON Schema, in a browser and without a gateway.

Arguments cross into the browser as JSON text, so that numbers arrive as they are written.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route

from toolpost.contracts.issues import find_issues
from toolpost.contracts.schema import compile_schema

pytestmark = [pytest.mark.wire, pytest.mark.soak]

PAGES = Path(__file__).parents[2] / "src/toolpost/parts/console/pages"
ORIGIN = "http://form.test"
SCRIPT = """async ([schema, text, steps]) => {
    const exact = await import("/exact.js");
    const { Form, walk } = await import("/form.js");
    const { repair } = await import("/repair.js");
    const { rows } = await import("/schema.js");
    const form = new Form(exact.parse(schema));
    let value = text === null ? form.start() : exact.parse(text);
    const at = (pointer) => [...walk(form.describe(value))].find((field) => field.pointer === pointer);
    for (const [name, ...given] of steps) {
        if (name === "repair") value = repair(value, given[0]);
        else value = form[name](value, at(given[0]), ...given.slice(1));
        if (value === undefined) return { text: null };
    }
    const plain = (field) => {
        const { schema, formSchemas, added, value, ...rest } = field;
        const chosen = rest.chosen && plain(rest.chosen);
        return { ...rest, fields: rest.fields?.map(plain), items: rest.items?.map(plain), chosen };
    };
    const tree = form.describe(value);
    const pointers = [...walk(tree)].map((each) => each.pointer);
    return { text: exact.stringify(value, 0), tree: plain(tree), rows: rows(exact.parse(schema)), pointers };
}"""


@pytest.fixture(scope="module")
def modules(browser: Browser) -> Iterator[Page]:
    """Open a page that has the console's modules, and nothing else."""
    page = browser.new_page()

    def answer(route: Route) -> None:
        name = route.request.url.removeprefix(f"{ORIGIN}/")
        if name.endswith(".js"):
            route.fulfill(body=(PAGES / name).read_text(), content_type="text/javascript")
        else:
            route.fulfill(body="<title>form</title>", content_type="text/html")

    page.route(f"{ORIGIN}/**", answer)
    page.goto(f"{ORIGIN}/")
    yield page
    page.close()


class Filled:
    """A form after some steps."""

    def __init__(self, page: Page, schema: Any, text: str | None, *steps: list[Any]) -> None:
        found = page.evaluate(SCRIPT, [schema if isinstance(schema, str) else json.dumps(schema), text, list(steps)])
        self.text: str | None = found["text"]
        self.rows: list[dict[str, Any]] = found.get("rows", [])
        self.pointers: list[str] = found.get("pointers", [])
        self.tree: dict[str, Any] = found.get("tree", {})

    @property
    def value(self) -> Any:
        return json.loads(self.text or "null")

    def field(self, pointer: str) -> dict[str, Any]:
        """Return the innermost field at a pointer: the chosen form of a choice."""

        def walk(field: dict[str, Any]) -> Iterator[dict[str, Any]]:
            yield field
            for each in [
                *(field.get("fields") or []),
                *(field.get("items") or []),
                *filter(None, [field.get("chosen")]),
            ]:
                yield from walk(each)

        return next(field for field in walk(self.tree) if field["pointer"] == pointer)


EVERYTHING = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "kind", "inner"],
    "properties": {
        "name": {"type": "string", "minLength": 1, "description": "What it is called."},
        "kind": {"const": "report"},
        "color": {"enum": ["red", "green", 3, None]},
        "size": {"oneOf": [{"const": 1, "title": "small"}, {"const": 2, "title": "large"}]},
        "count": {"type": "integer", "minimum": 1, "default": 5},
        "ratio": {"type": "number"},
        "is_open": {"type": "boolean"},
        "day": {"type": "string", "format": "date"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "either": {"type": ["integer", "string"]},
        "inner": {"type": "object", "required": ["deep"], "properties": {"deep": {"$ref": "#/$defs/deep"}}},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
        "labels": {"type": "object", "additionalProperties": {"type": "integer"}},
        "tree": {"$ref": "#/$defs/node"},
        "any": {},
        "password": {"type": "string", "writeOnly": True},
        "mixed": {
            "allOf": [
                {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
                {"properties": {"b": {"type": "number", "minimum": 2}, "a": {"maxLength": 9}}},
            ]
        },
    },
    "$defs": {
        "deep": {
            "type": "object",
            "required": ["mode"],
            "properties": {"mode": {"const": "fast"}, "level": {"type": "integer"}},
        },
        "node": {
            "type": "object",
            "title": "A node",
            "properties": {
                "label": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
        },
    },
}


def test_every_kind_of_schema_has_its_field(modules: Page) -> None:
    filled = Filled(modules, EVERYTHING, None)
    # What is known before anybody has typed: required constants, and the objects around them.
    assert filled.value == {"kind": "report", "inner": {"deep": {"mode": "fast"}}}
    kinds = {field["name"]: field["kind"] for field in filled.tree["fields"]}
    assert kinds == {
        "name": "string",
        "kind": "const",
        "color": "enum",
        "size": "enum",
        "count": "integer",
        "ratio": "number",
        "is_open": "boolean",
        "day": "string",
        "note": "choice",
        "either": "choice",
        "inner": "object",
        "tags": "array",
        "pair": "array",
        "labels": "object",
        "tree": "object",
        "any": "json",
        "password": "string",
        "mixed": "object",
    }
    assert filled.field("/inner/deep/level")["kind"] == "integer"
    assert [option["label"] for option in filled.field("/size")["options"]] == ["small", "large"]
    assert [option["label"] for option in filled.field("/color")["options"]] == ["red", "green", "3", "null"]
    assert filled.field("/note")["forms"] == ["text", "null"]
    assert filled.field("/day")["format"] == "date"
    assert filled.field("/count")["limits"] == ["at least 1"]
    assert filled.field("/password")["isSecret"]
    assert filled.field("/name")["isRequired"]
    assert not filled.tree["canAdd"]
    # A recursive schema ends where its value does.
    assert "/tree/children" not in filled.pointers


def test_edits_change_only_what_they_name(modules: Page) -> None:
    filled = Filled(
        modules,
        EVERYTHING,
        None,
        ["type", "/name", "first"],
        ["type", "/count", "12345678901234567890123"],
        ["type", "/ratio", "1.50"],
        ["set", "/is_open", True],
        ["add", "/tags"],
        ["addItem", "/tags"],
        ["type", "/tags/0", "a"],
        ["addItem", "/tags"],
        ["type", "/tags/1", "b"],
        ["moveItem", "/tags", 0, 1],
        ["add", "/tree"],
        ["add", "/tree/children"],
        ["addItem", "/tree/children"],
        ["type", "/tree/children/0/label", "leaf"],
        ["add", "/labels"],
        ["addProperty", "/labels", "__proto__"],
        ["type", "/labels/__proto__", "7"],
        ["add", "/mixed"],
        ["type", "/mixed/b", "3"],
        ["type", "/name", "second"],
    )
    # Numbers as they were typed: neither rounded nor shortened.
    assert filled.text is not None
    assert '"count":12345678901234567890123' in filled.text
    assert '"ratio":1.50' in filled.text
    assert filled.value["tags"] == ["b", "a"]
    assert filled.value["tree"] == {"children": [{"label": "leaf"}]}
    assert filled.value["labels"] == {"__proto__": 7}
    assert filled.value["mixed"] == {"b": 3}
    assert filled.value["name"] == "second"
    assert not filled.field("/tags")["canAdd"], "there may be two"
    assert filled.field("/tree/children/0/children")["kind"] == "array"
    assert find_issues(compile_schema(EVERYTHING, root_object=True), filled.value | {"mixed": {"a": "x", "b": 3}}) == []


def test_what_a_form_cannot_show_stays_in_the_json(modules: Page) -> None:
    text = (
        '{"name":{"not":"a text"},"unknown":[1,{"2":3.00}],"kind":"other","count":"many","tags":"x",'
        '"inner":{"deep":[]},"pair":[1,"a",true]}'
    )
    filled = Filled(modules, EVERYTHING, text, ["type", "/day", "2026-01-31"], ["type", "/day", ""])
    assert filled.text == text
    kinds = {
        pointer: filled.field(pointer)["kind"] for pointer in ("/name", "/unknown", "/tags", "/inner/deep", "/pair/2")
    }
    assert kinds == dict.fromkeys(kinds, "json")
    assert filled.field("/unknown")["isExtra"]
    # Text in a field for numbers is what somebody is typing.
    assert filled.field("/count")["kind"] == "integer"
    assert Filled(modules, EVERYTHING, text, ["leaveOut", "/unknown"]).value.keys() == json.loads(text).keys() - {
        "unknown"
    }


SHAPES = {
    "type": "object",
    "required": ["shape"],
    "properties": {
        "shape": {
            "required": ["id"],
            "properties": {"id": {"type": "string"}},
            "oneOf": [
                {"$ref": "#/$defs/circle"},
                {"$ref": "#/$defs/square"},
                {"type": "object", "title": "By name", "properties": {"name": {"type": "string"}}},
            ],
        }
    },
    "$defs": {
        "circle": {
            "type": "object",
            "required": ["type", "radius"],
            "properties": {"type": {"const": "circle"}, "radius": {"type": "number"}},
        },
        "square": {
            "type": "object",
            "required": ["type", "side"],
            "properties": {"type": {"const": "square"}, "side": {"type": "number"}},
        },
    },
}


def test_a_choice_shows_the_form_that_fits(modules: Page) -> None:
    labels = Filled(modules, SHAPES, "{}").field("/shape")["forms"]
    assert labels == ['type: "circle"', 'type: "square"', "By name"]
    square = Filled(modules, SHAPES, '{"shape":{"type":"square","id":"x"}}')
    assert square.field("/shape")["selected"] == 1
    assert [field["name"] for field in square.field("/shape")["chosen"]["fields"]] == ["id", "type", "side"]
    # What both forms know is kept, the constant is the new form's, and what only the old form knew is gone.
    switched = Filled(modules, SHAPES, '{"shape":{"type":"square","id":"x","side":3,"more":1}}', ["pick", "/shape", 0])
    assert switched.value == {"shape": {"type": "circle", "id": "x", "more": 1}}
    assert switched.field("/shape")["selected"] == 0
    picked = Filled(modules, SHAPES, '{"shape":{"id":"x"}}', ["pick", "/shape", 2])
    assert picked.field("/shape")["selected"] == 2, "what was picked stays, though other forms fit as well"
    nullable = {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}
    assert Filled(modules, nullable, "{}", ["pick", "/a", 1]).text == '{"a":null}'
    assert Filled(modules, nullable, '{"a":null}').field("/a")["selected"] == 1
    null_first = {"type": "object", "properties": {"a": {"anyOf": [{"type": "null"}, {"type": "string"}]}}}
    assert Filled(modules, null_first, "{}").field("/a")["selected"] == 1, "what can be typed into is offered first"


def test_a_condition_adds_its_fields(modules: Page) -> None:
    schema = {
        "type": "object",
        "properties": {"how": {"enum": ["mail", "post"]}},
        "if": {"properties": {"how": {"const": "mail"}}, "required": ["how"]},
        "then": {"properties": {"address": {"type": "string", "format": "email"}}, "required": ["address"]},
        "else": {"properties": {"street": {"type": "string"}}},
    }
    assert set(Filled(modules, schema, '{"how":"mail"}').pointers) == {"", "/how", "/address"}
    assert set(Filled(modules, schema, '{"how":"post"}').pointers) == {"", "/how", "/street"}


HOSTILE = {
    "a condition on itself": {"if": {"$ref": "#"}, "then": {"$ref": "#"}, "type": "object"},
    "a reference to itself": {"$ref": "#"},
    "all of itself": {"type": "object", "allOf": [{"$ref": "#"}, {"$ref": "#/allOf/0"}]},
    "a choice of itself": {
        "type": "object",
        "properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}, {"$ref": "#/properties/a"}]}},
    },
    "doubling": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/0"}},
        "$defs": {str(at): {"allOf": [{"$ref": f"#/$defs/{at + 1}"}] * 2} for at in range(40)},
    },
    "keywords of wrong types": {
        "type": "object",
        "properties": {"a": {"enum": 3, "items": 4, "required": "x", "oneOf": {}, "pattern": "("}},
    },
    "another document": {"type": "object", "properties": {"a": {"$ref": "https://example.com/schema"}}},
}


@pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE)
def test_a_schema_of_a_stranger_ends(modules: Page, schema: dict[str, Any]) -> None:
    for text in ('{"a":{"a":1},"b":2}', "{}"):
        assert Filled(modules, schema, text).text == text


# For each sentence that the gateway suggests: a schema of one property and a value that has it suggested.
SUGGESTIONS: list[tuple[dict[str, Any], str]] = [
    ({"type": "integer"}, '"80"'),
    ({"type": "boolean"}, '"yes"'),
    ({"type": "object"}, '"{\\"a\\": 1}"'),
    ({"type": "array"}, '"[1]"'),
    ({"type": "string"}, '["x"]'),
    ({"type": "string"}, "12345678901234567890"),
    ({"type": "boolean"}, "1"),
    ({"type": "integer"}, "3.7"),
    ({"type": "array", "items": {"type": "string"}}, '"x"'),
    ({"type": "string"}, "null"),
    ({"enum": ["light", "dark"]}, '"drak"'),
    ({"enum": ["light", "dark"]}, '["dark"]'),
    ({"enum": [1, 2]}, '"2"'),
    ({"enum": ["1", "2"]}, "2"),
    ({"const": "dark"}, '"darkk"'),
    ({"type": "array", "uniqueItems": True}, "[1, 2, 1]"),
    ({"type": "string", "format": "date-time"}, '"2026-01-31"'),
    ({"type": "string", "format": "date-time"}, '"2026-01-31 10:00"'),
    ({"type": "string", "format": "date"}, '"2026-01-31T10:00:00Z"'),
    ({"type": "string", "format": "uri"}, '"example.com/a"'),
    ({"type": "string", "format": "uuid"}, '"x"'),
    ({"not": {}, "x-reserved": True}, "1"),
]


@pytest.mark.parametrize(("part", "text"), SUGGESTIONS)
def test_one_click_repairs_what_the_gateway_suggests(modules: Page, part: dict[str, Any], text: str) -> None:
    schema = {"type": "object", "additionalProperties": False, "properties": {"it": part}}
    compiled = compile_schema(schema, root_object=True)
    (issue,) = find_issues(compiled, json.loads(f'{{"it": {text}}}'))
    assert issue.suggestion is not None, issue
    repaired = Filled(modules, schema, f'{{"it": {text}}}', ["repair", issue.as_object()])
    assert repaired.text is not None, issue
    assert find_issues(compiled, repaired.value) == []
    if text.isdigit() and len(text) > 15:
        assert repaired.value == {"it": text}, "no digit is lost"


def test_one_click_renames_a_property(modules: Page) -> None:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": ["timezone"],
        "properties": {"timezone": {"type": "string"}, "country": {"type": "string"}},
    }
    compiled = compile_schema(schema, root_object=True)
    for text in ('{"timezon": "UTC"}', '{"timezone": "UTC", "contry": "x"}'):
        issues = find_issues(compiled, json.loads(text))
        for issue in issues:
            repaired = Filled(modules, schema, text, ["repair", issue.as_object()])
            assert find_issues(compiled, repaired.value) == [], issue
    # Never over a value that is there.
    taken = {
        "path": "/contry",
        "keyword": "additionalProperties",
        "message": "",
        "suggestion": "did you mean `country`?",
    }
    assert Filled(modules, schema, '{"contry": 1, "country": 2}', ["repair", taken]).text is None


def test_issues_are_shown_at_their_fields(modules: Page) -> None:
    value = {"name": "x", "kind": "report", "inner": {}, "tags": [1], "unknown": 1, "note": 3}
    issues = [issue.as_object() for issue in find_issues(compile_schema(EVERYTHING, root_object=True), value)]
    found = modules.evaluate(
        """async ([schema, value, issues]) => {
            const { Form } = await import("/form.js");
            const { placeIssues } = await import("/repair.js");
            const placed = placeIssues(issues, new Form(schema).describe(value));
            return Object.fromEntries([...placed].map(([pointer, each]) => [pointer, each.map((issue) => issue.message)]));
        }""",
        [EVERYTHING, value, issues],
    )
    assert set(found) == {"/inner/deep", "/tags/0", "/unknown", "/note"}, found


def test_a_contract_as_rows(modules: Page) -> None:
    rows = {row["path"]: row for row in Filled(modules, EVERYTHING, "{}").rows}
    assert rows["name"]["isRequired"]
    assert rows["name"]["description"] == "What it is called."
    assert rows["tags"]["type"] == "list of text"
    assert rows["note"]["type"] == "text or null"
    assert rows["inner.deep.mode"]["type"] == '"fast"'
    assert rows["tree.children[]"]["again"] == "#/$defs/node"
    assert rows["labels.*"]["type"] == "whole number"
    assert [row["option"] for row in Filled(modules, SHAPES, "{}").rows if row["path"] == "shape.type"] == [
        'type: "circle"',
        'type: "square"',
    ]
