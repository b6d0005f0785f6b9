"""The changes of one schema: proven harmless, shown to break, or neither."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import msgspec

from toolpost.base.ids import Json
from toolpost.contracts.compatibility.budget import Budget
from toolpost.contracts.compatibility.changes import change_by
from toolpost.contracts.compatibility.containment import Answer, Comparison
from toolpost.contracts.compatibility.judgement import Change
from toolpost.contracts.compatibility.phrases import message, who_notices
from toolpost.contracts.compatibility.sides import Node, Side, is_match, is_never
from toolpost.contracts.compatibility.walk import Difference, Walk
from toolpost.contracts.compatibility.weighing import compile_cost_s, is_draft_neutral
from toolpost.contracts.compatibility.witness import Example, Witnesses


@dataclass(frozen=True)
class Role:
    """How a schema is judged: which of the two must take what the other takes, and what each kind of break is called."""

    field: str
    prefix: str
    old_is_narrow: bool
    breaks: dict[str, str]
    harmless: dict[str, str]
    lesser: str
    """What a harmless change is called that has no name of its own."""


ARGUMENTS = Role(
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
RESULTS = Role(
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


def schema_changes(old: Json, new: Json, role: Role, budget: Budget, published: Json = None) -> list[Change]:
    """Say what changed of what a schema asserts. Both are as they are judged: closed, or open.

    `published` is the new one as callers meet it, to say whether they are refused.
    """
    one, other = Side(old), Side(new)
    if not budget.allows(compile_cost_s(old) + compile_cost_s(new)):
        return []
    if one.accepts is None or other.accepts is None:
        which, broken = ("old", one) if one.accepts is None else ("new", other)
        message = f"the {which} schema cannot be used, so nothing is known of it: {broken.problem}"
        return [change_by(f"{role.prefix}.unproven", f"/{role.field}", message)]
    return _Judging(one, other, role, budget, published).changes()


def contains(narrow: Json, wide: Json, budget: Budget) -> Answer:
    """Say whether one schema takes every value that another takes, each just as it is."""
    one, other = Side(narrow), Side(wide)
    if not budget.allows(compile_cost_s(narrow) + compile_cost_s(wide)):
        return Answer.UNKNOWN
    if one.accepts is None or other.accepts is None:
        return Answer.UNKNOWN
    judging = _Judging(one, other, ARGUMENTS, budget)
    if (answer := judging.proof()) is not Answer.UNKNOWN:
        return answer
    return Answer.UNKNOWN if judging.example_of_all() is msgspec.UNSET else Answer.NO


class _Judging:
    """One pair of schemas."""

    def __init__(self, old: Side, new: Side, role: Role, budget: Budget, published: Json = None) -> None:
        self._published = Side(published) if isinstance(published, dict) else None
        self._old, self._new, self._role, self._budget = old, new, role, budget
        self._narrow, self._wide = (old, new) if role.old_is_narrow else (new, old)
        self._walk = Walk(old, new, budget, old_is_narrow=role.old_is_narrow)
        self._was_cut_short = budget.is_cut_short
        self._is_walked = False
        """Whether all parts were compared, within the budget."""
        self._witnesses = Witnesses(self._narrow, self._wide, budget, old_is_narrow=role.old_is_narrow)

    @cached_property
    def _comparison(self) -> Comparison:
        return Comparison(self._narrow.raw, self._wide.raw, self._budget)

    def proof(self) -> Answer:
        """Prove that the wide schema takes all of the narrow one, in one of two ways, or that it does not."""
        walked = self._walk_parts()
        if walked is not Answer.YES and self._is_refuted():
            # An example is a proof too, and found in a fraction of the time that the algebra takes.
            return Answer.NO
        answer = Answer.YES if self._comparison.is_equal else self._comparison.answer()
        if answer is Answer.YES or (answer is Answer.UNKNOWN and walked is Answer.YES and self._may_be_walked()):
            # One proof is enough: what the other would have cost does not matter.
            self._budget.is_cut_short = self._was_cut_short
            return Answer.YES
        return answer

    def _walk_parts(self) -> Answer:
        try:
            walked = self._walk.answer()
        except RecursionError:
            self._budget.is_cut_short = True
            walked = Answer.UNKNOWN
        self._is_walked = not self._budget.is_cut_short
        return walked

    def _is_refuted(self) -> bool:
        certain = (difference for difference in self._walk.differences if difference.answer is Answer.NO)
        return any(self._witnesses.of_difference(difference) is not msgspec.UNSET for difference in certain)

    def _may_be_walked(self) -> bool:
        """Say whether a proof from the parts counts: both are valid, and every keyword means the same in both."""
        one, other = self._old, self._new
        return one.draft == other.draft != 0 or (is_draft_neutral(one.raw) and is_draft_neutral(other.raw))

    def changes(self) -> list[Change]:
        """Say what changed."""
        proof = self.proof()
        if proof is Answer.YES and self._comparison.is_equal and not self._has_removed():
            return [change_by(f"{self._role.prefix}.rewritten", f"/{self._role.field}")]
        found = [change for difference in self._report() for change in self._judge(difference, proof)]
        if proof is not Answer.YES and not any(change.needs_bump and change.verdict == "breaking" for change in found):
            found += self._of_all(proof)
        if found or (proof is not Answer.YES and self._budget.is_cut_short):
            return found
        # Everything that was compared is the same, and something is written otherwise: a reference, an order. Where not
        # everything was compared, all that is known is that nothing is lost.
        name = "rewritten" if self._is_walked else self._role.lesser
        return [change_by(f"{self._role.prefix}.{name}", f"/{self._role.field}")]

    def _has_removed(self) -> bool:
        return any(self._is_withdrawn(difference) for difference in self._walk.differences)

    def _report(self) -> Iterator[Difference]:
        """Yield the differences, each place once; a new property that is required is told as that alone."""
        required = {(d.new.place, d.name) for d in self._walk.differences if d.kind == "required-added"}
        gone = {(d.old.place, d.name) for d in self._walk.differences if d.kind == "property-removed"}
        for difference in self._walk.differences:
            if difference.kind == "property-added" and (difference.new.place, difference.name) in required:
                continue
            if difference.kind == "required-dropped" and (difference.old.place, difference.name) in gone:
                continue
            yield difference

    def _judge(self, difference: Difference, proof: Answer) -> Iterator[Change]:
        is_withdrawn = self._is_withdrawn(difference)
        if not is_withdrawn and (proof is Answer.YES or difference.answer is Answer.YES):
            name = self._role.harmless.get(difference.kind, self._role.lesser)
            yield self._change(name, difference)
            return
        example = self._witnesses.of_difference(difference)
        if example is msgspec.UNSET and is_withdrawn and self._role.old_is_narrow:
            # Where the new schema is open, nothing is refused: what a caller asks for is ignored, which is no better.
            example = self._witnesses.of_use(difference)
        if example is msgspec.UNSET and difference.answer is not Answer.NO and not is_withdrawn:
            if not self._budget.is_cut_short:
                yield self._change("unproven", difference)
            return
        name = self._role.breaks.get(difference.kind, self._role.breaks["other"])
        yield self._change(name, difference, example)

    def _is_withdrawn(self, difference: Difference) -> bool:
        """Say whether a property is declared no more; an open schema still takes anything under its name."""
        if difference.kind != "property-removed":
            return False
        declared = difference.old.schema["properties"][difference.name]
        allowed = difference.new.schema.get("additionalProperties", True)
        if is_never(declared) or (isinstance(allowed, dict) and allowed):
            return False
        patterns = difference.new.schema.get("patternProperties")
        for pattern, described in patterns.items() if isinstance(patterns, dict) else ():
            if described not in ({}, True) and is_match(pattern, difference.name):
                return False
        return difference.name not in self._new.document.declarations(difference.new.place, difference.new.schema)

    def _change(self, name: str, difference: Difference, example: Example = msgspec.UNSET) -> Change:
        old, new = _values_to_show(difference)
        return change_by(
            f"{self._role.prefix}.{name}",
            f"/{self._role.field}{_place(difference)}",
            message(self._role.prefix, name, difference, is_ignored=self._is_ignored(name, example)),
            affected=who_notices(self._role.prefix, name, difference),
            example=example,
            old=old,
            new=new,
        )

    def _is_ignored(self, name: str, example: Example) -> bool:
        """Say whether a call with an argument that is gone is accepted all the same."""
        if name != "argument-removed" or example is msgspec.UNSET or self._published is None:
            return False
        return self._published.admits(example) is True

    def _of_all(self, proof: Answer) -> Iterator[Change]:
        """Say something of the whole where no single difference accounts for it."""
        place = f"/{self._role.field}"
        example = self.example_of_all()
        if example is not msgspec.UNSET or proof is Answer.NO:
            yield change_by(f"{self._role.prefix}.{self._role.breaks['other']}", place, example=example)
        elif not self._budget.is_cut_short:
            yield change_by(f"{self._role.prefix}.unproven", place)

    def example_of_all(self) -> Example:
        """Return any value that only the narrow schema takes."""
        return self._witnesses.of_schema(self._comparison.lost())


def _place(difference: Difference) -> str:
    if difference.kind == "property-removed":
        return Node(difference.old.place, {}).child(_property(difference.name), {}).place
    if difference.kind in ("property-added", "required-added"):
        properties = difference.new.schema.get("properties")
        if isinstance(properties, dict) and difference.name in properties:
            return difference.new.place + _property(difference.name)
        return f"{difference.new.place}/required"
    if difference.kind == "required-dropped":
        return f"{difference.new.place}/required" if "required" in difference.new.schema else difference.new.place
    is_there = difference.keyword in difference.new.schema
    return f"{difference.new.place}/{difference.keyword}" if is_there else difference.new.place


def _property(name: str) -> str:
    return "/properties/" + name.replace("~", "~0").replace("/", "~1")


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
