"""Holds calls to the rules of `[approvals]`: a call that falls under one runs once, after it was approved, or not at all.

`admit` finds or opens the round, and waits for it or raises. `check` uses the approval, right before the tool runs: it is a
conditional UPDATE, so that of two calls, gateways or attempts one gets it. An approval is lost to no lock, no deadline and no
crash before that; after it, the call was dispatched, and a crash makes the round *lost*.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import anyio

from toolpost import Caller, Forbidden, Principal, ToolInfo, ToolpostError
from toolpost.base import META_KEY, CallId
from toolpost.contracts import Contract, InvalidRequest
from toolpost.fairness import Shares
from toolpost.gateway import Gateway
from toolpost.middleware import Call, CheckedResult, NextStep
from toolpost.parts import Guard
from toolpost.parts.approvals.draw import Draw
from toolpost.parts.approvals.elicitation import ELICITATION_LIMIT_S, ask_for_vote
from toolpost.parts.approvals.records import Opened, no_round
from toolpost.parts.approvals.rounds import Choice, Round, RoundId, Status, tally
from toolpost.parts.approvals.rules import ApprovalRule, ApprovalRules
from toolpost.parts.approvals.service import Approvals, RoundView, parse_round_id
from toolpost.parts.approvals.subject import CallSubject

META_ROUND: Final = "round_id"
"""Under our key in a call's `_meta`: the round whose approval the call is to use, and no other."""


