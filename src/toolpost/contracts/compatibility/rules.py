"""Every rule by which a change is judged: its verdict, whether `schemaVersion` must rise, and why; and the result of judging.

A `Judgement` has `Change`s, each under one `Rule`, with its place, who is affected, and an example.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NewType

import msgspec

from toolpost.base.ids import Json
from toolpost.contracts.display import TEXT_LIMIT, shorten, shorten_list, to_json_text

RuleId = NewType("RuleId", str)
"""`input.required-added`: what changed, and how."""


class Verdict(StrEnum):
    """The effect of a change on current callers of the tool."""

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


_SPEC = "stability spec §2.2"


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A rule for every change of one kind."""

    id: RuleId
    verdict: Verdict
    needs_bump: bool
    summary: str
    explanation: str
    reference: str
    """The sentence of the specification that it implements."""


def _breaking(name: str, summary: str, explanation: str, reference: str) -> Rule:
    return _rule(name, Verdict.BREAKING, summary, explanation, reference, needs_bump=True)


def _compatible(name: str, summary: str, explanation: str, reference: str, *, needs_bump: bool = False) -> Rule:
    return _rule(name, Verdict.COMPATIBLE, summary, explanation, reference, needs_bump=needs_bump)


def _review(name: str, summary: str, explanation: str, reference: str, *, needs_bump: bool = False) -> Rule:
    return _rule(name, Verdict.REVIEW, summary, explanation, reference, needs_bump=needs_bump)


def _rule(name: str, verdict: Verdict, summary: str, explanation: str, reference: str, *, needs_bump: bool) -> Rule:
    return Rule(
        id=RuleId(name),
        verdict=verdict,
        needs_bump=needs_bump,
        summary=summary,
        explanation=explanation,
        reference=reference,
    )


_REQUIRED = f"{_SPEC}: any required argument is added"
_MEANING = f"{_SPEC}: any argument meaning changes"
_OPTIONAL = f"{_SPEC}: adding purely optional arguments needs no bump"
_DEFAULT = f"{_SPEC}: defaults change in a way that alters behavior"
_RESULT = f"{_SPEC}: result JSON structure changes"
_RESULT_OPTIONAL = f"{_SPEC}: adding optional fields to results needs no bump"
_ERRORS = f"{_SPEC}: error codes are added, removed or renamed"
_LIMITS = f"{_SPEC}: cancellation or timeout semantics change in observable ways"
_WORDS = f"{_SPEC}: docs clarifications need no bump"
_DOUBT = f"{_SPEC}: if you have any doubt, bump the version"
_NAMES = "stability spec §3.1: tool names are stable identifiers"
_VERSIONS = "stability spec §2.1: schemaVersion is a monotonic integer"

_INPUT = (
    _breaking(
        "input.required-added",
        "an argument has become mandatory",
        "Every call that leaves it out was accepted and is now refused. Give it a default and keep it optional instead.",
        _REQUIRED,
    ),
    _breaking(
        "input.argument-removed",
        "an argument is gone",
        "Callers that send it are refused, or it is silently ignored. Keep it for a while, marked `deprecated`.",
        _MEANING,
    ),
    _breaking(
        "input.type-narrowed",
        "an argument takes fewer types",
        "A value of the type that is gone was accepted and is now refused.",
        _MEANING,
    ),
    _breaking(
        "input.values-removed",
        "an argument takes fewer values",
        "Callers that send a value that is gone from the list are refused.",
        _MEANING,
    ),
    _breaking(
        "input.bounds-narrowed",
        "an argument's limits are tighter",
        "A value between the old limit and the new one was accepted and is now refused.",
        _MEANING,
    ),
    _breaking(
        "input.format-narrowed",
        "an argument must have another form",
        "A pattern or format was added or changed: text that matched before need not match now.",
        _MEANING,
    ),
    _breaking(
        "input.narrowed",
        "fewer calls are accepted",
        "Some arguments that the old schema accepts are refused by the new one.",
        _MEANING,
    ),
    _breaking(
        "input.unproven",
        "the new arguments could not be proven to take every old call",
        "No call was found that breaks, and no proof that none does. In doubt, a change is breaking.",
        _DOUBT,
    ),
    _breaking(
        "input.default-changed",
        "a default has changed",
        "Callers that leave the argument out get a different result, without any error.",
        _DEFAULT,
    ),
    _breaking(
        "input.default-removed",
        "a default is gone",
        "Callers that omit the argument may get a different result.",
        _DEFAULT,
    ),
    _review(
        "input.default-added",
        "a default is now stated",
        "If it only documents the existing behavior, no caller notices; if it is new, callers that omit the argument do.",
        _DEFAULT,
    ),
    _compatible(
        "input.optional-added",
        "an optional argument is new",
        "No call that exists sends it, and none must.",
        _OPTIONAL,
    ),
    _compatible(
        "input.required-dropped",
        "a mandatory argument has become optional",
        "Every call that sends it is accepted as before.",
        _OPTIONAL,
    ),
    _compatible(
        "input.widened",
        "more calls are accepted",
        "The new schema takes everything that the old one took: proven, not guessed.",
        _OPTIONAL,
    ),
    _compatible(
        "input.rewritten",
        "the same arguments, written differently",
        "Old and new accept exactly the same calls.",
        _WORDS,
    ),
)

