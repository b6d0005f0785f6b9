"""The judge's answer about two schemas alone, without roles and rules: what the claims and the fuzzer are checked against."""

import msgspec

from toolpost.base.ids import Json
from toolpost.contracts.compatibility.containment import ComparedSchema, Containment
from toolpost.contracts.compatibility.cost import Budget, compile_cost_s
from toolpost.contracts.compatibility.schema_changes import ARGUMENTS, _SchemaJudge


def decide_containment(narrow: Json, wide: Json, budget: Budget) -> Containment:
    """Return whether one schema accepts every value that another accepts, each as it is."""
    one, other = ComparedSchema(narrow), ComparedSchema(wide)
    if not budget.spend(compile_cost_s(narrow) + compile_cost_s(wide)):
        return Containment.UNKNOWN
    if one.compiled is None or other.compiled is None:
        return Containment.UNKNOWN
    schema_judge = _SchemaJudge(one, other, ARGUMENTS, budget)
    if (answer := schema_judge.prove()) is not Containment.UNKNOWN:
        return answer
    has_example = schema_judge.find_any_example() is not msgspec.UNSET
    return Containment.NO if has_example or schema_judge.search_example() is not msgspec.UNSET else Containment.UNKNOWN
