"""Every transaction on rounds and votes, as scripts for both databases. The clock is the store's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import msgspec

from toolpost import Forbidden, NotFound, QueueOverloaded
from toolpost.audit import AuditEntry, record_entries
from toolpost.contracts import InvalidRequest
from toolpost.parts.approvals.rounds import CHOICES, Round, RoundId, Status, Vote, decide, tally
from toolpost.store import NOW, Row, Script, Statement, change, lock_name, marks

_ROUND: Final = tuple(field.name for field in fields(Round))
_VOTE: Final = tuple(field.name for field in fields(Vote))
ROUND_COLUMNS: Final = ", ".join(_ROUND)
COLUMNS_WITHOUT_SHOWN: Final = ", ".join("'' AS shown" if name == "shown" else name for name in _ROUND)
"""For lists: what voters are shown may have hundreds of kilobytes."""
VOTE_COLUMNS: Final = ", ".join(_VOTE)

PROPOSALS_PER_DAY: Final = 200
"""Of one caller: each may have 256 KiB, and is kept for `approvals.keep_days`."""
DAY_S: Final = 86_400.0
UNVOTED_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""Contents of rounds of one caller without votes: a caller opens one with each call, as fast as it can."""
UNVOTED_KEPT_S: Final = 3_600.0
"""How long the contents of such a round are kept after it has expired."""

_SELECT: Final = f"SELECT {ROUND_COLUMNS} FROM approval_rounds WHERE"


@dataclass(frozen=True, kw_only=True)
class Opened:
    """The round that decides on a call."""

    round: Round
    is_new: bool
    previous: Round | None = None
    """The last round for the same call, if it can serve no more: used, or expired."""


def open_round(new: Round, *, expires_s: float, limit: int, share: int) -> Script[Opened]:
    """Find the round that serves, or open one. Raises `QueueOverloaded` over `limit` open rounds, or `share` of one caller.

    Id and times of `new` are given here. Repeatable: run again, it finds the round that it opened.
    """
    # One at a time: two equal calls must share a round, and an id must be given once.
    yield lock_name("approvals")
    ((now,),) = yield NOW
    rows = yield Statement(f"{_SELECT} key = ?1 ORDER BY id DESC LIMIT 1", (new.key,))
    previous = parse_round(rows[0]) if rows else None
    if previous is not None and previous.may_serve(now):
        return Opened(round=previous, is_new=False)
    ((kept,),) = yield Statement(
        "SELECT count(*) FROM approval_rounds WHERE status = 'open' AND expires_at > ?1", (now,)
    )
    if kept >= limit:
        raise QueueOverloaded(
            f"{limit} rounds are open already.",
            hint="wait until some of them are voted on or expire",
        )
    if share < limit:
        ((own,),) = yield Statement(
            "SELECT count(*) FROM approval_rounds WHERE status = 'open' AND expires_at > ?1 AND caller = ?2",
            (now, new.caller),
        )
        if own >= share:
            raise QueueOverloaded(
                f"`{new.caller}` has {share} open rounds already, the share of one caller.",
                hint="wait until they are voted on or expire",
            )
    if new.kind == "proposal":
        # Whatever became of them: each is kept for long, also one that expired at once or that its proposer approved.
        ((proposed,),) = yield Statement(
            "SELECT count(*) FROM approval_rounds WHERE kind = 'proposal' AND caller = ?1 AND created_at > ?2",
            (new.caller, now - DAY_S),
        )
        if proposed >= PROPOSALS_PER_DAY:
            raise QueueOverloaded(
                f"`{new.caller}` has opened {PROPOSALS_PER_DAY} proposals within a day, the limit for one caller.",
                hint="propose several things in one text",
            )
    else:
        ((unvoted,),) = yield Statement(
            "SELECT coalesce(sum(unvoted_bytes), 0) FROM approval_rounds WHERE caller = ?1 AND unvoted_bytes > 0",
            (new.caller,),
        )
        if int(unvoted) + new.unvoted_bytes > UNVOTED_LIMIT_BYTES:
            raise QueueOverloaded(
                f"The calls of `{new.caller}` without votes have {UNVOTED_LIMIT_BYTES >> 20} MB already.",
                hint="wait until some of them are voted on, or an hour after they expire; send shorter arguments",
            )
    # Counted under the lock, in the order of the commits: peers ask for the rounds past the last that they have.
    ((newest,),) = yield Statement("SELECT coalesce(max(id), 0) FROM approval_rounds")
    made = replace(new, id=RoundId(newest + 1), created_at=now, expires_at=now + expires_s)
    values = {name: getattr(made, name) for name in _ROUND}
    values |= {"status": made.status.value, "voters": msgspec.json.encode(made.voters).decode()}
    yield Statement(
        f"INSERT INTO approval_rounds ({ROUND_COLUMNS}) VALUES ({marks(len(_ROUND))})", tuple(values.values())
    )
    return Opened(round=made, is_new=True, previous=previous)


