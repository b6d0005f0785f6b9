"""The changes of a schema's assertions: each proven harmless, shown to break by an example, or neither.

The *narrow* schema must fit inside the *wide* one. For arguments, which must still be accepted, narrow is the old schema and wide
the new one. For results it is the reverse: whatever the new schema allows, the old one must have allowed. For example,
`{"maximum": 10}` changed to `{"maximum": 20}` is harmless in arguments (`input.widened`), and breaks callers in results
(`output.bounds-widened`; example: 20).

Containment is proven part by part (`walk`) or by the validator's algebra (`containment`); it is refuted by a value (`examples`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from toolpost.base.ids import Json
from toolpost.base.values import is_among
from toolpost.contracts.compatibility.containment import (
    ComparedSchema,
    Comparison,
    Containment,
    Node,
    is_never,
    matches,
)
from toolpost.contracts.compatibility.cost import Budget, compile_cost_s, is_draft_neutral
from toolpost.contracts.compatibility.examples import CounterexampleFinder, Example
from toolpost.contracts.compatibility.keywords import listed_values_of, types_of
from toolpost.contracts.compatibility.rules import RULES, Change, RuleId, Verdict, make_change
from toolpost.contracts.compatibility.walk import Difference, SchemaWalk
from toolpost.contracts.display import to_json_text, truncate
from toolpost.contracts.document import to_pointer


@dataclass(frozen=True)
class SchemaRole:
    """How a schema is judged: which side is the narrow one, and the rule for each kind of difference."""

    field: str
    prefix: str
    """What the names of its rules begin with."""
    old_is_narrow: bool
    breaks: dict[str, str]
    """The rule of each kind of difference (`Difference.kind`) that breaks callers, without `prefix`."""
    harmless: dict[str, str]
    """The same for differences that break no caller."""
    lesser: str
    """The rule of a harmless difference that has none of its own."""


ARGUMENTS = SchemaRole(
    field="inputSchema",
    prefix="input",
    old_is_narrow=True,
    breaks={
        "required-added": "required-added",
        "property-removed": "argument-removed",
        "type": "type-narrowed",
        "values": "values-removed",
        "bounds": "bounds-narrowed",
        "format": "format-narrowed",
        "other": "narrowed",
    },
    harmless={"property-added": "optional-added", "required-dropped": "required-dropped"},
    lesser="widened",
)
RESULTS = SchemaRole(
    field="outputSchema",
    prefix="output",
    old_is_narrow=False,
    breaks={
        "required-dropped": "required-dropped",
        "property-removed": "field-removed",
        "type": "type-widened",
        "values": "values-added",
        "bounds": "bounds-widened",
        "format": "format-widened",
        "other": "widened",
    },
    harmless={"property-added": "optional-added", "required-added": "required-added"},
    lesser="narrowed",
)


@dataclass(frozen=True)
class SchemaChanges:
    """The changes of what one schema asserts, as far as they were found in a first pass."""

    found: Sequence[Change] = ()
    judge: "_SchemaJudge | None" = None

    def with_examples(self) -> Sequence[Change]:
        """Return the changes after a second pass: breaks without an example are searched with the rest of the budget."""
        return self.found if self.judge is None else self.judge.add_examples()


def compare_schemas(old: Json, new: Json, role: SchemaRole, budget: Budget, published: Json = None) -> SchemaChanges:
    """Return the changes of what a schema asserts. Both schemas are projected already: closed, or open.

    `published` is the new one before it was closed, to find out whether a removed argument is refused or ignored.
    """
    one, other = ComparedSchema(old), ComparedSchema(new)
    if not budget.spend(compile_cost_s(old) + compile_cost_s(new)):
        return SchemaChanges()
    if one.compiled is None or other.compiled is None:
        which, broken = ("old", one) if one.compiled is None else ("new", other)
        message = f"the {which} schema cannot be used, so nothing is known about it: {broken.problem}"
        return SchemaChanges([make_change(f"{role.prefix}.unproven", f"/{role.field}", message)])
    judge = _SchemaJudge(one, other, role, budget, published)
    return SchemaChanges(judge.changes(), judge)


class _SchemaJudge:
    """Judges one pair of schemas."""

    def __init__(
        self, old: ComparedSchema, new: ComparedSchema, role: SchemaRole, budget: Budget, published: Json = None
    ) -> None:
        self._published = ComparedSchema(published) if isinstance(published, dict) else None
        self._old, self._new, self._role, self._budget = old, new, role, budget
        self._narrow, self._wide = (old, new) if role.old_is_narrow else (new, old)
        self._walk = SchemaWalk(old, new, budget, old_is_narrow=role.old_is_narrow)
        self._was_cut_short = budget.is_cut_short
        self._is_walked = False
        """Whether all parts were compared within the budget."""
        self._finder = CounterexampleFinder(self._narrow, self._wide, budget, old_is_narrow=role.old_is_narrow)
        self._judged: list[tuple[Change, Difference | None]] = []
        """What `changes` has found; with the difference, unless the change is about the whole schema."""

    @cached_property
    def _comparison(self) -> Comparison:
        return Comparison(self._narrow.raw, self._wide.raw, self._budget)

    def prove(self) -> Containment:
        """Prove or refute that the wide schema contains the narrow one."""
        try:
            walked = self._walk.run()
        except RecursionError:
            self._budget.is_cut_short = True
            walked = Containment.UNKNOWN
        self._is_walked = not self._budget.is_cut_short
        certain = (difference for difference in self._walk.differences if difference.containment is Containment.NO)
        if walked is not Containment.YES and any(
            self._finder.find_for_difference(difference) is not msgspec.UNSET for difference in certain
        ):
            # An example refutes it in a fraction of the time that the algebra takes.
            return Containment.NO
        answer = Containment.YES if self._comparison.is_equal else self._comparison.decide()
        if answer is Containment.UNKNOWN and walked is Containment.YES:
            # A proof from the parts counts only if every keyword means the same in both schemas.
            one, other = self._old, self._new
            if one.draft == other.draft != 0 or (is_draft_neutral(one.raw) and is_draft_neutral(other.raw)):
                answer = Containment.YES
        if answer is Containment.YES:
            # One proof is enough: that the other did not fit in the budget does not matter.
            self._budget.is_cut_short = self._was_cut_short
        return answer

    def changes(self) -> list[Change]:
        self._judged = self._judge_all()
        return [change for change, _ in self._judged]

    def add_examples(self) -> list[Change]:
        """Return the changes, with examples for those that break callers and have none, as far as the budget allows.

        Whether something breaks was decided before: an example changes no verdict.
        """
        found = [(self._add_example(change, difference), difference) for change, difference in self._judged]
        silent = [number for number, (change, _) in enumerate(found) if _lacks_example(change)]
        if not silent or any(change.example is not msgspec.UNSET for change, _ in found):
            return [change for change, _ in found]
        example = self.search_example()
        if example is msgspec.UNSET:
            return [change for change, _ in found]
        changes = [change for change, _ in found]
        if len(silent) == 1:
            # It can only be this one.
            changes[silent[0]] = self._explain(*found[silent[0]], example)
        else:
            rule = f"{self._role.prefix}.{self._role.breaks['other']}"
            changes.append(make_change(rule, f"/{self._role.field}", example=example))
        return changes

    def _add_example(self, change: Change, difference: Difference | None) -> Change:
        if difference is None or not _lacks_example(change):
            return change
        example = self._finder.search_for_difference(difference)
        return change if example is msgspec.UNSET else self._explain(change, difference, example)

    def _explain(self, change: Change, difference: Difference | None, example: Example) -> Change:
        """Return a change with its example; what was unproven is shown to break."""
        if difference is None:
            return make_change(f"{self._role.prefix}.{self._role.breaks['other']}", change.place, example=example)
        return self._make_change(
            self._role.breaks.get(difference.kind, self._role.breaks["other"]), difference, example
        )

    def search_example(self) -> Example:
        """Search harder than `find_any_example`, with the rest of the budget."""
        return self._finder.search_for_schema(self._comparison.subtract(is_optional=True))

    def _judge_all(self) -> list[tuple[Change, Difference | None]]:
        proof = self.prove()
        has_undeclared = any(self._is_undeclared_now(difference) for difference in self._walk.differences)
        if proof is Containment.YES and self._comparison.is_equal and not has_undeclared:
            return [(make_change(f"{self._role.prefix}.rewritten", f"/{self._role.field}"), None)]
        found: list[tuple[Change, Difference | None]] = [
            (change, difference)
            for difference in self._iterate_reported()
            for change in self._judge_difference(difference, proof)
        ]
        if proof is not Containment.YES and not any(
            change.needs_bump and change.verdict == "breaking" for change, _ in found
        ):
            found += ((change, None) for change in self._judge_whole(proof))
        if found or (proof is not Containment.YES and self._budget.is_cut_short):
            return found
        # No difference was found, only another notation: a reference, an order. If the walk was incomplete, all that is known is
        # that nothing is lost.
        name = "rewritten" if self._is_walked else self._role.lesser
        return [(make_change(f"{self._role.prefix}.{name}", f"/{self._role.field}"), None)]

    def _iterate_reported(self) -> Iterator[Difference]:
        """Yield the differences to report; a new property that is required is reported as `required-added` only."""
        required = {(d.new.place, d.name) for d in self._walk.differences if d.kind == "required-added"}
        gone = {(d.old.place, d.name) for d in self._walk.differences if d.kind == "property-removed"}
        for difference in self._walk.differences:
            if difference.kind == "property-added" and (difference.new.place, difference.name) in required:
                continue
            if difference.kind == "required-dropped" and (difference.old.place, difference.name) in gone:
                continue
            yield difference

    def _judge_difference(self, difference: Difference, proof: Containment) -> Iterator[Change]:
        is_withdrawn = self._is_undeclared_now(difference)
        if not is_withdrawn and (proof is Containment.YES or difference.containment is Containment.YES):
            name = self._role.harmless.get(difference.kind, self._role.lesser)
            yield self._make_change(name, difference)
            return
        example = self._finder.find_for_difference(difference)
        if example is msgspec.UNSET and is_withdrawn and self._role.old_is_narrow:
            # An open schema refuses nothing: the argument is ignored, which is no better for the caller.
            example = self._finder.find_value_with_property(difference)
        if example is msgspec.UNSET and difference.containment is not Containment.NO and not is_withdrawn:
            if not self._budget.is_cut_short:
                yield self._make_change("unproven", difference)
            return
        name = self._role.breaks.get(difference.kind, self._role.breaks["other"])
        yield self._make_change(name, difference, example)

    def _is_undeclared_now(self, difference: Difference) -> bool:
        """Return whether a property is no longer declared; an open schema still accepts anything under its name."""
        if difference.kind != "property-removed":
            return False
        declared = difference.old.schema["properties"][difference.name]
        allowed = difference.new.schema.get("additionalProperties", True)
        if is_never(declared) or (isinstance(allowed, dict) and allowed):
            return False
        patterns = difference.new.schema.get("patternProperties")
        for pattern, described in patterns.items() if isinstance(patterns, dict) else ():
            if described not in ({}, True) and matches(pattern, difference.name):
                return False
        return difference.name not in self._new.document.find_declarations(difference.new.place, difference.new.schema)

    def _make_change(self, name: str, difference: Difference, example: Example = msgspec.UNSET) -> Change:
        old, new = _values_to_show(difference)
        # Whether a call with a removed argument is still accepted.
        is_ignored = (
            name == "argument-removed"
            and example is not msgspec.UNSET
            and self._published is not None
            and self._published.admits(example) is True
        )
        return make_change(
            f"{self._role.prefix}.{name}",
            f"/{self._role.field}{_find_place(difference)}",
            _describe_difference(self._role.prefix, name, difference, is_ignored=is_ignored),
            affected=_describe_affected(self._role.prefix, name, difference),
            example=example,
            old=old,
            new=new,
        )

    def _judge_whole(self, proof: Containment) -> Iterator[Change]:
        """Yield a change of the whole schema where no single difference explains it."""
        place = f"/{self._role.field}"
        example = self.find_any_example()
        if example is not msgspec.UNSET or proof is Containment.NO:
            yield make_change(f"{self._role.prefix}.{self._role.breaks['other']}", place, example=example)
        elif not self._budget.is_cut_short:
            yield make_change(f"{self._role.prefix}.unproven", place)

    def find_any_example(self) -> Example:
        """Return any value that only the narrow schema accepts, or `UNSET`."""
        return self._finder.find_for_schema(self._comparison.subtract())


def _lacks_example(change: Change) -> bool:
    return change.verdict is Verdict.BREAKING and change.example is msgspec.UNSET


def _find_place(difference: Difference) -> str:
    if difference.kind == "property-removed":
        return difference.old.place + to_pointer(("properties", difference.name))
    if difference.kind in ("property-added", "required-added"):
        properties = difference.new.schema.get("properties")
        if isinstance(properties, dict) and difference.name in properties:
            return difference.new.place + to_pointer(("properties", difference.name))
        return f"{difference.new.place}/required"
    if difference.kind == "required-dropped":
        return f"{difference.new.place}/required" if "required" in difference.new.schema else difference.new.place
    is_there = difference.keyword in difference.new.schema
    return f"{difference.new.place}/{difference.keyword}" if is_there else difference.new.place


def _values_to_show(difference: Difference) -> tuple[Json, Json]:
    if difference.name:
        key, old, new = (
            difference.name,
            difference.old.schema.get("properties"),
            difference.new.schema.get("properties"),
        )
    else:
        key, old, new = difference.keyword, difference.old.schema, difference.new.schema
    unset = msgspec.UNSET
    return (
        old.get(key, unset) if isinstance(old, dict) else unset,
        new.get(key, unset) if isinstance(new, dict) else unset,
    )


# Messages


def _name_subject(difference: Difference) -> str:
    """Return the path to the value that a difference is about, as people write it: `filter.tags[]`."""
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
    return truncate(text.removeprefix("."))


def _describe_difference(prefix: str, name: str, difference: Difference, *, is_ignored: bool = False) -> str | None:
    """Describe what changed in a sentence; None if the rule's summary says everything."""
    subject = _name_subject(difference)
    what = f"`{subject}`" if subject else "the value"
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
    return _describe_keyword(what, difference)


