"""Every rule is met by a change, and its verdict, its place and its example hold."""

import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from toolpost.contracts import RULES, Change, Definition, Verdict, judge
from toolpost.contracts.compatibility.projection import close_arguments, open_results
from toolpost.contracts.document import resolve_pointer
from toolpost.contracts.schema import compile_schema

TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 1}


def of(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required]}


def takes(*required: str, **properties: Any) -> dict[str, Any]:
    return {"inputSchema": of(*required, **properties)}


def gives(*required: str, **properties: Any) -> dict[str, Any]:
    return {"outputSchema": of(*required, **properties)}


def tool(**said: Any) -> Definition:
    return Definition.from_json({"name": "notes__search", "inputSchema": of(q=TEXT)} | said)


HARD = {"allOf": [{"anyOf": [of(f"a{n}{m}", **{f"a{n}{m}": {"minLength": n}}) for m in range(4)]} for n in range(9)]}
FORM = {"type": "string", "pattern": r"^\p{L}{4}$"}
LOOSE = FORM | {"pattern": r"^\p{L}{2,}$"}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "input.required-added": (takes(q=TEXT), takes("q", q=TEXT), "/inputSchema/properties/q"),
    "input.argument-removed": (takes(q=TEXT, n=COUNT), takes(q=TEXT), "/inputSchema/properties/n"),
    "input.type-narrowed": (takes(q={"type": ["string", "null"]}), takes(q=TEXT), "/inputSchema/properties/q/type"),
    "input.values-removed": (takes(q={"enum": ["a", "b"]}), takes(q={"enum": ["b"]}), "/inputSchema/properties/q/enum"),
    "input.bounds-narrowed": (takes(n=COUNT), takes(n=COUNT | {"maximum": 9}), "/inputSchema/properties/n/maximum"),
    "input.format-narrowed": (takes(q=TEXT), takes(q=TEXT | {"format": "date"}), "/inputSchema/properties/q/format"),
    "input.narrowed": (takes(q=TEXT), takes(q=TEXT | {"not": {"const": ""}}), "/inputSchema/properties/q/not"),
    "input.unproven": (takes(q=FORM), takes(q=LOOSE), "/inputSchema/properties/q/pattern"),
    "input.default-changed": (takes(n={"default": 1}), takes(n={"default": 2}), "/inputSchema/properties/n/default"),
    "input.default-removed": (takes(n={"default": 1}), takes(n={}), "/inputSchema/properties/n"),
    "input.default-added": (takes(n={}), takes(n={"default": 1}), "/inputSchema/properties/n/default"),
    "input.optional-added": (takes(q=TEXT), takes(q=TEXT, n=COUNT), "/inputSchema/properties/n"),
    "input.required-dropped": (takes("q", q=TEXT), takes(q=TEXT), "/inputSchema/required"),
    "input.widened": (takes(q=TEXT), takes(q={"type": ["string", "null"]}), "/inputSchema/properties/q/type"),
    "input.rewritten": (takes(q=TEXT), takes(q={"anyOf": [TEXT]}), "/inputSchema"),
    "output.field-removed": (gives(x=TEXT, y=TEXT), gives(x=TEXT), "/outputSchema/properties/y"),
    "output.required-dropped": (gives("x", x=TEXT), gives(x=TEXT), "/outputSchema/required"),
    "output.type-widened": (gives(x=TEXT), gives(x={"type": ["string", "null"]}), "/outputSchema/properties/x/type"),
    "output.values-added": (gives(x={"enum": [1]}), gives(x={"enum": [1, 2]}), "/outputSchema/properties/x/enum"),
    "output.bounds-widened": (gives(n=COUNT), gives(n=COUNT | {"minimum": 0}), "/outputSchema/properties/n/minimum"),
    "output.format-widened": (gives(x=TEXT | {"format": "date"}), gives(x=TEXT), "/outputSchema/properties/x"),
    "output.widened": (gives(x=TEXT | {"not": {"const": ""}}), gives(x=TEXT), "/outputSchema/properties/x"),
    "output.unproven": (
        gives(x=LOOSE),
        gives(x=FORM),
        "/outputSchema/properties/x/pattern",
    ),
    "output.format-changed": ({}, {"resultFormat": "text"}, "/resultFormat"),
    "output.schema-removed": (gives(x=TEXT), {}, "/outputSchema"),
    "output.schema-added": ({}, gives(x=TEXT), "/outputSchema"),
    "output.required-added": (gives(x=TEXT), gives("y", x=TEXT, y=TEXT), "/outputSchema/properties/y"),
    "output.optional-added": (gives(x=TEXT), gives(x=TEXT, y=TEXT), "/outputSchema/properties/y"),
    "output.narrowed": (gives(x={"enum": [1, 2]}), gives(x={"enum": [1]}), "/outputSchema/properties/x/enum"),
    "output.rewritten": (gives(x=TEXT), gives(x={"allOf": [TEXT]}), "/outputSchema"),
    "tool.renamed": ({"name": "notes__search"}, {"name": "notes__find"}, "/name"),
    "tool.renamed-with-alias": ({}, {"name": "notes__find", "aliases": ["notes__search"]}, "/name"),
    "tool.alias-removed": ({"aliases": ["a", "b"]}, {"aliases": ["a"]}, "/aliases"),
    "tool.alias-added": ({"aliases": ["a"]}, {"aliases": ["a", "b"]}, "/aliases"),
    "tool.app-changed": ({"_meta": {"ui": {"visibility": ["app"]}}}, {"_meta": {"ui": {}}}, "/_meta/ui"),
    "tool.field-changed": ({"others": {"icons": []}}, {"others": {"icons": [{"src": "x"}]}}, "/icons"),
    "wording.title-changed": ({"title": "Search"}, {"title": "Find"}, "/title"),
    "wording.description-changed": ({"description": "Search."}, {"description": "Find."}, "/description"),
    "wording.schema-text-changed": (
        takes(q=TEXT | {"description": "a"}),
        takes(q=TEXT | {"description": "b"}),
        "/inputSchema/properties/q/description",
    ),
    "wording.note-changed": (takes(q={}), takes(q={"examples": [1]}), "/inputSchema/properties/q/examples"),
    "wording.deprecated": (takes(q={}), takes(q={"deprecated": True}), "/inputSchema/properties/q/deprecated"),
    "annotations.weakened": ({"annotations": {"readOnlyHint": True}}, {}, "/annotations/readOnlyHint"),
    "annotations.strengthened": ({}, {"annotations": {"destructiveHint": False}}, "/annotations/destructiveHint"),
    "annotations.changed": ({}, {"annotations": {"audience": ["user"]}}, "/annotations/audience"),
    "errors.code-added": ({}, {"errorCodes": ["NO_INDEX"]}, "/errorCodes"),
    "errors.code-removed": ({"errorCodes": ["NO_INDEX"]}, {}, "/errorCodes"),
    "limits.timeout-shortened": ({"timeoutMs": 2_000}, {"timeoutMs": 1_000}, "/timeoutMs"),
    "limits.timeout-lengthened": ({"timeoutMs": 1_000}, {"timeoutMs": 2_000}, "/timeoutMs"),
    "limits.cancellation-changed": ({}, {"cancellation": "finishes the row"}, "/cancellation"),
    "limits.concurrency-changed": ({}, {"concurrency": "serial"}, "/concurrency"),
    "version.lowered": ({"schemaVersion": 3}, {"schemaVersion": 2}, "/schemaVersion"),
    "version.raised": ({"schemaVersion": 2}, {"schemaVersion": 3}, "/schemaVersion"),
    "version.tooling-changed": ({"toolingVersion": "1"}, {"toolingVersion": "2"}, "/toolingVersion"),
    "budget.spent": (takes(q=HARD), takes(q=HARD | {"minProperties": 1}), ""),
}
SILENT = {"input.unproven", "output.unproven", "output.format-changed", "output.schema-removed"}
"""Breaking, and there is no value to show it by."""


