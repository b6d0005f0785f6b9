"""What each kind of error says. Whatever is not here says that its keyword was broken."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from toolpost.base.ids import Json
from toolpost.base.values import ABSENT
from toolpost.contracts.branches import constants_of
from toolpost.contracts.document import is_reserved
from toolpost.contracts.schema import ValidationErrorKind as Kind
from toolpost.contracts.shown import as_json, cut, shorten, shorten_list, summary, with_article
from toolpost.contracts.spots import Spot
from toolpost.contracts.suggestions import EXAMPLES, near_option, suggest_format, suggest_type


@dataclass(frozen=True)
class Said:
    """The words for one spot. `keyword` is given when it is not the one that the validator names."""

    message: str
    expected: Json = ABSENT
    suggestion: str | None = None
    keyword: str | None = None


def wording_of(spot: Spot) -> Said:
    """Find the words for one spot."""
    if spot.joined is not None:
        return _options(spot, spot.joined)
    say = _WORDS.get(type(spot.kind))
    return say(spot) if say else Said(f"{spot.where} breaks `{spot.keyword}`")


def _type(spot: Spot) -> Said:
    assert isinstance(spot.kind, Kind.Type)
    named = spot.schema.get("type")
    types = named if isinstance(named, list) else spot.kind.types
    expected = " or ".join(types)
    return Said(f"{spot.where} must be {with_article(expected)}", expected, suggest_type(spot, types))


def _constant(spot: Spot) -> Said:
    options = constants_of(spot.kind)
    shown = shorten(options[0])
    return Said(f"{spot.where} must be {cut(as_json(shown))}", shown, near_option(spot, options))


def _enum(spot: Spot) -> Said:
    return _options(spot, constants_of(spot.kind))


def _options(spot: Spot, options: list[Json]) -> Said:
    shown = shorten_list(options)
    listed = ", ".join(as_json(option) for option in shown)
    return Said(f"{spot.where} must be one of {cut(listed)}", shown, near_option(spot, options), keyword="enum")


def _format(spot: Spot) -> Said:
    assert isinstance(spot.kind, Kind.Format)
    name = spot.kind.format
    expected = f"{name}, such as {EXAMPLES[name]}" if name in EXAMPLES else name
    return Said(f"{spot.where} must be in the form `{name}`", expected, suggest_format(spot, name))


def _pattern(spot: Spot) -> Said:
    assert isinstance(spot.kind, Kind.Pattern)
    pattern = cut(spot.kind.pattern)
    return Said(f"{spot.where} must match the pattern `{pattern}`", pattern)


def _amount(words: str) -> Callable[[Spot], Said]:
    def say(spot: Spot) -> Said:
        limit = shorten(getattr(spot.kind, "limit", getattr(spot.kind, "multiple_of", None)))
        return Said(f"{spot.where} must be {words} {limit}", f"{words} {limit}")

    return say


def _length(words: str, one: str, many: str) -> Callable[[Spot], Said]:
    def say(spot: Spot) -> Said:
        limit = shorten(getattr(spot.kind, "limit", None))
        expected = f"{words} {limit} {one if limit == 1 else many}"
        return Said(f"{spot.where} must have {expected}, and has {len(spot.value)}", expected)

    return say


def _unique_items(spot: Spot) -> Said:
    seen: dict[str, int] = {}
    for number, item in enumerate(spot.value):
        first = seen.setdefault(json.dumps(item, sort_keys=True, default=repr), number)
        if first != number:
            message = f"{spot.where} must not repeat an item: {first} and {number} are the same"
            return Said(message, "unique items", f"remove item {number}")
    return Said(f"{spot.where} must not repeat an item", "unique items")


def _too_many_items(spot: Spot) -> Said:
    return Said(f"{spot.where} has more items than are described", suggestion="remove the last ones")


def _contains(spot: Spot) -> Said:
    least, most = spot.schema.get("minContains", 1), spot.schema.get("maxContains")
    bounds = f"at least {least}" if most is None else f"at least {least} and at most {most}"
    expected = f"{bounds} of: {summary(spot.schema.get('contains'))}"
    return Said(f"{spot.where} must hold {expected}", expected)


def _property_name(spot: Spot) -> Said:
    assert isinstance(spot.kind, Kind.PropertyNames)
    name, inner = cut(str(spot.kind.error.instance)), spot.kind.error.kind
    expected = f"names that match `{cut(inner.pattern)}`" if isinstance(inner, Kind.Pattern) else ABSENT
    return Said(f"`{name}` is not a name that a property of {spot.where} may have", expected)


def _not(spot: Spot) -> Said:
    if is_reserved(spot.schema):
        return _reserved_wording(spot)
    expected = f"anything but {summary(spot.schema.get('not'))}"
    return Said(f"{spot.where} must be {expected}", expected)


def _reserved_wording(spot: Spot) -> Said:
    name = cut(str(spot.path[-1])) if spot.path else "the value"
    return Said(f"`{name}` is reserved and must not be set", suggestion="leave it out", keyword="x-reserved")


def _false(spot: Spot) -> Said:
    if spot.steps[-2:-1] == ("properties",):
        return _reserved_wording(spot)
    return Said(f"{spot.where} must not be there", suggestion="leave it out" if spot.path else None)


def _many_forms(spot: Spot) -> Said:
    message = f"{spot.where} fits more than one of the forms, and must fit exactly one"
    return Said(message, "exactly one form", "add what tells them apart, or leave out what belongs to the other")


_WORDS: dict[type[Kind], Callable[[Spot], Said]] = {
    Kind.AdditionalItems: _too_many_items,
    Kind.Constant: _constant,
    Kind.Contains: _contains,
    Kind.Enum: _enum,
    Kind.ExclusiveMaximum: _amount("less than"),
    Kind.ExclusiveMinimum: _amount("more than"),
    Kind.FalseSchema: _false,
    Kind.Format: _format,
    Kind.MaxItems: _length("at most", "item", "items"),
    Kind.MaxLength: _length("at most", "character", "characters"),
    Kind.MaxProperties: _length("at most", "property", "properties"),
    Kind.Maximum: _amount("at most"),
    Kind.MinItems: _length("at least", "item", "items"),
    Kind.MinLength: _length("at least", "character", "characters"),
    Kind.MinProperties: _length("at least", "property", "properties"),
    Kind.Minimum: _amount("at least"),
    Kind.MultipleOf: _amount("a multiple of"),
    Kind.Not: _not,
    Kind.OneOfMultipleValid: _many_forms,
    Kind.Pattern: _pattern,
    Kind.PropertyNames: _property_name,
    Kind.Type: _type,
    Kind.UnevaluatedItems: _too_many_items,
    Kind.UniqueItems: _unique_items,
}