class ApprovalGuard(Guard):
    """The rules, applied to calls."""

    name = "approvals"

    def __init__(
        self,
        approvals: Approvals,
        rules: ApprovalRules,
        *,
        gateway: Callable[[], Gateway],
        principal_of: Callable[[Caller], Principal | None],
        waiting: Shares,
    ) -> None:
        """`waiting` counts calls that wait for approval.

        `gateway` and `principal_of` say what can be called now, and by whom: a call may have waited for long.
        """
        self._waiting = waiting
        self._approvals = approvals
        self._rules = rules
        self._gateway = gateway
        self._principal_of = principal_of
        self._rules_by_contract: dict[int, tuple[Contract, list[ApprovalRule]]] = {}
        """The rules that a call of a tool may fall under, by the id of its contract, which is kept alive here."""
        self._inside: set[CallId] = set()
        """Calls under a rule, from `admit` to their end."""
        self._granted: dict[CallId, Round] = {}
        """Approved rounds of calls that are on their way to their tools."""
        self._used: dict[CallId, RoundId] = {}
        """Rounds of calls that have been dispatched and have not ended."""

    def may_apply(self, tool: ToolInfo) -> bool:
        """Whether some call of this tool may fall under a rule."""
        # It is asked again after tools or tags have changed, before the next call: what was remembered may be wrong now.
        self._rules_by_contract.clear()
        return bool(self._rules.for_tool(tool))

    def applies_to_call(self, call: Call) -> bool:
        """Whether this call falls under a rule: one that does not is sent to its server without a task."""
        contract = call.tool.contract
        known = self._rules_by_contract.get(id(contract))
        if known is None:
            known = self._rules_by_contract[id(contract)] = contract, self._rules.for_tool(call.tool.info)
        return any(rule.matches(call.arguments) for rule in known[1])

    async def admit(self, call: Call, proceed: NextStep) -> CheckedResult:
        """Let a call go on that needs no approval, or has one; note how it ended."""
        rule = self._rules.find(call.tool.info, call.arguments)
        if rule is None:
            return await proceed(call)
        if call.id in self._inside:
            # Both would find `round.call_id == call.id`, and run.
            raise Forbidden(
                "This call runs already: a middleware called `proceed` again before the first had ended.",
                hint="have the middleware wait for `proceed` before it calls it again",
            )
        self._inside.add(call.id)
        status, code = Status.FAILED, "INTERNAL"
        try:
            self._granted[call.id] = await self._obtain(call, rule)
            outcome = await proceed(call)
            status, code = (Status.FAILED, "HANDLER_ERROR") if outcome.is_error else (Status.DONE, "")
        except ToolpostError as error:
            code = error.code.value
            raise
        except asyncio.CancelledError:
            code = "CANCELLED"
            raise
        finally:
            self._inside.discard(call.id)
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
        if self._rules.find(call.tool.info, call.arguments) is not None:
            # Only something behind `admit` can have changed the arguments: there is nothing today.
            raise Forbidden(
                "The arguments were changed after they were looked at: the call was not approved.", hint="call again"
            )
        return None

    async def _use(self, call: Call, granted: Round) -> None:
        subject = _subject_of(call, rule=granted.rule or "", voters=granted.voters, needed=granted.needed)
        key = await self._approvals.key_of(subject)
        if key != granted.key:
            raise Forbidden(f"The arguments differ from those that round {granted.id} approved.", **_facts(granted))
        # Before the dispatch: if its answer is lost with the connection, it may have been committed, and is then ended too.
        self._used[call.id] = granted.id
        current = await self._approvals.dispatch(granted.id, key, call.id)
        if current.call_id == call.id:
            return
        del self._used[call.id]
        raise self._refuse(await self._approvals.read(granted.id))

    async def _obtain(self, call: Call, rule: ApprovalRule) -> Round:
        """Return the approved round of a call. Raises `Forbidden` if there is none, after waiting if the rule says so."""
        if call.caller.acted_by is not None:
            # Who asks may not vote; an administrator who asks with the rights of another could.
            raise Forbidden(
                "A call that needs approval is made by its caller alone, and not with its rights.",
                hint="have the caller make the call",
            )
        # An approval of a tool that is quarantined would be used up by a call that cannot reach it.
        self._check_still_callable(call, was_known=False)
        # An agent of the person at the command line has an owner that HTTP does not know, and who cannot be removed. Looked at
        # before anything is awaited: a caller that is removed while the round is opened would pass for such an agent.
        was_known = self._principal_of(call.caller) is not None
        drawn = await self._draw(call, rule)
        voters, needed = rule.electorate(call.caller.id, drawn.voters)
        subject = _subject_of(call, rule=rule.name, voters=voters, needed=needed)
        if (named := _named_round(call)) is not None:
            return await self._obtain_named(subject, named)
        opened = await self._approvals.open_call(subject, expires_s=rule.settings.expires_s, draw=drawn.shown)
        view = await self._approvals.read(opened.round.id)
        if view.status is Status.OPEN and rule.settings.elicit:
            view = await self._elicit(call, view)
        if view.status is Status.OPEN and rule.settings.wait:
            view = await self._wait(call, view)
        view = await self._recorded(view)
        if view.status is Status.APPROVED:
            self._check_still_callable(call, was_known=was_known)
        if view.status is not Status.APPROVED:
            others = await self._approvals.others_approved(subject, view.round.key) if opened.is_new else []
            raise self._refuse(view, opened=opened, others=others)
        return view.round

    async def _draw(self, call: Call, rule: ApprovalRule) -> Draw:
        """Return who may vote: all voters of the rule, or as many as it says, drawn for exactly this call."""
        pool = rule.pool(call.caller.id)
        if rule.settings.draw is None or rule.settings.draw >= len(pool):
            return Draw(voters=pool)
        subject = _subject_of(call, rule=rule.name, voters=pool, needed=rule.settings.draw)
        return await self._approvals.draw(subject, pool, rule.settings.draw)

    async def _obtain_named(self, subject: CallSubject, named: RoundId) -> Round:
        view = await self._approvals.read(named)
        if view.round.caller != subject.caller:
            # Like a round that does not exist: who asks learns nothing of the rounds of others.
            raise no_round(named)
        view = await self._recorded(view)
        if view.round.key != await self._approvals.key_of(subject):
            raise Forbidden(
                f"Round {named} is for another call: {_difference(view.round, subject)}.",
                hint="call again without the round to have this call approved",
                **_facts(view.round),
            )
        if view.status is not Status.APPROVED:
            raise self._refuse(view)
        return view.round

    async def _recorded(self, view: RoundView) -> RoundView:
        """Make sure that the audit has the quorum: a gateway may have been killed before it wrote that."""
        if view.status is Status.APPROVED and view.round.recorded_as is None:
            await self._approvals.record_quorum(view.round)
            return await self._approvals.read(view.round.id)
        return view

    async def _wait(self, call: Call, view: RoundView) -> RoundView:
        needed, round_id = view.round.needed, view.round.id
        call.context.progress(message=f"waiting for approval: round {round_id}, {needed} needed", phase="approval")
        # Nothing else limits them: they hold no lock, and no time limit runs.
        with self._waiting.held(call.caller.id), call.pause_deadline():
            return await self._approvals.wait(round_id)

    def _check_still_callable(self, call: Call, *, was_known: bool) -> None:
        """Raise `Forbidden` if the tool changed, or the caller lost it, while the call waited. The approval is not used."""
        name, caller = call.tool.contract.name, call.caller
        principal = self._principal_of(caller)
        if was_known and principal is None:
            raise Forbidden(
                f"`{caller.id}` may no longer call tools: it was removed while the call waited.",
                hint="an operator can add it to [callers] again",
            )
        if not self._gateway().still_provides(call, principal):
            raise Forbidden(
                f"`{name}` cannot be called now: it has changed, is quarantined, or `{caller.id}` may not call it any more.",
                hint="list the tools, and call again: what has changed needs a new approval",
            )

    async def _elicit(self, call: Call, view: RoundView) -> RoundView:
        """Ask the client that calls, and cast its answer as the vote of its caller. Without a clear answer nothing is cast."""
        client = call.context.client_channel
        if client is None or not self._approvals.may_answer_for(view, call.caller):
            return view
        choice: Choice | None = None
        limit_s = min(ELICITATION_LIMIT_S, max(0.0, view.round.expires_at - view.now))
        with call.pause_deadline(at_most_s=limit_s), anyio.move_on_after(limit_s):
            async with anyio.create_task_group() as tasks:

                async def end_when_decided() -> None:
                    # A store that fails is met again below, where the caller is told; from here it would be a group of errors.
                    with suppress(ToolpostError):
                        await self._approvals.wait(view.round.id)
                    tasks.cancel_scope.cancel()

                # Others may decide first; then the question is withdrawn.
                tasks.start_soon(end_when_decided)
                choice = await ask_for_vote(client, view)
                tasks.cancel_scope.cancel()
        if choice is not None:
            # It may have expired while the client answered, which the caller is told as of any other round.
            with suppress(InvalidRequest):
                await self._approvals.vote(view.round.id, choice, by=call.caller)
        return await self._approvals.read(view.round.id)

    def _refuse(self, view: RoundView, *, opened: Opened | None = None, others: list[int] | None = None) -> Forbidden:
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
                # Who votes, and no command: an agent that calls may have a shell, and would try it.
                hint = f"call again with the same arguments once it is approved; may vote: {', '.join(found.voters)}"
            case Status.DENIED:
                by = ", ".join((*counted.denials, *(f"{one} (two votes, both void)" for one in counted.equivocators)))
                message, hint = f"This call was denied in round {found.id}, by {by}.", "do something else"
            case Status.EXPIRED:
                message, hint = f"Round {found.id} expired before the call ran.", again
            case Status.APPROVED:
                # A vote came between: the quorum was undone and has come about again, which is being recorded.
                message, hint = f"The votes of round {found.id} changed while the call was on its way.", "call again"
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
    return "the arguments, the contract of the tool, or the rule have changed"