def test_every_rule_has_a_case() -> None:
    assert CASES.keys() == RULES.keys()


@pytest.mark.parametrize("name", CASES)
def test_a_rule_is_met_where_it_should_be(name: str) -> None:
    before, after, place = CASES[name]
    old, new = tool(**before), tool(**after)

    judgement = judge(old, new)
    (change,) = [change for change in judgement.changes if change.rule == name]

    rule = RULES[change.rule]
    assert (change.place, change.verdict, change.needs_bump) == (place, rule.verdict, rule.needs_bump)
    assert change.message
    assert judgement.verdict.weight >= change.verdict.weight
    assert change.verdict is not Verdict.BREAKING or change.affected or name in {"input.unproven", "version.lowered"}
    listed = resolve_pointer(new.to_json() | new.others, place), resolve_pointer(old.to_json() | old.others, place)
    assert any(found is not None for found in listed) or place.startswith("/annotations")
    check_example(change, old, new)


def check_example(change: Change, old: Definition, new: Definition) -> None:
    """Hold an example to the real validator; a break of a schema has one."""
    is_of_schema = change.rule.startswith(("input.", "output.")) and "default" not in change.rule
    if change.verdict is not Verdict.BREAKING or not is_of_schema or change.rule in SILENT:
        assert change.example is msgspec.UNSET
        return
    if change.rule.startswith("input."):
        one, other = old.input_schema, new.input_schema
        taken, refused = close_arguments(one, other), close_arguments(other, one)
    else:
        taken, refused = new.output_schema, open_results(old.output_schema)
    assert compile_schema(taken, root_object=False).is_valid(change.example)
    assert not compile_schema(refused, root_object=False).is_valid(change.example)


