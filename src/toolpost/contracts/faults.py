"""What is wrong with a value, said so that whoever sent it can mend it in one go.

Faults carry our own short words, never the validator's dump of a value, and never a secret.
"""

import difflib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from toolpost.contracts.ids import Json, JsonObject
from toolpost.contracts.redaction import REDACTED, is_secret_name
from toolpost.contracts.schema import (
    REFERENCES,
    References,
    Schema,
    ValidationError,
    ValidationErrorKind,
    part_at,
    parts_of,
    pointer,
)

FAULT_LIMIT = 20
TEXT_LIMIT = 200
LIST_LIMIT = 20
ERROR_LIMIT = 5 * FAULT_LIMIT
FULL_READ_LIMIT = 5_000
"""Values of more parts than this are read up to their first fault: finding each costs 13 µs, one per part."""

Path = tuple[str | int, ...]
Kind = ValidationErrorKind


class _Absent:
    """Nothing at all, where null would be a value."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is wrong, where, and what would be right."""

    path: str
    keyword: str
    message: str
    expected: Json = ABSENT
    received: Json = ABSENT
    suggestion: str | None = None

    def as_object(self) -> JsonObject:
        """Return the issue object of the wire; what does not apply is absent."""
        issue: JsonObject = {"path": self.path, "keyword": self.keyword, "message": self.message}
        if self.expected is not ABSENT:
            issue["expected"] = self.expected
        if self.received is not ABSENT:
            issue["received"] = self.received
        if self.suggestion is not None:
            issue["suggestion"] = self.suggestion
        return issue


def faults_in(schema: Schema, value: Json) -> list[Fault]:
    """List what is wrong with a value, by path, at most `FAULT_LIMIT` faults; none when it is valid."""
    try:
        if schema.is_valid(value):
            return []
        errors = _errors(schema, value)
    except ValueError as problem:
        return [_unreadable(problem)]
    reading = _Reading(schema, value)
    leaves = [leaf for error in errors for leaf in reading.leaves(error)]
    return _tidied(reading.faults(leaves)) or [_unexplained()]


def _errors(schema: Schema, value: Json) -> list[ValidationError]:
    if _is_small(value):
        errors = sorted(schema.errors(value), key=lambda error: _path_order(error.instance_path))
        return errors[:ERROR_LIMIT]
    try:
        schema.check(value)
    except ValidationError as first:
        return [first]
    return []


def _is_small(value: Json) -> bool:
    waiting, seen = [value], 0
    while waiting and seen <= FULL_READ_LIMIT:
        part = waiting.pop()
        seen += 1
        if isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
    return seen <= FULL_READ_LIMIT


def _unreadable(problem: ValueError) -> Fault:
    if isinstance(problem, UnicodeError):
        message = "a text in the value holds half of a surrogate pair, which is no Unicode"
    else:
        message = "the value cannot be read: it is nested too deeply, or is not JSON"
    return Fault(path="", keyword="json", message=message)


def _unexplained() -> Fault:
    return Fault(path="", keyword="schema", message="the value breaks the schema")


@dataclass(frozen=True)
class _Leaf:
    """An error worth telling. `options` joins what several branches would have taken in its place."""

    error: ValidationError
    options: list[Json] | None = None

    @cached_property
    def path(self) -> Path:
        return tuple(self.error.instance_path)


@dataclass(frozen=True)
class _Found:
    path: Path
    fault: Fault
    is_weak: bool = False
    """A declared property that counts as unknown only because the branch that declares it failed."""


@dataclass(frozen=True, kw_only=True)
class _Spot:
    """Where an error is: the value there, the schema that holds the broken keyword, what may be said."""

    kind: Kind
    keyword: str
    path: Path
    steps: Path
    """The way through the schema that led to the broken keyword."""
    value: Json
    unexpected: list[str]
    place: str
    schema: JsonObject
    options: list[Json] | None
    is_secret: bool
    may_leave_out: bool

    @property
    def where(self) -> str:
        return f"`{_cut(pointer(self.path))}`" if self.path else "the value"

    def shown(self, value: Json) -> str | None:
        """Return a scalar as JSON text, or None when it must not or cannot be repeated."""
        if self.is_secret or isinstance(value, dict | list):
            return None
        text = json.dumps(_bounded(value), ensure_ascii=False)
        return text if len(text) <= 80 else None


@dataclass(frozen=True)
class _Said:
    """The words for one spot."""

    message: str
    expected: Json = ABSENT
    suggestion: str | None = None
    keyword: str | None = None


