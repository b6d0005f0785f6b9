"""`[approvals]`: which calls need consent, and whose; `[peers.NAME]`: gateways that votes and audit heads are exchanged with."""

import base64
import binascii
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from toolpost.contracts import BadConfiguration
from toolpost.parts import Section
from toolpost.settings import ADVANCED, LATE, SECRET, Count, PassphraseSetting, Seconds, is_trustworthy

ROLE: Final = "role:"
"""Prefix of a name in `voters` that stands for all callers of a role."""
OPERATOR_VOTER: Final = "cli"
"""The person at the command line, as the audit names them."""


class RuleSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Calls that need approval: those that match every condition that is set. The first rule that matches counts."""

    tools: Annotated[
        list[str] | None, Meta(description="patterns of tool names, such as `github__delete_*`; `!…` excludes")
    ] = None
    tags: Annotated[list[str] | None, Meta(description="tools of servers and plugins with one of these tags")] = None
    annotations: Annotated[
        dict[str, bool],
        Meta(
            description="hints that a tool must have, such as `{destructiveHint = true}`; what a tool does not say, and what an "
            "unconfirmed server says, counts as MCP's default"
        ),
    ] = {}
    arguments: Annotated[
        dict[str, Any],
        # A pattern of a schema may have `${` in it.
        Meta(description="a JSON Schema; calls whose arguments are valid against it match", extra=LATE | ADVANCED),
    ] = {}
    voters: Annotated[
        list[str],
        Meta(
            description="callers who may vote, and `role:NAME`; `cli` is the person at the command line",
            extra_json_schema={"default": [OPERATOR_VOTER]},
        ),
    ] = msgspec.field(default_factory=lambda: [OPERATOR_VOTER])
    draw: Annotated[
        Count | None,
        Meta(
            description="draw so many of the voters for each call, verifiably at random; all of them, if not set",
            extra=ADVANCED,
        ),
    ] = None
    votes: Annotated[
        Count | None, Meta(description="how many approvals are needed; more than two thirds, if not set")
    ] = None
    expires_s: Annotated[
        Seconds, Meta(description="how long a round is open, and its approval can be used", extra=ADVANCED)
    ] = 3_600.0
    requester_may_vote: Annotated[bool, Meta(description="whether who calls may vote on the call", extra=ADVANCED)] = (
        False
    )
    elicit: Annotated[
        bool,
        Meta(
            description="ask the client of the caller (elicitation), and count its answer as the vote of the caller, if it may "
            "vote: a client may answer without a person",
            extra=ADVANCED,
        ),
    ] = False
    wait: Annotated[
        bool, Meta(description="hold the call until it is decided; otherwise it fails with the id of the round")
    ] = False


class ApprovalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Calls that run only once others have approved them."""

    rules: Annotated[dict[str, RuleSettings], Meta(description="which calls need approval, in this order")] = {}
    roles: Annotated[dict[str, list[str]], Meta(description="groups of callers, by name")] = {}
    keys: Annotated[
        dict[str, str],
        Meta(
            description="public keys (Ed25519, base64) of voters who sign themselves; others sign with a key of the store",
            extra=ADVANCED,
        ),
    ] = {}
    passphrase_hash: Annotated[
        str | None,
        Meta(
            description="hash of the passphrase with which `cli`, the person at the command line, votes;"
            " `toolpost auth passphrase` makes one",
            extra=SECRET | ADVANCED,
        ),
    ] = None
    keep_days: Annotated[
        float,
        Meta(
            gt=0, le=3650, description="how long rounds and votes are kept after they ended or expired", extra=ADVANCED
        ),
    ] = 90.0


class PeerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A gateway with a store of its own."""

    url: Annotated[str, Meta(description="where it serves HTTP, `https://…`", extra=ADVANCED)] = ""
    key: Annotated[
        str, Meta(description="its public key, as `toolpost approvals peers` prints it there", extra=ADVANCED)
    ] = ""
    token: Annotated[
        str | None, Meta(description="our token there, such as `${PEER_TOKEN}`", extra=SECRET | ADVANCED)
    ] = None


def voters_of(names: list[str], roles: dict[str, list[str]]) -> tuple[str, ...]:
    """Return the callers that these names stand for, each once."""
    found: dict[str, None] = {}
    for name in names:
        members = roles[name.removeprefix(ROLE)] if name.startswith(ROLE) else [name]
        found.update(dict.fromkeys(members))
    return tuple(found)


def check_approvals(settings: ApprovalSettings) -> None:
    """Raise `BadConfiguration` for rules by which nothing could ever be approved, or that cannot be read."""
    for name, rule in settings.rules.items():
        place = f"approvals.rules.{name}"
        _check_voters(rule, settings.roles, place)
        _check_conditions(rule, place)
    PassphraseSetting(settings.passphrase_hash, "approvals.passphrase_hash").check()
    for voter, key in settings.keys.items():
        read_public_key(key, f"approvals.keys.{voter}")


def _check_voters(rule: RuleSettings, roles: dict[str, list[str]], place: str) -> None:
    for voter in rule.voters:
        if voter.startswith(ROLE) and voter.removeprefix(ROLE) not in roles:
            raise BadConfiguration(
                f"{place}.voters: there is no role `{voter.removeprefix(ROLE)}`.", hint="add it to [approvals.roles]"
            )
    voters = voters_of(rule.voters, roles)
    if not voters:
        raise BadConfiguration(
            f"{place}.voters is empty: no call could be approved.", hint="name callers, roles (`role:NAME`), or `cli`"
        )
    if rule.elicit and not rule.requester_may_vote:
        raise BadConfiguration(
            f"{place}.elicit has no effect: who calls may not vote on the call.",
            hint="set requester_may_vote = true and name the caller in voters, or leave elicit out",
        )
    if rule.draw is not None:
        if rule.draw > len(voters):
            raise BadConfiguration(
                f"{place}.draw: {rule.draw} voters cannot be drawn from {len(voters)}.",
                hint="name more voters, or draw fewer",
            )
        voters = voters[: rule.draw]
    if rule.votes is not None and rule.votes > len(voters):
        raise BadConfiguration(
            f"{place}.votes: {rule.votes} votes are needed, and {len(voters)} callers may vote.",
            hint="name more voters, or lower votes",
        )


def _check_conditions(rule: RuleSettings, place: str) -> None:
    from toolpost.contracts import compile_schema

    if any(pattern.removeprefix("!") == "" for pattern in rule.tools or ()):
        raise BadConfiguration(f"{place}.tools: a pattern is empty.", hint='write a pattern such as "github__*"')
    if rule.arguments:
        try:
            compile_schema(rule.arguments, root_object=False)
        except ValueError as error:
            raise BadConfiguration(
                f"{place}.arguments is no valid JSON Schema: {error}.",
                hint='such as { required = ["amount"], properties = { amount = { minimum = 100 } } }',
            ) from error


def check_peer(name: str, peer: PeerSettings) -> None:
    """Raise `BadConfiguration` for a peer that could not be reached or trusted."""
    if not is_trustworthy(peer.url):
        raise BadConfiguration(f"peers.{name}.url must be an https URL.", hint="http is allowed for this machine only")
    read_public_key(peer.key, f"peers.{name}.key")


def read_public_key(text: str, place: str) -> bytes:
    """Decode a public key; raises `BadConfiguration`."""
    try:
        key = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != 32:
        raise BadConfiguration(
            f"{place} is no Ed25519 public key: 32 bytes in base64 are.",
            hint="`toolpost approvals peers` prints that of a gateway",
        )
    return key


APPROVALS: Final = Section(name="approvals", struct=ApprovalSettings, default=ApprovalSettings())
PEERS: Final[Section[dict[str, PeerSettings]]] = Section(
    name="peers",
    struct=PeerSettings,
    default={},
    table=Annotated[
        dict[str, PeerSettings], Meta(description="gateways that votes and audit heads are exchanged with, by name")
    ],
    check_entry=check_peer,
)