@pytest.mark.parametrize(
    ("old", "new", "verdict", "needs_bump"),
    [
        # The bump rules of the specification, one by one.
        (takes(q=TEXT), takes("n", q=TEXT, n=COUNT), "breaking", True),
        (takes(q=TEXT), takes(q={"type": "integer"}), "breaking", True),
        (takes(n={"default": 1}), takes(n={"default": 2}), "breaking", True),
        (gives(x=TEXT), gives("y", x=TEXT, y=TEXT), "compatible", True),
        (gives("x", x=TEXT), gives(), "breaking", True),
        (gives("x", x=TEXT), gives("z", z=TEXT), "breaking", True),
        ({"errorCodes": ["A"]}, {"errorCodes": ["B"]}, "breaking", True),
        ({"timeoutMs": 1}, {"timeoutMs": 2}, "compatible", True),
        ({"cancellation": "a"}, {"cancellation": "b"}, "breaking", True),
        ({"description": "a"}, {"description": "b"}, "review", False),
        (takes(q=TEXT), takes(q=TEXT, n=COUNT | {"description": "New."}), "compatible", False),
        (gives(x=TEXT), gives(x=TEXT, y=TEXT), "compatible", False),
        # A rename with an alias is a deprecation, under a version of its own; without one it is a break.
        ({}, {"name": "notes__find", "aliases": ["notes__search"]}, "compatible", True),
        ({}, {"name": "notes__find"}, "breaking", True),
        # A result is read as open, even one that was closed.
        (
            {"outputSchema": of(x=TEXT) | {"additionalProperties": False}},
            {"outputSchema": of(x=TEXT, y=TEXT) | {"additionalProperties": False}},
            "compatible",
            False,
        ),
        # An argument of an open schema that is declared no more is gone, though a validator still lets it pass.
        (
            {"inputSchema": of(q=TEXT, n=COUNT) | {"additionalProperties": True}},
            {"inputSchema": of(q=TEXT) | {"additionalProperties": True}},
            "breaking",
            True,
        ),
        # What is required and not declared is a promise too.
        (
            {"inputSchema": of("message", q=TEXT)},
            {"inputSchema": of("message", q=TEXT | {"maxLength": 9})},
            "breaking",
            True,
        ),
        # True is not 1.
        (takes(q={"enum": [1]}), takes(q={"enum": [True]}), "breaking", True),
        (takes(q={"enum": [1]}), takes(q={"enum": [1.0]}), "compatible", False),
        # Another draft, and the same meaning; then another meaning.
        (
            {"inputSchema": of(q=TEXT) | {"$schema": "http://json-schema.org/draft-07/schema#"}},
            {"inputSchema": of(q=TEXT)},
            "compatible",
            False,
        ),
        (
            {"inputSchema": of(q={"format": "uuid"}) | {"$schema": "http://json-schema.org/draft-07/schema#"}},
            {"inputSchema": of(q={"format": "uuid"})},
            "breaking",
            True,
        ),
    ],
)
def test_what_a_change_means(old: dict[str, Any], new: dict[str, Any], verdict: str, needs_bump: bool) -> None:
    judgement = judge(tool(**old), tool(**new))

    assert (judgement.verdict, judgement.needs_bump, judgement.is_cut_short) == (verdict, needs_bump, False)


def test_bounds_of_draft_4_are_judged_where_no_draft_is_named() -> None:
    inclusive, exclusive = (
        Definition.from_listed({"name": "t"} | takes(n={"minimum": 1, "exclusiveMinimum": is_exclusive}))
        for is_exclusive in (False, True)
    )
    narrowed = judge(inclusive, exclusive)

    assert judge(exclusive, inclusive).verdict == "compatible"
    assert [(change.rule, change.example) for change in narrowed.changes] == [("input.bounds-narrowed", {"n": 1})]


def test_the_gravest_change_comes_first_and_decides() -> None:
    judgement = judge(tool(description="a"), tool(description="b", inputSchema=of("q", q=TEXT, n=COUNT)))

    assert [change.verdict for change in judgement.changes] == ["breaking", "review", "compatible"]
    assert judgement.verdict is Verdict.BREAKING


def test_wording_is_told_word_by_word() -> None:
    (change,) = judge(tool(description="Search the notes."), tool(description="Search all the notes.")).changes

    assert change.words == (("=", "Search "), ("+", "all "), ("=", "the notes."))


