"""Time: rounds that are old are removed, and nothing expires, or lives for ever, because somebody sets the clock."""

import asyncio
from typing import Any

import pytest

from tests.hostile.test_clock_jumps import JUMPS, Jump, jump
from tests.parts.approvals.test_service import approve, caller, opened, subject
from toolpost.base.ids import CallId
from toolpost.contracts.errors import InvalidRequest, NotFound
from toolpost.parts.approvals import records, service
from toolpost.parts.approvals.rounds import Round, RoundId, Status
from toolpost.parts.approvals.service import Approvals
from toolpost.store import Store
from toolpost.store.scripts import Statement

pytestmark = [pytest.mark.anyio, pytest.mark.every_store]

__all__ = ["jump"]


async def age(store: Store, *rounds: Round, by_s: float = 1000.0) -> None:
    """Make rounds older than they are."""

    def script() -> Any:
        for found in rounds:
            yield Statement(
                "UPDATE approval_rounds SET expires_at = expires_at - ?1, created_at = created_at - ?1,"
                " ended_at = ended_at - ?1 WHERE id = ?2",
                (by_s, found.id),
            )

    await store.scripts.run(script)


async def open_one(approvals: Approvals, amount: int, expires_s: float = 60) -> Round:
    return (await approvals.open_call(subject(arguments={"amount": amount}), expires_s=expires_s)).round


async def votes_in(store: Store) -> int:
    def script() -> Any:
        ((count,),) = yield Statement("SELECT count(*) FROM approval_votes")
        return count

    return int(await store.scripts.read(script))


async def test_old_rounds_are_removed_with_their_votes(url: str) -> None:
    async with opened(url, keep_s=500) as (approvals, store):
        done, denied, expired, running, young, newest = [await open_one(approvals, amount) for amount in range(6)]
        for found in (done, running):
            await approve(approvals, found)
            key = (await approvals.read(found.id)).round.key
            await approvals.dispatch(found.id, key, CallId(f"c-{found.id}"))
        await approvals.finish(done.id, CallId(f"c-{done.id}"), status=Status.DONE, outcome=None)
        await approvals.vote(denied.id, "deny", by=caller("ann"))
        await approvals.vote(young.id, "deny", by=caller("ann"))
        await age(store, done, denied, expired, running, newest)
        removed = await approvals.prune()
        left = {view.round.id for view in await approvals.list_rounds(only_open=False)}
        votes = await votes_in(store)
        with pytest.raises(NotFound):
            await approvals.read(done.id)
        again = await approvals.prune()
        next_one = await open_one(approvals, 99)

    assert removed == 3
    assert left == {running.id, young.id, newest.id}, "what runs, what is young, and the newest, whose number counts"
    assert votes == 3, "two of the running round, one of the young one"
    assert again == 0
    assert next_one.id == newest.id + 1


async def test_no_number_is_given_twice(url: str) -> None:
    """The newest vote stays too: peers go on after the last number that they have."""

    def numbers() -> Any:
        rows = yield Statement("SELECT seq FROM approval_votes ORDER BY seq")
        return [row[0] for row in rows]

    async with opened(url, keep_s=500) as (approvals, store):
        first, second, third = [await open_one(approvals, amount) for amount in range(3)]
        await approve(approvals, first)
        await approve(approvals, second)
        await age(store, first, second, third)
        await approvals.prune()
        await approve(approvals, await open_one(approvals, 9))
        seqs = await store.scripts.read(numbers)

    assert seqs == [3, 4, 5, 6]


async def test_many_are_removed_in_batches(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "PRUNE_BATCH", 3)
    async with opened(url, keep_s=500) as (approvals, store):
        rounds = [await open_one(approvals, amount) for amount in range(8)]
        await age(store, *rounds)
        removed = await approvals.prune()

    assert removed == 7


async def test_it_happens_by_itself(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "PRUNE_S", 0.02)
    async with opened(url, keep_s=500) as (approvals, store):
        old, _ = [await open_one(approvals, amount) for amount in range(2)]
        async with approvals.open_sweeping():
            await age(store, old)
            async with asyncio.timeout(30):
                while len(await approvals.list_rounds(only_open=False)) > 1:
                    await asyncio.sleep(0.01)


