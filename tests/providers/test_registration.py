"""Thousands of real definitions: those that can be held are, the others are refused by name and reason."""

import json
import re
from collections import Counter
from typing import Any

import pytest

from tests.collected import DEFINITION_SETS, load_definitions
from toolpost import Tool
from toolpost.contracts.contract import ToolDefinition
from toolpost.discovery.catalog import Catalog
from toolpost.endpoints.listing import Listing
from toolpost.protocol.era import STATELESS
from toolpost.providers import FunctionProvider


@pytest.mark.parametrize("name", DEFINITION_SETS)
def test_real_definitions_are_held_or_refused_by_name(name: str) -> None:
    servers: dict[str, list[Tool]] = {}
    definitions = load_definitions(name)
    for definition in definitions.listed:
        slug = re.sub(r"[^A-Za-z0-9-]+", "-", definition["server"]).strip("-") or "server"
        terms = ToolDefinition(
            name=definition["name"],
            description=definition.get("description") or "Not described.",
            input_schema=definition["inputSchema"],
            output_schema=definition.get("outputSchema"),
        )
        servers.setdefault(slug, []).append(Tool(terms=terms, run=_nothing, is_async=True))
    sources = [FunctionProvider(name, tools) for name, tools in servers.items()]
    refused = [refusal for source in sources for refusal in source.refused]
    catalog = Catalog(sources)
    listing = Listing(catalog, scope="public")
    first = listing.page(STATELESS, None, request_id=b"1")
    places = Counter(str(refusal.details["place"]).split("/", maxsplit=1)[0] for refusal in refused)

    assert sum(len(tools) for tools in servers.values()) == len(catalog) + len(refused)
    assert len(catalog) + len(refused) == len(definitions.listed)
    assert all(refusal.details["plugin"] and refusal.details["reason"] for refusal in refused)
    assert set(places) == {"name", "inputSchema"}
    assert places["inputSchema"] == definitions.wrong
    assert listing.page(STATELESS, None, request_id=b"2") is first
    assert len(json.loads(first)["tools"]) == min(1000, len(catalog))


async def _nothing(arguments: dict[str, Any], context: Any) -> None:
    return None
