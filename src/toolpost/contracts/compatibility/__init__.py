"""Whether callers of a tool notice that its definition changed, and which.

judge        the verdict: every change between two definitions, within a budget
definition   one tool, whole, as a lock keeps it, and its digests
judgement    what is said of a change
rules        every rule, its verdict and its reason
schemas      the changes of one schema: proven harmless, shown to break, or neither
projection   what a schema is judged as: arguments closed, results open
walk, limits, sides   two schemas walked side by side, and what can be proven from their parts
languages    patterns as sets of texts
containment, weighing   the validator's algebra, and what it may cost to ask it
witness, samples   the counter-example, confirmed by the validator
notes        defaults, examples, deprecation
phrases      how a change of a schema is said
facts        names, annotations, error codes, limits, versions
words, texts the wording, apart from what a schema asserts
changes      a change made from its rule
budget       the work that one pair may take
"""

from toolpost.contracts.compatibility.definition import Definition, Digests
from toolpost.contracts.compatibility.judge import BUDGET_S, cut_short, is_quick, judge
from toolpost.contracts.compatibility.judgement import Change, Judgement, RuleId, Verdict
from toolpost.contracts.compatibility.rules import RULES, Rule

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
    "cut_short",
    "is_quick",
    "judge",
]