@pytest.mark.parametrize("jump_s", JUMPS)
async def test_rounds_and_approvals_outlive_a_jump_of_the_clock(url: str, jump_s: float, jump: Jump) -> None:
    async with opened(url, keep_s=500) as (approvals, _), opened(url) as (other, _):
        waiting, approved, running = [await open_one(approvals, amount) for amount in range(3)]
        await approve(approvals, approved)
        await approve(approvals, running)
        key = (await approvals.read(running.id)).round.key
        await approvals.dispatch(running.id, key, CallId("c-1"))
        jump(jump_s)
        await approvals.prune()
        lost = await approvals.sweep() + await other.sweep()
        statuses = [(await one.read(found.id)).status for one in (approvals, other) for found in (waiting, approved)]
        await other.vote(waiting.id, "approve", by=caller("ann"))
        key = (await approvals.read(approved.id)).round.key
        used = await other.dispatch(approved.id, key, CallId("c-2"))
        late = await open_one(approvals, 9, expires_s=0.2)
        await asyncio.sleep(0.3)  # several sweeps
        ended = (await other.read(late.id)).status

    assert lost == [], "the gateway that runs it has not been gone for long"
    assert statuses == [Status.OPEN, Status.APPROVED] * 2
    assert used.call_id == "c-2"
    assert ended is Status.EXPIRED, "what is new expires in its time"


async def test_a_vote_and_the_expiry_of_its_round(url: str) -> None:
    """Either the vote counts, or it is refused: none is stored that came too late."""
    async with opened(url) as (approvals, store):
        for number in range(5):
            found = await open_one(approvals, number, expires_s=0.03)
            refused = 0
            for voter in ("ann", "ben"):
                try:
                    await approvals.vote(found.id, "approve", by=caller(voter))
                except InvalidRequest:
                    refused += 1
                await asyncio.sleep(0.02)
            view = await approvals.read(found.id)
            assert len(view.votes) == 2 - refused
            assert all(vote.at < found.expires_at for vote in view.votes)
            key = view.round.key
            await asyncio.sleep(0.03)
            used = await approvals.dispatch(found.id, key, CallId(f"c-{number}"))
            assert used.call_id is None, "an approval expires with its round"
        assert (await store.audit.verify()).is_intact


async def test_a_quorum_that_was_undone_is_recorded_again(url: str) -> None:
    voters = ("ann", "ben", "cleo")
    async with opened(url) as (approvals, _):
        opened_round = await approvals.open_call(subject(voters=voters, needed=2), expires_s=60)
        found = opened_round.round
        await approve(approvals, found, "ann", "ben")
        first = (await approvals.read(found.id)).round.recorded_as
        await approvals.vote(found.id, "deny", by=caller("ben"))
        undone = await approvals.read(found.id)
        early = await approvals.dispatch(found.id, found.key, CallId("c-0"))
        await approvals.vote(found.id, "approve", by=caller("cleo"))
        again = await approvals.read(found.id)
        used = await approvals.dispatch(found.id, found.key, CallId("c-1"))

    assert first is not None
    assert (undone.status, undone.round.recorded_as, early.call_id) == (Status.OPEN, None, None)
    assert again.status is Status.APPROVED
    assert again.round.recorded_as not in (None, first), (
        "the evidence of the first quorum does not stand for the second"
    )
    assert used.call_id == "c-1"


async def test_a_quorum_is_recorded_with_the_votes_that_are_there(url: str) -> None:
    """A vote that undoes a quorum between the decision and its record is seen by the record."""
    async with opened(url) as (approvals, store):
        opened_round = await approvals.open_call(subject(voters=("ann", "ben"), needed=1), expires_s=60)
        found = opened_round.round
        vote = await approvals._sign(await approvals.read(found.id), "approve", caller("ann").id, None, None)
        current, _, _ = await store.scripts.run(lambda: records.cast(RoundId(found.id), vote))
        await approvals.vote(found.id, "deny", by=caller("ann"))
        await approvals.record_quorum(current)
        after = await approvals.read(found.id)

    assert after.status is Status.OPEN
    assert after.round.recorded_as is None
