"""Checks of tools for what some clients reject: names, descriptions, input schemas.

The limits are those of clients and models that are stricter than MCP; docs/reference/doctor.md says whose each is.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from toolpost.base.ids import Json, JsonObject
from toolpost.cli.call.schemas import resolve
from toolpost.contracts.contract import NAME_LIMIT
from toolpost.contracts.document import declared_properties, draft_of, walk_subschemas
from toolpost.contracts.errors import ContractRefused
from toolpost.providers import ProvidedTool
from toolpost.terminal.findings import Diagnosis, Level, warning

TOOLS_LIMIT: Final = 128
DESCRIPTION_LIMIT: Final = 1_024
NESTING_LIMIT: Final = 5
PREFIX: Final = "mcp__toolpost__"
"""What some clients prepend to the name of a tool."""

_ARGUMENT: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FIRST: Final = re.compile(r"[A-Za-z_]")
_COMBINATORS: Final = ("anyOf", "oneOf", "allOf")
_DRAFTS: Final = (7, 2020)
_FORMATS: Final = frozenset(
    {
        *("date", "date-time", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6"),
        *("uri", "uri-reference", "iri", "iri-reference", "uri-template", "uuid", "json-pointer", "regex"),
        "relative-json-pointer",
    }
)


def findings_of_tools(tools: Iterable[ProvidedTool], refused: Iterable[ContractRefused]) -> Iterator[Diagnosis]:
    """Check every tool of a provider; refused ones come first."""
    for refusal in refused:
        details = refusal.details
        yield Diagnosis(
            level=Level.PROBLEM,
            check="schema-invalid",
            message=f"refused: {details.get('reason', refusal.message)}",
            hint="report it to the maintainer of the tool; the other tools are served",
            tool=str(details.get("tool", "")),
            place=str(details.get("place", "")) or None,
        )
    for tool in tools:
        for finding in _check_tool(tool):
            yield replace(finding, tool=tool.contract.terms.name)


def has_output_schema(tool: ProvidedTool) -> bool:
    return tool.contract.result_schema is not None


def _check_tool(tool: ProvidedTool) -> Iterator[Diagnosis]:
    contract = tool.contract
    yield from _check_name(tool)
    description = contract.terms.description.strip()
    if not description:
        yield warning("description-missing", "no description: a model can only guess its effect")
    elif len(description) > DESCRIPTION_LIMIT:
        yield warning(
            "description-long", f"a description of more than {DESCRIPTION_LIMIT} characters: some clients cut it"
        )
    schema = contract.definition["inputSchema"]
    if isinstance(schema, dict):
        for finding in _check_input_schema(schema):
            yield replace(finding, place=f"inputSchema{finding.place or ''}")


def _check_name(tool: ProvidedTool) -> Iterator[Diagnosis]:
    name, original = tool.contract.name, tool.contract.terms.name
    if name != f"{tool.provider}__{original}":
        yield warning("name-changed", f"listed as `{name}`, because clients do not accept its own name")
    if not _FIRST.match(name):
        yield warning(
            "name-start",
            "a name that starts with neither a letter nor `_`, which some models reject",
            hint="rename the server",
        )
    if len(PREFIX) + len(name) > NAME_LIMIT:
        yield warning(
            "name-long",
            f"a name that is longer than {NAME_LIMIT} characters with the `{PREFIX}` that some clients put before it",
            hint="choose a shorter name for the server",
        )


def _check_input_schema(schema: JsonObject) -> Iterator[Diagnosis]:
    for keyword in _COMBINATORS:
        if keyword in schema:
            yield _at(f"/{keyword}", "root-combined", f"`{keyword}` at the root, which some models reject")
    if "$ref" in schema:
        yield _at("/$ref", "root-reference", "`$ref` at the root, which some clients do not follow")
    if draft_of(schema) not in _DRAFTS:
        yield _at("/$schema", "dialect", "a `$schema` other than draft-07 and 2020-12, which some clients do not know")
    yield from _check_parts(schema)
    depth = _depth(schema, schema, {})
    if depth == math.inf:
        yield warning("recursive", "a schema that refers to itself, which some models reject")
    elif depth > NESTING_LIMIT:
        yield warning("nested-deep", f"nested more than {NESTING_LIMIT} levels deep, which some models reject")


def _check_parts(schema: JsonObject) -> Iterator[Diagnosis]:
    for part in walk_subschemas(schema):
        declared = part.schema.get("format")
        if isinstance(declared, str) and declared not in _FORMATS:
            yield _at(
                f"{part.place}/format",
                "format-unknown",
                f"the format `{declared[:40]}`, which JSON Schema does not know",
            )
        yield from _check_keywords(part.schema, part.place)
        for name, (place, _) in declared_properties(part.place, part.schema).items():
            if not _ARGUMENT.fullmatch(name):
                yield _at(place, "argument-name", f"an argument called `{name[:80]}`, a name that some models reject")


def _check_keywords(schema: JsonObject, place: str) -> Iterator[Diagnosis]:
    kind = schema.get("type")
    if isinstance(kind, list) and len(kind) > 1:
        yield _at(f"{place}/type", "type-list", "a list of types, which some models reject: `anyOf` says the same")
    if "array" in (kind if isinstance(kind, list) else [kind]) and not {"items", "prefixItems"} & schema.keys():
        yield _at(place, "array-open", "an array without a schema of its items (`items`), which some models reject")
    if isinstance(values := schema.get("enum"), list) and not all(isinstance(value, str) for value in values):
        yield _at(f"{place}/enum", "enum-mixed", "an `enum` of other values than text, which some models reject")


def _at(place: str, check: str, message: str) -> Diagnosis:
    return replace(warning(check, message), place=place)


def _depth(schema: Json, root: JsonObject, known: dict[str, float]) -> float:
    """Count the nesting of objects and arrays; infinite where a reference leads back to itself."""
    if not isinstance(schema, dict):
        return 0
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return _own_depth(schema, root, known)
    if reference not in known:
        known[reference] = math.inf
        try:
            known[reference] = _own_depth(resolve(schema, root), root, known)
        except RecursionError:
            return math.inf
    return known[reference]


def _own_depth(schema: JsonObject, root: JsonObject, known: dict[str, float]) -> float:
    inner = [1 + _depth(child, root, known) for child in _children(schema)]
    combined = [_depth(child, root, known) for keyword in _COMBINATORS for child in _listed(schema.get(keyword))]
    return max([0, *inner, *combined])


def _children(schema: JsonObject) -> Iterator[Json]:
    for keyword in ("properties", "patternProperties"):
        if isinstance(found := schema.get(keyword), dict):
            yield from found.values()
    for keyword in ("items", "additionalProperties"):
        if isinstance(found := schema.get(keyword), dict):
            yield found
    yield from _listed(schema.get("prefixItems"))


def _listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