class _Document:
    """A schema to look things up in, through its references."""

    def __init__(self, raw: JsonObject) -> None:
        self.raw = raw

    @cached_property
    def _references(self) -> References:
        return References(self.raw)

    def trail(self, steps: Sequence[str | int]) -> list[tuple[str, Json]]:
        """Return what lies along an evaluation path, root first; less when the path leaves the document."""
        place, node = "", self.raw
        passed: list[tuple[str, Json]] = [(place, node)]
        for step in steps:
            place, node = self._next(place, node, step)
            if node is None:
                break
            passed.append((place, node))
        return passed

    def _next(self, place: str, node: Json, step: str | int) -> tuple[str, Json]:
        if step in REFERENCES and isinstance(node, dict) and isinstance(node.get(step), str):
            return self._referred(place, node, str(step))
        inner = pointer((step,))
        return place + inner, part_at(node, inner)

    def _referred(self, place: str, schema: JsonObject, keyword: str) -> tuple[str, Json]:
        target = self._references.target(place, schema, keyword)
        return ("", None) if target is None else (target, part_at(self.raw, target))

    def in_place(self, place: str, schema: JsonObject) -> Iterator[tuple[str, JsonObject]]:
        """Yield the schema and all that describe the same value: its branches and what it refers to."""
        waiting: list[tuple[str, Json]] = [(place, schema)]
        seen: set[str] = set()
        while waiting:
            place, found = waiting.pop(0)
            if place in seen or not isinstance(found, dict):
                continue
            seen.add(place)
            yield place, found
            waiting.extend(self._referred(place, found, word) for word in REFERENCES if word in found)
            waiting.extend(_branches(place, found))

    def declared(self, place: str, schema: JsonObject) -> dict[str, tuple[str, Json]]:
        """Return the properties that a schema and its branches declare, and where."""
        declared: dict[str, tuple[str, Json]] = {}
        for where, part in self.in_place(place, schema):
            declared = _own_properties(where, part) | declared
        return declared

    @cached_property
    def secret_names(self) -> frozenset[str]:
        """The properties that are secret because the schema says so, wherever it does."""
        return frozenset(
            name
            for part in parts_of(self.raw)
            for name, (place, child) in _own_properties(part.place, part.schema).items()
            if isinstance(child, dict) and self._is_marked(place, child)
        )

    def _is_marked(self, place: str, schema: JsonObject) -> bool:
        return any(
            _is_write_only(part) or _is_write_only(part.get("items")) for _, part in self.in_place(place, schema)
        )


def _branches(place: str, schema: JsonObject) -> Iterator[tuple[str, Json]]:
    for keyword in ("allOf", "anyOf", "oneOf"):
        if isinstance(branches := schema.get(keyword), list):
            yield from ((f"{place}/{keyword}/{n}", branch) for n, branch in enumerate(branches))
    for keyword in ("if", "then", "else"):
        if keyword in schema:
            yield f"{place}/{keyword}", schema[keyword]
    for keyword in ("dependentSchemas", "dependencies"):
        if isinstance(named := schema.get(keyword), dict):
            yield from ((place + pointer((keyword, name)), branch) for name, branch in named.items())


def _own_properties(place: str, schema: JsonObject) -> dict[str, tuple[str, Json]]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {name: (place + pointer(("properties", name)), child) for name, child in properties.items()}


def _is_write_only(schema: Json) -> bool:
    return isinstance(schema, dict) and (schema.get("writeOnly") is True or schema.get("format") == "password")


def _is_reserved(schema: Json) -> bool:
    return schema is False or (isinstance(schema, dict) and schema.get("x-reserved") is True)


