"""`consensus_*` and `vrf_*`: rounds of voting and verifiable random functions, as tools."""

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from toolpost import Context, Forbidden, InvalidArguments, Plugin, ToolFailed, __version__
from toolpost.base import OPERATOR
from toolpost.contracts import digest_of_bytes
from toolpost.parts.approvals.records import no_round
from toolpost.parts.approvals.results import (
    LevelName,
    RoundResult,
    StatusName,
    may_see,
    render_round,
    render_vote,
)
from toolpost.parts.approvals.rounds import default_quorum
from toolpost.parts.approvals.service import VRF_KEY, Approvals, RoundView, parse_round_id
from toolpost.parts.approvals.settings import APPROVALS, OPERATOR_VOTER, ROLE, voters_of

if TYPE_CHECKING:
    from toolpost.parts import Host
    from toolpost.parts.approvals.peers import Peers

RoundIdText = Annotated[str, Field(description="the id of a round, a number", pattern=r"^[0-9]{1,18}$")]
VOTERS_LIMIT: Final = 100
"""Voters of one proposal: every list of rounds, and every exchange with a peer, carries them."""
Hex = Annotated[str, Field(description="hexadecimal, two digits for each byte", max_length=131_072)]


class Proposed(BaseModel):
    """A round that was opened."""

    round_id: str
    status: LevelName
    voters: list[str]
    needed: int
    expires_at: str


class Voted(BaseModel):
    """A vote, with its signature."""

    vote_signed: bool
    sig_b64: str
    public_key_b64: str
    signed_at: str
    message: str
    is_new: bool
    level: LevelName
    status: StatusName


class Finality(BaseModel):
    """How final a round is, and the votes that prove it."""

    round_id: str
    level: LevelName
    evidence: RoundResult


class Gossiped(BaseModel):
    """What was exchanged with a peer."""

    events_sent: int
    events_received: int
    peer: Literal["ok", "unknown", "unreachable", "forked", "evasive"] = Field(
        description="forked: it has rewritten its history; evasive: it does not say what its history has now at a place that"
        " it signed before"
    )
    fork: dict[str, Any] | None = Field(None, description="two signed heads of the peer that contradict each other")


class Evaluated(BaseModel):
    """An output and its proof."""

    output_hex: str
    proof_hex: str
    public_key_hex: str


class Verified(BaseModel):
    """Whether a proof is valid, and the output that it proves."""

    valid: bool
    output_hex: str | None = None


def approvals_plugin(approvals: Approvals, peers: "Peers", host: "Host") -> Plugin:
    """Make the plugin."""
    from toolpost.parts.approvals import vrf

    plugin = Plugin("approvals", version=__version__)
    _add_consensus(plugin, approvals, peers, host)
    _add_vrf(plugin, host, vrf)
    return plugin


