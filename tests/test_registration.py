"""Thousands of real definitions: those that can be held are, the others are refused by name and reason."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from toolpost import Tool
from toolpost.contracts.contract import Terms
from toolpost.discovery import Catalogue
from toolpost.endpoints.listing import Listing
from toolpost.protocol.era import MODERN
from toolpost.sources import FunctionSource

DEFINITIONS = Path(__file__).parents[2] / "shared/data/tools/toucan.jsonl"


@pytest.mark.skipif(not DEFINITIONS.exists(), reason=f"{DEFINITIONS} is not there")
def test_real_definitions_are_held_or_refused_by_name() -> None:
    servers: dict[str, list[Tool]] = {}
    for line in DEFINITIONS.read_text().splitlines():
        definition = json.loads(line)
        slug = re.sub(r"[^A-Za-z0-9-]+", "-", definition["server"]).strip("-") or "server"
        terms = Terms(
            name=definition["name"],
            description=definition.get("description") or "Not described.",
            input_schema=definition["inputSchema"],
            output_schema=definition.get("outputSchema"),
        )
        servers.setdefault(slug, []).append(Tool(terms=terms, run=_nothing, is_async=True))
    sources = [FunctionSource(name, tools) for name, tools in servers.items()]
    refused = [refusal for source in sources for refusal in source.refused]
    catalogue = Catalogue(sources)
    listing = Listing(catalogue, scope="public")
    first = listing.page(MODERN, None, request_id=b"1")
    places = Counter(str(refusal.details["place"]).split("/", maxsplit=1)[0] for refusal in refused)

    assert sum(len(tools) for tools in servers.values()) == len(catalogue) + len(refused) == 6044
    assert all(refusal.details["plugin"] and refusal.details["reason"] for refusal in refused)
    assert set(places) == {"name", "inputSchema"}
    assert places["inputSchema"] == 7
    assert listing.page(MODERN, None, request_id=b"2") is first
    assert len(json.loads(first)["tools"]) == 1000


async def _nothing(arguments: dict[str, Any], context: Any) -> None:
    return None