def _describe_keyword(what: str, difference: Difference) -> str | None:
    old, new = difference.old, difference.new
    match difference.kind:
        case "type":
            return f"{what} is {_describe_types(new)}, and was {_describe_types(old)}"
        case "values":
            gone, come = _values_only_in(old, new), _values_only_in(new, old)
            if come and listed_values_of(old.schema, 0) is None:
                return f"{what} must now be one of {_list_values(come)}"
            if gone and listed_values_of(new.schema, 0) is None:
                return f"{what} may now be others than {_list_values(gone)}"
            parts = [
                *([f"may no longer be {_list_values(gone)}"] if gone else []),
                *([f"may now be {_list_values(come)}"] if come else []),
            ]
            return f"{what} {', and '.join(parts)}" if parts else f"{what} has a different list of values"
        case "bounds" | "format":
            word = difference.keyword
            return f"{what}: `{word}` is {_describe_value(new, word)}, and was {_describe_value(old, word)}"
    return f"{what}: `{difference.keyword}` has changed" if difference.keyword else None


def _describe_types(node: Node) -> str:
    types = types_of(node.schema)
    if "type" not in node.schema:
        return "of any type"
    # A number includes the integers: naming both would look like two types.
    shown = types - {"integer"} if "number" in types else types
    return " or ".join(sorted(shown))


def _values_only_in(one: Node, other: Node) -> list[Json]:
    some, others = listed_values_of(one.schema, 0), listed_values_of(other.schema, 0)
    return [value for value in (some or [])[:200] if not is_among(value, (others or [])[:200])]


def _list_values(values: list[Json]) -> str:
    shown = ", ".join(truncate(to_json_text(value)) for value in values[:5])
    return shown if len(values) <= 5 else f"{shown} and {len(values) - 5} more"


def _describe_value(node: Node, word: str) -> str:
    return truncate(to_json_text(node.schema[word])) if word in node.schema else "not set"


def _describe_affected(prefix: str, name: str, difference: Difference) -> str | None:
    """Describe which callers notice; None if none do."""
    if RULES[RuleId(f"{prefix}.{name}")].verdict is Verdict.COMPATIBLE:
        return None
    subject = _name_subject(difference)
    what = f"`{subject}`" if subject else ""
    if prefix == "output":
        return f"callers that read {what or 'the result'}"
    if name == "required-added":
        return f"callers that leave out {what}"
    return f"callers that send {what}" if what else "callers"