def test_recursion_is_followed_and_ends() -> None:
    def tree(**more: Any) -> dict[str, Any]:
        node = of("name", name=TEXT, children={"type": "array", "items": {"$ref": "#/$defs/Node"}}, **more)
        return {"inputSchema": of(tree={"$ref": "#/$defs/Node"}) | {"$defs": {"Node": node}}}

    wider = judge(tool(**tree()), tool(**tree(note=TEXT)))
    narrower = judge(tool(**tree(note=TEXT)), tool(**tree(note={"type": "integer"})))

    assert (wider.verdict, wider.is_cut_short) == ("compatible", False)
    assert [change.place for change in narrower.changes] == ["/inputSchema/$defs/Node/properties/note/type"]
    assert narrower.changes[0].example == {"tree": {"name": "text", "note": "text"}}


def test_a_judgement_is_written_as_json() -> None:
    written = judge(tool(inputSchema=of(q=TEXT)), tool(inputSchema=of("q", q=TEXT))).to_json()

    assert (written["verdict"], written["needsBump"], written["isCutShort"]) == ("breaking", True, False)
    assert written["changes"][0] == {
        "rule": "input.required-added",
        "verdict": "breaking",
        "place": "/inputSchema/properties/q",
        "message": "`q` has become mandatory",
        "needsBump": True,
        "affected": "callers that leave out `q`",
        "example": {},
        "old": TEXT,
        "new": TEXT,
    }


CODE = {"type": "string", "pattern": "^(?:[0-9]{4}-){3}[0-9]{4}$"}
KEY = {"type": "string", "pattern": "^sk_(live|test)_[A-Za-z0-9]{24}$", "minLength": 32}
LINK = {"type": "string", "format": "uri"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (of("key", key=KEY, q=TEXT), of("key", "q", key=KEY, q=TEXT)),
        (of("key", key=KEY, q=TEXT), of("key", key=KEY)),
        (of("key", key=KEY, n=COUNT), of("key", key=KEY, n=COUNT | {"maximum": 9})),
        (of(code=CODE), of(code=CODE | {"pattern": "^[0-8]{4}(-[0-8]{4}){3}$"})),
        (of(o=of("code", code=CODE, q={"enum": ["a", "b"]})), of(o=of("code", code=CODE, q={"enum": ["b"]}))),
        (of(q=TEXT), of(q=TEXT | {"maxLength": 5_000})),
        (of(q=LINK), of(q=LINK | {"maxLength": 500})),
        (of(q=CODE), of(q=CODE | {"maxLength": 10})),
        (of(q={"type": "array", "items": CODE}), of(q={"type": "array", "items": CODE, "maxItems": 2})),
        (of(q={"patternProperties": {"^x-[0-9]{3}$": {}}}), of(q={"patternProperties": {"^x-[0-9]{3}$": TEXT}})),
    ],
)
def test_a_breaking_change_of_arguments_has_an_example(old: dict[str, Any], new: dict[str, Any]) -> None:
    judgement = judge(Definition(name="t", input_schema=old), Definition(name="t", input_schema=new))

    (change,) = [change for change in judgement.changes if change.verdict is Verdict.BREAKING]
    assert compile_schema(close_arguments(old), root_object=False).is_valid(change.example)
    assert not compile_schema(close_arguments(new), root_object=False).is_valid(change.example)


@pytest.mark.parametrize("is_open", [True, False])
def test_an_argument_that_is_gone_is_ignored_or_refused_and_that_is_said(is_open: bool) -> None:
    closer: dict[str, Any] = {} if is_open else {"additionalProperties": False}
    old, new = of(a=TEXT, b=TEXT), of(a=TEXT) | closer

    (change,) = judge(Definition(name="t", input_schema=old), Definition(name="t", input_schema=new)).changes

    assert change.rule == "input.argument-removed"
    assert change.example == {"b": "text"}
    assert ("it is ignored" in change.message) == is_open
    assert compile_schema(new, root_object=False).is_valid(change.example) == is_open


@pytest.mark.wire
def test_a_judgement_is_the_same_in_every_process() -> None:
    """The order of a set differs from process to process, and must not choose an example or the order of the changes."""
    old = tool(**takes(q=TEXT), **gives(x=TEXT, y=TEXT))
    new = tool(inputSchema=of(*"abcdefgh", q=TEXT), **gives(x=TEXT))
    program = (
        "import sys, msgspec; from toolpost.contracts import Definition, judge;"
        "pair = [Definition.from_json(one) for one in msgspec.json.decode(sys.stdin.buffer.read())];"
        "sys.stdout.buffer.write(msgspec.json.encode(judge(*pair).to_json()))"
    )
    judgements = {
        subprocess.run(
            [sys.executable, "-c", program],
            input=msgspec.json.encode([old.to_json(), new.to_json()]),
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for seed in ("1", "2", "3", "4")
    }

    assert len(judgements) == 1
