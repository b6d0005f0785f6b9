"""Real documents, from outside: all become tools, and arguments made for 50 of them are what the documents ask for."""

import time
import tracemalloc
from pathlib import Path

import pytest

from tests.collected import SHARED
from tests.parts.openapi.round_trip import PRISM, PrismRefuses, round_trip
from toolpost.parts.openapi.document import parse_document
from toolpost.parts.openapi.operations import METHODS
from toolpost.parts.openapi.tools import make_tools

FOLDER = SHARED / "openapi"
DOCUMENTS = sorted(FOLDER.glob("*.yaml"))
ROUND_TRIPS = 50

pytestmark = [pytest.mark.soak, pytest.mark.outside(FOLDER)]


@pytest.mark.timeout(900)
def test_every_operation_becomes_a_tool_or_has_a_reason() -> None:
    operations = tools = omitted = 0
    for path in DOCUMENTS:
        document = parse_document(path.read_bytes(), path.name)
        described = sum(
            method in item
            for name, item in document.raw["paths"].items()
            if name.startswith("/") and isinstance(item, dict)
            for method in METHODS
        )
        made = make_tools(document, "api")
        assert len(made.tools) + len(made.omitted) == described, path.name
        assert len({tool.operation.name for tool in made.tools}) == len(made.tools), path.name
        operations, tools, omitted = operations + described, tools + len(made.tools), omitted + len(made.omitted)
    print(f"{len(DOCUMENTS)} documents, {operations} operations: {tools} tools, {omitted} with a reason")
    assert tools >= 0.99 * operations


@pytest.mark.timeout(300)
def test_the_largest_document_is_read_within_seconds_and_little_memory() -> None:
    path = max(DOCUMENTS, key=lambda each: each.stat().st_size)
    data = path.read_bytes()
    started = time.process_time()
    document = parse_document(data, path.name)
    parsed = time.process_time()
    made = make_tools(document, "api")
    done = time.process_time()
    tracemalloc.start()
    kept = make_tools(parse_document(data, path.name), "api")
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(
        f"{path.name}, {len(data):,} bytes: parsed in {parsed - started:.2f} s, {len(made.tools)} tools in {done - parsed:.2f} s,"
        f" {held / 1e6:.0f} MB held, {peak / 1e6:.0f} MB at the peak"
    )
    assert len(kept.tools) == len(made.tools)
    assert done - started < 20
    assert peak < 300e6


def _choose() -> list[Path]:
    """Return documents of version 3, the small ones first: a mock of a large one takes a minute to start."""
    return sorted((path for path in DOCUMENTS if path.stem.endswith("openapi")), key=lambda path: path.stat().st_size)


@pytest.mark.anyio
@pytest.mark.timeout(3_600)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not PRISM.exists(), reason="prism is not here: scripts/node-clients gets it")
async def test_arguments_reach_a_mock_as_the_document_says() -> None:
    pytest.importorskip("schemathesis", reason="schemathesis is not installed: pip install schemathesis")
    done = accepted = 0
    differing: list[str] = []
    for path in _choose():
        try:
            outcomes, told = await round_trip(path)
        except PrismRefuses:
            continue
        if outcomes["accepted"] + outcomes["refused alike"] + outcomes["differ"]:
            done += 1
        accepted += outcomes["accepted"]
        differing += [f"{path.name}: {each}" for each in told]
        if done == ROUND_TRIPS:
            break
    print(f"{done} documents, {accepted} requests accepted, {len(differing)} differ")
    assert done == ROUND_TRIPS
    assert differing == []
