"""Holds calls to the rules of `[approvals]`: a call that falls under one runs once, after it was approved, or not at all.

`admit` finds or opens the round, and waits for it or raises. `check` uses the approval, right before the tool runs: it is a
conditional UPDATE, so that of two calls, gateways or attempts one gets it. An approval is lost to no lock, no deadline and no
crash before that; after it, the call was dispatched, and a crash makes the round *lost*.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

import anyio

from toolpost.authoring.middleware import ToolInfo
from toolpost.base.ids import META_KEY, CallId
from toolpost.contracts.errors import Forbidden, ToolpostError
from toolpost.middleware import Call, CheckedResult, info_of
from toolpost.middleware.interface import NextStep
from toolpost.parts.approvals.draw import Draw
from toolpost.parts.approvals.records import Opened
from toolpost.parts.approvals.rounds import Round, RoundId, Status, tally
from toolpost.parts.approvals.rules import Rule, Rules
from toolpost.parts.approvals.service import Approvals, CallSubject, View, parse_round_id

META_ROUND: Final = "round_id"
"""Under our key in a call's `_meta`: the round whose approval the call is to use, and no other."""


class ApprovalGuard:
    """The rules, applied to calls."""

    name = "approvals"

    def __init__(self, approvals: Approvals, rules: Rules) -> None:
        self._approvals = approvals
        self._rules = rules
        self._granted: dict[CallId, Round] = {}
        """Approved rounds of calls that are on their way to their tools."""
        self._used: dict[CallId, RoundId] = {}
        """Rounds of calls that have been dispatched and have not ended."""

    def may_apply(self, tool: ToolInfo) -> bool:
        """Whether some call of this tool may fall under a rule."""
        return bool(self._rules.for_tool(tool))

    async def admit(self, call: Call, proceed: NextStep) -> CheckedResult:
        """Let a call go on that needs no approval, or has one; note how it ended."""
        rule = self._rules.find(info_of(call.tool), call.arguments)
        if rule is None:
            return await proceed(call)
        self._granted[call.id] = await self._obtain(call, rule)
        status, code = Status.FAILED, "INTERNAL"
        try:
            outcome = await proceed(call)
            status, code = (Status.FAILED, "HANDLER_ERROR") if outcome.is_error else (Status.DONE, "")
        except ToolpostError as error:
            code = error.code.value
            raise
        except asyncio.CancelledError:
            code = "CANCELLED"
            raise
        finally:
            self._granted.pop(call.id, None)
            if (used := self._used.pop(call.id, None)) is not None:
                with anyio.CancelScope(shield=True):
                    await self._approvals.finish(used, call.id, status=status, outcome=code or None)
        return outcome

    def check(self, call: Call) -> Awaitable[None] | None:
        """Use the approval of a call; None for a call that needs none."""
        granted = self._granted.pop(call.id, None)
        if granted is not None:
            return self._use(call, granted)
        if self._rules.find(info_of(call.tool), call.arguments) is not None:
            # Only something behind `admit` can have changed the arguments: there is nothing today.
            raise Forbidden("The arguments were changed after they were looked at: the call was not approved.")
        return None

    async def _use(self, call: Call, granted: Round) -> None:
        subject = _subject_of(call, rule=granted.rule or "", voters=granted.voters, needed=granted.needed)
        key = await self._approvals.key_of(subject)
        if key != granted.key:
            raise Forbidden(f"The arguments are not those that round {granted.id} approved.", **_facts(granted))
        current = await self._approvals.dispatch(granted.id, key, call.id)
        if current.call_id == call.id:
            self._used[call.id] = granted.id
            return
        raise self._refuse(View(round=current, votes=[], now=await self._now(granted.id)))

    async def _obtain(self, call: Call, rule: Rule) -> Round:
        """Return the approved round of a call. Raises `Forbidden` if there is none, after waiting if the rule says so."""
        drawn = await self._draw(call, rule)
        voters, needed = rule.electorate(call.caller.id, drawn.voters)
        subject = _subject_of(call, rule=rule.name, voters=voters, needed=needed)
        if (named := _named_round(call)) is not None:
            return await self._obtain_named(subject, named)
        opened = await self._approvals.open_call(subject, expires_s=rule.settings.expires_s, draw=drawn.shown)
        view = await self._approvals.read(opened.round.id)
        if view.status is Status.OPEN and rule.settings.wait:
            view = await self._wait(call, view)
        view = await self._recorded(view)
        if view.status is not Status.APPROVED:
            others = await self._approvals.others_approved(subject, view.round.key) if opened.is_new else []
            raise self._refuse(view, opened=opened, others=others)
        return view.round

    async def _draw(self, call: Call, rule: Rule) -> Draw:
        """Return who may vote: all voters of the rule, or as many as it says, drawn for exactly this call."""
        pool = rule.pool(call.caller.id)
        if rule.settings.draw is None or rule.settings.draw >= len(pool):
            return Draw(voters=pool)
        subject = _subject_of(call, rule=rule.name, voters=pool, needed=rule.settings.draw)
        return await self._approvals.draw(subject, pool, rule.settings.draw)

    async def _obtain_named(self, subject: CallSubject, named: RoundId) -> Round:
        view = await self._recorded(await self._approvals.read(named))
        if view.round.key != await self._approvals.key_of(subject):
            raise Forbidden(
                f"Round {named} is for another call: {_difference(view.round, subject)}.",
                hint="call again without the round to have this call approved",
                **_facts(view.round),
            )
        if view.status is not Status.APPROVED:
            raise self._refuse(view)
        return view.round

    async def _recorded(self, view: View) -> View:
        """Make sure that the audit has the quorum: a gateway may have been killed before it wrote that."""
        if view.status is Status.APPROVED and view.round.recorded_as is None:
            await self._approvals.record_quorum(view.round, view.votes)
            return await self._approvals.read(view.round.id)
        return view

    async def _wait(self, call: Call, view: View) -> View:
        needed, found = view.round.needed, view.round.id
        call.context.progress(message=f"waiting for approval: round {found}, {needed} needed", phase="approval")
        with call.pause_deadline():
            return await self._approvals.wait(found)

    async def _now(self, found: RoundId) -> float:
        return (await self._approvals.read(found)).now

    def _refuse(self, view: View, *, opened: Opened | None = None, others: list[int] | None = None) -> Forbidden:
        """Return the error that says why a call may not run, and what would change that."""
        found, counted = view.round, tally(view.round.voters, view.votes)
        facts = _facts(found, status=view.status, expires_at=self._approvals.wall(found.expires_at))
        again = "call again with the same arguments to ask for a new approval"
        match view.status:
            case Status.OPEN:
                message = (
                    f"This call needs approval: round {found.id}, {len(counted.approvals)} of {found.needed} given."
                )
                if opened is not None and opened.previous is not None:
                    message += f" {_tell_previous(opened.previous)}"
                elif others:
                    message += (
                        f" Round {others[0]} is approved, for other arguments or an earlier contract of the tool."
                    )
                hint = (
                    f"call again with the same arguments once it is approved: `toolpost approvals approve {found.id}`;"
                    f" may vote: {', '.join(found.voters)}"
                )
            case Status.DENIED:
                by = ", ".join((*counted.denials, *(f"{one} (two votes, both void)" for one in counted.equivocators)))
                message, hint = f"This call was denied in round {found.id}, by {by}.", "do something else"
            case Status.EXPIRED:
                message, hint = f"Round {found.id} expired before the call ran.", again
            case _:
                message, hint = f"The approval of round {found.id} was used already: each runs one call.", again
        return Forbidden(message, hint=hint, **facts)


