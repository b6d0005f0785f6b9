"""A change of a definition as lines of text, for people."""

import json
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from toolpost.base.ids import Json
from toolpost.contracts.compatibility.rules import Change

VALUE_LIMIT: Final = 400


def describe_change(change: Change) -> Iterator[str]:
    """Yield the lines that explain a change, without color."""
    yield change.message
    if change.words:
        yield render_word_diff(change.words)
    if change.affected:
        yield f"affects {change.affected}"
    if change.example is not msgspec.UNSET:
        yield f"{example_label(change)}: {format_value(change.example)}"
    if change.needs_bump:
        yield "needs a higher schemaVersion"


def example_label(change: Change) -> str:
    if change.rule == "input.argument-removed":
        # Where the new schema is open, such a call is accepted; the message says so.
        return "a call that sends it"
    is_result = change.rule.startswith("output.")
    return "a result that no caller had to expect" if is_result else "a call that used to work and no longer does"


def render_word_diff(words: Iterable[tuple[str, str]]) -> str:
    """Write a word diff as git does: `[-gone-]` and `{+new+}`."""
    marks = {"=": ("", ""), "-": ("[-", "-]"), "+": ("{+", "+}")}
    return " ".join(f"{marks[kind][0]}{text}{marks[kind][1]}" for kind, text in words)


def format_value(value: Json) -> str:
    """Write a value on one line of at most `VALUE_LIMIT` characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= VALUE_LIMIT else f"{text[:VALUE_LIMIT]}…"
