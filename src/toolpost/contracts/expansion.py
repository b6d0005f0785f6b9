"""How much work a schema makes of one value: the paths on which it reaches a single place, counted before it is compiled.

A validator applies a schema to a place in a value once for every path that leads there: `$ref`, `allOf`, `anyOf` and their like
add paths at the same place, `properties` and `items` carry them one level down. Twenty definitions that each say
`{"allOf": [{"$ref": NEXT}, {"$ref": NEXT}]}` are a kilobyte of JSON and a million paths; no native validator can be interrupted
on the way. So the paths are counted here, each schema once, in time proportional to the document:

- *In place.* The schemas that are applied to the very same value form a graph without cycles (a cycle never ends, and is
  refused). Its paths are counted from the leaves up.
- *One level down.* Each schema that a level is entered by (an entry) leads, for every property name, to other entries. Names
  that differ lead to different places, so only the worst of them counts.
- *Recursion.* Entries that lead back to themselves add nothing if each level has one way back. With two, paths double with
  every level of the value: such a schema has no bound, and is validated where a deadline can end it.
"""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.document import REFERENCES, References, Subschema, resolve_pointer, schemas_under, to_pointer

PATHS_LIMIT: Final = 2_000
"""More paths than this to one place of a value, and the schema is refused. The most among 6,000 real tools is 16."""

STEPS_LIMIT: Final = 100_000
"""How much is counted, about 50 ms; a schema so tangled that this does not suffice counts as one without a bound."""

_IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
_INTO_OBJECTS: Final = ("patternProperties", "additionalProperties", "unevaluatedProperties")
_INTO_ARRAYS: Final = ("items", "additionalItems", "contains", "unevaluatedItems")
_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")
# Without any of these, nothing needs to be counted: each place is reached once, at about the same cost.
_MULTIPLIERS: Final = frozenset(
    {
        *REFERENCES, *_IN_PLACE, *_UNEVALUATED, "contains", "dependentRequired", "multipleOf", "pattern",
        "patternProperties", "propertyNames", "uniqueItems",
    }
)  # fmt: skip

_ANY_PROPERTY: Final = "{}"
_ANY_ITEM: Final = "[]"
_ANY_NAME: Final = "name"
_KINDS: Final = (_ANY_PROPERTY, _ANY_ITEM, _ANY_NAME)

# What the validator does again to find out what is left unevaluated: measured as 2.6 times per nested level.
_REEVALUATED: Final = 3.0
# No value that is let in is nested more deeply.
_NESTED_LIMIT: Final = 256
PLACES_LIMIT: Final = 8 * 1024 * 1024
"""Characters of all places together: names of 2 KB, nested 60 deep, would take a gigabyte."""


