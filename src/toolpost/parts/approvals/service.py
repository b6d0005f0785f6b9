"""Approvals of one store: rounds are opened, voted on, waited for, used once, and recorded.

What is stored is in `records`, what it means in `rounds`. This is what the guard, the tools, the commands and the HTTP API share.
"""

import base64
import binascii
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

import anyio
import msgspec

from toolpost import Caller, CallerId, Forbidden, InvalidArguments, NotFound, ToolpostError, __version__
from toolpost.audit import AuditEntry
from toolpost.base import (
    CallId,
    JsonObject,
    SigningKey,
    ToolName,
    TraceId,
    event,
    format_time,
    is_signed_by,
    new_trace_id,
)
from toolpost.contracts import InvalidRequest, canonical_digest
from toolpost.parts.approvals import records
from toolpost.parts.approvals.draw import Draw, draw
from toolpost.parts.approvals.records import Opened
from toolpost.parts.approvals.review import redact_for_review
from toolpost.parts.approvals.rounds import Choice, FinalityLevel, Round, RoundId, Status, Tally, Vote, level_of, tally
from toolpost.parts.approvals.subject import CallSubject, digest_exactly, message_of_vote, subject_of_proposal
from toolpost.store import Store

_log = logging.getLogger("toolpost.approvals")

LEASE_S: Final = 10.0
"""A call whose gateway has not renewed it for so long is lost."""
RENEW_S: Final = 3.0
LOOK_S: Final = 2.0
"""How often a waiting call looks at its round, besides being woken: a wake-up may get lost."""
ROUNDS_LIMIT: Final = 20_000
"""Rounds that may be open at once."""
PRUNE_S: Final = 60.0
PRUNE_BATCH: Final = 500
"""Rounds that one transaction removes, so that votes need not wait for long."""
SKEW_S: Final = 300.0
"""How far the clock of a voter who signs may be off."""
SHOWN_LIMIT_BYTES: Final = 256 * 1024
"""How large the arguments and the definition of the tool, or a proposal, may be in JSON, together with the voters."""
SCAN_LIMIT: Final = 1_000
"""Rounds that one list looks at: a page asks every two seconds, and its caller may see few of many."""
PAGE_BYTES: Final = 256 * 1024
"""Contents of rounds after which a list ends."""
PAGE_STEP: Final = 2
"""Rounds that are read at once for a list."""
GATEWAY_KEY: Final = "signing:approvals"
VRF_KEY: Final = "vrf"
"""The gateway's own key of the verifiable random function."""
DRAW_KEY: Final = "vrf:draw"
"""The key that voters are drawn with: with that of `vrf_eval`, a requester could try a draw before the call."""
TOPIC: Final = "approvals"


@dataclass(frozen=True, kw_only=True)
class RoundView:
    """A round with its votes, at a time."""

    round: Round
    votes: list[Vote]
    now: float

    @property
    def tally(self) -> Tally:
        """What the votes amount to."""
        return tally(self.round.voters, self.votes)

    @property
    def status(self) -> Status:
        """Where the round stands."""
        return self.round.status_at(self.now)

    @property
    def level(self) -> FinalityLevel:
        """How final it is."""
        return level_of(self.round, self.tally)


@dataclass(frozen=True, kw_only=True)
class Cast:
    """A vote that was cast, now or before."""

    vote: Vote
    is_new: bool
    view: RoundView


