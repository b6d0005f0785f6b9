"""A round of voting as a value: voters, the result of the votes, and possible outcomes. No I/O.

    open ──k approvals──▶ approved ──dispatch──▶ dispatched ──▶ done | failed
      │                      │                        └─(its gateway ended)─▶ lost
      │                      └─equivocation─▶ open | denied
      └──k approvals have become impossible──▶ denied

A round that is open or approved when its time is over has expired, which is not stored: it follows from the clock. `dispatched`,
`done`, `failed` and `lost` mean that the approval was used; no round leaves them for one that could be used again.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, NewType

RoundId = NewType("RoundId", int)
Choice = Literal["approve", "deny"]
CHOICES: Final[tuple[Choice, ...]] = ("approve", "deny")


class Status(StrEnum):
    """Where a round stands."""

    OPEN = "open"
    APPROVED = "approved"
    DENIED = "denied"
    DISPATCHED = "dispatched"
    DONE = "done"
    FAILED = "failed"
    LOST = "lost"
    EXPIRED = "expired"
    """Never stored."""

    @property
    def is_used(self) -> bool:
        """Whether the call was dispatched, whatever became of it."""
        return self in (Status.DISPATCHED, Status.DONE, Status.FAILED, Status.LOST)


class FinalityLevel(StrEnum):
    """How final a round is."""

    PENDING = "PENDING"
    """No valid vote."""
    SOFT = "SOFT"
    """Votes, and no quorum."""
    QUORUM = "QUORUM"
    """As many approvals as are needed."""
    HARD = "HARD"
    """The quorum is recorded in the audit."""
    ABSOLUTE = "ABSOLUTE"
    """That, and everyone who may vote has approved."""


@dataclass(frozen=True, kw_only=True)
class Vote:
    """A signed vote. `message_of_vote` in `subject.py` makes the bytes that are signed."""

    voter: str
    choice: Choice
    signed_at: str
    """ISO 8601, as it was signed."""
    public_key: str
    """Base64 of 32 bytes."""
    signature: str
    """Base64 of 64 bytes."""
    at: float = 0.0
    """When it was stored, by the store's clock."""
    cast_by: str | None = None
    """The administrator who cast it for the voter; None if the voter did."""


@dataclass(frozen=True, kw_only=True)
class Tally:
    """The result of votes."""

    approvals: tuple[str, ...]
    denials: tuple[str, ...]
    equivocators: tuple[str, ...]
    """Voters with two different votes, both of which are void."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """A round as it is stored."""

    id: RoundId = RoundId(0)
    """Counted by the store, when the round is opened."""
    key: str
    """Which call it is for: equal for equal tool, arguments, contract and caller."""
    kind: Literal["call", "proposal"]
    subject: str
    """JSON: what is voted on. Its digest is signed."""
    subject_digest: str
    shown: str
    """JSON for voters: arguments without secrets and the tool's definition, or the text of a proposal."""
    caller: str
    tool: str | None
    rule: str | None
    voters: tuple[str, ...]
    needed: int
    status: Status = Status.OPEN
    created_at: float = 0.0
    expires_at: float = 0.0
    decided_at: float | None = None
    recorded_as: str | None = None
    """The call id of the audit entry that records the quorum."""
    call_id: str | None = None
    """The call that used the approval."""
    owner: str | None = None
    owned_until: float | None = None
    ended_at: float | None = None
    outcome: str | None = None
    """The error code of a call that failed."""
    unvoted_bytes: int = 0
    """The size of `shown` before the first vote; 0 afterwards, and once the contents are removed."""

    def status_at(self, now: float) -> Status:
        """Return where the round stands at this time."""
        if self.status in (Status.OPEN, Status.APPROVED) and now >= self.expires_at:
            return Status.EXPIRED
        return self.status

    def may_serve(self, now: float) -> bool:
        """Whether a call for the same subject is decided by this round, rather than by a new one."""
        return self.status in (Status.OPEN, Status.APPROVED, Status.DENIED) and now < self.expires_at


def tally(voters: Collection[str], votes: Iterable[Vote]) -> Tally:
    """Count the votes of those who may vote; two different ones of one voter are void."""
    choices: dict[str, set[Choice]] = {}
    for vote in votes:
        if vote.voter in voters:
            choices.setdefault(vote.voter, set()).add(vote.choice)
    single = {voter: next(iter(made)) for voter, made in choices.items() if len(made) == 1}
    return Tally(
        approvals=tuple(sorted(voter for voter, choice in single.items() if choice == "approve")),
        denials=tuple(sorted(voter for voter, choice in single.items() if choice == "deny")),
        equivocators=tuple(sorted(voter for voter, made in choices.items() if len(made) > 1)),
    )


def decide(voters: Sequence[str], needed: int, counted: Tally) -> Status:
    """Return what the votes decide: approved, denied once enough approvals are impossible, or open."""
    if len(counted.approvals) >= needed:
        return Status.APPROVED
    # An equivocator counts as neither: both votes are void, and there is no third.
    possible = len(voters) - len(counted.denials) - len(counted.equivocators)
    return Status.DENIED if possible < needed else Status.OPEN


def level_of(found: Round, counted: Tally) -> FinalityLevel:
    """Return how final the round is."""
    if len(counted.approvals) < found.needed:
        return (
            FinalityLevel.SOFT
            if counted.approvals or counted.denials or counted.equivocators
            else FinalityLevel.PENDING
        )
    if found.recorded_as is None:
        return FinalityLevel.QUORUM
    return FinalityLevel.ABSOLUTE if len(counted.approvals) == len(found.voters) else FinalityLevel.HARD


def default_quorum(voters: int) -> int:
    """Return floor(2n/3)+1: more than two thirds, so that two quorums share an honest voter if a third is not."""
    return 2 * voters // 3 + 1