class InPlaceCycle(ValueError):
    """A schema applies itself to the same value again, without end; `place` is where."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.place = place


class PlacesTooLong(ValueError):
    """The places of all schemas in a document, written out, exceed `PLACES_LIMIT`."""


class Expansion(NamedTuple):
    """How much work a schema is for a validator."""

    paths: float
    """The most paths that lead to one place of a value; infinite if that depends on how deep the value is."""
    place: str
    """The schema at which most of the paths begin."""
    cost: float
    """The paths, weighted by what their keywords cost: about 50 ns for each byte of the value."""


class _Node:
    """A schema and the schemas that it applies."""

    __slots__ = ("children", "in_place", "is_unique", "paths", "place", "weight")

    def __init__(self, place: str, schema: JsonObject) -> None:
        self.place = place
        self.weight = _weight(schema)
        self.is_unique = schema.get("uniqueItems") is True
        self.in_place: list[tuple[_Node, float]] = []
        """The schemas applied to the same value, and how often."""
        self.children: dict[tuple[str, str], dict[_Node, float]] = {}
        """The schemas applied one level down, by kind of child and name; the name of all others is empty."""
        self.paths = 0.0


def measure_expansion(raw: JsonObject, subschemas: Iterable[Subschema], references: References | None) -> Expansion:
    """Count the paths of a schema, given its subschemas, and its references if it has any.

    Raises `InPlaceCycle` and `PlacesTooLong`.
    """
    widest = 0
    for subschema in subschemas:
        if not _MULTIPLIERS.isdisjoint(subschema.schema) or _has_compared_options(subschema.schema):
            return _count_paths(raw, references)
        widest = max(widest, _size(subschema.schema.get("properties")) + _size(subschema.schema.get("required")))
    # Most schemas are as simple as that: each place is reached on one path.
    return Expansion(1.0, "", 1.0 + widest / 8)


def _count_paths(raw: JsonObject, references: References | None) -> Expansion:
    nodes = _Graph(raw, references).nodes
    order = _sort_in_place(nodes)
    # Bounded: a few definitions that double each other exceed what a double can hold.
    for node in order:
        node.paths = min(1.0 + sum(times * inner.paths for inner, times in node.in_place), 1e18)
    worst = max(nodes, key=lambda node: node.paths)
    if worst.paths > PATHS_LIMIT:
        # Named is the innermost schema that already has too many paths: where a repair should begin.
        origin = worst
        while inner := next((inner for inner, _ in origin.in_place if inner.paths > PATHS_LIMIT), None):
            origin = inner
        return Expansion(worst.paths, origin.place, math.inf)
    entries = _collect_entries(nodes[0], order)
    if entries is None:
        return Expansion(math.inf, "", math.inf)
    components = _find_components(entries, nodes[0])
    paths = _find_worst(entries, components, {node: entry.paths for node, entry in entries.items()})
    cost = _find_worst(entries, components, {node: entry.cost for node, entry in entries.items()})
    # Items are compared whole, so that what lies in an array in an array is looked at once for each.
    cost *= min(1 + sum(node.is_unique for node in nodes), _NESTED_LIMIT)
    return Expansion(paths, "", cost)


def _weight(schema: JsonObject) -> float:
    """Estimate what a validator does at one place for the keywords of one schema, without the schemas inside it."""
    weight = 1.0 + (_size(schema.get("properties")) + _size(schema.get("required"))) / 8
    weight += (_size(schema.get("patternProperties")) + _size(schema.get("dependentRequired"))) / 2
    if "multipleOf" in schema:
        weight += 20
    if _has_compared_options(schema):
        weight += 3 * len(schema["enum"])
    return weight + sum(estimate_pattern_size(pattern) / 500 for _, pattern in patterns_of(schema))


def _has_compared_options(schema: JsonObject) -> bool:
    """Whether a value is compared with every option of an `enum`: strings and numbers are looked up in a set."""
    options = schema.get("enum")
    return isinstance(options, list) and any(isinstance(option, dict | list) for option in options)


def _size(value: Json) -> int:
    return len(value) if isinstance(value, dict | list) else 0


# The graph


class _Graph:
    """Every schema that the root leads to, the root first."""

    def __init__(self, raw: JsonObject, references: References | None) -> None:
        self._raw = raw
        self._references = references or References(raw, ())
        self._places_length = 0
        self._waiting: list[tuple[_Node, JsonObject]] = []
        self._nodes: dict[str, _Node] = {}
        self._node_at("", raw)
        while self._waiting:
            self._link(*self._waiting.pop())

    @property
    def nodes(self) -> list[_Node]:
        return list(self._nodes.values())

    def _node_at(self, place: str, schema: JsonObject) -> _Node:
        node = self._nodes.get(place)
        if node is None:
            self._places_length += len(place)
            if self._places_length > PLACES_LIMIT:
                raise PlacesTooLong
            node = self._nodes[place] = _Node(place, schema)
            self._waiting.append((node, schema))
        return node

    def _link(self, node: _Node, schema: JsonObject) -> None:
        times = _REEVALUATED if any(isinstance(schema.get(word), dict | bool) for word in _UNEVALUATED) else 1.0
        for keyword, value in schema.items():
            for inner, child in schemas_under(keyword, value):
                if keyword in _IN_PLACE:
                    node.in_place.append((self._node_at(node.place + inner, child), times))
                elif (key := _child_key(keyword, inner)) is not None:
                    held = node.children.setdefault(key, {})
                    held[self._node_at(node.place + inner, child)] = 1.0
        for keyword in REFERENCES:
            for place in self._references.find_targets(node.place, schema, keyword) if keyword in schema else ():
                # A reference may lead to a schema under an unknown keyword, which `walk_subschemas` does not visit.
                if isinstance(target := resolve_pointer(self._raw, place), dict):
                    node.in_place.append((self._node_at(place, target), times))


def _child_key(keyword: str, inner: str) -> tuple[str, str] | None:
    """Return which children of a value a schema applies to; None for a definition, which applies to none by its place."""
    if keyword == "properties":
        return _ANY_PROPERTY, inner
    if keyword == "prefixItems" or (keyword == "items" and inner != "/items"):
        return _ANY_ITEM, inner.rpartition("/")[2]
    if keyword in _INTO_OBJECTS:
        return _ANY_PROPERTY, ""
    if keyword in _INTO_ARRAYS:
        return _ANY_ITEM, ""
    if keyword == "propertyNames":
        return _ANY_NAME, ""
    return None


def _sort_in_place(nodes: list[_Node]) -> list[_Node]:
    """Sort schemas so that each comes after those that it applies in place; raises `InPlaceCycle`."""
    order: list[_Node] = []
    done: set[_Node] = set()
    for first in nodes:
        if first in done:
            continue
        entered = {first}
        trail: list[tuple[_Node, Iterator[tuple[_Node, float]]]] = [(first, iter(first.in_place))]
        while trail:
            node, rest = trail[-1]
            for inner, _ in rest:
                if inner in entered and inner not in done:
                    raise InPlaceCycle(inner.place)
                if inner not in done:
                    entered.add(inner)
                    trail.append((inner, iter(inner.in_place)))
                    break
            else:
                trail.pop()
                done.add(node)
                order.append(node)
    return order


_Children = dict[tuple[str, str], dict[_Node, float]]


class _Entry:
    """A schema by which a level of the value is entered, with everything applied in place there."""

    __slots__ = ("children", "component", "cost", "paths", "place")

    def __init__(self, node: _Node, children: _Children, cost: float) -> None:
        self.place = node.place
        self.paths = node.paths
        self.cost = cost
        self.children = children
        self.component = -1
        """The group of entries that lead to each other; a number that is higher than those of all groups it leads to."""


def _collect_entries(root: _Node, order: list[_Node]) -> dict[_Node, _Entry] | None:
    """Return every schema by which a level is entered; None if counting takes more than `STEPS_LIMIT`."""
    steps = 0
    below: dict[_Node, _Children] = {}
    costs: dict[_Node, float] = {}
    for node in order:
        costs[node] = node.weight + sum(times * costs[inner] for inner, times in node.in_place)
        merged = node.children
        # Most schemas apply nothing in place, and share the dictionary that they have.
        if node.in_place:
            merged = {key: dict(targets) for key, targets in merged.items()}
            for inner, times in node.in_place:
                for key, targets in below[inner].items():
                    held = merged.setdefault(key, {})
                    for target, count in targets.items():
                        held[target] = held.get(target, 0.0) + times * count
                    steps += 1 + len(targets)
                if steps > STEPS_LIMIT:
                    return None
        below[node] = merged
    waiting = [root]
    entries: dict[_Node, _Entry] = {}
    while waiting:
        node = waiting.pop()
        if node not in entries:
            entries[node] = _Entry(node, below[node], costs[node])
            waiting.extend(target for targets in below[node].values() for target in targets)
            steps += sum(map(len, below[node].values()))
            if steps > STEPS_LIMIT:
                return None
    return entries


# The levels


def _find_components(entries: dict[_Node, _Entry], root: _Node) -> list[list[_Node]]:
    """Group the entries that lead to each other (Tarjan's algorithm); a group comes after all groups it leads to."""
    number: dict[_Node, int] = {root: 0}
    lowest: dict[_Node, int] = {root: 0}
    open_nodes = [root]
    is_open = {root}
    groups: list[list[_Node]] = []
    trail = [(root, _targets(entries[root]))]
    while trail:
        node, rest = trail[-1]
        for inner in rest:
            if inner not in number:
                number[inner] = lowest[inner] = len(number)
                open_nodes.append(inner)
                is_open.add(inner)
                trail.append((inner, _targets(entries[inner])))
                break
            if inner in is_open:
                lowest[node] = min(lowest[node], number[inner])
        else:
            trail.pop()
            if trail:
                above = trail[-1][0]
                lowest[above] = min(lowest[above], lowest[node])
            if lowest[node] == number[node]:
                group: list[_Node] = []
                while not group or group[-1] is not node:
                    group.append(open_nodes.pop())
                    is_open.discard(group[-1])
                    entries[group[-1]].component = len(groups)
                groups.append(group)
    return groups


def _targets(entry: _Entry) -> Iterator[_Node]:
    return (target for targets in entry.children.values() for target in targets)


class _Sum:
    """The total of several schemas that are applied to one child."""

    __slots__ = ("back", "most", "total")

    def __init__(self, back: float = 0.0, most: float = 0.0, total: float = 0.0) -> None:
        self.back = back
        """Ways back into the group that they were reached from."""
        self.most = most
        """Of all others: the most at one place, here or below."""
        self.total = total
        """Of all others: the sum over all levels below, along the worst way; infinite if they recur."""

    def __add__(self, other: "_Sum") -> "_Sum":
        return _Sum(self.back + other.back, self.most + other.most, self.total + other.total)


def _find_worst(entries: dict[_Node, _Entry], groups: list[list[_Node]], own: dict[_Node, float]) -> float:
    """Return the largest total of `own` at one place of any value; infinite if there is no bound."""
    most: dict[_Node, float] = {}
    total: dict[_Node, float] = {}

    def add_up(targets: dict[_Node, float] | None, component: int) -> _Sum:
        found = _Sum()
        for target, count in (targets or {}).items():
            if entries[target].component == component:
                found.back += count
            else:
                found.most += count * most[target]
                found.total += count * total[target]
        return found

    for group in groups:
        highest, shed, is_recursive, deepest = 0.0, 0.0, False, 0.0
        for node in group:
            entry = entries[node]
            highest = max(highest, own[node])
            # What applies to every child of a kind (`additionalProperties`, `items`) applies to the named ones too.
            shared = {kind: add_up(entry.children.get((kind, "")), entry.component) for kind in _KINDS}
            for (kind, name), targets in entry.children.items():
                child = shared[kind] if not name else shared[kind] + add_up(targets, entry.component)
                if child.back > 1 or (child.back and math.isinf(child.total)):
                    return math.inf
                if child.back:
                    # One way back and something besides: what each level adds is summed, but only as deep as it reaches.
                    is_recursive, shed = True, shed + child.total
                else:
                    highest, deepest = max(highest, child.most), max(deepest, child.total)
        for node in group:
            most[node] = highest + shed
            total[node] = math.inf if is_recursive else own[node] + deepest
    return most[groups[-1][0]]


# Regular expressions: the estimated size of each, once every repetition is written out

_REPEATED = re.compile(r"\{(\d{1,6})(?:,(\d{0,6}))?\}")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*+\]", re.DOTALL)
_NAMED_CLASS = re.compile(r"\\[pP]\{[^}]{0,64}+\}")
_WIDE = 60
"""A class such as `\\w` covers all of Unicode, and counts as this many characters."""