class _Reading:
    """One invalid value, read against its schema."""

    def __init__(self, schema: Schema, value: Json) -> None:
        self._document = _Document(schema.raw if isinstance(schema.raw, dict) else {})
        self._value = value

    def leaves(self, error: ValidationError) -> list[_Leaf]:
        """Return the error, or what is wrong in its nearest branch when one is nearest."""
        match error.kind:
            case Kind.AnyOf(context=context) | Kind.OneOfNotValid(context=context):
                return self._nearest(error, context) or [_Leaf(error)]
        return [_Leaf(error)]

    def _nearest(self, error: ValidationError, context: list[list[ValidationError]]) -> list[_Leaf]:
        branches = [[leaf for inner in errors for leaf in self.leaves(inner)] for errors in context]
        base = tuple(error.instance_path)
        if joined := _joined_options(branches, [base]):
            return joined
        fitting = [number for number, branch in enumerate(branches) if not self._misses_type(branch, base)]
        if not fitting:
            return _only_one([branch for branch in branches if not _wants_null(branch)])
        children = [leaf.path for leaf in branches[fitting[0]] if len(leaf.path) == len(base) + 1]
        if len(fitting) > 1 and (joined := _joined_options([branches[n] for n in fitting], children)):
            return joined
        return self._best(error, branches, fitting)

    def _best(self, error: ValidationError, branches: list[list[_Leaf]], fitting: list[int]) -> list[_Leaf]:
        ranked = sorted(fitting, key=lambda number: self._remoteness(error, number, branches[number]))
        best = branches[ranked[0]]
        if len(ranked) == 1:
            return best
        scores = [self._remoteness(error, number, branches[number]) for number in ranked[:2]]
        is_shallow = all(leaf.path == tuple(error.instance_path) for leaf in best)
        return [] if is_shallow and scores[0] == scores[1] else best

    def _remoteness(self, error: ValidationError, number: int, branch: list[_Leaf]) -> tuple[int, int, int, int]:
        hits, misses = self._discriminated(error, number)
        deepest = max((len(leaf.path) for leaf in branch), default=0)
        return (min(misses, 1), -hits, sum(_weight(leaf) for leaf in branch), -deepest)

    def _discriminated(self, error: ValidationError, number: int) -> tuple[int, int]:
        """Count the fixed values of a branch that the value has, and those that it has otherwise."""
        value = _value_at(self._value, error.instance_path)
        steps = [*error.evaluation_path, number]
        trail = self._document.trail(steps)
        place, branch = trail[-1]
        if len(trail) <= len(steps) or not isinstance(branch, dict) or not isinstance(value, dict):
            return 0, 0
        verdicts = [
            _is_among(value[name], options)
            for name, (_, child) in self._document.declared(place, branch).items()
            if name in value and (options := _options_of(child)) is not None
        ]
        return verdicts.count(True), verdicts.count(False)

    def _misses_type(self, branch: list[_Leaf], base: Path) -> bool:
        value = _value_at(self._value, base)
        return any(leaf.path == base and _is_of_another_type(leaf, value) for leaf in branch)

    def faults(self, leaves: list[_Leaf]) -> list[_Found]:
        """Put all errors into words; those of one object are matched with each other first."""
        spots = [self._spot(leaf) for leaf in leaves]
        renames = self._renames(spots)
        return [found for spot in spots for found in self._found(spot, renames.get(spot.path, {}))]

    def _spot(self, leaf: _Leaf) -> _Spot:
        error = leaf.error
        trail = self._document.trail(error.evaluation_path)
        is_whole = len(trail) > len(error.evaluation_path)
        place, schema = trail[-2:][0]
        value = _value_at(self._value, leaf.path)
        return _Spot(
            kind=error.kind,
            keyword="additionalProperties" if _takes_nothing(error) else error.kind.name,
            path=leaf.path,
            steps=tuple(error.evaluation_path),
            value=value,
            unexpected=list(value or ()) if _takes_nothing(error) else _unexpected(error.kind),
            place=place,
            schema=schema if is_whole and isinstance(schema, dict) else {},
            options=leaf.options,
            is_secret=self._is_secret(leaf.path) or any(_is_write_only(node) for _, node in trail),
            may_leave_out=_may_leave_out(error, leaf.path, trail),
        )

    def _is_secret(self, path: Path) -> bool:
        names = [step for step in path if isinstance(step, str)]
        return any(name in self._document.secret_names or is_secret_name(name) for name in names)

    def _renames(self, spots: list[_Spot]) -> dict[Path, dict[str, str]]:
        renames = {}
        for path in {spot.path for spot in spots if spot.unexpected}:
            here = [spot for spot in spots if spot.path == path]
            unknown = [name for spot in here for name in spot.unexpected]
            missing = [spot.kind.property for spot in here if isinstance(spot.kind, Kind.Required)]
            known = [name for spot in here if spot.unexpected for name in self._allowed(spot)]
            present = _value_at(self._value, path)
            renames[path] = _matched(unknown, [name for name in known if name not in present], missing)
        return renames

    def _allowed(self, spot: _Spot) -> list[str]:
        if isinstance(spot.kind, Kind.UnevaluatedProperties):
            declared = self._document.declared(spot.place, spot.schema)
        else:
            declared = _own_properties(spot.place, spot.schema)
        return [name for name, (_, child) in declared.items() if not _is_reserved(child)]

    def _found(self, spot: _Spot, renames: dict[str, str]) -> Iterator[_Found]:
        if spot.unexpected:
            yield from self._unknown(spot, renames)
            return
        if isinstance(spot.kind, Kind.Required):
            yield _Found(spot.path, _missing(spot, renames))
            return
        said = self._summarised(spot) if _is_undecided(spot) else _said(spot)
        yield _Found(spot.path, _fault(spot, said))

    def _unknown(self, spot: _Spot, renames: dict[str, str]) -> Iterator[_Found]:
        allowed = self._allowed(spot)
        for name in spot.unexpected:
            path = (*spot.path, name)
            meant = renames.get(name)
            # A slip in the name of a secret does not make its value less of one.
            near = _nearest_name(name, allowed[:_NAMES_COMPARED])
            hidden = spot.is_secret or self._is_secret(path if near is None else (*path, near))
            fault = Fault(
                path=_shown_path(path),
                keyword=spot.keyword,
                message=_unknown_message(spot, name, allowed),
                expected=_bounded_list(allowed),
                received=REDACTED if hidden else _bounded(_value_at(self._value, path)),
                suggestion=f"did you mean `{_cut(meant)}`?" if meant else None,
            )
            yield _Found(path, fault, is_weak=name in allowed)

    def _summarised(self, spot: _Spot) -> _Said:
        expected = _cut(" or ".join(self._branch_summaries(spot)))
        context: list[list[ValidationError]] = getattr(spot.kind, "context", [])
        leaves = [leaf for branch in context for inner in branch for leaf in self.leaves(inner)]
        spots = [self._spot(leaf) for leaf in leaves if leaf.path == spot.path]
        suggestions = [_said(inner).suggestion for inner in spots if not _is_undecided(inner)]
        suggestion = next((words for words in suggestions if words), None)
        return _Said(f"{spot.where} must be {expected}", expected, suggestion)

    def _branch_summaries(self, spot: _Spot) -> list[str]:
        branches = spot.schema.get(spot.keyword)
        if not isinstance(branches, list):
            return ["another form"]
        told = [
            _summary(self._resolved(f"{spot.place}/{spot.keyword}/{number}", branch))
            for number, branch in enumerate(branches[:LIST_LIMIT])
        ]
        return list(dict.fromkeys(told))

    def _resolved(self, place: str, branch: Json) -> Json:
        if not isinstance(branch, dict):
            return branch
        merged: JsonObject = {}
        for _, part in itertools.islice(self._document.in_place(place, branch), 8):
            merged = part | merged
        return merged