def cast(round_id: RoundId, vote: Vote) -> Script[tuple[Round, list[Vote], bool]]:
    """Store a vote and decide. Returns the round, its votes, and whether the vote is new; the same vote again is not.

    Raises for a round that does not exist or is over, and for a voter who may not vote.
    """
    # Votes get their numbers in the order of their commits, so one at a time.
    yield lock_name("approvals")
    rows = yield Statement(f"{_SELECT} id = ?1 /*lock*/", (round_id,))
    if not rows:
        raise no_round(round_id)
    current = parse_round(rows[0])
    if vote.voter not in current.voters:
        raise may_not_vote(current, vote.voter)
    votes = yield from votes_of(round_id)
    if any(one.voter == vote.voter and one.choice == vote.choice for one in votes):
        return current, votes, False
    ((now,),) = yield NOW
    if now >= current.expires_at:
        raise InvalidRequest(f"Round {round_id} has expired: no more votes are taken.", hint="propose or call again")
    stored = replace(vote, at=now)
    ((newest,),) = yield Statement("SELECT coalesce(max(seq), 0) FROM approval_votes")
    yield Statement(
        f"INSERT INTO approval_votes (seq, round, {VOTE_COLUMNS}) VALUES ({marks(len(_VOTE) + 2)})",
        (newest + 1, round_id, *(getattr(stored, name) for name in _VOTE)),
    )
    yield Statement("UPDATE approval_rounds SET unvoted_bytes = 0 WHERE id = ?1", (round_id,))
    current = replace(current, unvoted_bytes=0)
    votes = [*votes, stored]
    if not current.status.is_used:
        # Once the call was dispatched, votes are still kept as evidence, and change nothing.
        status = decide(current.voters, current.needed, tally(current.voters, votes))
        if status is not current.status:
            # A quorum that was recorded and is gone does not stand for the next one.
            yield Statement(
                "UPDATE approval_rounds SET status = ?1, decided_at = ?2, recorded_as = NULL WHERE id = ?3",
                (status.value, now, round_id),
            )
            current = replace(current, status=status, decided_at=now, recorded_as=None)
    return current, votes, True


def record(round_id: RoundId, entry_of: Callable[[Round, list[Vote]], AuditEntry]) -> Script[bool]:
    """Add the quorum to the audit and note that in the round, both or neither; False if it is there already.

    The votes are read here: one that was cast since the caller looked is part of the evidence, or has undone the quorum.
    """
    rows = yield Statement(f"{_SELECT} id = ?1 AND status = 'approved' AND recorded_as IS NULL /*lock*/", (round_id,))
    if not rows:
        return False
    votes = yield from votes_of(round_id)
    entry = entry_of(parse_round(rows[0]), votes)
    yield Statement("UPDATE approval_rounds SET recorded_as = ?1 WHERE id = ?2", (entry.call_id, round_id))
    yield from record_entries([entry])
    return True


def dispatch(round_id: RoundId, key: str, *, call_id: str, owner: str, lease_s: float) -> Script[Round]:
    """Use an approval, once. Returns the round; whether this call may run is `round.call_id == call_id`.

    The condition is in the UPDATE itself: of two that try, in any process, one changes the row.
    """
    ((now,),) = yield NOW
    yield change(
        "UPDATE approval_rounds SET status = 'dispatched', call_id = ?1, owner = ?2, owned_until = ?3"
        " WHERE id = ?4 AND key = ?5 AND status = 'approved' AND expires_at > ?6 AND recorded_as IS NOT NULL",
        (call_id, owner, now + lease_s, round_id, key, now),
    )
    rows = yield Statement(f"{_SELECT} id = ?1", (round_id,))
    if not rows:
        raise no_round(round_id)
    return parse_round(rows[0])