_NAMED = 600
"""As `_WIDE`, for a Unicode property: `\\p{L}`."""

_SIZE_LIMIT = 10**9
"""Larger sizes make no difference: without a limit, nested repetitions would be a number of many digits."""


def patterns_of(schema: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield the patterns of one schema with their places, without those of the schemas inside it."""
    if isinstance(pattern := schema.get("pattern"), str):
        yield "/pattern", pattern
    if isinstance(named := schema.get("patternProperties"), dict):
        for pattern in named:
            yield to_pointer(("patternProperties", pattern)), pattern


def estimate_pattern_size(pattern: str) -> int:
    """Return about how many states the automaton of a pattern has."""
    sizes, place, last = [0], 0, 0
    # After the first class that is never closed, none is: searching again at every bracket would take quadratic time.
    is_closed = True
    while place < len(pattern):
        letter = pattern[place]
        if letter == "(":
            sizes[-1] += last
            sizes.append(0)
            last = 0
        elif letter == ")" and len(sizes) > 1:
            last += sizes.pop()
        elif letter == "{" and (found := _REPEATED.match(pattern, place)):
            times = int(found[2] or found[1]) if found[2] != "" else int(found[1]) + 1
            last = min(last * max(1, times), _SIZE_LIMIT)
            place = found.end() - 1
        elif letter == "[" and is_closed and (is_closed := bool(found := _CLASS.match(pattern, place))) and found:
            sizes[-1], last = sizes[-1] + last, 1 + _atom_size(found[0])
            place = found.end() - 1
        elif letter == "\\" and (found := _NAMED_CLASS.match(pattern, place)):
            sizes[-1], last = sizes[-1] + last, _NAMED
            place = found.end() - 1
        else:
            is_escape = letter == "\\" and place + 1 < len(pattern)
            sizes[-1], last = sizes[-1] + last, _atom_size(pattern[place : place + 2] if is_escape else letter)
            place += is_escape
        place += 1
    size = sum(sizes) + last
    # Case-insensitive: most characters have two or more forms.
    return 4 * size if "(?i" in pattern else size


def _atom_size(atom: str) -> int:
    if "\\p" in atom or "\\P" in atom:
        return _NAMED * (atom.count("\\p") + atom.count("\\P"))
    return _WIDE if "\\" in atom or "^" in atom or atom == "." else 1
