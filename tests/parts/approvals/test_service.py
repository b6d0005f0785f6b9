"""Rounds in both kinds of store: opened once, used once, given up when their gateway is gone."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from tests.hostile.attacks import attack, slowness
from tests.parts.approvals.bank import expire
from tests.waiting import until
from toolpost.audit import AuditFilter
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId, CallId, ThreadId
from toolpost.base.signing import SigningKey
from toolpost.contracts.digest import quick_digest
from toolpost.contracts.errors import (
    Forbidden,
    InvalidArguments,
    InvalidRequest,
    NotFound,
    QueueOverloaded,
    StoreUnavailable,
)
from toolpost.parts.approvals import PART, records, service
from toolpost.parts.approvals.results import may_see
from toolpost.parts.approvals.rounds import FinalityLevel, Round, RoundId, Status
from toolpost.parts.approvals.service import Approvals
from toolpost.parts.approvals.subject import CallSubject, message_of_vote
from toolpost.store import Store
from toolpost.store.part_migrations import open_part_store
from toolpost.store.scripts import Statement

pytestmark = [pytest.mark.anyio, pytest.mark.every_store]


def caller(name: str, *, transport: str = "http", **options: Any) -> Caller:
    return Caller(id=CallerId(name), transport=transport, **options)


def subject(**options: Any) -> CallSubject:
    values: dict[str, Any] = {
        "tool": "bank__pay",
        "provider": "bank",
        "contract": "sha256:1",
        "caller": "eve",
        "arguments": {"amount": 5},
        "definition": {"name": "bank__pay"},
        "rule": "money",
        "voters": ("ann", "ben"),
        "needed": 2,
    }
    return CallSubject(**values | options)


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[tuple[Approvals, Store]]:
    async with open_part_store(url, PART.name, PART.migrations) as store:
        yield Approvals(store, **options), store


async def approve(approvals: Approvals, found: Round, *voters: str) -> None:
    for voter in voters or found.voters:
        await approvals.vote(found.id, "approve", by=caller(voter))


async def test_from_open_to_done(url: str) -> None:
    async with opened(url) as (approvals, store):
        found = (await approvals.open_call(subject(), expires_s=60)).round
        first = await approvals.vote(found.id, "approve", by=caller("ann"))
        second = await approvals.vote(found.id, "approve", by=caller("ben"))
        used = await approvals.dispatch(found.id, found.key, CallId("c1"))
        again = await approvals.dispatch(found.id, found.key, CallId("c2"))
        await approvals.finish(found.id, CallId("c1"), status=Status.DONE, outcome=None)
        ended = await approvals.read(found.id)
        entries = await store.audit.entries(AuditFilter(tool="approvals__quorum"), limit=10)

    assert (first.view.level, first.view.status) == (FinalityLevel.SOFT, Status.OPEN)
    assert (second.view.level, second.view.status) == (FinalityLevel.ABSOLUTE, Status.APPROVED)
    assert used.call_id == "c1"
    assert again.call_id == "c1", "the second use is refused"
    assert ended.status is Status.DONE
    assert [entry.entry.arguments for entry in entries] == [found.subject_digest]


async def test_equal_calls_share_a_round_and_others_do_not(url: str) -> None:
    async with opened(url) as (approvals, _):
        first = await approvals.open_call(subject(), expires_s=60)
        same = await asyncio.gather(*(approvals.open_call(subject(), expires_s=60) for _ in range(5)))
        others = [
            await approvals.open_call(subject(**change), expires_s=60)
            for change in (
                {"arguments": {"amount": 6}},
                {"contract": "sha256:2"},
                {"caller": "mallory"},
                {"tool": "bank__take"},
                {"rule": "other"},
                {"voters": ("ann", "cleo")},
                {"needed": 1},
            )
        ]

    assert {one.round.id for one in same} == {first.round.id}
    assert len({one.round.id for one in [first, *others]}) == 8


@attack("caller", "uses one approval for many calls at the same time", "one of them is run")
async def test_an_approval_is_used_once_by_many_at_the_same_time(url: str) -> None:
    async with opened(url) as (one, _), opened(url) as (other, _):
        found = (await one.open_call(subject(), expires_s=60)).round
        await approve(one, found)
        calls = [CallId(f"c{number}") for number in range(20)]
        used = await asyncio.gather(
            *((one if n % 2 else other).dispatch(found.id, found.key, call) for n, call in enumerate(calls))
        )

    winners = [call for call, row in zip(calls, used, strict=True) if row.call_id == call]
    assert len(winners) == 1


@pytest.mark.parametrize("change", ["key", "votes", "expiry", "record"])
async def test_what_is_not_approved_is_not_dispatched(url: str, change: str) -> None:
    async with opened(url) as (approvals, store):
        found = (await approvals.open_call(subject(), expires_s=60)).round
        await approve(approvals, found, *(["ann"] if change == "votes" else []))
        if change == "expiry":
            await expire(store)
        if change == "record":

            def forget() -> Any:
                yield Statement("UPDATE approval_rounds SET recorded_as = NULL")

            await store.scripts.run(forget)
        used = await approvals.dispatch(found.id, "other" if change == "key" else found.key, CallId("c1"))

    assert used.call_id is None


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.EXPIRED])
async def test_a_round_is_dispatched_from_no_state_but_approved(url: str, status: Status) -> None:
    async with opened(url) as (approvals, store):
        found = (await approvals.open_call(subject(), expires_s=60)).round
        await approve(approvals, found)

        def move() -> Any:
            yield Statement("UPDATE approval_rounds SET status = ?1, call_id = 'first'", (status.value,))

        await store.scripts.run(move)
        used = await approvals.dispatch(found.id, found.key, CallId("second"))

    assert used.call_id == ("second" if status is Status.APPROVED else "first")
    assert used.status is (Status.DISPATCHED if status is Status.APPROVED else status)


async def test_a_used_round_does_not_take_the_approval_of_the_next(url: str) -> None:
    async with opened(url) as (approvals, _):
        first = (await approvals.open_call(subject(), expires_s=60)).round
        await approve(approvals, first)
        await approvals.dispatch(first.id, first.key, CallId("c1"))
        await approvals.finish(first.id, CallId("c1"), status=Status.DONE, outcome=None)
        following = (await approvals.open_call(subject(), expires_s=60)).round
        await approve(approvals, following)
        again = await approvals.dispatch(first.id, first.key, CallId("c2"))
        after = await approvals.read(following.id)

    assert (following.id, following.key) == (first.id + 1, first.key)
    assert again.call_id == "c1"
    assert (after.status, after.round.call_id) == (Status.APPROVED, None)


async def test_a_call_whose_gateway_is_gone_is_lost_and_its_approval_is_used(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "LEASE_S", 0.2)
    async with opened(url) as (approvals, _):
        found = (await approvals.open_call(subject(), expires_s=60)).round
        await approve(approvals, found)
        await approvals.dispatch(found.id, found.key, CallId("c1"))
    async with opened(url) as (after, store):
        lost = await until(after.sweep)
        again = await after.sweep()
        reopened = await after.open_call(subject(), expires_s=60)
        entries = await store.audit.entries(AuditFilter(tool="approvals__lost"), limit=10)

    assert [one.id for one in lost] == [found.id]
    assert again == []
    assert reopened.is_new
    assert reopened.previous is not None
    assert reopened.previous.status is Status.LOST
    assert [entry.entry.call_id for entry in entries] == ["lost-c1"]
    assert "approved call lost" in caplog.text


async def test_an_approval_survives_until_it_is_used(url: str) -> None:
    async with opened(url) as (approvals, _):
        found = (await approvals.open_call(subject(), expires_s=60)).round
        await approve(approvals, found)
    async with opened(url) as (after, _):
        same = await after.open_call(subject(), expires_s=60)
        await after.sweep()
        used = await after.dispatch(found.id, same.round.key, CallId("c1"))

    assert (same.is_new, same.round.status) == (False, Status.APPROVED)
    assert used.call_id == "c1"


async def test_a_quorum_that_was_not_recorded_is_recorded_later(url: str) -> None:
    async with opened(url) as (approvals, store):
        found = (await approvals.open_call(subject(needed=1), expires_s=60)).round
        view = await approvals.read(found.id)
        vote = await approvals._sign(view, "approve", CallerId("ann"), None, None)
        await store.scripts.run(lambda: records.cast(found.id, vote))  # and the gateway is killed here
        before = await approvals.read(found.id)
        await approvals.sweep()
        after = await approvals.read(found.id)

    assert (before.level, after.level) == (FinalityLevel.QUORUM, FinalityLevel.HARD)


async def test_votes_verify_with_another_library(url: str) -> None:
    async with opened(url) as (approvals, _):
        found = (await approvals.open_call(subject(), expires_s=60)).round
        cast = await approvals.vote(found.id, "approve", by=caller("ann"))

    vote = cast.vote
    message = f"toolpost-vote-v1\n{found.id}\n{found.subject_digest}\napprove\n{vote.signed_at}\n".encode()
    key, signature = VerifyKey(base64.b64decode(vote.public_key)), base64.b64decode(vote.signature)
    key.verify(message, signature)
    for bit in range(0, len(signature) * 8, 37):
        changed = bytearray(signature)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadSignatureError):
            key.verify(message, bytes(changed))
    with pytest.raises(BadSignatureError):
        key.verify(message.replace(b"approve", b"deny"), signature)


async def test_the_same_vote_again_changes_nothing_and_another_one_voids_both(url: str) -> None:
    async with opened(url) as (approvals, _):
        found = (await approvals.open_call(subject(needed=1), expires_s=60)).round
        first = await approvals.vote(found.id, "approve", by=caller("ann"))
        same = await approvals.vote(found.id, "approve", by=caller("ann"))
        other = await approvals.vote(found.id, "deny", by=caller("ann"))
        used = await approvals.dispatch(found.id, found.key, CallId("c1"))
        last = await approvals.vote(found.id, "approve", by=caller("ben"))

    assert (first.is_new, same.is_new) == (True, False)
    assert same.vote == first.vote
    assert first.view.status is Status.APPROVED
    assert (other.view.status, other.view.tally.equivocators) == (Status.OPEN, ("ann",))
    assert len(other.view.votes) == 2, "both are kept"
    assert used.call_id is None, "the approval is void"
    assert last.view.status is Status.APPROVED


async def test_who_may_not_vote(url: str) -> None:
    async with opened(url) as (approvals, _):
        found = (await approvals.open_call(subject(), expires_s=60)).round
        with pytest.raises(Forbidden, match="`eve` may not vote"):
            await approvals.vote(found.id, "approve", by=caller("eve"))
        with pytest.raises(Forbidden, match="`mallory` may not vote"):
            await approvals.vote(found.id, "approve", by=caller("mallory", is_admin=True))
        with pytest.raises(Forbidden, match="agent"):
            await approvals.vote(found.id, "approve", by=caller("ann", thread=ThreadId("t-1")))
        with pytest.raises(Forbidden, match="agent"):
            await approvals.vote(found.id, "approve", by=caller("ann", transport="agent"))
        with pytest.raises(NotFound) as hidden:
            await approvals.vote(found.id, "approve", by=caller("mallory"))
        with pytest.raises(NotFound) as missing:
            await approvals.vote(RoundId(77), "approve", by=caller("ann"))
        assert str(hidden.value).replace(f" {found.id}.", " 77.") == str(missing.value), "rounds cannot be probed"
        with pytest.raises(InvalidRequest, match="is no choice"):
            await approvals.vote(found.id, "maybe", by=caller("ann"))  # type: ignore[arg-type]
        assert (await approvals.read(found.id)).votes == []


async def test_an_expired_round_takes_no_votes(url: str) -> None:
    async with opened(url) as (approvals, _):
        found = (await approvals.open_call(subject(), expires_s=0.1)).round
        await asyncio.sleep(0.2)  # longer than the round is open
        with pytest.raises(InvalidRequest, match="expired"):
            await approvals.vote(found.id, "approve", by=caller("ann"))
        next_one = await approvals.open_call(subject(), expires_s=60)

    assert next_one.is_new


async def test_a_voter_may_sign_with_a_key_of_their_own(url: str) -> None:
    key = SigningKey(bytes(range(32)))
    async with opened(url, keys={"ann": key.public}) as (approvals, _):
        found = (await approvals.open_call(subject(), expires_s=60)).round
        now = approvals.wall((await approvals.read(found.id)).now)

        def signed(choice: Any, at: str = now) -> dict[str, Any]:
            message = message_of_vote(found.id, found.subject_digest, choice, at)
            return {"signature": base64.b64encode(key.sign(message)).decode(), "signed_at": at}

        ann = caller("ann")
        with pytest.raises(InvalidRequest, match="signature is missing"):
            await approvals.vote(found.id, "approve", by=ann)
        with pytest.raises(Forbidden, match="not valid"):
            await approvals.vote(found.id, "approve", by=ann, **signed("deny"))
        with pytest.raises(InvalidArguments, match="time of the round"):
            await approvals.vote(found.id, "approve", by=ann, **signed("approve", "2020-01-01T00:00:00Z"))
        with pytest.raises(InvalidArguments, match="not base64"):
            await approvals.vote(found.id, "approve", by=ann, signature="!", signed_at=now)
        with pytest.raises(InvalidRequest, match="No public key of `ben`"):
            await approvals.vote(found.id, "approve", by=caller("ben"), **signed("approve"))
        cast = await approvals.vote(found.id, "approve", by=ann, **signed("approve"))

    assert base64.b64decode(cast.vote.public_key) == key.public


async def test_open_rounds_are_bounded(url: str) -> None:
    async with opened(url, limit=2) as (approvals, _):
        for amount in (1, 2):
            await approvals.open_call(subject(arguments={"amount": amount}), expires_s=60)
        with pytest.raises(QueueOverloaded):
            await approvals.open_call(subject(arguments={"amount": 3}), expires_s=60)
        same = await approvals.open_call(subject(arguments={"amount": 2}), expires_s=60)

    assert not same.is_new


async def test_a_waiter_hears_of_a_vote_in_another_process(url: str) -> None:
    async with opened(url) as (one, _), opened(url) as (other, _):
        found = (await one.open_call(subject(needed=1), expires_s=60)).round
        waiting = asyncio.create_task(one.wait(found.id))
        await asyncio.sleep(0.05)  # the promise holds in either order; this one is the likelier
        await other.vote(found.id, "approve", by=caller("ann"))
        view = await asyncio.wait_for(waiting, 30)

    assert view.status is Status.APPROVED


async def test_secrets_are_neither_shown_nor_guessable(url: str) -> None:
    async with opened(url) as (approvals, _):
        found = (await approvals.open_call(subject(arguments={"pin_password": "pin-1234"}), expires_s=60)).round
        other = (await approvals.open_call(subject(arguments={"pin_password": "1235"}), expires_s=60)).round

    assert "pin-1234" not in found.shown + found.subject
    assert found.id != other.id, "an approval is for the exact arguments"


async def test_one_caller_cannot_take_all_rounds(url: str) -> None:
    async with opened(url, limit=4, share_of=lambda total: total // 2) as (approvals, _):
        for amount in range(2):
            await approvals.open_call(subject(arguments={"amount": amount}), expires_s=60)
        with pytest.raises(QueueOverloaded, match="share of one caller") as caught:
            await approvals.open_call(subject(arguments={"amount": 9}), expires_s=60)
        again = await approvals.open_call(subject(arguments={"amount": 1}), expires_s=60)
        other = await approvals.open_call(subject(caller="fay"), expires_s=60)

    assert "voted on or expire" in str(caught.value.hint)
    assert not again.is_new, "a round that is open is found all the same"
    assert other.is_new


async def test_proposals_of_a_caller_are_limited_whatever_became_of_them(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "PROPOSALS_PER_DAY", 3)

    async def propose(approvals: Approvals, name: str) -> Round:
        proposal = approvals.open_proposal(
            text="a", digest="sha256:1", caller=name, voters=("ann",), needed=1, expires_s=0.001
        )
        return (await proposal).round

    async with opened(url) as (approvals, _):
        for _ in range(3):
            await propose(approvals, "eve")
        with pytest.raises(QueueOverloaded, match="within a day"):
            await propose(approvals, "eve")
        assert (await propose(approvals, "mallory")).id == 4
        assert (await approvals.open_call(subject(), expires_s=60)).is_new, "calls are limited by their rules"
        monkeypatch.setattr(records, "DAY_S", 0.0)
        assert (await propose(approvals, "eve")).id == 6


async def test_a_list_looks_at_so_many_rounds_and_says_where_to_go_on(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "SCAN_LIMIT", 4)
    async with opened(url) as (approvals, _):
        for number in range(10):
            voters = ("cleo",) if number in (0, 1, 8) else ("ann",)
            await approvals.open_call(subject(arguments={"number": number}, voters=voters, needed=1), expires_s=60)
        await approvals.vote(RoundId(9), "deny", by=caller("cleo"))
        pages: list[Any] = [await approvals.list_visible(lambda one: "cleo" in one.voters, only_open=False, limit=1)]
        while (last := pages[-1][1]) is not None:
            before = last
            pages.append(
                await approvals.list_visible(lambda one: "cleo" in one.voters, only_open=False, limit=1, before=before)
            )
        listed = await approvals.list_rounds(only_open=True, limit=2)

    assert [([view.round.id for view in views], last) for views, last in pages] == [
        ([9], 7),
        ([], 3),
        ([2], 2),
        ([1], None),
    ]
    assert pages[0][0][0].votes[0].choice == "deny"
    assert "arguments" in pages[0][0][0].round.shown
    assert [view.round.id for view in listed] == [10, 8]


async def test_voters_see_the_structure_of_what_is_hidden(url: str) -> None:
    async with opened(url) as (approvals, _):
        arguments = {"auth": {"transfer_to": "eve", "force": True}}
        found = (await approvals.open_call(subject(arguments=arguments), expires_s=60)).round

    shown = msgspec.json.decode(found.shown)["arguments"]
    assert shown == {"auth": {"transfer_to": "(redacted)", "force": True}}
    assert msgspec.json.decode(found.subject)["arguments"] == quick_digest(shown), "votes sign what voters see"


async def test_what_nobody_can_review_is_refused(url: str) -> None:
    async with opened(url) as (approvals, _):
        with pytest.raises(Forbidden, match="voters are shown at most") as caught:
            await approvals.open_call(subject(arguments={"text": "x" * 300_000}), expires_s=60)
        with pytest.raises(Forbidden, match="could not be shown all of the arguments"):
            await approvals.open_call(subject(arguments={"x" * 300: "to eve"}), expires_s=60)
        with pytest.raises(Forbidden, match="with its voters"):
            await approvals.open_call(subject(voters=tuple(f"{n:0256}" for n in range(1_100))), expires_s=60)
        rounds = await approvals.list_rounds(only_open=False)

    assert "send less" in str(caught.value.hint)
    assert rounds == []


async def test_an_end_that_could_not_be_stored_is_stored_later(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the round would count as running for as long as its gateway lives, which renews what it runs."""

    def fail(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("gone")

    async with opened(url) as (approvals, _):
        found = (await approvals.open_call(subject(), expires_s=60)).round
        await approve(approvals, found)
        await approvals.dispatch(found.id, found.key, CallId("c-1"))
        with monkeypatch.context() as broken:
            broken.setattr(records, "finish", fail)
            await approvals.finish(found.id, CallId("c-1"), status=Status.DONE, outcome=None)
            during = (await approvals.read(found.id)).status
        await approvals.sweep()
        after = (await approvals.read(found.id)).status

    assert (during, after) == (Status.DISPATCHED, Status.DONE)


async def test_a_vote_with_one_flipped_bit_is_refused(url: str) -> None:
    key = SigningKey(bytes(range(32)))
    async with opened(url, keys={"ann": key.public}) as (approvals, _):
        found = (await approvals.open_call(subject(), expires_s=60)).round
        at = approvals.wall(found.created_at)
        good = key.sign(message_of_vote(found.id, found.subject_digest, "approve", at))
        for bit in range(0, 512, 5):
            flipped = bytearray(good)
            flipped[bit // 8] ^= 1 << bit % 8
            with pytest.raises(Forbidden, match="not valid for this round"):
                await approvals.vote(
                    found.id,
                    "approve",
                    by=caller("ann"),
                    signature=base64.b64encode(flipped).decode(),
                    signed_at=at,
                )
        for choice, number in (("deny", found.id), ("approve", RoundId(found.id + 1))):
            other = key.sign(message_of_vote(number, found.subject_digest, "approve", at))
            with pytest.raises((Forbidden, NotFound)):
                await approvals.vote(
                    found.id,
                    choice,  # type: ignore[arg-type]
                    by=caller("ann"),
                    signature=base64.b64encode(other).decode(),
                    signed_at=at,
                )
        view = await approvals.read(found.id)

    assert view.votes == []


async def test_whose_client_may_answer_for_its_caller(url: str) -> None:
    async with opened(url, keys={"ben": bytes(32)}) as (approvals, _):
        found = (await approvals.open_call(subject(voters=("ann", "ben")), expires_s=60)).round
        view = await approvals.read(found.id)
        may = {
            "ann": approvals.may_answer_for(view, caller("ann")),
            "an agent of ann": approvals.may_answer_for(view, caller("ann", thread=ThreadId("t-1"))),
            "an agent without a conversation": approvals.may_answer_for(view, caller("ann", transport="agent")),
            "ben, who signs": approvals.may_answer_for(view, caller("ben")),
            "eve": approvals.may_answer_for(view, caller("eve")),
        }
        await approvals.vote(found.id, "deny", by=caller("ann"))
        again = approvals.may_answer_for(await approvals.read(found.id), caller("ann"))

    assert [who for who, allowed in may.items() if allowed] == ["ann"]
    assert not again, "two different votes would be void"
    assert may_see(view.round, caller("ann"), is_admin=False)
    assert not may_see(view.round, caller("ann", transport="agent"), is_admin=False)


@pytest.mark.soak
async def test_ten_thousand_open_rounds(url: str) -> None:
    """They are opened, listed, voted on and used as if there were few."""
    async with opened(url) as (approvals, _):
        for start in range(0, 10_000, 100):
            await asyncio.gather(
                *(
                    approvals.open_call(subject(arguments={"amount": start + number}), expires_s=3600)
                    for number in range(100)
                )
            )
        await approvals.sweep()
        began = time.process_time()
        oldest = (await approvals.list_rounds(only_open=True, before=2))[0].round
        again = await approvals.open_call(subject(arguments=_arguments_of(oldest)), expires_s=3600)
        await approve(approvals, oldest)
        used = await approvals.dispatch(oldest.id, oldest.key, CallId("c-1"))
        newest = await approvals.list_rounds(only_open=True)
        used_s = time.process_time() - began
        await approvals.sweep()

    assert approvals.open_rounds == 9_999
    assert (again.is_new, again.round.id, used.call_id, len(newest)) == (False, oldest.id, "c-1", 100)
    assert used_s < 2 * slowness(), "a few milliseconds each"


def _arguments_of(found: Round) -> Any:
    return msgspec.json.decode(found.shown)["arguments"]


@attack("caller", "has one large call after another refused", "contents without votes are bounded")
async def test_contents_that_nobody_votes_on_are_bounded(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "UNVOTED_LIMIT_BYTES", 10_000)

    def large(number: int, **options: Any) -> CallSubject:
        return subject(arguments={"amount": number, "note": "x" * 4_000}, **options)

    async with opened(url) as (approvals, store):
        first, second = [(await approvals.open_call(large(number), expires_s=60)).round for number in (1, 2)]
        with pytest.raises(QueueOverloaded, match="without votes"):
            await approvals.open_call(large(3), expires_s=60)
        await approvals.open_call(large(3, caller="dan"), expires_s=60)
        # One of two votes: the round stays open.
        await approvals.vote(first.id, "approve", by=caller("ann"))
        await approvals.open_call(large(3), expires_s=60)

        def age() -> Any:
            yield Statement("UPDATE approval_rounds SET expires_at = expires_at - 3700")

        await store.scripts.run(age)
        await approvals.prune()
        kept = [len((await approvals.read(one.id)).round.shown) for one in (first, second)]
        await approvals.open_call(large(4), expires_s=60)
        await approvals.open_call(large(5), expires_s=60)

    assert kept[0] > 4_000, "a vote is evidence, and so is what it was about"
    assert kept[1] == len("{}")


@attack(
    "caller", "opens a hundred rounds with large contents", "a list of rounds ends after a part of them, and goes on"
)
async def test_a_list_of_large_rounds_comes_in_parts(url: str) -> None:
    async with opened(url) as (approvals, _):
        for number in range(20):
            await approvals.open_call(subject(arguments={"amount": number, "note": "x" * 100_000}), expires_s=600)
        found, before, sizes = [], None, []
        while True:
            views, before = await approvals.list_visible(lambda _: True, only_open=True, limit=100, before=before)
            found += [view.round.id for view in views]
            sizes.append(sum(len(view.round.shown) for view in views))
            if before is None:
                break

    assert found == sorted(found, reverse=True)
    assert len(set(found)) == 20
    assert max(sizes) < 3 * service.PAGE_BYTES
