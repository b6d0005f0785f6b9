"""What votes amount to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost.parts.approvals.rounds import (
    Choice,
    FinalityLevel,
    Round,
    RoundId,
    Status,
    Vote,
    decide,
    default_quorum,
    level_of,
    tally,
)

VOTERS = ("ann", "ben", "cleo", "dan")


def vote(voter: str, choice: Choice = "approve") -> Vote:
    return Vote(voter=voter, choice=choice, signed_at="", public_key="", signature="")


def round_of(**options: object) -> Round:
    values: dict[str, object] = {
        "id": RoundId(1), "key": "k", "kind": "call", "subject": "{}", "subject_digest": "sha256:0", "shown": "{}",
        "caller": "eve", "tool": "t", "rule": "r", "voters": VOTERS, "needed": 3, "status": Status.OPEN,
        "created_at": 0.0, "expires_at": 10.0,
    }  # fmt: skip
    return Round(**values | options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("voters", "needed"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (6, 5), (7, 5), (100, 67)])
def test_a_quorum_is_more_than_two_thirds(voters: int, needed: int) -> None:
    assert default_quorum(voters) == needed


@pytest.mark.parametrize(
    ("votes", "status"),
    [
        ([], Status.OPEN),
        ([vote("ann"), vote("ben")], Status.OPEN),
        ([vote("ann"), vote("ben"), vote("cleo")], Status.APPROVED),
        ([vote("ann", "deny")], Status.OPEN),
        ([vote("ann", "deny"), vote("ben", "deny")], Status.DENIED),
        ([vote("ann"), vote("ann", "deny"), vote("ben", "deny")], Status.DENIED),
        ([vote("ann"), vote("ben"), vote("cleo"), vote("ann", "deny")], Status.OPEN),
        ([vote("eve"), vote("mallory"), vote("oscar")], Status.OPEN),
    ],
)
def test_what_votes_decide(votes: list[Vote], status: Status) -> None:
    assert decide(VOTERS, 3, tally(VOTERS, votes)) is status


def test_two_different_votes_are_void_and_named() -> None:
    counted = tally(VOTERS, [vote("ann"), vote("ann", "deny"), vote("ben")])

    assert counted.approvals == ("ben",)
    assert counted.denials == ()
    assert counted.equivocators == ("ann",)


@pytest.mark.parametrize(
    ("votes", "recorded", "level"),
    [
        ([], None, FinalityLevel.PENDING),
        ([vote("ann", "deny")], None, FinalityLevel.SOFT),
        ([vote("ann"), vote("ben")], None, FinalityLevel.SOFT),
        ([vote("ann"), vote("ben"), vote("cleo")], None, FinalityLevel.QUORUM),
        ([vote("ann"), vote("ben"), vote("cleo")], "entry", FinalityLevel.HARD),
        ([vote(voter) for voter in VOTERS], None, FinalityLevel.QUORUM),
        ([vote(voter) for voter in VOTERS], "entry", FinalityLevel.ABSOLUTE),
    ],
)
def test_levels(votes: list[Vote], recorded: str | None, level: FinalityLevel) -> None:
    found = round_of(recorded_as=recorded)

    assert level_of(found, tally(VOTERS, votes)) is level


@pytest.mark.parametrize(
    ("status", "at_expiry"),
    [
        (Status.OPEN, Status.EXPIRED),
        (Status.APPROVED, Status.EXPIRED),
        (Status.DENIED, Status.DENIED),
        (Status.DISPATCHED, Status.DISPATCHED),
        (Status.LOST, Status.LOST),
    ],
)
def test_what_expires(status: Status, at_expiry: Status) -> None:
    found = round_of(status=status)

    assert found.status_at(9.999) is status
    assert found.status_at(10.0) is at_expiry


@given(st.lists(st.tuples(st.sampled_from([*VOTERS, "eve"]), st.sampled_from(["approve", "deny"])), max_size=12))
def test_denial_is_final_and_order_does_not_matter(cast: list[tuple[str, Choice]]) -> None:
    votes = [vote(voter, choice) for voter, choice in dict.fromkeys(cast)]

    decided = [decide(VOTERS, 3, tally(VOTERS, votes[:count])) for count in range(len(votes) + 1)]
    if Status.DENIED in decided:
        assert set(decided[decided.index(Status.DENIED) :]) == {Status.DENIED}
    assert decide(VOTERS, 3, tally(VOTERS, votes[::-1])) is decided[-1]
