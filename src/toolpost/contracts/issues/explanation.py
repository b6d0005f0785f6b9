"""The wording of each kind of validation error, and `Explainer`, which words all errors of one value.

Most errors are worded one by one (`describe`), with a repair for the mistakes that models make most often: a quoted number, JSON
in a string, a near miss in a list of values. Two kinds need the whole value: unknown and missing properties of one object are
matched with each other ("rename `nmae` to `name`"), and a choice where no branch comes nearest lists all its forms.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from toolpost.base import REDACTED, Json, JsonObject
from toolpost.base.nearest import correct_spelling, match_names
from toolpost.base.values import ABSENT, Path, is_among, is_of_type, type_of, value_at
from toolpost.contracts.display import (
    LIST_LIMIT,
    TEXT_LIMIT,
    add_article,
    shorten,
    shorten_list,
    summarize_schema,
    to_json_text,
    truncate,
)
from toolpost.contracts.document import SchemaDocument, declared_properties, is_reserved
from toolpost.contracts.issues.location import BranchSelector, LeafError, Location, fixed_values_of_error, locate
from toolpost.contracts.schema import Schema, ValidationError
from toolpost.contracts.schema import ValidationErrorKind as Kind

EXAMPLES = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "duration": "PT1H30M",
    "email": "name@example.com",
    "hostname": "example.com",
    "idn-email": "name@example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "iri": "https://example.com/",
    "json-pointer": "/a/b",
    "regex": "^[a-z]+$",
    "time": "12:00:00Z",
    "uri": "https://example.com/",
    "uri-reference": "/path",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}
"""An example of each format."""

_JSON_LIMIT = 100_000
_BOOLEAN_WORDS = {"true": True, "false": False, "yes": True, "no": False}

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DATE_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)(Z|[+-]\d\d:?\d\d)?")
_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)+(?:[/:?#]\S*)?")


def suggest_type(location: Location, types: Sequence[str]) -> str | None:
    """Suggest how to send a value as one of these types; None if nothing is known to help."""
    value = location.value
    if value is None:
        return _suggest_omission(location)
    if isinstance(value, str) and (suggestion := _suggest_unquoting(location, types)):
        return suggestion
    if isinstance(value, list) and len(value) == 1 and is_of_type(value[0], types):
        return f"send {location.quote(value[0]) or 'the item'} itself, not an array"
    if isinstance(value, bool | int | float) and (suggestion := _suggest_from_number(location, types)):
        return suggestion
    if "array" in types:
        shown = location.quote(value)
        return f"wrap it in an array: [{shown}]" if shown else "wrap it in an array"
    return None


def _suggest_omission(location: Location) -> str | None:
    return "leave it out" if location.is_optional else None


def _suggest_unquoting(location: Location, types: Sequence[str]) -> str | None:
    parsed = _parse_json(location.value)
    if parsed is ABSENT or isinstance(parsed, str) or not is_of_type(parsed, types):
        return None
    if isinstance(parsed, dict | list):
        return f"send the {type_of(parsed)} itself, not a string that holds JSON"
    return f"send {location.quote(parsed) or 'it'} without quotes"


def _parse_json(text: str) -> Json:
    spelled = _BOOLEAN_WORDS.get(text.strip().lower())
    if spelled is not None:
        return spelled
    try:
        return json.loads(text, parse_constant=_reject_constant) if len(text) <= _JSON_LIMIT else ABSENT
    except (ValueError, RecursionError):
        return ABSENT


def _reject_constant(constant: str) -> Json:
    raise ValueError(constant)


def _suggest_from_number(location: Location, types: Sequence[str]) -> str | None:
    value = location.value
    if "string" in types:
        text = location.quote(value)
        return f'send it as a string: "{text}"' if text else "send it as a string"
    if location.is_secret:
        return None
    if "boolean" in types and value in (0, 1):
        return f"send {to_json_text(bool(value))}"
    if "integer" in types and isinstance(value, float) and abs(value) < 1e15:
        return f"send a whole number, such as {round(value)}"
    return None


def suggest_option(location: Location, options: list[Json]) -> str | None:
    """Suggest the option that was probably meant; None if none comes near."""
    value = location.value
    if value is None:
        return _suggest_omission(location)
    texts = [option for option in options if isinstance(option, str)]
    if isinstance(value, str):
        if near := correct_spelling(value, texts):
            return f"did you mean {to_json_text(truncate(near))}?"
        parsed = _parse_json(value)
        shown = location.quote(parsed) if is_among(parsed, options) else None
        return f"send {shown} without quotes" if shown else None
    if isinstance(value, bool | int | float) and (shown := location.quote(value)) in texts:
        return f'send it as a string: "{shown}"'
    if isinstance(value, list) and len(value) == 1 and is_among(value[0], options):
        return "send the item itself, not an array"
    return None


def suggest_format(location: Location, name: str) -> str | None:
    """Suggest the text rewritten in this format, or else an example of it; None for a format without one."""
    example = EXAMPLES.get(name)
    rewritten = None if location.is_secret else _rewrite(name, str(location.value))
    return rewritten or (f"for example {example}" if example else None)


def _rewrite(name: str, text: str) -> str | None:
    if len(text) > TEXT_LIMIT:
        return None
    moment = _DATE_TIME.fullmatch(text)
    if name == "date-time" and _DATE.fullmatch(text):
        return f"add a time and a zone: {text}T00:00:00Z"
    if name == "date-time" and moment:
        date, time, zone = moment.groups()
        return f"write it as {date}T{time if len(time) > 5 else time + ':00'}{zone or 'Z'}"
    if name == "date" and moment:
        return f"send only the date: {moment[1]}"
    if name in ("uri", "iri") and _HOST.fullmatch(text):
        return f"add the scheme: https://{text}"
    return None


@dataclass(frozen=True)
class Wording:
    """`keyword` is set where it is not the one that the validator names."""

    message: str
    expected: Json = ABSENT
    suggestion: str | None = None
    keyword: str | None = None


def describe(location: Location) -> Wording:
    """Word one error; a kind without a describer of its own is worded by its keyword."""
    if location.merged_options is not None:
        return _describe_options(location, location.merged_options)
    describer = _DESCRIBERS.get(type(location.kind))
    return describer(location) if describer else Wording(f"{location.where} breaks `{location.keyword}`")


def _describe_type(location: Location) -> Wording:
    assert isinstance(location.kind, Kind.Type)
    named = location.schema.get("type")
    types = named if isinstance(named, list) else location.kind.types
    expected = " or ".join(types)
    return Wording(f"{location.where} must be {add_article(expected)}", expected, suggest_type(location, types))


def _describe_constant(location: Location) -> Wording:
    options = fixed_values_of_error(location.kind)
    shown = shorten(options[0])
    return Wording(
        f"{location.where} must be {truncate(to_json_text(shown))}", shown, suggest_option(location, options)
    )


def _describe_options(location: Location, options: list[Json]) -> Wording:
    shown = shorten_list(options)
    listed = ", ".join(to_json_text(option) for option in shown)
    return Wording(
        f"{location.where} must be one of {truncate(listed)}", shown, suggest_option(location, options), keyword="enum"
    )


def _describe_format(location: Location) -> Wording:
    assert isinstance(location.kind, Kind.Format)
    name = location.kind.format
    expected = f"{name}, such as {EXAMPLES[name]}" if name in EXAMPLES else name
    return Wording(f"{location.where} must be in the form `{name}`", expected, suggest_format(location, name))


def _describe_pattern(location: Location) -> Wording:
    assert isinstance(location.kind, Kind.Pattern)
    pattern = truncate(location.kind.pattern)
    return Wording(f"{location.where} must match the pattern `{pattern}`", pattern)


def _describe_amount(words: str) -> Callable[[Location], Wording]:
    def describe_limit(location: Location) -> Wording:
        limit = shorten(getattr(location.kind, "limit", getattr(location.kind, "multiple_of", None)))
        return Wording(f"{location.where} must be {words} {limit}", f"{words} {limit}")

    return describe_limit


def _describe_length(words: str, one: str, many: str) -> Callable[[Location], Wording]:
    def describe_limit(location: Location) -> Wording:
        limit = shorten(getattr(location.kind, "limit", None))
        expected = f"{words} {limit} {one if limit == 1 else many}"
        return Wording(f"{location.where} must have {expected}, and has {len(location.value)}", expected)

    return describe_limit


def _describe_unique_items(location: Location) -> Wording:
    seen: dict[str, int] = {}
    for number, item in enumerate(location.value):
        first = seen.setdefault(json.dumps(item, sort_keys=True, default=repr), number)
        if first != number:
            message = f"{location.where} must not repeat an item: {first} and {number} are the same"
            return Wording(message, "unique items", f"remove item {number}")
    return Wording(f"{location.where} must not repeat an item", "unique items")


def _describe_too_many_items(location: Location) -> Wording:
    return Wording(f"{location.where} has more items than are described", suggestion="remove the last ones")


def _describe_contains(location: Location) -> Wording:
    least, most = location.schema.get("minContains", 1), location.schema.get("maxContains")
    bounds = f"at least {least}" if most is None else f"at least {least} and at most {most}"
    expected = f"{bounds} of: {summarize_schema(location.schema.get('contains'))}"
    return Wording(f"{location.where} must hold {expected}", expected)


def _describe_property_name(location: Location) -> Wording:
    assert isinstance(location.kind, Kind.PropertyNames)
    name, inner = truncate(str(location.kind.error.instance)), location.kind.error.kind
    expected = f"names that match `{truncate(inner.pattern)}`" if isinstance(inner, Kind.Pattern) else ABSENT
    return Wording(f"`{name}` is not a name that a property of {location.where} may have", expected)


def _describe_not(location: Location) -> Wording:
    if is_reserved(location.schema):
        return _describe_reserved(location)
    expected = f"anything but {summarize_schema(location.schema.get('not'))}"
    return Wording(f"{location.where} must be {expected}", expected)


def _describe_reserved(location: Location) -> Wording:
    name = truncate(str(location.path[-1])) if location.path else "the value"
    return Wording(f"`{name}` is reserved and must not be set", suggestion="leave it out", keyword="x-reserved")


def _describe_false(location: Location) -> Wording:
    if location.steps[-2:-1] == ("properties",):
        return _describe_reserved(location)
    return Wording(f"{location.where} must not be there", suggestion="leave it out" if location.path else None)


def _describe_many_forms(location: Location) -> Wording:
    message = f"{location.where} fits more than one of the forms, and must fit exactly one"
    return Wording(message, "exactly one form", "add what tells them apart, or leave out what belongs to the other")


_DESCRIBERS: dict[type[Kind], Callable[[Location], Wording]] = {
    Kind.AdditionalItems: _describe_too_many_items,
    Kind.Constant: _describe_constant,
    Kind.Contains: _describe_contains,
    Kind.Enum: lambda location: _describe_options(location, fixed_values_of_error(location.kind)),
    Kind.ExclusiveMaximum: _describe_amount("less than"),
    Kind.ExclusiveMinimum: _describe_amount("more than"),
    Kind.FalseSchema: _describe_false,
    Kind.Format: _describe_format,
    Kind.MaxItems: _describe_length("at most", "item", "items"),
    Kind.MaxLength: _describe_length("at most", "character", "characters"),
    Kind.MaxProperties: _describe_length("at most", "property", "properties"),
    Kind.Maximum: _describe_amount("at most"),
    Kind.MinItems: _describe_length("at least", "item", "items"),
    Kind.MinLength: _describe_length("at least", "character", "characters"),
    Kind.MinProperties: _describe_length("at least", "property", "properties"),
    Kind.Minimum: _describe_amount("at least"),
    Kind.MultipleOf: _describe_amount("a multiple of"),
    Kind.Not: _describe_not,
    Kind.OneOfMultipleValid: _describe_many_forms,
    Kind.Pattern: _describe_pattern,
    Kind.PropertyNames: _describe_property_name,
    Kind.Type: _describe_type,
    Kind.UnevaluatedItems: _describe_too_many_items,
    Kind.UniqueItems: _describe_unique_items,
}


_SCHEMAS_MERGED = 8
"""How many schemas of one branch are merged to summarize it in a few words."""


@dataclass(frozen=True)
class Explanation:
    """A worded error; becomes an `Issue` unless it repeats another."""

    path: Path
    keyword: str
    wording: Wording
    received: Json = ABSENT
    is_weak: bool = False
    """A declared property that counts as unknown only because the branch that declares it failed."""


class Explainer:
    """Words the validation errors of one value."""

    def __init__(self, schema: Schema, value: Json) -> None:
        self._document = SchemaDocument(schema.raw if isinstance(schema.raw, dict) else {})
        self._value = value
        self._selector = BranchSelector(self._document, value)

    def explain(self, errors: Iterable[ValidationError]) -> list[Explanation]:
        locations = [self._locate(leaf) for error in errors for leaf in self._selector.select(error)]
        renames = self._match_names(locations)
        return [each for location in locations for each in self._explain(location, renames.get(location.path, {}))]

    def _locate(self, leaf: LeafError) -> Location:
        return locate(leaf, self._document, self._value)

    def _explain(self, location: Location, renames: dict[str, str]) -> Iterator[Explanation]:
        if location.unexpected:
            yield from self._explain_unknown(location, renames)
        elif isinstance(location.kind, Kind.Required):
            name = location.kind.property
            sent = next((unknown for unknown, known in renames.items() if known == name), None)
            suggestion = f"rename `{truncate(sent)}` to `{truncate(name)}`" if sent else None
            message = f"{location.where} needs `{truncate(name)}`{_describe_missing(location.schema, name)}"
            wording = Wording(message, truncate(name), suggestion)
            yield Explanation(location.path, location.keyword, wording)
        else:
            wording = self._describe_choice(location) if location.is_undecided else describe(location)
            yield Explanation(location.path, wording.keyword or location.keyword, wording, _redact_received(location))

    def _match_names(self, locations: list[Location]) -> dict[Path, dict[str, str]]:
        """Return, for each object with unknown names, the known name that each of them was probably meant to be."""
        renames = {}
        for path in {location.path for location in locations if location.unexpected}:
            here = [location for location in locations if location.path == path]
            unknown = [name for location in here for name in location.unexpected]
            missing = [location.kind.property for location in here if isinstance(location.kind, Kind.Required)]
            known = [name for location in here if location.unexpected for name in self._allowed_names(location)]
            present = value_at(self._value, path)
            free = [name for name in known if name not in present]
            renames[path] = match_names(unknown[:LIST_LIMIT], free, missing)
        return renames

    def _allowed_names(self, location: Location) -> list[str]:
        if isinstance(location.kind, Kind.UnevaluatedProperties):
            declared = self._document.find_declarations(location.place, location.schema)
        else:
            declared = declared_properties(location.place, location.schema)
        return [name for name, (_, child) in declared.items() if not is_reserved(child)]

    def _explain_unknown(self, location: Location, renames: dict[str, str]) -> Iterator[Explanation]:
        allowed = self._allowed_names(location)
        undeclared = set(location.unexpected).difference(allowed)
        # A value may have thousands of unknown names: only as many as are shown are compared with the known ones.
        for name in sorted(undeclared or location.unexpected)[:LIST_LIMIT]:
            path = (*location.path, name)
            meant = renames.get(name)
            suggestion = f"did you mean `{truncate(meant)}`?" if meant else None
            wording = Wording(_describe_unknown(location, name, allowed), shorten_list(allowed), suggestion)
            # A misspelled `pasword` holds a secret all the same.
            near = correct_spelling(name, allowed)
            is_secret = location.is_secret or self._document.is_secret(path if near is None else (*path, near))
            received = REDACTED if is_secret else shorten(value_at(self._value, path))
            yield Explanation(path, location.keyword, wording, received, is_weak=not undeclared)

    def _describe_choice(self, location: Location) -> Wording:
        """List all forms of a choice, with the first suggestion that any of its branches makes."""
        expected = truncate(" or ".join(self._summarize_branches(location)))
        context: list[list[ValidationError]] = getattr(location.kind, "context", [])
        leaves = [leaf for branch in context for inner in branch for leaf in self._selector.select(inner)]
        locations = [self._locate(leaf) for leaf in leaves if leaf.path == location.path]
        suggestions = (describe(inner).suggestion for inner in locations if not inner.is_undecided)
        suggestion = next((each for each in suggestions if each), None)
        return Wording(f"{location.where} must be {expected}", expected, suggestion)

    def _summarize_branches(self, location: Location) -> Iterable[str]:
        branches = location.schema.get(location.keyword)
        if not isinstance(branches, list):
            return ["another form"]
        summaries = []
        for number, branch in enumerate(branches[:LIST_LIMIT]):
            if isinstance(branch, dict):
                place = f"{location.place}/{location.keyword}/{number}"
                branch = self._document.merge_in_place(place, branch, limit=_SCHEMAS_MERGED)  # noqa: PLW2901
            summaries.append(summarize_schema(branch))
        return dict.fromkeys(summaries)


def _describe_missing(schema: JsonObject, name: str) -> str:
    """Return what a missing property must be, as the end of a sentence; empty if its schema does not say it directly."""
    properties = schema.get("properties")
    declared = properties.get(name) if isinstance(properties, dict) else None
    if not isinstance(declared, dict):
        return ""
    options, types = declared.get("enum"), declared.get("type")
    if isinstance(options, list) and options:
        return f", one of {truncate(', '.join(to_json_text(option) for option in shorten_list(options)))}"
    expected = " or ".join(types) if isinstance(types, list) else types
    return f", {add_article(expected)}" if isinstance(expected, str) and expected else ""


def _describe_unknown(location: Location, name: str, allowed: list[str]) -> str:
    if isinstance(location.schema.get(location.keyword), dict):
        return f"`{truncate(name)}` is not a declared property of {location.where}, and does not fit the others"
    if not allowed:
        return f"`{truncate(name)}` is not a known property: {location.where} takes none by name"
    return f"`{truncate(name)}` is not a known property of {location.where}"


def _redact_received(location: Location) -> Json:
    if location.is_secret:
        return REDACTED
    # A text that holds an object may hold a secret of any name.
    if isinstance(location.value, str) and location.value.lstrip()[:1] in ("{", "["):
        return {"type": "string", "length": len(location.value)}
    return shorten(location.value)