_OUTPUT = (
    _breaking(
        "output.field-removed",
        "a field of the result is gone",
        "Callers that read it find nothing, or something of any type.",
        _RESULT,
    ),
    _breaking(
        "output.required-dropped",
        "a field of the result may be missing",
        "Callers that read it without asking whether it is there fail.",
        _RESULT,
    ),
    _breaking(
        "output.type-widened",
        "a field of the result may have another type",
        "Callers that read it as the old type fail on the new one.",
        _RESULT,
    ),
    _breaking(
        "output.values-added",
        "a field of the result may have a value that was not on the list",
        "Callers that handle each value of the list have no branch for the new one.",
        _RESULT,
    ),
    _breaking(
        "output.bounds-widened",
        "a field of the result has looser limits",
        "Callers that rely on the old limit meet values beyond it.",
        _RESULT,
    ),
    _breaking(
        "output.format-widened",
        "a field of the result may have another form",
        "A pattern or format was dropped or changed: callers that parse the text may fail.",
        _RESULT,
    ),
    _breaking(
        "output.widened",
        "results may come that no caller had to expect",
        "Some results that the new schema allows were not allowed by the old one.",
        _RESULT,
    ),
    _breaking(
        "output.unproven",
        "the new results could not be proven to be among the old ones",
        "No result was found that would surprise a caller, and no proof that none does. In doubt, a change is breaking.",
        _DOUBT,
    ),
    _breaking(
        "output.format-changed",
        "the text of a result has another format",
        "Callers that read the text get a string where they parsed JSON, or JSON where they read a string.",
        _RESULT,
    ),
    _breaking(
        "output.schema-removed",
        "the output schema is gone",
        "Callers that read structured results have nothing to rely on.",
        _RESULT,
    ),
    _compatible(
        "output.schema-added",
        "there is an output schema now",
        "Callers that expected nothing in particular get something in particular.",
        _RESULT_OPTIONAL,
    ),
    _compatible(
        "output.required-added",
        "a field of the result is now always there",
        "No caller that reads results today fails. The shape of the result changed all the same, so the version must rise.",
        _RESULT,
        needs_bump=True,
    ),
    _compatible(
        "output.optional-added",
        "an optional field of the result is new",
        "Callers ignore unknown fields. Even a closed result is read as open here.",
        _RESULT_OPTIONAL,
    ),
    _compatible(
        "output.narrowed",
        "fewer results are possible",
        "Every result that the new schema allows was allowed before: proven, not guessed.",
        _RESULT_OPTIONAL,
    ),
    _compatible(
        "output.rewritten",
        "the same results, written differently",
        "Old and new allow exactly the same results.",
        _WORDS,
    ),
)

