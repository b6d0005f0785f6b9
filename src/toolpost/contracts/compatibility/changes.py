"""A change made from its rule: the verdict is the rule's, the rest is what was seen."""

import msgspec

from toolpost.base.ids import Json
from toolpost.contracts.compatibility.judgement import Change, RuleId
from toolpost.contracts.compatibility.rules import RULES
from toolpost.contracts.shown import TEXT_LIMIT, as_json, shorten, shorten_list

_UNSET = msgspec.UNSET


def change_by(
    rule: str,
    place: str,
    message: str | None = None,
    *,
    affected: str | None = None,
    example: Json | msgspec.UnsetType = _UNSET,
    old: Json | msgspec.UnsetType = _UNSET,
    new: Json | msgspec.UnsetType = _UNSET,
    words: tuple[tuple[str, str], ...] = (),
) -> Change:
    """Say that something changed, under one of the rules."""
    found = RULES[RuleId(rule)]
    return Change(
        rule=found.id,
        verdict=found.verdict,
        needs_bump=found.needs_bump,
        place=place,
        message=message or found.summary,
        affected=affected,
        example=example,
        old=_summarize(old),
        new=_summarize(new),
        words=words,
    )


def _summarize(value: Json | msgspec.UnsetType) -> Json | msgspec.UnsetType:
    """Return a value as it is when it is short, else what there is to know of it."""
    if value is _UNSET:
        return value
    try:
        is_short = len(as_json(value)) <= TEXT_LIMIT
    except (RecursionError, TypeError, ValueError):
        is_short = False
    if is_short:
        return value
    return shorten_list(value) if isinstance(value, list) else shorten(value)
