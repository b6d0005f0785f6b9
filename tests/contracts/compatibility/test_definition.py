"""A definition is kept whole, and its three digests say which side of it moved."""

import json
from typing import Any

import msgspec
import pytest

from toolpost.base.ids import PluginName
from toolpost.contracts import Definition, judge
from toolpost.contracts.compatibility import Digests
from toolpost.contracts.contract import Keyed, ToolDefinition, contract_of
from toolpost.contracts.errors import ErrorCode

TAKES = {"type": "object", "properties": {"q": {"type": "string", "description": "what to look for"}}}


def listed(**changed: Any) -> dict[str, Any]:
    return {"name": "search", "description": "Search notes.", "inputSchema": TAKES} | changed


def test_a_listed_definition_survives_the_way_through_json() -> None:
    definition = Definition.from_listed(
        listed(
            title="Search",
            outputSchema={"type": "object"},
            annotations={"readOnlyHint": True},
            icons=[{"src": "data:"}],
            _meta={"dev.toolpost/meta": {"schemaVersion": 3, "toolingVersion": "1.2"}},
        )
    )

    assert Definition.from_json(json.loads(json.dumps(definition.to_json()))) == definition
    assert (definition.schema_version, definition.tooling_version) == (3, "1.2")
    assert definition.others == {"icons": [{"src": "data:"}]}


def test_a_contract_gives_all_that_it_promises() -> None:
    terms = ToolDefinition(
        name="search",
        description="Find notes.",
        input_schema=TAKES,
        schema_version=2,
        errors=(ErrorCode.NO_INDEX, ErrorCode.NOT_FOUND),
        timeout_s=1.5,
        aliases=("find",),
        concurrency=Keyed("q"),
    )
    definition = Definition.from_contract(contract_of(terms, plugin=PluginName("notes")))

    assert definition.name == "notes__search"
    assert definition.error_codes == ("NOT_FOUND", "NO_INDEX")
    assert (definition.timeout_ms, definition.concurrency) == (1_500, "keyed:q")
    assert definition.aliases == ("notes__find",)
    assert definition.input_schema == TAKES | {"additionalProperties": False}


@pytest.mark.parametrize(
    "facts", [7, {"schemaVersion": "x"}, {"schemaVersion": True}, {"schemaVersion": 0}, {"aliases": [1]}]
)
def test_nonsense_under_our_key_is_not_taken_over(facts: Any) -> None:
    definition = Definition.from_listed(listed(_meta={"dev.toolpost/meta": facts}))

    assert (definition.schema_version, definition.aliases) == (1, ())


def test_what_is_no_definition_is_refused_with_its_place() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"schemaVersion"):
        Definition.from_json({"name": "search", "schemaVersion": "two"})


def moved(before: Digests, after: Digests) -> set[str]:
    return {side for side in ("meaning", "schema", "wording") if getattr(before, side) != getattr(after, side)}


@pytest.mark.parametrize(
    ("changed", "sides"),
    [
        ({"description": "Searches notes."}, {"wording"}),
        ({"inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}}}, {"wording"}),
        (
            {"inputSchema": {"type": "object", "properties": {"q": {"type": "integer"}}}},
            {"meaning", "schema", "wording"},
        ),
        ({"annotations": {"readOnlyHint": True}}, {"meaning"}),
        ({"_meta": {"dev.toolpost/meta": {"schemaVersion": 2}}}, {"meaning"}),
        ({"_meta": {"dev.toolpost/meta": {"toolingVersion": "9"}}}, set()),
        ({}, set()),
    ],
)
def test_a_digest_moves_with_its_side_alone(changed: dict[str, Any], sides: set[str]) -> None:
    before = Definition.from_listed(listed()).digests

    assert moved(before, Definition.from_listed(listed(**changed)).digests) == sides


def test_a_property_that_is_called_description_is_no_wording() -> None:
    one = Definition(name="t", input_schema={"type": "object", "properties": {"description": {"type": "string"}}})
    other = Definition(name="t", input_schema={"type": "object", "properties": {"description": {"type": "integer"}}})

    assert moved(one.digests, other.digests) == {"meaning", "schema"}


def test_numbers_beyond_a_double_have_a_digest() -> None:
    huge = Definition(name="t", input_schema={"type": "object", "maxProperties": 2**63 - 1, "minProperties": 10**400})

    assert huge.digests.schema.startswith("sha256:")


def test_the_same_definition_is_judged_unchanged() -> None:
    definition = Definition.from_listed(listed())

    judgement = judge(definition, definition)

    assert (judgement.verdict, judgement.changes, judgement.needs_bump) == ("compatible", (), False)