class Approvals:
    """The rounds of a store."""

    def __init__(
        self,
        store: Store,
        *,
        limit: int = ROUNDS_LIMIT,
        keys: Mapping[str, bytes] | None = None,
        keep_s: float = 90 * 86_400.0,
        share_of: Callable[[int], int] = lambda total: total,
    ) -> None:
        """`keys` are public keys of voters who sign themselves; rounds are pruned `keep_s` after their end.

        `share_of` returns the part of `limit` that one caller may have.
        """
        self._store = store
        self._keep_s = keep_s
        self._share_of = share_of
        self._limit = limit
        self._keys = keys or {}
        self._ended: list[tuple[RoundId, CallId, Status, str | None]] = []
        """Ends of calls that could not be stored; as many as calls were in flight when the store failed."""
        self.owner = secrets.token_hex(8)
        """Names this gateway in rounds whose calls it runs."""
        self.open_rounds = 0
        """How many rounds waited for votes when that was last counted."""

    async def gateway_key(self) -> SigningKey:
        """Return the key that this gateway, and all others of the store, sign with."""
        return SigningKey(await self._store.keys.of(GATEWAY_KEY))

    async def gateway_id(self) -> str:
        """Return the public key of this gateway, as `[peers.NAME]` has it."""
        return base64.b64encode((await self.gateway_key()).public).decode()

    async def draw(self, subject: CallSubject, pool: tuple[str, ...], count: int) -> Draw:
        """Draw voters for a call from a pool; the same for the same call."""
        key = await self.key_of(subject)
        return draw(await self._store.keys.of(DRAW_KEY), key.encode(), pool, count)

    async def open_call(self, subject: CallSubject, *, expires_s: float, draw: JsonObject | None = None) -> Opened:
        """Find the round that decides on a call, or open one; `draw` is the proof by which its voters were drawn."""
        try:
            arguments = redact_for_review(subject.arguments)
        except ValueError as error:
            raise Forbidden(
                f"Voters could not be shown all of the arguments: {error}.", hint="send fewer and shorter names"
            ) from error
        exact = await self._digest(subject.arguments)
        gateway, expires_at = await self.gateway_id(), await self._shown_expiry(expires_s)
        return await self._open(
            subject.describe(arguments, exact, gateway=gateway, expires_at=expires_at),
            key=subject.key(exact),
            shown={
                "arguments": arguments,
                "definition": subject.definition,
                **({"draw": draw} if draw is not None else {}),
            },
            tool=subject.tool,
            rule=subject.rule,
            voters=subject.voters,
            needed=subject.needed,
            expires_s=expires_s,
        )

    async def open_proposal(
        self,
        *,
        text: str | None,
        digest: str,
        caller: str,
        voters: tuple[str, ...],
        needed: int,
        expires_s: float,
    ) -> Opened:
        """Open a round on a text or a digest; always a new one."""
        made = subject_of_proposal(
            gateway=await self.gateway_id(),
            caller=caller,
            digest=digest,
            expires_at=await self._shown_expiry(expires_s),
        )
        shown = {"digest": digest} if text is None else {"text": text, "digest": digest}
        return await self._open(
            made,
            key=canonical_digest(made),
            shown=shown,
            tool=None,
            rule=None,
            voters=voters,
            needed=needed,
            expires_s=expires_s,
        )

    async def key_of(self, subject: CallSubject) -> str:
        """Return what an approval of this call is stored under."""
        return subject.key(await self._digest(subject.arguments))

    async def vote(
        self,
        round_id: RoundId,
        choice: Choice,
        *,
        by: Caller,
        cast_by: CallerId | None = None,
        signature: str | None = None,
        signed_at: str | None = None,
    ) -> Cast:
        """Cast a vote, signed with the voter's key of this store, or by the voter.

        `cast_by` is the administrator who votes for `by`, and is recorded with the vote. Raises `Forbidden` for an agent, which
        acts for a caller and would approve what it asks for itself, for an administrator who calls with the rights of another,
        and for one who votes for others on a call of their own.
        """
        if by.acted_by is not None:
            raise Forbidden("A vote is cast by the voter alone.", hint=f"vote as `{by.acted_by}`, if it may vote")
        if by.is_agent:
            raise Forbidden(
                "An agent may not vote in the name of its caller.", hint="the caller votes, in a browser or a terminal"
            )
        records.check_choice(choice)
        before = await self.read(round_id)
        if by.id not in before.round.voters:
            if by.id != before.round.caller and not by.is_admin:
                # Like a round that does not exist: others learn neither of it nor who may vote in it.
                raise records.no_round(round_id)
            raise records.may_not_vote(before.round, by.id)
        if cast_by is not None and cast_by == before.round.caller:
            # Also one who may vote on it: with the votes of all others the quorum would be their own.
            raise records.may_not_vote(before.round, cast_by)
        vote = replace(await self._sign(before, choice, by.id, signature, signed_at), cast_by=cast_by)
        current, votes, is_new = await self._store.scripts.run(lambda: records.cast(round_id, vote))
        if current.status is Status.APPROVED and current.recorded_as is None:
            current = await self.record_quorum(current)
        if is_new:
            if cast_by is not None:
                event(
                    _log, logging.WARNING, "vote cast for another", round=round_id, voter=by.id, administrator=cast_by
                )
            self._store.wakeups.ring(topic_of(round_id))
            self._store.wakeups.ring(TOPIC)
        kept = next(one for one in votes if one.voter == by.id and one.choice == choice)
        return Cast(vote=kept, is_new=is_new, view=RoundView(round=current, votes=votes, now=before.now))

    def may_answer_for(self, view: RoundView, caller: Caller) -> bool:
        """Whether the client of a caller could cast the vote of that caller now, with the key that the store keeps."""
        return (
            not caller.is_agent
            and caller.id in view.round.voters
            and caller.id not in self._keys
            and all(vote.voter != caller.id for vote in view.votes)
        )

    async def read(self, round_id: RoundId) -> RoundView:
        """Return a round; raises `NotFound`."""
        read = await self._store.scripts.read(lambda: records.read_round(round_id))
        if read is None:
            raise records.no_round(round_id)
        return RoundView(round=read[0], votes=read[1], now=read[2])

    async def list_rounds(self, *, only_open: bool, limit: int = 100, before: int | None = None) -> list[RoundView]:
        """Return rounds, the newest first."""
        rounds, votes, now = await self._store.scripts.read(
            lambda: records.list_rounds(only_open=only_open, limit=limit, before=before)
        )
        return [RoundView(round=one, votes=votes[one.id], now=now) for one in rounds]

    async def list_visible(
        self, is_visible: Callable[[Round], bool], *, only_open: bool, limit: int, before: int | None = None
    ) -> tuple[list[RoundView], RoundId | None]:
        """Return rounds that someone may see, the newest first, and where to go on; None after the last.

        They may be behind any number of others: at most `SCAN_LIMIT` are looked at, so there may be none, and more to come. What
        they show voters has about `PAGE_BYTES` at most.
        """
        scanned = await self._store.scripts.read(
            lambda: records.scan_rounds(only_open=only_open, limit=SCAN_LIMIT, before=before)
        )
        visible = [one for one in scanned if is_visible(one)]
        views: list[RoundView] = []
        size = taken = 0
        # A few at a time: a hundred rounds may have 25 MB of contents.
        while taken < min(limit, len(visible)) and size < PAGE_BYTES:
            ids = [one.id for one in visible[taken : min(limit, taken + PAGE_STEP)]]
            rounds, votes, now = await self._store.scripts.read(partial(records.read_rounds, ids))
            views += [RoundView(round=one, votes=votes[one.id], now=now) for one in rounds]
            size += sum(len(one.shown) for one in rounds)
            taken += len(ids)
        if len(visible) > taken:
            return views, visible[taken - 1].id
        return views, scanned[-1].id if len(scanned) == SCAN_LIMIT else None

    async def wait(self, round_id: RoundId) -> RoundView:
        """Wait until a round is decided or has expired."""
        async with self._store.wakeups.open_listener(topic_of(round_id)) as listener:
            while (view := await self.read(round_id)).status is Status.OPEN:
                with anyio.move_on_after(min(LOOK_S, max(0.01, view.round.expires_at - view.now))):
                    await listener.wait()
        return view

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Any]:
        """Listen to votes and new rounds."""
        async with self._store.wakeups.open_listener(TOPIC) as listener:
            yield listener

    async def dispatch(self, round_id: RoundId, key: str, call_id: CallId) -> Round:
        """Use an approval for a call; whether it may run is `round.call_id == call_id`."""
        return await self._store.scripts.run(
            lambda: records.dispatch(round_id, key, call_id=call_id, owner=self.owner, lease_s=LEASE_S)
        )

    async def finish(self, round_id: RoundId, call_id: CallId, *, status: Status, outcome: str | None) -> None:
        """Note how the call ended. If that fails, it is logged, and tried again by the sweep."""
        try:
            await self._store.scripts.run(
                lambda: records.finish(round_id, call_id=call_id, status=status, outcome=outcome), durable=False
            )
        except ToolpostError as error:
            # Otherwise it would count as running for as long as this gateway lives, which renews what it runs.
            self._ended.append((round_id, call_id, status, outcome))
            event(
                _log, logging.ERROR, "end of an approved call not stored", round=round_id, call=call_id, exception=error
            )

    async def record_quorum(self, current: Round) -> Round:
        """Record in the audit that a round has its quorum; from then on the approval can be used."""
        # Not waiting for the disk: a power cut takes back both, and the sweep does it again.
        await self._store.scripts.run(lambda: records.record(current.id, _quorum_entry), durable=False)
        return (await self.read(current.id)).round

    async def others_approved(self, subject: CallSubject, key: str) -> list[int]:
        """Return approved rounds of the same caller and tool that are for another call."""
        return await self._store.scripts.read(lambda: records.other_approved(subject.caller, subject.tool, key))

    @asynccontextmanager
    async def open_sweeping(self, *others: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
        """Renew what this gateway runs, and give up what others no longer do, as long as this is open; run `others` too."""
        async with anyio.create_task_group() as tasks:
            for background in (self._sweep, self._prune, *others):
                tasks.start_soon(background)
            yield
            tasks.cancel_scope.cancel()

    async def sweep(self) -> list[Round]:
        """Give up lost calls, and record quorums that are not; returns what was lost."""
        ended, self._ended = self._ended, []
        for round_id, call_id, status, outcome in ended:
            await self.finish(round_id, call_id, status=status, outcome=outcome)
        # Mostly no call is in flight: then nothing is written.
        has_running = await self._store.scripts.read(records.has_dispatched)
        lost = (
            await self._store.scripts.run(lambda: records.find_lost(LEASE_S, _lost_entry), durable=False)
            if has_running
            else []
        )
        for one in lost:
            event(
                _log,
                logging.WARNING,
                "approved call lost",
                round=one.id,
                tool=one.tool,
                caller=one.caller,
                call=one.call_id,
                hint="it was started and never finished: whether it had an effect is unknown; its approval is used",
            )
            self._store.wakeups.ring(TOPIC)
        for one in await self._store.scripts.read(records.find_unrecorded):
            await self.record_quorum(one)
            self._store.wakeups.ring(topic_of(one.id))
        self.open_rounds = await self._store.scripts.read(records.count_open)
        return lost

    async def prune(self) -> int:
        """Remove rounds that ended or expired long enough ago, and what was received from peers before that."""
        pruned, removed = 0, PRUNE_BATCH
        while removed == PRUNE_BATCH:
            removed = await self._store.scripts.run(
                lambda: records.prune_rounds(self._keep_s, PRUNE_BATCH), durable=False
            )
            pruned += removed
        emptied = PRUNE_BATCH
        while emptied == PRUNE_BATCH:
            emptied = await self._store.scripts.run(lambda: records.remove_unvoted(PRUNE_BATCH), durable=False)
        return pruned

    def wall(self, at: float) -> str:
        """Write a moment of the store's time for people."""
        return format_time(self._store.scripts.wall(at))

    async def _prune(self) -> None:
        while True:
            try:
                await self.prune()
            except ToolpostError as error:
                event(_log, logging.WARNING, "rounds not pruned", exception=error)
            await anyio.sleep(PRUNE_S)

    async def _sweep(self) -> None:
        while True:
            try:
                if await self._store.scripts.read(records.has_dispatched):
                    # Before the sweep, which after a long pause would give up the calls of this gateway, too.
                    await self._store.scripts.run(lambda: records.renew(self.owner, LEASE_S), durable=False)
                await self.sweep()
            except ToolpostError as error:
                event(_log, logging.WARNING, "approvals not swept", exception=error)
            await anyio.sleep(RENEW_S)

    async def _open(
        self, subject: JsonObject, *, key: str, shown: JsonObject, expires_s: float, **options: Any
    ) -> Opened:
        text = msgspec.json.encode(shown)
        size = len(text) + len(msgspec.json.encode(options["voters"]))
        if size > SHOWN_LIMIT_BYTES:
            # No voter can review that, and every list of rounds would carry it.
            raise Forbidden(
                f"What is to be approved, with its voters, has {size:,} bytes; voters are shown at most {SHOWN_LIMIT_BYTES:,}.",
                hint="send less at once, or a reference to it",
            )
        new = Round(
            key=key,
            kind=subject["kind"],
            subject=msgspec.json.encode(subject).decode(),
            subject_digest=canonical_digest(subject),
            shown=text.decode(),
            unvoted_bytes=len(text),
            caller=subject["caller"],
            **options,
        )
        share = self._share_of(self._limit)
        opened = await self._store.scripts.run(
            lambda: records.open_round(new, expires_s=expires_s, limit=self._limit, share=share)
        )
        if opened.is_new:
            self._store.wakeups.ring(TOPIC)
        return opened

    async def _sign(
        self, view: RoundView, choice: Choice, voter: CallerId, signature: str | None, signed_at: str | None
    ) -> Vote:
        found = view.round
        if (public := self._keys.get(voter)) is not None:
            if signature is None or signed_at is None:
                raise InvalidRequest(
                    f"`{voter}` signs votes themselves: the signature is missing.",
                    hint="send `sig_b64` and `signed_at` (at the command line --signature and --signed-at);"
                    " docs/parts/approvals.md has the bytes to sign",
                )
            _check_signature(found, choice, public, signature, signed_at, view.now, self._store.scripts.wall)
        elif signature is not None:
            raise InvalidRequest(
                f"No public key of `{voter}` is known, to verify the signature by.", hint="add it to [approvals.keys]"
            )
        else:
            key = SigningKey(await self._store.keys.of(f"{GATEWAY_KEY}:voter:{voter}"))
            public, signed_at = key.public, self.wall(view.now)
            message = message_of_vote(found.id, found.subject_digest, choice, signed_at)
            signature = base64.b64encode(key.sign(message)).decode()
        return Vote(
            voter=voter,
            choice=choice,
            signed_at=signed_at,
            public_key=base64.b64encode(public).decode(),
            signature=signature,
        )

    async def _digest(self, arguments: JsonObject) -> str:
        return digest_exactly(await self._store.keys.of("approvals arguments"), arguments)

    async def _shown_expiry(self, expires_s: float) -> str:
        # By the clock that expiry follows, which is the database's with PostgreSQL.
        return self.wall(await self._store.scripts.read(records.read_now) + expires_s)


def _check_signature(
    found: Round, choice: Choice, public: bytes, signature: str, signed_at: str, now: float, wall: Any
) -> None:
    try:
        raw = base64.b64decode(signature, validate=True)
        at = datetime.fromisoformat(signed_at)
    except (ValueError, binascii.Error) as error:
        raise InvalidArguments(
            "`sig_b64` is not base64, or `signed_at` is no ISO 8601 time.", hint="sign again"
        ) from error
    if at.tzinfo is None or not wall(found.created_at) - SKEW_S <= at.timestamp() <= wall(now) + SKEW_S:
        raise InvalidArguments("`signed_at` is not within the time of the round.", hint="check your clock, sign again")
    if not is_signed_by(public, message_of_vote(found.id, found.subject_digest, choice, signed_at), raw):
        raise Forbidden(
            "The signature is not valid for this round, subject, choice and time.",
            hint="sign the five lines that docs/parts/approvals.md shows",
        )


def _entry(found: Round, entry_id: CallId, *, tool: str, result: str | None) -> AuditEntry:
    return AuditEntry(
        at_utc=format_time(time.time()),
        call_id=entry_id,
        trace_id=TraceId(new_trace_id()),
        caller=CallerId(found.caller),
        tool=ToolName(tool),
        source="approvals",
        contract="",
        schema_version=1,
        tooling_version=__version__,
        arguments=found.subject_digest,
        outcome="ok" if result is not None else "error",
        code=None if result is not None else "INTERNAL",
        duration_ms=0.0,
        result=result,
    )


def _quorum_entry(found: Round, votes: list[Vote]) -> AuditEntry:
    # With the number of votes: a quorum that was undone by an equivocation may come about again, with more of them.
    entry_id = CallId(f"round-{found.id}-{found.subject_digest[-12:]}-{len(votes)}")
    evidence = [
        [vote.voter, vote.choice, vote.signature, *([vote.cast_by] if vote.cast_by is not None else [])]
        for vote in votes
    ]
    return _entry(found, entry_id, tool="approvals__quorum", result=canonical_digest(evidence))


def _lost_entry(found: Round) -> AuditEntry:
    return _entry(found, CallId(f"lost-{found.call_id}"), tool="approvals__lost", result=None)


def topic_of(round_id: RoundId) -> str:
    """Return the wake-up of one round."""
    return f"approvals:{round_id}"


def parse_round_id(text: str) -> RoundId:
    """Read the id of a round; raises `NotFound` for what is none."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise NotFound(f"`{text[:40]}` is no round.", hint="the id of a round is a number")
    return RoundId(int(text))
