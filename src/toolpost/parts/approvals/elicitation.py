"""Asks the client that makes a call for a vote, by form elicitation, where a rule allows that.

Only a form that was accepted with one of the two choices is a vote. One that was declined, cancelled or filled in wrongly leaves
the round as it is: the same call asks again.
"""

import logging
from typing import Final

import msgspec

from toolpost.base import JsonObject, event
from toolpost.parts.approvals.rounds import CHOICES, Choice
from toolpost.parts.approvals.service import RoundView
from toolpost.upstreams import ClientChannel, ServerRefused, ask_form

_log = logging.getLogger("toolpost.approvals")

ELICITATION_LIMIT_S: Final = 300.0
"""How long a client may take. Its caller may still vote later, by another way."""
SHOWN_LIMIT: Final = 4_000
"""Characters of arguments in the question. Who would see only a part of them is not asked, and votes in another way."""
DESCRIPTION_LIMIT: Final = 500
"""Characters of the description, which the server wrote."""

FORM: Final[JsonObject] = {
    "type": "object",
    "properties": {"choice": {"type": "string", "title": "Your vote", "enum": list(CHOICES)}},
    "required": ["choice"],
}


class _Answer(msgspec.Struct):
    action: str
    content: dict[str, object] | None = None


async def ask_for_vote(client: ClientChannel, view: RoundView) -> Choice | None:
    """Return what the client chose; None if it chose nothing, takes no forms, or the arguments are too long for the question."""
    if len(_arguments_of(view)) > SHOWN_LIMIT:
        return None
    try:
        answer = msgspec.json.decode(await ask_form(client, describe(view), FORM), type=_Answer)
    except (ServerRefused, msgspec.MsgspecError) as error:
        event(_log, logging.INFO, "client gave no vote", round=view.round.id, reason=str(error))
        return None
    choice = answer.content.get("choice") if answer.action == "accept" and answer.content is not None else None
    return next((known for known in CHOICES if known == choice), None)


def describe(view: RoundView) -> str:
    """Write what is voted on for a person: tool, arguments without secrets, contract, and what the server says of it."""
    found, shown = view.round, msgspec.json.decode(view.round.shown)
    subject = msgspec.json.decode(found.subject)
    description = str(shown.get("definition", {}).get("description") or "").strip()
    if len(description) > DESCRIPTION_LIMIT:
        description = f"{description[:DESCRIPTION_LIMIT]}…"
    # The description comes last: it could imitate the arguments.
    return (
        f"Approve this call of `{found.tool}`? Round {found.id}, {found.needed} of {len(found.voters)} must approve.\n\n"
        f"Arguments: {_arguments_of(view)}\nContract: {subject.get('contract')}\n\n"
        f"The tool describes itself as: {description}"
    )


def _arguments_of(view: RoundView) -> str:
    return msgspec.json.encode(msgspec.json.decode(view.round.shown).get("arguments")).decode()
