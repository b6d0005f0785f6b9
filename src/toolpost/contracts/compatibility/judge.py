"""The verdict on a change: two definitions in, every change out, within a budget."""

from collections.abc import Iterator

from toolpost.contracts.closing import closed
from toolpost.contracts.compatibility.budget import Budget
from toolpost.contracts.compatibility.changes import change_by
from toolpost.contracts.compatibility.definition import Definition
from toolpost.contracts.compatibility.facts import fact_changes
from toolpost.contracts.compatibility.judgement import Change, Judgement, ordered
from toolpost.contracts.compatibility.texts import without_texts
from toolpost.contracts.compatibility.words import wording_changes
from toolpost.contracts.ids import Json
from toolpost.contracts.parts import draft_of
from toolpost.contracts.schema import canonical_form

BUDGET_S = 1.0


def judge(old: Definition, new: Definition, *, budget_s: float = BUDGET_S) -> Judgement:
    """Say what changed and what it means for whoever calls the tool today."""
    budget = Budget(budget_s)
    changes = [*fact_changes(old, new), *wording_changes(old, new), *_input(old, new), *_output(old, new)]
    if budget.is_cut_short:
        changes.append(change_by("budget.spent", ""))
    return Judgement(changes=ordered(changes), is_cut_short=budget.is_cut_short)


def _input(old: Definition, new: Definition) -> Iterator[Change]:
    if without_texts(old.input_schema)[0] == without_texts(new.input_schema)[0]:
        return
    is_wider = _covers(_closed(new.input_schema), _closed(old.input_schema))
    yield change_by("input.widened" if is_wider else "input.narrowed", "/inputSchema")


def _output(old: Definition, new: Definition) -> Iterator[Change]:
    one, other = old.output_schema, new.output_schema
    if one is None or other is None:
        if one is not other:
            yield change_by("output.schema-added" if one is None else "output.schema-removed", "/outputSchema")
    elif without_texts(one)[0] != without_texts(other)[0]:
        yield change_by("output.narrowed" if _covers(one, other) else "output.widened", "/outputSchema")


def _closed(schema: Json) -> Json:
    return closed(schema) if isinstance(schema, dict) else schema


def _covers(wide: Json, narrow: Json) -> bool:
    draft = draft_of(wide) if isinstance(wide, dict) else 2020
    try:
        covered = canonical_form(wide, draft=draft or 2020).covers(canonical_form(narrow, draft=draft or 2020))
    except ValueError:
        return False
    return str(covered) == "yes"
