"""What was promised, and how it is held. Nothing here does I/O, but `clocks`, which asks the system.

contract     what a tool promises, compiled once; what could not be kept is refused
schema       JSON Schema compiled, the one place that knows the validator
expansion, patterns   what a schema costs a validator, counted before it is compiled
closing      the closed form of a native tool's schema
parts, references, document   where schemas sit in a schema, and where its references lead
faults       what is wrong with a value, in words that a model can act on
reading, branches, spots, wording, suggestions, shown, values   how a fault is found and said
nearest      the known name that somebody probably meant
envelope     the two shapes of an answer, and the schema of what is really sent
compatibility  whether callers notice that a definition changed: `judge`
suspicion    what in a definition may be meant for the model and not for the person
lockfile     every tool's whole definition as text, and back
drift        what is different between a lock and what is live
errors       every error, who can put it right, and the object that a caller sees
clocks       time that passes, and the name of this boot
digest, redaction, events, ids, caller, version   names, secrets, log lines, ids, who calls
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolpost.contracts.compatibility import RULES, Change, Definition, Judgement, Rule, Verdict, judge
    from toolpost.contracts.lockfile import Drift, LockedTool, drifts, lock_text, parse_lock

__all__ = [
    "RULES",
    "Change",
    "Definition",
    "Drift",
    "Judgement",
    "LockedTool",
    "Rule",
    "Verdict",
    "drifts",
    "judge",
    "lock_text",
    "parse_lock",
]

_ELSEWHERE = {"Drift": "drift", "drifts": "drift"} | dict.fromkeys(
    ("LockedTool", "lock_text", "parse_lock"), "lockfile"
)


def __getattr__(name: str) -> Any:
    # Whoever needs a contract need not pay for judging one.
    if name in __all__:
        module = _ELSEWHERE.get(name, "compatibility")
        return getattr(importlib.import_module(f"toolpost.contracts.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
