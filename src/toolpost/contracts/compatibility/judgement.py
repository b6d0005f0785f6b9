"""The result of judging: changes with their rule, verdict, place, who is affected, and an example."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NewType

import msgspec

from toolpost.base.ids import Json

RuleId = NewType("RuleId", str)
"""`input.required-added`: what changed, and how."""


class Verdict(StrEnum):
    """What a change means for today's callers of the tool."""

    COMPATIBLE = "compatible"
    REVIEW = "review"
    BREAKING = "breaking"

    @property
    def weight(self) -> int:
        """Higher is worse; the worst change decides."""
        return tuple(Verdict).index(self)


class Change(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One difference between two definitions, under one rule."""

    rule: RuleId
    verdict: Verdict
    place: str
    """A JSON Pointer into the new definition; into the old one for something that was removed."""
    message: str
    needs_bump: bool = False
    """Whether `schemaVersion` must rise for it."""
    affected: str | None = None
    """Who notices: `callers that send …`, `callers that read …`."""
    example: Json | msgspec.UnsetType = msgspec.UNSET
    """Arguments that were accepted and no longer are, or a result that the old schema ruled out; confirmed by the validator.

    For a removed argument: arguments with it, which an open schema may still accept; the message says so.
    """
    old: Json | msgspec.UnsetType = msgspec.UNSET
    new: Json | msgspec.UnsetType = msgspec.UNSET
    words: Sequence[tuple[str, str]] = ()
    """A word diff, for a change of wording: `=`, `-` or `+`, and the words."""

    def to_json(self) -> Json:
        """Return plain JSON; unset values are left out, null stays null."""
        return msgspec.to_builtins(self)


class Judgement(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All changes between two definitions of a tool, the worst first."""

    changes: Sequence[Change] = ()
    is_cut_short: bool = False
    """Whether the budget was spent before everything was proven; then the verdict is at least `review`."""

    @property
    def verdict(self) -> Verdict:
        """The verdict of the worst change."""
        return max(
            (change.verdict for change in self.changes), key=lambda verdict: verdict.weight, default=Verdict.COMPATIBLE
        )

    @property
    def needs_bump(self) -> bool:
        """Whether `schemaVersion` must rise. In doubt, it must."""
        return any(change.needs_bump for change in self.changes)

    def to_json(self) -> Json:
        return {
            "verdict": self.verdict.value,
            "needsBump": self.needs_bump,
            "isCutShort": self.is_cut_short,
            "changes": [change.to_json() for change in self.changes],
        }


def sort_changes(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Sort the worst first, then by place."""
    return tuple(sorted(changes, key=lambda change: (-change.verdict.weight, change.place, change.rule)))