def _only_one(branches: list[list[_Leaf]]) -> list[_Leaf]:
    return branches[0] if len(branches) == 1 else []


def _wants_null(branch: list[_Leaf]) -> bool:
    return any(isinstance(leaf.error.kind, Kind.Type) and leaf.error.kind.types == ["null"] for leaf in branch)


def _joined_options(branches: list[list[_Leaf]], paths: Iterable[Path]) -> list[_Leaf]:
    """Join branches that differ in one fixed value: `kind` is a circle here, a square there."""
    for path in paths:
        told = [[leaf for leaf in branch if leaf.path == path and _leaf_options(leaf)] for branch in branches]
        if len(branches) > 1 and all(told):
            options = [option for leaves in told for option in _leaf_options(leaves[0])]
            return [_Leaf(told[0][0].error, _unique(options))]
    return []


def _leaf_options(leaf: _Leaf) -> list[Json]:
    if leaf.options is not None:
        return leaf.options
    match leaf.error.kind:
        case Kind.Constant(expected_value=option):
            return [option]
        case Kind.Enum(options=options):
            return list(options)
    return []


def _options_of(schema: Json) -> list[Json] | None:
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return [schema["const"]]
    options = schema.get("enum")
    return options if isinstance(options, list) else None


def _weight(leaf: _Leaf) -> int:
    return max(1, len(_unexpected(leaf.error.kind)))


def _unexpected(kind: Kind) -> list[str]:
    if isinstance(kind, Kind.AdditionalProperties | Kind.UnevaluatedProperties):
        return kind.unexpected
    return []


# Below these, a step is the name of a property, and may spell a keyword by chance.
_NAMED_BY_THE_AUTHOR = [[word] for word in ("dependencies", "dependentSchemas", "patternProperties", "properties")]


def _takes_nothing(error: ValidationError) -> bool:
    # Without `properties` beside it, a false `additionalProperties` is told as a false schema of the whole object.
    return (
        isinstance(error.kind, Kind.FalseSchema)
        and error.evaluation_path[-1:] == ["additionalProperties"]
        and error.evaluation_path[-2:-1] not in _NAMED_BY_THE_AUTHOR
    )


def _is_of_another_type(leaf: _Leaf, value: Json) -> bool:
    match leaf.error.kind:
        case Kind.Type(types=types):
            return not ("integer" in types and _type_of(value) == "number")
        case Kind.FalseSchema():
            return not _takes_nothing(leaf.error)
        case Kind.Constant() | Kind.Enum():
            return all(_type_of(option) != _type_of(value) for option in _leaf_options(leaf))
        case Kind.AnyOf(context=context) | Kind.OneOfNotValid(context=context):
            return all(any(_is_of_another_type(_Leaf(inner), value) for inner in branch) for branch in context)
    return False


