"""Definitions to mutate: a few of our own, and beside them the collected real ones where they are at hand."""

import functools
import json
import random
from typing import Any

from tests.collected import TOUCAN
from toolpost.contracts.schema import SchemaProblem, compile_schema


def schemas(count: int, rng: random.Random) -> list[dict[str, Any]]:
    """Return input schemas that compile: our own, and a sample of the real ones."""
    usable = _usable()
    # A mutation chooses its place by chance: a few definitions are given many times.
    return rng.choices(usable, k=count) if len(usable) <= count else [*OWN, *rng.sample(usable, count - len(OWN))]


@functools.cache
def _usable() -> list[dict[str, Any]]:
    found = [json.loads(line)["inputSchema"] for line in TOUCAN.read_text().splitlines()] if TOUCAN.exists() else []
    found += OWN
    return [schema for schema in found if _compiles(schema)]


def _compiles(schema: Any) -> bool:
    try:
        compile_schema(schema, root_object=False)
    except SchemaProblem:
        return False
    return isinstance(schema, dict)


OWN: list[dict[str, Any]] = [
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for", "minLength": 1},
            "limit": {"type": "integer", "description": "How many", "default": 10, "minimum": 1, "maximum": 100},
            "sort": {"type": "string", "enum": ["asc", "desc"], "default": "asc"},
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "title": "createIssueArguments",
        "properties": {
            "owner": {"type": "string", "title": "Owner"},
            "labels": {"type": "array", "items": {"type": "string"}, "title": "Labels"},
            "assignee": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "weight": {"type": "number"},
            "page": {"type": "integer"},
            "draft": {"type": "boolean", "default": False},
        },
        "required": ["owner"],
    },
    {
        "type": "object",
        "properties": {
            "filter": {
                "type": "object",
                "properties": {
                    "field": {"type": "string"}, "value": {"type": "number", "minimum": 0}, "extra": {"type": "object"},
                },
                "required": ["field"],
            },
            "since": {"type": "string", "format": "date-time"},
            "points": {"type": "array", "items": {"$ref": "#/$defs/Point"}},
        },
        "required": [],
        "$defs": {
            "Point": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}, "required": ["x"]},
        },
    },
    {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": ["a", "b", "c"]},
            "count": {"type": "integer"},
            "code": {"type": "string", "pattern": "^[A-Z]{2}$"},
        },
        "required": ["kind", "count"],
        "anyOf": [{"required": ["kind"]}, {"required": ["count"]}],
    },
    {"type": "object", "properties": {}},
]  # fmt: skip
