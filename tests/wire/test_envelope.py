"""What is listed is what is sent: the official client validates every answer against the listed schema."""

import json

import pytest

from tests.plugins.shapes import USES
from tests.ways import BEHAVIOURS, SHAPES, WAYS, Way
from toolpost.testing import data_of, error_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_results_pass_a_validating_client_and_wrong_ones_are_errors(way: Way) -> None:
    async with way.client(SHAPES) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        answer = await client.call_tool("shapes__count_uses", {})
        wrong = await client.call_tool("shapes__wrong_shape", {})
        after = await client.call_tool("shapes__count_uses", {})

    assert listed["shapes__count_uses"].output_schema is not None
    assert answer.structured_content == {"ok": True, "data": USES}
    assert json.loads(answer.content[0].text) == answer.structured_content  # type: ignore[union-attr]
    assert not answer.is_error
    error = error_of(wrong)
    assert error["code"] == "OUTPUT_VALIDATION_FAILED"
    assert error["details"]["result"] == {"modles": [1, 2, 3]}
    assert {issue["path"] for issue in error["details"]["issues"]} == {"", "/modles"}
    assert data_of(after) == USES


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_plain_results_are_the_tools_own(way: Way) -> None:
    async with way.client(BEHAVIOURS) as client:
        await client.list_tools()
        good = await client.call_tool("does__plain", {"n": 1})
        bad = await client.call_tool("does__plain", {"n": 100})
        failed = await client.call_tool("does__plain", {"n": -1})
        text = await client.call_tool("does__plain_text", {})
        array = await client.call_tool("does__plain_text", {"list": True})

    assert good.structured_content == {"n": 1}
    assert bad.is_error
    assert error_of(bad)["code"] == "OUTPUT_VALIDATION_FAILED"
    assert error_of(failed) == {
        "code": "HANDLER_ERROR",
        "message": "negative",
        "details": {"exception": "ValueError"},
    }
    assert failed.structured_content is None
    assert [json.loads(block.text) for block in text.content] == ["just text"]  # type: ignore[union-attr]
    assert text.structured_content is None
    assert [block.text for block in array.content] == ["[1,2]"]  # type: ignore[union-attr]


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_blocks_come_after_the_json(way: Way) -> None:
    async with way.client(BEHAVIOURS) as client:
        answer = await client.call_tool("does__picture", {})

    assert data_of(answer) == {"width": 1}
    assert [block.type for block in answer.content] == ["text", "image"]


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_type_hints_are_the_contract(way: Way) -> None:
    good = {"parcels": [{"to": "x", "weight": 1.5}], "address": {"street": "s", "zip": "12345"}}
    async with way.client(BEHAVIOURS) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}["does__ship"]
        shipped = await client.call_tool("does__ship", good | {"speed": "fast", "insurance": 3})
        refused = await client.call_tool(
            "does__ship",
            {"parcels": [{"to": "x", "wieght": 1}], "address": {"street": "s", "zip": "1"}, "speed": "fats"},
        )

    assert listed.input_schema["additionalProperties"] is False
    assert listed.input_schema["$defs"]["Address"]["additionalProperties"] is False
    assert data_of(shipped) == {"types": ["Parcel", "Address"], "zip": "12345", "speed": "fast", "insurance": 3}
    issues = {issue["path"]: issue for issue in error_of(refused)["details"]["issues"]}
    assert issues["/parcels/0/wieght"]["suggestion"] == "did you mean `weight`?"
    assert issues["/address/zip"]["keyword"] == "pattern"
    assert "fast" in issues["/speed"]["suggestion"]
