"""What is listed is exactly what is enforced, for any schema and any arguments."""

from typing import Any

import anyio
import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.ways import ENVELOPE, IN_MEMORY
from toolpost import Plugin
from toolpost.app import open_app
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.endpoints.duplex import ClientConnection

NAMES = ["name", "size", "mode", "tags", "where", "Ünïcode", "a/b", "x~y"]
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-20, 20),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "a", "abc", "2026-07-28", "x@example.com", "fast", "slow", "7", "ü"]),
    st.text(max_size=6),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=8,
)


def _number(draw: Any, kind: str) -> dict[str, Any]:
    bounds = {"minimum": st.integers(-5, 3), "maximum": st.integers(0, 9), "multipleOf": st.integers(1, 4)}
    chosen = draw(st.sets(st.sampled_from(sorted(bounds)), max_size=2))
    return {"type": kind} | {key: draw(bounds[key]) for key in sorted(chosen)}


@st.composite
def schemas(draw: Any, depth: int = 2) -> dict[str, Any]:
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "any", "ref"]
    kind = draw(st.sampled_from(kinds + (["object", "array", "anyOf", "oneOf", "allOf"] if depth else [])))
    match kind:
        case "string":
            extra = draw(
                st.sampled_from([{}, {"minLength": 1}, {"maxLength": 2}, {"pattern": "^a"}, {"format": "date"}])
            )
            return {"type": "string", **extra}
        case "integer" | "number":
            return _number(draw, kind)
        case "enum":
            return {"enum": draw(st.lists(SCALARS, min_size=1, max_size=3))}
        case "any":
            return {}
        case "ref":
            return {"$ref": "#/$defs/shared"}
        case "object":
            nested: dict[str, Any] = draw(objects(depth=depth - 1))
            return nested
        case "array":
            return {"type": "array", "items": draw(schemas(depth=depth - 1)), "maxItems": 2}
        case "anyOf" | "oneOf" | "allOf":
            return {kind: draw(st.lists(schemas(depth=depth - 1), min_size=1, max_size=3))}
    return {"type": kind}


@st.composite
def objects(draw: Any, depth: int = 2) -> dict[str, Any]:
    properties = draw(st.dictionaries(st.sampled_from(NAMES), schemas(depth=depth), max_size=3))
    made: dict[str, Any] = {"type": "object", "properties": properties}
    if properties:
        made["required"] = draw(st.lists(st.sampled_from(sorted(properties)), unique=True, max_size=2))
    extra: dict[str, Any] = draw(
        st.sampled_from([{}, {}, {"additionalProperties": True}, {"additionalProperties": False}])
    )
    return made | extra


@st.composite
def roots(draw: Any) -> dict[str, Any]:
    return draw(objects()) | {"$defs": {"shared": draw(schemas(depth=1).filter(lambda s: "$ref" not in str(s)))}}  # type: ignore[no-any-return]


@st.composite
def schemas_with_arguments(draw: Any) -> tuple[dict[str, Any], list[Any]]:
    """Pair a schema with arguments that have a fair chance of fitting it."""
    schema = draw(roots())
    known = sorted(schema["properties"]) or NAMES[:1]
    names = st.sampled_from(known) | st.sampled_from(NAMES)
    return schema, draw(st.lists(st.dictionaries(names, VALUES, max_size=4), min_size=1, max_size=6))


async def accepted_by_toolpost(schema: dict[str, Any], cases: list[Any]) -> tuple[dict[str, Any], list[bool]]:
    """Register the schema, list it, call the tool with every case, all through a connection's own bytes."""
    plugin = Plugin("p")
    plugin.tool(name="t", description="Do nothing.", input_schema=schema)(_nothing)
    answers: dict[int, Any] = {}

    def send(raw: bytes) -> None:
        message = msgspec.json.decode(raw)
        answers[message["id"]] = message["result"]

    async def messages() -> Any:
        yield _request(0, "tools/list", {})
        for number, case in enumerate(cases, 1):
            yield _request(number, "tools/call", {"name": "p__t", "arguments": case})

    async with open_app(IN_MEMORY, plugins=[plugin], bundled=False) as app:
        caller = Caller(id=CallerId("local"), transport="memory")
        await ClientConnection(app.call_handler, app.sdk, caller=caller, send=send).serve(messages(), grace_s=5)
    listed = answers[0]["tools"][0]["inputSchema"]
    return listed, [not answers[number]["isError"] for number in range(1, len(cases) + 1)]


async def _nothing(arguments: dict[str, Any]) -> None:
    return None


def _request(number: int, method: str, params: dict[str, Any]) -> bytes:
    return msgspec.json.encode(
        {"jsonrpc": "2.0", "id": number, "method": method, "params": params | {"_meta": ENVELOPE}}
    )


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas_with_arguments())
def test_the_pipeline_accepts_exactly_what_the_listed_schema_accepts(pair: tuple[dict[str, Any], list[Any]]) -> None:
    schema, cases = pair
    listed, accepted = anyio.run(accepted_by_toolpost, schema, cases)
    judge = jsonschema.Draft202012Validator(listed, format_checker=jsonschema.FormatChecker(["date"]))
    expected = [judge.is_valid(case) for case in cases]
    event(f"accepted: {any(expected)}")

    assert accepted == expected


@pytest.mark.parametrize("declared", ["string", "number", "integer", "boolean", "anything"])
@pytest.mark.parametrize("value", ["x", 1, 1.5, True, None, [1], {"a": 1}], ids=str)
def test_the_small_mapping_is_a_special_case(declared: str, value: Any) -> None:
    """The mapping of a harness that knew four types: the rest is anything; not required means optional."""
    schema = {"type": "object", "properties": {"x": {} if declared == "anything" else {"type": declared}}}
    _, accepted = anyio.run(accepted_by_toolpost, schema, [{"x": value}, {}])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    expected = {
        "string": isinstance(value, str),
        "number": is_number,
        "integer": is_number and float(value).is_integer(),
        "boolean": isinstance(value, bool),
        "anything": True,
    }[declared]

    assert accepted == [expected, True]


@pytest.mark.parametrize("schema", [{"type": "object"}, {"type": "object", "properties": {}}])
def test_no_properties_means_takes_nothing(schema: dict[str, Any]) -> None:
    _, accepted = anyio.run(accepted_by_toolpost, schema, [{}, {"x": 1}])

    assert accepted == [True, False]
