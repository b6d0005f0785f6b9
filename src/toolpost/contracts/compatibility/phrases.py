"""How a change of a schema is said: which property, what it takes now, what it took before, and who notices."""

from toolpost.base.ids import Json
from toolpost.base.values import is_among
from toolpost.contracts.compatibility.judgement import RuleId, Verdict
from toolpost.contracts.compatibility.limits import types_of, values_of
from toolpost.contracts.compatibility.rules import RULES
from toolpost.contracts.compatibility.sides import Node
from toolpost.contracts.compatibility.walk import Difference
from toolpost.contracts.shown import as_json, cut

_WITHOUT_NUMBERS = frozenset({"integer"})


def subject(difference: Difference) -> str:
    """Return the way to the value that a difference is about, as people write it: `filter.tags[]`."""
    text = ""
    for keyword, *below in difference.steps:
        if keyword == "properties":
            text += f".{below[0]}"
        elif keyword == "items":
            text += "[]"
        elif keyword in ("additionalProperties", "patternProperties"):
            text += ".*"
    if difference.name:
        text += f".{difference.name}"
    return cut(text.removeprefix("."))


def message(prefix: str, name: str, difference: Difference, *, is_ignored: bool = False) -> str | None:
    """Say what changed in a sentence, None where the rule's own words are all there is to say."""
    what = f"`{subject(difference)}`" if subject(difference) else "the value"
    match name:
        case "required-added":
            return f"{what} has become mandatory" if prefix == "input" else f"{what} is now always there"
        case "required-dropped":
            return f"{what} has become optional" if prefix == "input" else f"{what} may be missing"
        case "argument-removed" | "field-removed":
            return f"{what} is gone" + (
                ": calls that send it are still accepted, and it is ignored" if is_ignored else ""
            )
        case "optional-added":
            return f"{what} is new and optional"
        case "unproven":
            return f"{what}: nothing proves that the change of `{difference.keyword}` is harmless"
    return _describe_limit(what, difference)


def _describe_limit(what: str, difference: Difference) -> str | None:
    old, new = difference.old, difference.new
    match difference.kind:
        case "type":
            return f"{what} is {_types(new)}, and was {_types(old)}"
        case "values":
            gone, come = _only(old, new), _only(new, old)
            parts = [
                *([f"may no longer be {_list(gone)}"] if gone else []),
                *([f"may now be {_list(come)}"] if come else []),
            ]
            return f"{what} {', and '.join(parts)}" if parts else f"{what} has another list of values"
        case "bounds" | "format":
            word = difference.keyword
            return f"{what}: `{word}` is {_value(new, word)}, and was {_value(old, word)}"
    return f"{what}: `{difference.keyword}` is not what it was" if difference.keyword else None


def _types(node: Node) -> str:
    types = types_of(node.schema)
    if "type" not in node.schema:
        return "of any type"
    shown = types - _WITHOUT_NUMBERS if "number" in types else types
    return " or ".join(sorted(shown))


def _only(one: Node, other: Node) -> list[Json]:
    some, others = values_of(one.schema, 0), values_of(other.schema, 0)
    return [value for value in (some or [])[:200] if not is_among(value, (others or [])[:200])]


def _list(values: list[Json]) -> str:
    shown = ", ".join(cut(as_json(value)) for value in values[:5])
    return shown if len(values) <= 5 else f"{shown} and {len(values) - 5} more"


def _value(node: Node, word: str) -> str:
    return cut(as_json(node.schema[word])) if word in node.schema else "not set"


def who_notices(prefix: str, name: str, difference: Difference) -> str | None:
    """Say who notices, None where nobody does."""
    if RULES[RuleId(f"{prefix}.{name}")].verdict is Verdict.COMPATIBLE:
        return None
    what = f"`{subject(difference)}`" if subject(difference) else ""
    if prefix == "output":
        return f"callers that read {what or 'the result'}"
    if name == "required-added":
        return f"callers that leave out {what}"
    return f"callers that send {what}" if what else "callers"