def _is_undecided(spot: _Spot) -> bool:
    return spot.options is None and isinstance(spot.kind, Kind.AnyOf | Kind.OneOfNotValid)


def _value_at(value: Json, path: Iterable[str | int]) -> Json:
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _may_leave_out(error: ValidationError, path: Path, trail: list[tuple[str, Json]]) -> bool:
    """Say whether the object around the property that is wrong declares it without requiring it."""
    steps = error.evaluation_path
    for number in reversed(range(len(steps) - 1)):
        if steps[number] == "properties" and path and steps[number + 1] == path[-1] and number < len(trail):
            around = trail[number][1]
            return isinstance(around, dict) and path[-1] not in around.get("required", ())
    return False


def _fault(spot: _Spot, said: _Said) -> Fault:
    return Fault(
        path=_shown_path(spot.path),
        keyword=said.keyword or spot.keyword,
        message=said.message,
        expected=said.expected,
        received=REDACTED if spot.is_secret else _received(spot),
        suggestion=said.suggestion,
    )


def _received(spot: _Spot) -> Json:
    # A text that holds an object may hold a secret of any name.
    if isinstance(spot.value, str) and spot.value.lstrip()[:1] in ("{", "["):
        return {"type": "string", "length": len(spot.value)}
    return _bounded(spot.value)


def _missing(spot: _Spot, renames: dict[str, str]) -> Fault:
    assert isinstance(spot.kind, Kind.Required)
    name = spot.kind.property
    sent = next((unknown for unknown, known in renames.items() if known == name), None)
    return Fault(
        path=_shown_path(spot.path),
        keyword=spot.keyword,
        message=f"{spot.where} needs `{_cut(name)}`",
        expected=_cut(name),
        suggestion=f"rename `{_cut(sent)}` to `{_cut(name)}`" if sent else None,
    )


def _unknown_message(spot: _Spot, name: str, allowed: list[str]) -> str:
    if isinstance(spot.schema.get(spot.keyword), dict):
        return f"`{_cut(name)}` is not a declared property of {spot.where}, and does not fit the others"
    if not allowed:
        return f"`{_cut(name)}` is not a known property: {spot.where} takes none by name"
    return f"`{_cut(name)}` is not a known property of {spot.where}"


def _tidied(found: list[_Found]) -> list[Fault]:
    strong = [each for each in found if not each.is_weak] or found
    reserved = {each.path for each in strong if each.fault.keyword == "x-reserved"}
    told: dict[tuple[Path, str], _Found] = {}
    for each in sorted(strong, key=_order):
        is_shadowed = any(each.path[: len(path)] == path for path in reserved)
        if not is_shadowed or each.fault.keyword == "x-reserved":
            told.setdefault((each.path, each.fault.message), each)
    return [each.fault for each in told.values()][:FAULT_LIMIT]


def _order(found: _Found) -> tuple[list[tuple[int, str]], str, str]:
    return _path_order(found.path), found.fault.keyword, found.fault.message


def _path_order(path: Iterable[str | int]) -> list[tuple[int, str]]:
    return [(step, "") if isinstance(step, int) else (-1, step) for step in path]


# What each kind of error says. Whatever is not here says that its keyword was broken.


def _said(spot: _Spot) -> _Said:
    if spot.options is not None:
        return _say_options(spot)
    say = _WORDS.get(type(spot.kind))
    return say(spot) if say else _Said(f"{spot.where} breaks `{spot.keyword}`")


def _say_type(spot: _Spot) -> _Said:
    assert isinstance(spot.kind, Kind.Type)
    named = spot.schema.get("type")
    types = named if isinstance(named, list) else spot.kind.types
    expected = " or ".join(types)
    return _Said(f"{spot.where} must be {_with_article(expected)}", expected, _retyped(spot, types))


def _say_options(spot: _Spot) -> _Said:
    options = spot.options or _leaf_like_options(spot.kind)
    shown = _bounded_list(options)
    listed = ", ".join(json.dumps(option, ensure_ascii=False) for option in shown)
    if isinstance(spot.kind, Kind.Constant) and spot.options is None:
        return _Said(f"{spot.where} must be {_cut(listed)}", shown[0], _near_option(spot, options))
    message = f"{spot.where} must be one of {_cut(listed)}"
    return _Said(message, shown, _near_option(spot, options), keyword="enum")


def _leaf_like_options(kind: Kind) -> list[Json]:
    if isinstance(kind, Kind.Constant):
        return [kind.expected_value]
    return list(kind.options) if isinstance(kind, Kind.Enum) else []