def _subject_of(call: Call, *, rule: str, voters: tuple[str, ...], needed: int) -> CallSubject:
    contract = call.tool.contract
    return CallSubject(
        tool=contract.name,
        provider=call.tool.provider,
        contract=contract.digest,
        caller=call.caller.id,
        arguments=call.arguments,
        definition=contract.definition,
        rule=rule,
        voters=voters,
        needed=needed,
    )


def _named_round(call: Call) -> RoundId | None:
    facts = call.context.meta.get(META_KEY)
    named = facts.get(META_ROUND) if isinstance(facts, dict) else None
    return parse_round_id(str(named)) if named is not None else None


def _facts(found: Round, **more: str) -> dict[str, Any]:
    return {"round_id": str(found.id), "subject": found.subject_digest, "rule": found.rule, **more}


def _tell_previous(previous: Round) -> str:
    if previous.status.is_used:
        fate = "was lost: it was started and never finished" if previous.status is Status.LOST else "ran"
        return f"The call of round {previous.id} {fate}, and its approval is used."
    return f"Round {previous.id} expired."


def _difference(found: Round, subject: CallSubject) -> str:
    if found.kind != "call":
        return "it is about a proposal"
    if found.tool != subject.tool:
        return f"it is about `{found.tool}`"
    if found.caller != subject.caller:
        return "another caller asked for it"
    return "the arguments, the contract of the tool, or the rule have changed"
