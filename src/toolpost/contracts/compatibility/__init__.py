"""Whether callers of a tool notice that its definition changed, and which callers: `judge`.

A definition has four kinds of content, and each is compared in its own way: fields of the tool (name, hints, limits), what the
schemas assert, their annotations, and texts. Every difference is a `Change` under one rule, and the worst verdict counts. For
example, an optional argument that becomes mandatory is one `input.required-added`: breaking, with a call that was accepted and
no longer is. All of it is bounded by a budget of estimated work, so that a pair has the same verdict on every machine.

definition      one tool, whole, as a lock keeps it, and its digests
rules           every rule with its verdict and reason; `Change`, `Judgement`, `Verdict`
metadata        changes outside of schemas' assertions: names, hints, limits, versions, defaults, wording
projection      the judged form of a schema: arguments closed, results open
schema_changes  changes of a schema's assertions: proven harmless, shown to break, or neither
walk, keywords  two schemas compared part by part
containment     the two sides of a comparison, and the validator's algebra of schemas
regex           whether one regular expression matches all that another matches
sampling        values that probably fit a schema
refutation      values that probably fit one schema and violate another
examples        counterexamples, confirmed by the validator
explanation     a change as lines of text
cost            how long a comparison may take, and the budget for it
"""

from collections.abc import Iterator

from toolpost.base.ids import Json
from toolpost.base.values import is_same_json
from toolpost.contracts.compatibility.cost import Budget, comparison_cost_s, is_small_enough, properties_cost_s
from toolpost.contracts.compatibility.definition import Definition, Digests
from toolpost.contracts.compatibility.metadata import compare_annotations, compare_tool_fields, compare_wording
from toolpost.contracts.compatibility.projection import close_arguments, open_results
from toolpost.contracts.compatibility.rules import (
    RULES,
    Change,
    Judgement,
    Rule,
    RuleId,
    Verdict,
    make_change,
    sort_changes,
)
from toolpost.contracts.compatibility.schema_changes import ARGUMENTS, RESULTS, SchemaChanges, compare_schemas
from toolpost.contracts.document import strip_annotations
from toolpost.contracts.schema import SchemaProblem, check_places

__all__ = [
    "BUDGET_S",
    "RULES",
    "Change",
    "Definition",
    "Digests",
    "Judgement",
    "Rule",
    "RuleId",
    "Verdict",
    "is_quick",
    "judge",
    "make_cut_short_judgement",
]

BUDGET_S = 1.0
"""In estimated seconds on a slow machine (`cost`); most pairs take a thousandth of it."""
QUICK_S = 0.05


def judge(old: Definition, new: Definition, *, budget_s: float = BUDGET_S, only_if_quick: bool = False) -> Judgement:
    """Return the changes, and their effect on current callers of the tool.

    Never `compatible` if a call that worked would be refused, or a result is possible that the old schema ruled out. If the
    budget is spent first, the verdict is at least `review`; with `only_if_quick`, also where a step might take long.
    """
    if only_if_quick and not is_quick(old, new):
        return make_cut_short_judgement()
    old_json, new_json = old.to_json(), new.to_json()
    if not is_small_enough(old_json) or not is_small_enough(new_json):
        return make_cut_short_judgement()
    if is_same_json(old_json, new_json):
        return Judgement()
    budget = Budget(budget_s)
    changes = [*compare_tool_fields(old, new), *_compare_annotations(old, new)]
    asserted = _compare_arguments(old, new, budget), _compare_results(old, new, budget)
    changes += compare_wording(old, new, budget)
    # Last, because examples change no verdict: everything that does has had its share of the budget.
    for each in asserted:
        changes += each.with_examples()
    if budget.is_cut_short:
        changes.append(make_change("budget.spent", ""))
    return Judgement(changes=sort_changes(changes), is_cut_short=budget.is_cut_short)


def make_cut_short_judgement() -> Judgement:
    """Return the judgement on a change that could not be judged within the budget."""
    return Judgement(changes=(make_change("budget.spent", ""),), is_cut_short=True)


def is_quick(old: Definition, new: Definition) -> bool:
    """Return whether every step of judging is quick: native steps cannot be interrupted, even in a thread."""
    old_json, new_json = old.to_json(), new.to_json()
    if not is_small_enough(old_json) or not is_small_enough(new_json):
        return True  # Not judged at all.
    # The same estimates as in `judge`, so that what is quick here is quick there.
    left_s = QUICK_S
    for schema in (old.input_schema, new.input_schema, old.output_schema, new.output_schema):
        left_s -= comparison_cost_s(schema)
    return left_s > 0 and properties_cost_s(old_json, new_json) < left_s


def _compare_annotations(old: Definition, new: Definition) -> Iterator[Change]:
    for field, one, other in (
        ("inputSchema", old.input_schema, new.input_schema),
        ("outputSchema", old.output_schema, new.output_schema),
    ):
        is_walked = one is not None and other is not None and _find_problem(one, other) is None
        if is_walked and not is_same_json(one, other):
            yield from compare_annotations(one, other, f"/{field}", are_arguments=field == "inputSchema")


def _compare_arguments(old: Definition, new: Definition, budget: Budget) -> SchemaChanges:
    old_schema, new_schema = old.input_schema, new.input_schema
    if (problem := _find_problem(old_schema, new_schema)) is not None:
        return SchemaChanges([make_change("input.unproven", "/inputSchema", problem)])
    if not _asserts_otherwise(old_schema, new_schema):
        return SchemaChanges()
    closed = close_arguments(old_schema, new_schema), close_arguments(new_schema, old_schema)
    return compare_schemas(*closed, ARGUMENTS, budget, published=new_schema)


def _compare_results(old: Definition, new: Definition, budget: Budget) -> SchemaChanges:
    old_schema, new_schema = old.output_schema, new.output_schema
    if old_schema is None or new_schema is None:
        if old_schema is new_schema:
            return SchemaChanges()
        rule = "output.schema-added" if old_schema is None else "output.schema-removed"
        return SchemaChanges([make_change(rule, "/outputSchema", affected="callers that read the result")])
    if (problem := _find_problem(old_schema, new_schema)) is not None:
        return SchemaChanges([make_change("output.unproven", "/outputSchema", problem)])
    if not _asserts_otherwise(old_schema, new_schema):
        return SchemaChanges()
    # Only the old one is opened: it is the wide side, and what callers ignore may be in the new one.
    return compare_schemas(open_results(old_schema), new_schema, RESULTS, budget, published=new_schema)


def _find_problem(old: Json, new: Json) -> str | None:
    """Return why the schemas are not walked at all; None for nearly all."""
    for which, schema in (("old", old), ("new", new)):
        try:
            # Refuses what is nested too deeply, or so named that its places would be huge.
            check_places(schema)
        except SchemaProblem as problem:
            return f"the {which} schema cannot be used, so nothing is known about it: {problem.reason}"
    return None


def _asserts_otherwise(old: Json, new: Json) -> bool:
    return not is_same_json(strip_annotations(old), strip_annotations(new))