def _say_format(spot: _Spot) -> _Said:
    assert isinstance(spot.kind, Kind.Format)
    name = spot.kind.format
    example = _EXAMPLES.get(name)
    expected = f"{name}, such as {example}" if example else name
    suggestion = None if spot.is_secret else _reformatted(name, str(spot.value))
    return _Said(f"{spot.where} must be in the form `{name}`", expected, suggestion or _for_example(example))


def _for_example(example: str | None) -> str | None:
    return f"for example {example}" if example else None


def _say_pattern(spot: _Spot) -> _Said:
    assert isinstance(spot.kind, Kind.Pattern)
    pattern = _cut(spot.kind.pattern)
    return _Said(f"{spot.where} must match the pattern `{pattern}`", pattern)


def _say_bound(spot: _Spot) -> _Said:
    words, one, many = _BOUNDS[spot.keyword]
    limit = _bounded(getattr(spot.kind, "limit", getattr(spot.kind, "multiple_of", None)))
    if not one:
        return _Said(f"{spot.where} must be {words} {limit}", f"{words} {limit}")
    expected = f"{words} {limit} {one if limit == 1 else many}"
    return _Said(f"{spot.where} must have {expected}, and has {len(spot.value)}", expected)


def _say_unique(spot: _Spot) -> _Said:
    seen: dict[str, int] = {}
    for number, item in enumerate(spot.value):
        first = seen.setdefault(json.dumps(item, sort_keys=True, default=repr), number)
        if first != number:
            message = f"{spot.where} must not repeat an item: {first} and {number} are the same"
            return _Said(message, "unique items", f"remove item {number}")
    return _Said(f"{spot.where} must not repeat an item", "unique items")


def _say_too_many_items(spot: _Spot) -> _Said:
    return _Said(f"{spot.where} has more items than are described", suggestion="remove the last ones")


def _say_contains(spot: _Spot) -> _Said:
    least, most = spot.schema.get("minContains", 1), spot.schema.get("maxContains")
    bounds = f"at least {least}" if most is None else f"at least {least} and at most {most}"
    item = _summary(spot.schema.get("contains"))
    return _Said(f"{spot.where} must hold {bounds} of: {item}", f"{bounds} of: {item}")


def _say_property_name(spot: _Spot) -> _Said:
    assert isinstance(spot.kind, Kind.PropertyNames)
    name, inner = _cut(str(spot.kind.error.instance)), spot.kind.error.kind
    expected = f"names that match `{_cut(inner.pattern)}`" if isinstance(inner, Kind.Pattern) else ABSENT
    return _Said(f"`{name}` is not a name that a property of {spot.where} may have", expected)


def _say_not(spot: _Spot) -> _Said:
    if _is_reserved(spot.schema):
        return _say_reserved(spot)
    expected = f"anything but {_summary(spot.schema.get('not'))}"
    return _Said(f"{spot.where} must be {expected}", expected)


def _say_reserved(spot: _Spot) -> _Said:
    name = _cut(str(spot.path[-1])) if spot.path else "the value"
    return _Said(f"`{name}` is reserved and must not be set", suggestion="leave it out", keyword="x-reserved")


def _say_false(spot: _Spot) -> _Said:
    if spot.steps[-2:-1] == ("properties",):
        return _say_reserved(spot)
    return _Said(f"{spot.where} must not be there", suggestion="leave it out" if spot.path else None)


def _say_many_forms(spot: _Spot) -> _Said:
    message = f"{spot.where} fits more than one of the forms, and must fit exactly one"
    return _Said(message, "exactly one form", "add what tells them apart, or leave out what belongs to the other")


_WORDS: dict[type[Kind], Callable[[_Spot], _Said]] = {
    Kind.AdditionalItems: _say_too_many_items,
    Kind.Constant: _say_options,
    Kind.Contains: _say_contains,
    Kind.Enum: _say_options,
    Kind.ExclusiveMaximum: _say_bound,
    Kind.ExclusiveMinimum: _say_bound,
    Kind.FalseSchema: _say_false,
    Kind.Format: _say_format,
    Kind.MaxItems: _say_bound,
    Kind.MaxLength: _say_bound,
    Kind.MaxProperties: _say_bound,
    Kind.Maximum: _say_bound,
    Kind.MinItems: _say_bound,
    Kind.MinLength: _say_bound,
    Kind.MinProperties: _say_bound,
    Kind.Minimum: _say_bound,
    Kind.MultipleOf: _say_bound,
    Kind.Not: _say_not,
    Kind.OneOfMultipleValid: _say_many_forms,
    Kind.Pattern: _say_pattern,
    Kind.PropertyNames: _say_property_name,
    Kind.Type: _say_type,
    Kind.UnevaluatedItems: _say_too_many_items,
    Kind.UniqueItems: _say_unique,
}

