"""Who votes at the command line: a passphrase that is typed at a terminal, or a token from stdin, proves it.

Every program of the same user has access to the store, the agent whose call waits for a vote often among them. So being at the
command line is no proof.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from toolpost import CallerId, Forbidden
from toolpost.base import is_passphrase
from toolpost.endpoints.http import Admission, Refused, Roster
from toolpost.parts import read_proven_callers
from toolpost.parts.approvals.settings import APPROVALS, OPERATOR_VOTER
from toolpost.settings import Config, PassphraseSetting

TOKEN_LIMIT: Final = 16 * 1024
"""Characters of stdin that are read."""

VOTE_PATH: Final = "/api/approvals/vote"
"""The path of the HTTP API whose rules for tokens hold here."""


@dataclass(frozen=True, kw_only=True)
class ProvenVoter:
    """A voter, and the administrator who votes for them, if it is not the voter."""

    id: CallerId
    cast_by: CallerId | None = None


async def identify_voter(config: Config, asked: str | None) -> ProvenVoter:
    """Ask for the proof of who votes, and return them; `asked` is whose vote it is to be, None for that of who proves it.

    Raises `Forbidden` for a wrong passphrase, a token that is none of a caller here, and for one of a caller who votes for
    another and is no administrator.
    """
    if not sys.stdin.isatty():
        return await _identify_by_token(config, asked, sys.stdin.readline(TOKEN_LIMIT).strip())
    voter = asked or OPERATOR_VOTER
    hashed = find_hash(config, voter)
    if hashed is not None:
        if not is_passphrase(click.prompt(f"Passphrase of {voter}", hide_input=True, err=True), hashed):
            raise Forbidden(f"This is not the passphrase of `{voter}`.", hint="try again")
        return ProvenVoter(id=CallerId(voter))
    if asked is None:
        raise Forbidden(
            "The person at the command line (`cli`) has no passphrase, and so cannot prove who votes.",
            hint="have `toolpost auth passphrase` make a hash for approvals.passphrase_hash, or vote as a caller: --as NAME",
        )
    return await _identify_by_token(config, asked, click.prompt(f"Token of {voter}", hide_input=True, err=True).strip())


def find_hash(config: Config, voter: str) -> str | None:
    """Return the hash of a voter's passphrase, None without one; raises `Forbidden` for one that the voter could have chosen."""
    caller = config.callers.get(voter)
    if voter == OPERATOR_VOTER:
        setting = PassphraseSetting(APPROVALS.of(config).passphrase_hash, "approvals.passphrase_hash")
    else:
        text = caller.passphrase_hash if caller is not None else None
        setting = PassphraseSetting(text, f"callers.{voter}.passphrase_hash")
    if setting.depends_on_user:
        raise Forbidden(
            f"{setting.place} refers to the environment, which proves nothing here: who votes could have set it.",
            hint="write the hash itself, or ${file:PATH}, or vote over HTTP",
        )
    return setting.read(Path(config.project))


async def _identify_by_token(config: Config, asked: str | None, token: str) -> ProvenVoter:
    if not token:
        raise Forbidden(
            "A vote needs the proof of who votes: there was no token on stdin.",
            hint="vote at a terminal, which asks for the passphrase, or pass the voter's token: < TOKEN_FILE",
        )
    if Roster.is_delegated(token):
        raise Forbidden("This token was issued to an agent, and an agent may not vote.", hint="use the voter's own")
    admission = await _admit(config, token)
    found = admission.caller.id
    if asked is None or asked == found:
        return ProvenVoter(id=found)
    if not admission.is_admin:
        raise Forbidden(
            f"The token is that of `{found}`, who may not vote for `{asked}`.",
            hint="leave out --as to vote for yourself; only an administrator votes for others",
        )
    return ProvenVoter(id=CallerId(asked), cast_by=found)


async def _admit(config: Config, token: str) -> Admission:
    """Authenticate a token as `/api/approvals/vote` does, but for tokens that gateways issue, and those by a user's environment.

    Who runs the command chooses its environment: such a token would be compared with itself.
    """
    members, unproven = read_proven_callers(config)
    roster = Roster(members)
    try:
        admission = roster.find(token.encode()) or await roster.verify(token.encode())
        roster.check_endpoint(admission, VOTE_PATH)
    except Refused as error:
        hint = "use the token of a caller of [callers]"
        if unproven:
            hint += f"; tokens of {', '.join(unproven)} cannot be verified here: those callers vote over HTTP"
        raise Forbidden("The token on stdin belongs to no caller who may vote.", hint=hint) from error
    return admission
