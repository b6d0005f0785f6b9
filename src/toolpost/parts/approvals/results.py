"""Rounds and votes as tools, the HTTP API and commands show them."""

from typing import Any, Literal

import msgspec
from pydantic import BaseModel, Field

from toolpost import Caller
from toolpost.parts.approvals.rounds import Round, Vote
from toolpost.parts.approvals.service import Approvals, RoundView
from toolpost.parts.approvals.subject import message_of_vote

LevelName = Literal["PENDING", "SOFT", "QUORUM", "HARD", "ABSOLUTE"]
StatusName = Literal["open", "approved", "denied", "dispatched", "done", "failed", "lost", "expired"]


class VoteResult(BaseModel):
    """A vote, with all that is needed to verify it."""

    voter: str
    choice: Literal["approve", "deny"]
    signed_at: str
    public_key_b64: str
    sig_b64: str
    message: str = Field(description="the text that was signed")
    is_void: bool = Field(description="whether the voter cast two different votes")
    cast_by: str | None = Field(None, description="the administrator who cast it for the voter")


class RoundResult(BaseModel):
    """A round, and what the votes amount to."""

    round_id: str
    level: LevelName
    status: StatusName
    kind: Literal["call", "proposal"]
    requested_by: str
    tool: str | None = None
    rule: str | None = None
    shown: dict[str, Any] = Field(description="arguments (without secrets) and definition of the tool, or the proposal")
    subject: dict[str, Any]
    subject_digest: str
    voters: list[str]
    needed: int
    approvals: list[str]
    denials: list[str]
    equivocators: list[str]
    votes: list[VoteResult]
    created_at: str
    expires_at: str
    audit_entry: str | None = Field(None, description="call id of the audit entry that has the quorum")
    call_id: str | None = Field(None, description="the call that used the approval")
    outcome: str | None = None


def render_round(approvals: Approvals, view: RoundView) -> RoundResult:
    """Show a round to someone who may see it."""
    found, counted = view.round, view.tally
    return RoundResult(
        round_id=str(found.id),
        level=view.level.value,
        status=view.status.value,
        kind=found.kind,
        requested_by=found.caller,
        tool=found.tool,
        rule=found.rule,
        shown=msgspec.json.decode(found.shown),
        subject=msgspec.json.decode(found.subject),
        subject_digest=found.subject_digest,
        voters=list(found.voters),
        needed=found.needed,
        approvals=list(counted.approvals),
        denials=list(counted.denials),
        equivocators=list(counted.equivocators),
        votes=[render_vote(view, vote) for vote in view.votes],
        created_at=approvals.wall(found.created_at),
        expires_at=approvals.wall(found.expires_at),
        audit_entry=found.recorded_as,
        call_id=found.call_id,
        outcome=found.outcome,
    )


def render_vote(view: RoundView, vote: Vote) -> VoteResult:
    """Show a vote."""
    message = message_of_vote(view.round.id, view.round.subject_digest, vote.choice, vote.signed_at)
    return VoteResult(
        voter=vote.voter,
        choice=vote.choice,
        signed_at=vote.signed_at,
        public_key_b64=vote.public_key,
        sig_b64=vote.signature,
        message=message.decode(),
        is_void=vote.voter in view.tally.equivocators,
        cast_by=vote.cast_by,
    )


def may_see(found: Round, by: Caller, *, is_admin: bool) -> bool:
    """Whether a caller may see a round: who asked for it, who may vote in it, and administrators."""
    return is_admin or by.id == found.caller or (not by.is_agent and by.id in found.voters)
