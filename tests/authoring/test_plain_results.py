"""A plain tool's result has a contract, also where MCP cannot list it."""

from typing import Any, Literal

import msgspec
import pytest

from tests.ways import BOTH, IN_MEMORY, QUICK_WAYS, Way
from toolpost import Plugin
from toolpost.app import open_app
from toolpost.base.ids import META_KEY
from toolpost.contracts.compatibility import Definition, judge
from toolpost.contracts.contract import Contract
from toolpost.contracts.lockfile import LockedTool, lock_text, parse_lock
from toolpost.testing import error_of, open_test_app

pytestmark = pytest.mark.anyio


def plugin_returning(hint: Any, value: Any = None) -> Plugin:
    plugin = Plugin("p", style="plain")

    async def tell() -> Any:
        """Tell something."""
        return value

    tell.__annotations__["return"] = hint
    plugin.tool(tell)
    return plugin


async def contract_returning(hint: Any) -> Contract:
    async with open_test_app(plugin_returning(hint), config=IN_MEMORY) as app:
        return app.gateway.catalog.find("p__tell").contract


SCHEMAS: list[tuple[Any, dict[str, Any]]] = [
    (str, {"type": "string"}),
    (int, {"type": "integer"}),
    (list[str], {"items": {"type": "string"}, "type": "array"}),
    (Literal["a", "b"], {"enum": ["a", "b"], "type": "string"}),
    (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
]


@pytest.mark.parametrize(("hint", "schema"), SCHEMAS, ids=str)
async def test_it_is_in_meta_and_in_the_lock(hint: Any, schema: dict[str, Any]) -> None:
    contract = await contract_returning(hint)
    locked = Definition.from_contract(contract)
    text = lock_text({"p__tell": LockedTool.of("p", locked)})

    assert "outputSchema" not in contract.definition
    assert contract.definition["_meta"][META_KEY]["resultSchema"] == schema
    assert locked.output_schema == schema
    assert parse_lock(text, name="toolpost.lock")["p__tell"].definition == locked
    assert Definition.from_listed(contract.definition).output_schema == schema


@pytest.mark.parametrize(
    ("old", "new", "rules"),
    [
        (str, int, ["output.type-widened", "output.format-changed"]),
        (int, str, ["output.type-widened", "output.format-changed"]),
        (list[str], list[int], ["output.type-widened"]),
        (int, int | str, ["output.type-widened"]),
    ],
    ids=str,
)
async def test_a_change_of_it_is_breaking(old: Any, new: Any, rules: list[str]) -> None:
    one, other = [Definition.from_contract(await contract_returning(hint)) for hint in (old, new)]
    judgement = judge(one, other)

    assert judgement.verdict.value == "breaking"
    assert set(rules) <= {change.rule for change in judgement.changes}


async def test_a_lock_from_before_texts_is_a_change() -> None:
    now = Definition.from_contract(await contract_returning(str))
    before = msgspec.structs.replace(now, output_schema=None, result_format=None)
    judgement = judge(before, now)

    assert judgement.verdict.value == "breaking"
    assert {change.rule for change in judgement.changes} == {"output.format-changed", "output.schema-added"}


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
@pytest.mark.parametrize(
    ("hint", "value", "text"),
    [
        (str, 'say "hi"\n', 'say "hi"\n'),
        (str, "", ""),
        (str, "17", "17"),
        (int, 17, "17"),
        (list[str], ["a"], '["a"]'),
        (str | None, "a", '"a"'),
        (Any, "a", '"a"'),
    ],
    ids=str,
)
async def test_a_string_is_answered_as_it_is_and_all_else_as_json(way: Way, hint: Any, value: Any, text: str) -> None:
    async with open_test_app(plugin_returning(hint, value), config=IN_MEMORY) as app, way.client_of(app) as client:
        answer = await client.call_tool("p__tell", {})

    assert not answer.is_error
    assert [block.text for block in answer.content if block.type == "text"] == [text]
    assert answer.structured_content is None


@pytest.mark.parametrize(("hint", "value"), [(str, 5), (int, "x"), (list[str], [1]), (Literal["a"], "b")], ids=str)
async def test_a_result_that_breaks_it_is_refused(hint: Any, value: Any) -> None:
    async with (
        open_test_app(plugin_returning(hint, value), config=IN_MEMORY) as app,
        QUICK_WAYS[0].client_of(app) as client,
    ):
        refused = error_of(await client.call_tool("p__tell", {}))

    assert refused["code"] == "OUTPUT_VALIDATION_FAILED"
    assert refused["details"]["result"] == value


async def test_every_bundled_tool_answers_json() -> None:
    async with open_app(BOTH) as app:
        contracts = [tool.contract for tool in app.gateway.catalog]

    assert len(contracts) > 30
    assert [contract.name for contract in contracts if contract.answers_text] == []