def _add_consensus(plugin: Plugin, approvals: Approvals, peers: "Peers", host: "Host") -> None:
    settings = APPROVALS.of(host.config)
    others = [OPERATOR_VOTER, *host.config.callers]

    async def seen(round_id: str, ctx: Context) -> RoundView:
        view = await approvals.read(parse_round_id(round_id))
        if not may_see(view.round, ctx.caller, is_admin=ctx.caller.is_admin):
            raise no_round(round_id)
        return view

    @plugin.tool(schema_version=2, annotations={"readOnlyHint": False, "destructiveHint": False})
    async def consensus_propose(
        ctx: Context,
        text: Annotated[str | None, Field(description="what is proposed", max_length=65_536)] = None,
        digest: Annotated[
            str | None, Field(description="or the digest of it, `sha256:…`", pattern=r"^[a-z0-9-]+:[0-9a-f]{32,128}$")
        ] = None,
        voters: Annotated[
            list[Annotated[str, Field(min_length=1, max_length=256)]] | None,
            Field(
                description="callers who may vote, and `role:NAME`; all configured ones by default",
                max_length=VOTERS_LIMIT,
            ),
        ] = None,
        votes: Annotated[int | None, Field(description="approvals needed; default: more than two thirds", ge=1)] = None,
        expires_s: Annotated[float, Field(description="how long votes are taken", ge=1, le=86_400)] = 3_600.0,
        requester_may_vote: Annotated[bool, Field(description="whether you may vote yourself")] = False,
    ) -> Proposed:
        """Open a round of voting on a text or a digest. A call that needs approval opens its round by itself."""
        # Each round is kept for months, and an agent may repeat itself for hours.
        _refuse_agent(ctx, "propose", hint="call the tool: a call that needs approval opens its round by itself")
        if (text is None) == (digest is None):
            raise InvalidArguments("Propose either a `text` or a `digest`.", hint="send exactly one of them")
        named = _resolve_voters(voters if voters is not None else others, settings.roles)
        electorate = tuple(name for name in named if requester_may_vote or name != ctx.caller.id)
        needed = votes or default_quorum(len(electorate))
        if needed > len(electorate):
            raise InvalidArguments(
                f"{needed} approvals are needed, and {len(electorate)} callers may vote.",
                hint="name more voters, or set requester_may_vote",
            )
        opened = await approvals.open_proposal(
            text=text,
            digest=digest or digest_of_bytes((text or "").encode()),
            caller=ctx.caller.id,
            voters=electorate,
            needed=needed,
            expires_s=expires_s,
        )
        return Proposed(
            round_id=str(opened.round.id),
            status="PENDING",
            voters=list(electorate),
            needed=needed,
            expires_at=approvals.wall(opened.round.expires_at),
        )

    @plugin.tool(annotations={"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True})
    async def consensus_vote(
        ctx: Context,
        round_id: RoundIdText,
        choice: Annotated[Literal["approve", "deny"], Field(description="your vote")] = "approve",
        sig_b64: Annotated[
            str | None, Field(description="your signature, if your public key is in [approvals.keys]", max_length=128)
        ] = None,
        signed_at: Annotated[str | None, Field(description="the time that you signed, ISO 8601", max_length=64)] = None,
    ) -> Voted:
        """Vote in a round; the vote is signed. The same vote again changes nothing; a different one makes both void."""
        _check_proven(ctx)
        cast = await approvals.vote(
            parse_round_id(round_id), choice, by=ctx.caller, signature=sig_b64, signed_at=signed_at
        )
        shown = render_vote(cast.view, cast.vote)
        return Voted(
            vote_signed=True,
            sig_b64=shown.sig_b64,
            public_key_b64=shown.public_key_b64,
            signed_at=shown.signed_at,
            message=shown.message,
            is_new=cast.is_new,
            level=cast.view.level.value,
            status=cast.view.status.value,
        )

    @plugin.tool(annotations={"readOnlyHint": True})
    async def consensus_finality(ctx: Context, round_id: RoundIdText) -> Finality:
        """Read how final a round is, what is voted on, and every signed vote."""
        view = await seen(round_id, ctx)
        shown = render_round(approvals, view)
        return Finality(round_id=shown.round_id, level=shown.level, evidence=shown)

    @plugin.tool(schema_version=2, annotations={"readOnlyHint": False, "destructiveHint": False, "openWorldHint": True})
    async def consensus_gossip(
        ctx: Context, peer_id: Annotated[str, Field(description="a peer of [peers]", max_length=256)]
    ) -> Gossiped:
        """Exchange signed audit heads, rounds and votes with a peer now. With a peer that is not configured, nothing is."""
        _refuse_agent(ctx, "start an exchange with a peer", hint="it happens by itself")
        exchanged = await peers.exchange(peer_id)
        return Gossiped(
            events_sent=exchanged.sent, events_received=exchanged.received, peer=exchanged.peer, fork=exchanged.fork
        )


def _add_vrf(plugin: Plugin, host: "Host", vrf: Any) -> None:
    @plugin.tool(annotations={"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False})
    async def vrf_eval(
        input_hex: Hex,
        seed_hex: Annotated[Hex, Field(description="set before the input, with its length; hexadecimal")] = "",
        priv_key_hex: Annotated[
            str | None,
            Field(
                description="32 bytes of private key, hexadecimal; without one, the gateway's own is used",
                json_schema_extra={"writeOnly": True},
                max_length=131_072,
            ),
        ] = None,
    ) -> Evaluated:
        """Compute a verifiable random output (ECVRF-EDWARDS25519-SHA512-TAI of RFC 9381) and its proof."""
        private = _read_private(priv_key_hex) if priv_key_hex is not None else await host.store.keys.of(VRF_KEY)
        try:
            found = vrf.evaluate(private, alpha_of(seed_hex, input_hex))
        except (RuntimeError, ValueError):
            # Without its cause, which might name the key.
            raise ToolFailed(
                "The function could not be evaluated for this input.", hint="try another input or another key"
            ) from None
        return Evaluated(
            output_hex=found.output.hex(), proof_hex=found.proof.hex(), public_key_hex=vrf.public_key_of(private).hex()
        )

    @plugin.tool(annotations={"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False})
    async def vrf_verify(
        public_key_hex: Hex,
        proof_hex: Hex,
        input_hex: Hex,
        seed_hex: Annotated[Hex, Field(description="as it was given to `vrf_eval`; hexadecimal")] = "",
    ) -> Verified:
        """Verify a proof of `vrf_eval`, or of any implementation of the same function."""
        output = vrf.verify(
            _read_hex("public_key_hex", public_key_hex),
            alpha_of(seed_hex, input_hex),
            _read_hex("proof_hex", proof_hex),
        )
        return Verified(valid=output is not None, output_hex=output.hex() if output is not None else None)


def _check_proven(ctx: Context) -> None:
    """Raise `Forbidden` for a call that does not prove that the voter makes it."""
    if ctx.caller.transport == OPERATOR.transport:
        # `toolpost call` asks for no proof of who calls.
        raise Forbidden(
            "`toolpost call` cannot vote: it does not prove who votes.",
            hint="voters vote over HTTP with their token, or prove who they are at a terminal",
        )
    if ctx.caller.is_from_login:
        raise Forbidden(
            "A client that logged in may not vote in the name of its person.",
            hint="the person votes with their own token, or passphrase",
        )


def _refuse_agent(ctx: Context, what: str, *, hint: str) -> None:
    if ctx.caller.is_agent:
        raise Forbidden(f"An agent may not {what}.", hint=hint)


def _resolve_voters(names: list[str], roles: dict[str, list[str]]) -> tuple[str, ...]:
    for name in names:
        if name.startswith(ROLE) and name.removeprefix(ROLE) not in roles:
            raise InvalidArguments(f"There is no `{name}`.", hint="roles are in [approvals.roles]")
    voters = voters_of(names, roles)
    if len(voters) > VOTERS_LIMIT:
        raise InvalidArguments(f"A proposal has at most {VOTERS_LIMIT} voters.", hint="name fewer, or smaller roles")
    return voters


def alpha_of(seed_hex: str, input_hex: str) -> bytes:
    """Return the input of the function: the input alone without a seed, else the seed with its length, and the input.

    With the length, no two pairs of a seed and an input are the same bytes.
    """
    seed, given = _read_hex("seed_hex", seed_hex), _read_hex("input_hex", input_hex)
    return given if not seed else len(seed).to_bytes(4, "big") + seed + given


def _read_hex(name: str, text: str) -> bytes:
    if not re.fullmatch(r"(?:[0-9a-fA-F]{2})*", text):
        raise InvalidArguments(f"`{name}` is not hexadecimal: two digits for each byte.", hint="send 00ff, for example")
    return bytes.fromhex(text)


def _read_private(text: str) -> bytes:
    """Read a private key; no error has any of it. 64 bytes are a key as libsodium keeps it, with its public key behind."""
    if not re.fullmatch(r"(?:[0-9a-fA-F]{64}|[0-9a-fA-F]{128})", text):
        raise InvalidArguments("`priv_key_hex` is not 32 bytes in hexadecimal.", hint="send 64 digits")
    return bytes.fromhex(text)[:32]
