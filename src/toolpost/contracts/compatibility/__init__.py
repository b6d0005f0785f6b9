"""Whether callers of a tool notice that its definition changed, and which callers.

judge        the entry: every change between two definitions, within a budget
definition   one tool, whole, as a lock keeps it, and its digests
judgement    `Change`, `Judgement`, `Verdict`
rules        every rule with its verdict and reason
metadata     changes beside what schemas assert: names, hints, limits, versions, defaults, wording
schemas      changes of what a schema asserts: proven harmless, shown to break, or neither
projection   what a schema is judged as: arguments closed, results open
walk, keywords, compared   two schemas compared part by part
regex        whether one regular expression matches all that another matches
containment  the validator's algebra of schemas
examples     counterexamples, confirmed by the validator
annotations  schemas without what they do not assert
cost         how long a comparison may take, and the budget for it
"""

from toolpost.contracts.compatibility.definition import Definition, Digests
from toolpost.contracts.compatibility.judge import BUDGET_S, is_quick, judge, make_cut_short_judgement
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
    "is_quick",
    "judge",
    "make_cut_short_judgement",
]
