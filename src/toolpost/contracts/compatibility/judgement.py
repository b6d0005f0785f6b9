"""What is said of a change: its rule, its verdict, where it is, whom it hits, and a call that shows it."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NewType

import msgspec

from toolpost.base.ids import Json

RuleId = NewType("RuleId", str)
"""`input.required-added`: what changed, and how."""


class Verdict(StrEnum):
    """What a change means for those who call the tool today."""

    COMPATIBLE = "compatible"
    REVIEW = "review"
    BREAKING = "breaking"

    @property
    def weight(self) -> int:
        """How grave it is; the gravest change decides."""
        return tuple(Verdict).index(self)


class Change(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One thing that is no longer as it was."""

    rule: RuleId
    verdict: Verdict
    place: str
    """A JSON Pointer into the definition: into the new one, or into the old one for what is gone."""
    message: str
    needs_bump: bool = False
    affected: str | None = None
    """Who notices: `callers that send …`, `callers that read …`."""
    example: Json | msgspec.UnsetType = msgspec.UNSET
    """Arguments that were accepted and no longer are, or a result that no caller had to expect. Seen by the validator.

    For an argument that is gone: arguments with it, which an open schema may still accept; the message says so."""
    old: Json | msgspec.UnsetType = msgspec.UNSET
    new: Json | msgspec.UnsetType = msgspec.UNSET
    words: Sequence[tuple[str, str]] = ()
    """A word diff, for a change of wording: `=`, `-` or `+`, and the words."""

    def to_json(self) -> Json:
        """Write it as plain JSON; a value that is not there is left out, null is null."""
        return msgspec.to_builtins(self)


class Judgement(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that changed between two definitions of a tool, the gravest first."""

    changes: Sequence[Change] = ()
    is_cut_short: bool = False
    """Whether the budget was spent before everything was proven; then the verdict is `review` at the least."""

    @property
    def verdict(self) -> Verdict:
        """The gravest of all."""
        return max(
            (change.verdict for change in self.changes), key=lambda verdict: verdict.weight, default=Verdict.COMPATIBLE
        )

    @property
    def needs_bump(self) -> bool:
        """Whether `schemaVersion` must rise. In doubt, it must."""
        return any(change.needs_bump for change in self.changes)

    def to_json(self) -> Json:
        """Write it as plain JSON."""
        return {
            "verdict": self.verdict.value,
            "needsBump": self.needs_bump,
            "isCutShort": self.is_cut_short,
            "changes": [change.to_json() for change in self.changes],
        }


def sort_changes(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Put the gravest first, then by place."""
    return tuple(sorted(changes, key=lambda change: (-change.verdict.weight, change.place, change.rule)))