def finish(round_id: RoundId, *, call_id: str, status: Status, outcome: str | None) -> Script[bool]:
    """Note how the call ended. A call that was given up as lost, and ends after all, is no longer lost."""
    ((now,),) = yield NOW
    changed = yield change(
        "UPDATE approval_rounds SET status = ?1, outcome = ?2, ended_at = ?3"
        " WHERE id = ?4 AND call_id = ?5 AND status IN ('dispatched', 'lost')",
        (status.value, outcome, now, round_id, call_id),
    )
    return bool(changed)


def renew(owner: str, lease_s: float) -> Script[None]:
    """Say that the calls of this gateway still run."""
    ((now,),) = yield NOW
    yield Statement(
        "UPDATE approval_rounds SET owned_until = ?1 WHERE status = 'dispatched' AND owner = ?2", (now + lease_s, owner)
    )


def find_lost(lease_s: float, entry_of: Callable[[Round], AuditEntry]) -> Script[list[Round]]:
    """Give up calls whose gateway no longer renews them, and add that to the audit; returns those given up now."""
    ((now,),) = yield NOW
    # An ownership that ends later than one made now could end was made before the clock was set back.
    rows = yield Statement(
        f"{_SELECT} status = 'dispatched' AND (owned_until < ?1 OR owned_until > ?2) /*lock*/",
        (now, now + 2 * lease_s),
    )
    lost = [parse_round(row) for row in rows]
    for one in lost:
        yield Statement(
            "UPDATE approval_rounds SET status = 'lost', ended_at = ?1 WHERE id = ?2 AND status = 'dispatched'",
            (now, one.id),
        )
    if lost:
        yield from record_entries([entry_of(one) for one in lost])
    return [replace(one, status=Status.LOST, ended_at=now) for one in lost]


def prune_rounds(keep_s: float, batch: int) -> Script[int]:
    """Remove rounds, with their votes, that ended or expired more than `keep_s` ago, at most `batch`; returns how many.

    The newest round and the newest vote stay, since the next numbers are counted from theirs: no number is given twice. A call
    that runs is never removed.
    """
    ((now,),) = yield NOW
    rows = yield Statement(
        "SELECT id FROM approval_rounds WHERE status <> 'dispatched' AND expires_at < ?1"
        " AND (ended_at IS NULL OR ended_at < ?1) AND id < (SELECT max(id) FROM approval_rounds)"
        " AND id <> coalesce((SELECT round FROM approval_votes ORDER BY seq DESC LIMIT 1), 0)"
        " ORDER BY id LIMIT ?2",
        (now - keep_s, batch),
    )
    if rows:
        ids = tuple(int(row[0]) for row in rows)
        yield Statement(f"DELETE FROM approval_votes WHERE round IN ({marks(len(ids))})", ids)
        yield Statement(f"DELETE FROM approval_rounds WHERE id IN ({marks(len(ids))})", ids)
    return len(rows)


def remove_unvoted(batch: int) -> Script[int]:
    """Remove the contents of rounds that expired an hour ago without a vote, at most `batch`; returns how many."""
    ((now,),) = yield NOW
    changed = yield change(
        "UPDATE approval_rounds SET shown = '{}', unvoted_bytes = 0 WHERE id IN (SELECT id FROM approval_rounds"
        " WHERE status = 'open' AND expires_at < ?1 AND unvoted_bytes > 0 ORDER BY expires_at LIMIT ?2)",
        (now - UNVOTED_KEPT_S, batch),
    )
    return len(changed)


def read_now() -> Script[float]:
    """Return the store's time."""
    ((now,),) = yield NOW
    return float(now)


def has_dispatched() -> Script[bool]:
    """Whether some gateway runs an approved call, as far as is known."""
    return bool((yield Statement("SELECT 1 FROM approval_rounds WHERE status = 'dispatched' LIMIT 1")))


def find_unrecorded() -> Script[list[Round]]:
    """Return rounds with a quorum that is not in the audit: the gateway was killed in between."""
    rows = yield Statement(f"{_SELECT} status = 'approved' AND recorded_as IS NULL ORDER BY id LIMIT 1000")
    return [parse_round(row) for row in rows]


def read_round(round_id: RoundId) -> Script[tuple[Round, list[Vote], float] | None]:
    """Return a round, its votes, and the time; None if there is none."""
    ((now,),) = yield NOW
    rows = yield Statement(f"{_SELECT} id = ?1", (round_id,))
    if not rows:
        return None
    votes = yield from votes_of(round_id)
    return parse_round(rows[0]), votes, now


