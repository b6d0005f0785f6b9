"""The contracts of tools, and their validation. No I/O.

contract     a tool's contract, compiled once and enforced on every call
schema       JSON Schema compiled; the only module that knows the validator
document     a schema document: the schemas inside it, and where references lead
expansion    the cost of a schema for a validator, estimated before it is compiled
closing      the closed form in which native tools publish their schemas
issues/      the errors of a value, worded for the model that sent it
display      values and schemas shortened for messages
envelope     the two styles of an answer, and their schemas
apps         the `ui://` resources of MCP Apps in definitions
compatibility/  whether callers notice that a definition changed: `judge`
findings, injection  texts of a definition that may address the model instead of the user
lockfile     `toolpost.lock` as text, and how live tools differ from it
errors       every error, by who can fix it
digest       SHA-256 digests of JSON
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

_OF_LOCKFILE = ("Drift", "LockedTool", "drifts", "lock_text", "parse_lock")


def __getattr__(name: str) -> Any:
    # Looked up on first use: importing a contract must not load the code that compares definitions.
    if name in __all__:
        module = "lockfile" if name in _OF_LOCKFILE else "compatibility"
        return getattr(importlib.import_module(f"toolpost.contracts.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