_REST = (
    _breaking(
        "tool.renamed",
        "the tool has another name, and the old one no longer answers",
        "Callers know a tool by its name. Keep the old name as an alias.",
        _NAMES,
    ),
    _compatible(
        "tool.renamed-with-alias",
        "the tool has another name, and the old one still answers",
        "The old name is deprecated: it works, and warns. Names are part of the contract, so its version rises.",
        _NAMES,
        needs_bump=True,
    ),
    _breaking("tool.alias-removed", "an old name no longer answers", "Callers that still use it are refused.", _NAMES),
    _compatible("tool.alias-added", "one more name answers", "No caller used it before.", _NAMES),
    _review(
        "tool.field-changed",
        "another field of the definition has changed",
        "Such as `icons` or `execution`. A person must decide its effect on callers.",
        _DOUBT,
    ),
    _review(
        "tool.app-changed",
        "another app shows its results, or others may call it",
        "`_meta.ui` names the page that a host shows to a user, and whether models or apps may call the tool.",
        _DOUBT,
    ),
    _review(
        "wording.title-changed",
        "the title has changed",
        "A model chooses tools by their words. Harmless most of the time, but this is how a poisoned tool gets in.",
        _WORDS,
    ),
    _review(
        "wording.description-changed",
        "the description has changed",
        "A model follows the description. Most changes are harmless, but a poisoned tool starts with one.",
        _WORDS,
    ),
    _review(
        "wording.schema-text-changed",
        "a text inside a schema has changed",
        "Models read the descriptions of arguments as they read the tool's own.",
        _WORDS,
    ),
    _review(
        "wording.note-changed",
        "an annotation in a schema has changed",
        "Examples and keywords that assert nothing: a validator ignores them, a model or a client may not.",
        _WORDS,
    ),
    _compatible(
        "wording.deprecated",
        "an argument or a field is marked as deprecated, or no longer",
        "It works as before.",
        _WORDS,
    ),
    _breaking(
        "annotations.weakened",
        "the tool now claims to be less harmless than before",
        "Clients that run it unasked, or retry it, because it was read-only, not destructive, idempotent or closed, do harm.",
        _MEANING,
    ),
    _review(
        "annotations.strengthened",
        "the tool now claims to be more harmless than before",
        "Clients may stop asking before they run it. Whether the claim is true is for a person to say.",
        _MEANING,
    ),
    _review("annotations.changed", "another annotation has changed", "A person must decide its effect.", _DOUBT),
    _breaking(
        "errors.code-added",
        "the tool may fail with a code that it did not name before",
        "Callers branch on codes, and have no branch for this one.",
        _ERRORS,
    ),
    _breaking(
        "errors.code-removed",
        "the tool no longer fails with a code that it named",
        "Callers that wait for this code, perhaps to retry, wait in vain. A renamed code is one removed and one added.",
        _ERRORS,
    ),
    _breaking(
        "limits.timeout-shortened",
        "calls end earlier",
        "A call that took longer than the new limit used to succeed.",
        _LIMITS,
    ),
    _compatible(
        "limits.timeout-lengthened",
        "calls may take longer",
        "Every call that succeeded still succeeds; callers may wait longer, so the version must rise.",
        _LIMITS,
        needs_bump=True,
    ),
    _breaking(
        "limits.cancellation-changed",
        "a cancelled call behaves differently",
        "Callers that cancel rely on the remaining effects.",
        _LIMITS,
    ),
    _review(
        "limits.concurrency-changed",
        "calls wait for each other differently",
        "Answers are the same; how long callers wait, and when a queue is full, is not.",
        _LIMITS,
    ),
    _breaking(
        "version.lowered",
        "`schemaVersion` went down",
        "A version only ever rises; a lower one is a mistake, or an older tool under a newer name.",
        _VERSIONS,
    ),
    _compatible("version.raised", "`schemaVersion` went up", "It says that something else changed.", _VERSIONS),
    _compatible(
        "version.tooling-changed",
        "`toolingVersion` has changed",
        "It names the build, for debugging. It promises nothing.",
        _VERSIONS,
    ),
    _review(
        "budget.spent",
        "judging would take more work than its budget",
        "The schemas are too large or too entangled to be compared within the budget. A person must look; in doubt, bump.",
        _DOUBT,
        needs_bump=True,
    ),
)


RULES: Mapping[RuleId, Rule] = {rule.id: rule for rule in (*_INPUT, *_OUTPUT, *_REST)}

_UNSET = msgspec.UNSET


def make_change(
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
    """Make a change under a rule, which gives its verdict and, without `message`, its message."""
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
    """Return a value as it is if it is short, otherwise a description of it."""
    if value is _UNSET:
        return value
    try:
        is_short = len(to_json_text(value)) <= TEXT_LIMIT
    except (RecursionError, TypeError, ValueError):
        is_short = False
    if is_short:
        return value
    return shorten_list(value) if isinstance(value, list) else shorten(value)