_BOUNDS = {
    "exclusiveMaximum": ("less than", "", ""),
    "exclusiveMinimum": ("more than", "", ""),
    "maxItems": ("at most", "item", "items"),
    "maxLength": ("at most", "character", "characters"),
    "maxProperties": ("at most", "property", "properties"),
    "maximum": ("at most", "", ""),
    "minItems": ("at least", "item", "items"),
    "minLength": ("at least", "character", "characters"),
    "minProperties": ("at least", "property", "properties"),
    "minimum": ("at least", "", ""),
    "multipleOf": ("a multiple of", "", ""),
}

_EXAMPLES = {
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


# How to say it right: the repairs that models need most.


def _retyped(spot: _Spot, types: Sequence[str]) -> str | None:
    value = spot.value
    if value is None:
        return "leave it out" if spot.may_leave_out else None
    if isinstance(value, str) and (words := _unquoted(spot, types)):
        return words
    if isinstance(value, list) and len(value) == 1 and _fits(value[0], types):
        shown = spot.shown(value[0])
        return f"send {shown} itself, not an array" if shown else "send the item itself, not an array"
    if isinstance(value, bool | int | float) and (words := _from_number(spot, types)):
        return words
    if "array" in types:
        shown = spot.shown(value)
        return f"wrap it in an array: [{shown}]" if shown else "wrap it in an array"
    return None


def _unquoted(spot: _Spot, types: Sequence[str]) -> str | None:
    held = _parsed(spot.value)
    if held is ABSENT or isinstance(held, str) or not _fits(held, types):
        return None
    if isinstance(held, dict | list):
        return f"send the {_type_of(held)} itself, not a string that holds JSON"
    shown = spot.shown(held)
    return f"send {shown} without quotes" if shown else "send it without quotes"


def _parsed(text: str) -> Json:
    spelled = {"true": True, "false": False, "yes": True, "no": False}.get(text.strip().lower())
    if spelled is not None:
        return spelled
    try:
        return json.loads(text, parse_constant=_refuse) if len(text) <= 100_000 else ABSENT
    except (ValueError, RecursionError):
        return ABSENT


def _refuse(constant: str) -> Json:
    raise ValueError(constant)


def _from_number(spot: _Spot, types: Sequence[str]) -> str | None:
    value = spot.value
    if "string" in types:
        text = spot.shown(value)
        return f'send it as a string: "{text}"' if text else "send it as a string"
    if "boolean" in types and value in (0, 1):
        return f"send {json.dumps(bool(value))}" if not spot.is_secret else None
    if "integer" in types and isinstance(value, float) and abs(value) < 1e15:
        return None if spot.is_secret else f"send a whole number, such as {round(value)}"
    return None


def _near_option(spot: _Spot, options: list[Json]) -> str | None:
    value = spot.value
    if value is None:
        return "leave it out" if spot.may_leave_out else None
    texts = [option for option in options if isinstance(option, str)][:TEXT_LIMIT]
    if isinstance(value, str):
        if near := _nearest_name(value, texts):
            return f"did you mean {json.dumps(_cut(near), ensure_ascii=False)}?"
        held = _parsed(value)
        shown = spot.shown(held) if _is_among(held, options) else None
        return f"send {shown} without quotes" if shown else None
    if isinstance(value, bool | int | float) and (shown := spot.shown(value)) in texts:
        return f'send it as a string: "{shown}"'
    if isinstance(value, list) and len(value) == 1 and _is_among(value[0], options):
        return "send the item itself, not an array"
    return None


def _is_among(value: Json, options: Iterable[Json]) -> bool:
    # True equals 1 in Python, and does not in JSON.
    return any(value == option and isinstance(value, bool) == isinstance(option, bool) for option in options)


_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DATE_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)(Z|[+-]\d\d:?\d\d)?")
_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)+(?:[/:?#]\S*)?")


def _reformatted(name: str, text: str) -> str | None:
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


# Names that are nearly the same.

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_FAR = 1_000
_NAMES_COMPARED = 200


def _matched(unknown: list[str], known: list[str], missing: list[str]) -> dict[str, str]:
    """Give each unknown name the nearest known one, each known one once; missing ones are meant first."""
    pairs = [
        (_distance(sent, name, is_missing=name in missing), name not in missing, number, sent, name)
        for sent in unknown[:FAULT_LIMIT]
        for number, name in enumerate(_unique([*missing, *known])[:_NAMES_COMPARED])
    ]
    matched: dict[str, str] = {}
    for distance, _, _, sent, name in sorted(pairs):
        if distance < _FAR and sent not in matched and name not in matched.values():
            matched[sent] = name
    return matched


def _nearest_name(name: str, known: Sequence[str]) -> str | None:
    distances = [(_distance(name, other, is_missing=False), number) for number, other in enumerate(known)]
    distance, number = min(distances, default=(_FAR, 0))
    return known[number] if distance < _FAR else None


def _distance(sent: str, known: str, *, is_missing: bool) -> int:
    """Return how far apart two names are, or `_FAR`; case and separators do not count."""
    a, b = _plain(sent), _plain(known)
    if a == b:
        return 0
    slips = _slips(a, b)
    if slips <= _tolerated(max(len(a), len(b))):
        return slips
    if min(len(a), len(b)) >= 3 and (_shares_words(sent, known) or a.startswith(b) or b.startswith(a)):
        return 10
    if is_missing and difflib.SequenceMatcher(None, a, b).ratio() >= 0.6:
        return 20
    return _FAR


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name[:64]).lower()


def _tolerated(length: int) -> int:
    return 0 if length < 3 else 1 if length < 6 else 2 if length < 10 else 3


def _shares_words(sent: str, known: str) -> bool:
    one, other = ({word.lower() for word in _WORD.findall(name[:64])} for name in (sent, known))
    return bool(one and other) and (one <= other or other <= one)


def _slips(a: str, b: str) -> int:
    """Count the letters to add, drop, change or swap with their neighbour."""
    if abs(len(a) - len(b)) > 3:
        return _FAR
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        before, above, row = row, before, [i]
        for j, other in enumerate(b, 1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                best = min(best, above[j - 2] + 1)
            row.append(best)
    return row[-1]


# How a value or a schema is shown: short, and still JSON.


_TYPES: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def _type_of(value: Json) -> str:
    return _TYPES.get(type(value), type(value).__name__)


def _fits(value: Json, types: Sequence[str]) -> bool:
    kind = _type_of(value)
    is_whole = isinstance(value, float) and value.is_integer()
    return kind in types or (kind == "integer" and "number" in types) or (is_whole and "integer" in types)


def _bounded(value: Json) -> Json:
    match value:
        case str():
            return _cut(value)
        case list():
            return {"type": "array", "items": len(value)}
        case dict():
            return {"type": "object", "keys": _bounded_list(list(value))}
        case None | bool():
            return value
    return _bounded_number(value)


def _bounded_number(value: Json) -> Json:
    is_shown = isinstance(value, int | float) and abs(value) < 10**100
    # Infinity and NaN, and whatever is not JSON, are named by their type.
    return value if is_shown else {"type": _type_of(value)}


def _bounded_list(values: Sequence[Json]) -> list[Json]:
    kept = [_bounded(value) for value in values[:LIST_LIMIT]]
    return kept if len(values) <= LIST_LIMIT else [*kept, f"… {len(values) - LIST_LIMIT} more"]


def _unique(values: Iterable[Json]) -> list[Json]:
    kept: list[Json] = []
    for value in values:
        if not _is_among(value, kept):
            kept.append(value)
    return kept


def _cut(text: str) -> str:
    whole = text.encode(errors="replace").decode()
    return whole if len(whole) <= TEXT_LIMIT else f"{whole[:TEXT_LIMIT]}…"


def _shown_path(path: Path) -> str:
    return pointer(_cut(step) if isinstance(step, str) else step for step in path)


def _with_article(words: str) -> str:
    return words if words == "null" else f"{'an' if words[:1] in 'aeiou' else 'a'} {words}"


def _summary(schema: Json) -> str:
    if not isinstance(schema, dict):
        return "anything" if schema is not False else "nothing"
    if (options := _options_of(schema)) is not None:
        return _cut(" or ".join(json.dumps(option, ensure_ascii=False) for option in _bounded_list(options)))
    if isinstance(schema.get("type"), list):
        return " or ".join(schema["type"])
    return _summary_of_shape(schema)


def _summary_of_shape(schema: JsonObject) -> str:
    kind = schema.get("type", "object" if "required" in schema or "properties" in schema else "")
    if kind == "object" and schema.get("required"):
        return _cut(f"object with {', '.join(f'`{name}`' for name in schema['required'])}")
    if kind == "array" and isinstance(items := schema.get("items"), dict) and isinstance(items.get("type"), str):
        return f"array of {items['type']}"
    detail = schema.get("format") or schema.get("title")
    return f"{kind} ({_cut(str(detail))})" if kind and detail else str(kind or detail or "something else")
