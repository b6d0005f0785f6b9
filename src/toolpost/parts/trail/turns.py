"""`trail.deciding_agents`: turns of conversations that must end with a decision.

A decision counts if it was recorded in the session of the conversation after the message came: the place of the last one is
noted with the message, and compared when the agent has answered.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from toolpost import Plugin, hookimpl
from toolpost.parts.trail.service import Trail, conversation_name
from toolpost.parts.trail.settings import ALL_AGENTS

if TYPE_CHECKING:
    from toolpost.parts.agents import TurnEnded, TurnId, TurnInfo

PROMPT: Final = (
    "record a decision before you end, which says what you decided and why: call `thought_record` of `trail` with type"
    " `decision`, and without `session_id`."
)


def require_decisions(plugin: Plugin, trail: Trail, agents: Sequence[str]) -> None:
    """Have a plugin require a decision in each turn of these agents."""
    before: dict[TurnId, tuple[int, int]] = {}

    @plugin.hook
    @hookimpl(optionalhook=True)
    async def toolpost_on_message(turn: "TurnInfo") -> None:
        if ALL_AGENTS in agents or turn.agent in agents:
            before[turn.turn] = await trail.find_last_decision(turn.caller.id, conversation_name(turn.thread))

    @plugin.hook
    @hookimpl(optionalhook=True)
    async def toolpost_check_answer(turn: "TurnInfo") -> str | None:
        if not (ALL_AGENTS in agents or turn.agent in agents):
            return None
        last = await trail.find_last_decision(turn.caller.id, conversation_name(turn.thread))
        # KeyError, which fails the turn, if the store could not be read when the message came: nothing can be compared.
        # Not `==`: retention may have removed the one that was last.
        return PROMPT if last <= before[turn.turn] else None

    @plugin.hook
    @hookimpl(optionalhook=True)
    async def toolpost_on_complete(turn: "TurnInfo", ended: "TurnEnded") -> None:  # noqa: ARG001 (as the hook is called)
        before.pop(turn.turn, None)