def list_rounds(
    *, only_open: bool, limit: int, before: int | None = None
) -> Script[tuple[list[Round], dict[int, list[Vote]], float]]:
    """Return the newest rounds, those that wait for votes or all, their votes, and the time."""
    found = yield from scan_rounds(only_open=only_open, limit=limit, before=before)
    return (yield from read_rounds([one.id for one in found]))


def scan_rounds(*, only_open: bool, limit: int, before: int | None = None) -> Script[list[Round]]:
    """Return the newest rounds, those that wait for votes or all, without what their voters are shown."""
    ((now,),) = yield NOW
    where = "status = 'open' AND expires_at > ?1" if only_open else "CAST(?1 AS DOUBLE PRECISION) > 0"
    rows = yield Statement(
        f"SELECT {COLUMNS_WITHOUT_SHOWN} FROM approval_rounds WHERE {where} AND id < ?2 ORDER BY id DESC LIMIT ?3",
        (now, before or 2**62, limit),
    )
    return [parse_round(row) for row in rows]


def read_rounds(ids: Sequence[RoundId]) -> Script[tuple[list[Round], dict[int, list[Vote]], float]]:
    """Return these rounds, the newest first, their votes, and the time."""
    ((now,),) = yield NOW
    votes: dict[int, list[Vote]] = {found: [] for found in ids}
    if not ids:
        return [], votes, now
    rows = yield Statement(f"{_SELECT} id IN ({marks(len(ids))}) ORDER BY id DESC", tuple(ids))
    cast_votes = yield Statement(
        f"SELECT round, {VOTE_COLUMNS} FROM approval_votes WHERE round IN ({marks(len(ids))}) ORDER BY at, voter",
        tuple(ids),
    )
    for row in cast_votes:
        votes[row[0]].append(Vote(**dict(zip(_VOTE, row[1:], strict=True))))
    return [parse_round(row) for row in rows], votes, now


def other_approved(caller: str, tool: str, key: str) -> Script[list[int]]:
    """Return approved rounds of the same caller and tool for other arguments or another contract."""
    ((now,),) = yield NOW
    rows = yield Statement(
        "SELECT id FROM approval_rounds WHERE caller = ?1 AND tool = ?2 AND key <> ?3 AND status = 'approved'"
        " AND expires_at > ?4 ORDER BY id DESC LIMIT 3",
        (caller, tool, key, now),
    )
    return [int(row[0]) for row in rows]


def votes_of(round_id: RoundId) -> Script[list[Vote]]:
    """Return the votes of a round, the oldest first."""
    rows = yield Statement(
        f"SELECT {VOTE_COLUMNS} FROM approval_votes WHERE round = ?1 ORDER BY at, voter", (round_id,)
    )
    return [Vote(**dict(zip(_VOTE, row, strict=True))) for row in rows]


def count_open() -> Script[int]:
    """Return how many rounds wait for votes."""
    ((now,),) = yield NOW
    ((count,),) = yield Statement(
        "SELECT count(*) FROM approval_rounds WHERE status = 'open' AND expires_at > ?1", (now,)
    )
    return int(count)


def parse_round(row: Row) -> Round:
    """Read a row."""
    values: dict[str, Any] = dict(zip(_ROUND, row, strict=True))
    values["status"] = Status(values["status"])
    values["voters"] = tuple(msgspec.json.decode(values["voters"], type=list[str]))
    return Round(**values)


def no_round(round_id: int | str) -> NotFound:
    """Return the error for a round that does not exist."""
    return NotFound(f"There is no round {round_id}.", hint="the id of a round is in the refusal of its call")


def may_not_vote(found: Round, voter: str) -> Forbidden:
    """Return the error for someone who may not vote in a round."""
    hint = f"may vote: {', '.join(found.voters)}"
    if voter == found.caller:
        hint = f"who asks for a call does not decide on it, or votes for others; {hint}"
    return Forbidden(f"`{voter}` may not vote in round {found.id}.", hint=hint)


def check_choice(choice: str) -> None:
    """Raise for a choice that is none."""
    if choice not in CHOICES:
        raise InvalidRequest(f"`{choice}` is no choice.", hint=f"choose one of: {', '.join(CHOICES)}")
