"""A change of wording, word by word: what a person must look at."""

import difflib
import re
from collections.abc import Iterator

from toolpost.base.ids import Json
from toolpost.contracts.compatibility.budget import Budget
from toolpost.contracts.compatibility.changes import change_by
from toolpost.contracts.compatibility.definition import Definition
from toolpost.contracts.compatibility.judgement import Change
from toolpost.contracts.compatibility.texts import without_texts
from toolpost.contracts.parts import part_at

WORDS_COMPARED = 150
"""Comparing may cost the third power of this; longer stretches are told as gone and come."""

_WORD = re.compile(r"\s*\S+\s*")
_KEPT_AROUND = 6
_WORDS_S = 0.001


def wording_changes(old: Definition, new: Definition, budget: Budget) -> Iterator[Change]:
    """Say what reads otherwise."""
    yield from _compare_text("wording.title-changed", "/title", old.title or "", new.title or "", budget)
    yield from _compare_text("wording.description-changed", "/description", old.description, new.description, budget)
    for field, one, other in (
        ("inputSchema", old.input_schema, new.input_schema),
        ("outputSchema", old.output_schema, new.output_schema),
    ):
        yield from _compare_texts(f"/{field}", one, other, budget)


def _compare_texts(root: str, one: Json, other: Json, budget: Budget) -> Iterator[Change]:
    if one == other or one is None or other is None:
        return
    old, new = without_texts(one)[1], without_texts(other)[1]
    for place in sorted(old.keys() | new.keys()):
        around = place.rpartition("/")[0]
        # The words of an argument that is new or gone come and go with it; its own rule speaks of that.
        if part_at(one, around) is not None and part_at(other, around) is not None:
            before, after = old.get(place, ""), new.get(place, "")
            yield from _compare_text("wording.schema-text-changed", root + place, before, after, budget)


def _compare_text(rule: str, place: str, old: str, new: str, budget: Budget) -> Iterator[Change]:
    if old != new:
        # Where comparing them is too much work, the words are told whole: that they changed is certain.
        words = word_diff(old, new) if budget.has(_WORDS_S) else ()
        yield change_by(rule, place, old=old, new=new, affected="models that read it", words=words)


def word_diff(old: str, new: str) -> tuple[tuple[str, str], ...]:
    """Return what stayed (`=`), went (`-`) and came (`+`), long stretches that stayed cut short."""
    before, after = _WORD.findall(old), _WORD.findall(new)
    head = _common(before, after)
    tail = _common(before[head:][::-1], after[head:][::-1])
    same_head, same_tail = before[:head], before[len(before) - tail :]
    changed = _diff(before[head : len(before) - tail], after[head : len(after) - tail])
    parts = [("=", _shorten(same_head, keep_end=True)), *changed, ("=", _shorten(same_tail, keep_end=False))]
    return tuple((sign, text) for sign, text in parts if text)


def _common(one: list[str], other: list[str]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _diff(before: list[str], after: list[str]) -> Iterator[tuple[str, str]]:
    if max(len(before), len(after)) > WORDS_COMPARED:
        yield "-", "".join(before)
        yield "+", "".join(after)
        return
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, i1, i2, j1, j2 in matcher.get_opcodes():
        if kind == "equal":
            yield "=", _shorten(before[i1:i2], keep_end=True)
            continue
        yield "-", "".join(before[i1:i2])
        yield "+", "".join(after[j1:j2])


def _shorten(words: list[str], *, keep_end: bool) -> str:
    if len(words) <= 2 * _KEPT_AROUND:
        return "".join(words)
    return "… " + "".join(words[-_KEPT_AROUND:]) if keep_end else "".join(words[:_KEPT_AROUND]) + " …"
