"""`toolpost approvals`: see which calls wait for approval, and vote on them."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import anyio
import click
import msgspec

from toolpost import CallerId, NotFound
from toolpost.base import OPERATOR, JsonObject
from toolpost.parts.approvals import PART
from toolpost.parts.approvals.part import make_approvals
from toolpost.parts.approvals.peers import Peers
from toolpost.parts.approvals.results import RoundResult, VoteResult, render_round, render_vote
from toolpost.parts.approvals.rounds import Choice
from toolpost.parts.approvals.service import Approvals, parse_round_id
from toolpost.parts.approvals.settings import APPROVALS, PEERS
from toolpost.parts.approvals.voter import ProvenVoter, identify_voter
from toolpost.settings import Config, load_config
from toolpost.store import Store, open_part_store, shown_url, store_exists
from toolpost.terminal import (
    SuggestingGroup,
    config_option,
    examples,
    json_option,
    print_json_line,
    print_table,
    printable,
    run_async,
    table,
)

LISTED: Final = 100

_T = TypeVar("_T")


@click.group(
    cls=SuggestingGroup,
    epilog=examples(
        ("toolpost approvals list", "calls that wait for votes"),
        ("toolpost approvals show 7", "arguments, contract and votes"),
        ("toolpost approvals approve 7", "as `cli`; asks for the passphrase"),
        ("toolpost approvals list --follow", "new rounds and votes, until Ctrl-C"),
    ),
)
def approvals() -> None:
    """See which calls wait for approval, and vote on them."""


@approvals.command(
    "list",
    epilog=examples(
        ("toolpost approvals list", "rounds that wait for votes"),
        ("toolpost approvals list --all --json", "all of them, for other programs"),
        ("toolpost approvals list --follow", "new rounds and votes, until Ctrl-C"),
    ),
)
@click.option("--all", "shows_all", is_flag=True, help="Decided and expired rounds too.")
@click.option("--before", type=click.IntRange(min=1), metavar="ROUND", help="Rounds before this one.")
@click.option(
    "--follow", "follows", is_flag=True, help="Show rounds as they are opened, voted on and decided, until Ctrl-C."
)
@config_option
@json_option("Print `{rounds}` on one line; with --follow each round that changed on a line of its own.")
def list_rounds(config_path: Path | None, *, shows_all: bool, before: int | None, follows: bool, as_json: bool) -> None:
    """List the rounds that wait for votes, the newest first, at most 100."""
    if follows:
        if shows_all or before is not None:
            raise click.UsageError("--follow cannot be combined with --all or --before")
        _follow(config_path, as_json=as_json)
        return

    async def read(opened: Approvals, *_: object) -> list[RoundResult]:
        views = await opened.list_rounds(only_open=not shows_all, limit=LISTED, before=before)
        return [render_round(opened, view) for view in views]

    rounds = _run(config_path, read)
    if as_json:
        print_json_line({"rounds": [one.model_dump(mode="json") for one in rounds]})
        return
    if not rounds:
        click.echo("no rounds" if shows_all else "no rounds wait for votes", err=True)
        return
    rows = [
        (one.round_id, one.level, one.status, f"{len(one.approvals)}/{one.needed}", one.requested_by, _subject(one))
        for one in rounds
    ]
    print_table(table("round", "level", "status", "votes", "by", "what", rows=rows))
    if len(rounds) == LISTED:
        click.echo(f"the newest {LISTED}; --before {rounds[-1].round_id} lists those before", err=True)


@approvals.command(
    epilog=examples(
        ("toolpost approvals show 7", "arguments, contract and votes"),
        ("toolpost approvals show 7 --json", "for other programs"),
    )
)
@click.argument("round_id")
@config_option
@json_option("Print the round on one line.")
def show(round_id: str, config_path: Path | None, *, as_json: bool) -> None:
    """Show what a round is about, and every vote in it."""

    async def read(opened: Approvals, *_: object) -> RoundResult:
        return render_round(opened, await opened.read(parse_round_id(round_id)))

    shown = _run(config_path, read)
    if as_json:
        print_json_line(shown.model_dump(mode="json"))
    else:
        _print_round(shown)


def add_vote_command(choice: Choice, help_text: str, *more_examples: tuple[str, str]) -> None:
    """Add `approve` or `deny`, which are the same but for their choice."""

    @approvals.command(
        choice,
        help=help_text,
        epilog=examples(
            (f"toolpost approvals {choice} 7", "as `cli`; asks for the passphrase"),
            (f"toolpost approvals {choice} 7 --as ann", "as a caller; asks for a secret"),
            (f"toolpost approvals {choice} 7 < token.txt", "as the caller whose token it is"),
            *more_examples,
        ),
    )
    @click.argument("round_id")
    @click.option(
        "--as",
        "asked",
        metavar="CALLER",
        help="Whose vote it is: at a terminal `cli` by default, else the caller of the token. With an administrator's token, any"
        " voter's; that is recorded.",
    )
    @click.option(
        "--signature", metavar="BASE64", help="The voter's own signature, where [approvals.keys] has their public key."
    )
    @click.option("--signed-at", metavar="TIME", help="The time that was signed, ISO 8601; with --signature.")
    @config_option
    @json_option("Print the vote on one line.")
    def vote(
        round_id: str,
        asked: str | None,
        signature: str | None,
        signed_at: str | None,
        config_path: Path | None,
        *,
        as_json: bool,
    ) -> None:
        if (signature is None) != (signed_at is None):
            raise click.UsageError("--signature and --signed-at go together")
        config = load_config(config_path)
        if signature is not None or (asked is not None and asked in APPROVALS.of(config).keys):
            # The signature is the proof, with a key that only the voter has.
            voter = ProvenVoter(id=CallerId(asked or OPERATOR.id))
        else:
            voter = run_async(identify_voter, config, asked)

        async def cast(opened: Approvals, *_: object) -> tuple[VoteResult, RoundResult]:
            made = await opened.vote(
                parse_round_id(round_id),
                choice,
                by=replace(OPERATOR, id=voter.id),
                cast_by=voter.cast_by,
                signature=signature,
                signed_at=signed_at,
            )
            return render_vote(made.view, made.vote), render_round(opened, made.view)

        kept, shown = _run(config_path, cast)
        if as_json:
            print_json_line({"vote": kept.model_dump(mode="json"), "round": shown.model_dump(mode="json")})
        else:
            click.echo(
                f"round {shown.round_id}: {kept.voter}{_tell_caster(kept)} says {choice}; {shown.level}, {shown.status},"
                f" {len(shown.approvals)} of {shown.needed} approvals"
            )


add_vote_command(
    "approve",
    "Vote for a call or a proposal.",
    ("toolpost approvals approve 7 --as ann --signature … --signed-at …", "who signs with a key of their own"),
)
add_vote_command("deny", "Vote against a call or a proposal.")


@approvals.command(
    epilog=examples(
        ("toolpost approvals peers", "this key, peers and forks"),
        ("toolpost approvals peers --json | jq -r .key", "the key for [peers.NAME]"),
        ("toolpost approvals peers --json", "for other programs"),
    )
)
@config_option
@json_option("Print `{key, peers, forks}` on one line; a fork has both signed heads.")
def peers(config_path: Path | None, *, as_json: bool) -> None:
    """Show this gateway's public key, its peers and their forks.

    The key is what the others put into their [peers.NAME].
    """

    async def read(opened: Approvals, store: Store, config: Config) -> tuple[str, list[JsonObject], list[JsonObject]]:
        known = Peers(opened, store, PEERS.of(config))
        return await opened.gateway_id(), await known.report(), await known.forks()

    key, found, forks = _run(config_path, read, make_store=True)
    if as_json:
        print_json_line({"key": key, "peers": found, "forks": forks})
        return
    click.echo(f"the key of this gateway: {key}")
    if not found:
        click.echo("no peers are configured: add [peers.NAME] to toolpost.toml", err=True)
    else:
        forked = {one["peer"] for one in forks}
        rows = [
            (
                one["peer"],
                one["url"],
                *(f"{one[way]['round']}, {one[way]['vote']}" for way in ("sent", "received")),
                "rewritten" if one["peer"] in forked else "no contradiction",
            )
            for one in found
        ]
        print_table(table("peer", "url", "sent (round, vote)", "received (round, vote)", "history", rows=rows))
    for one in forks:
        click.echo(printable(f"{one['peer']} has signed both: {' and '.join(head['body'] for head in one['heads'])}"))


def _run(
    config_path: Path | None, act: Callable[[Approvals, Store, Config], Awaitable[_T]], *, make_store: bool = False
) -> _T:
    """Act on the approvals of the configured store. Raises NotFound if there is no store, unless one is to be made."""

    async def run() -> _T:
        config = load_config(config_path)
        if not make_store and not await store_exists(config.store_url):
            raise NotFound(
                f"There is no store at {shown_url(config.store_url)} yet, and so no round.",
                hint="start the gateway first: `toolpost serve`",
            )
        async with open_part_store(config.store_url, PART.name, PART.migrations) as store:
            return await act(make_approvals(config, store), store, config)

    return run_async(run)


def _follow(config_path: Path | None, *, as_json: bool) -> None:
    async def follow(opened: Approvals, *_: object) -> None:
        seen: dict[str, RoundResult] = {}
        async with opened.watch() as listener:
            while True:
                for view in reversed(await opened.list_rounds(only_open=False)):
                    shown = render_round(opened, view)
                    before, seen[shown.round_id] = seen.get(shown.round_id), shown
                    # Of rounds that were decided before this began, nothing is shown.
                    if shown != before and (before is not None or shown.status == "open"):
                        _print_change(shown, as_json=as_json)
                # A wake-up may get lost.
                with anyio.move_on_after(2.0):
                    await listener.wait()

    _run(config_path, follow, make_store=True)


def _print_change(shown: RoundResult, *, as_json: bool) -> None:
    if as_json:
        print_json_line(shown.model_dump(mode="json"))
        return
    at = time.strftime("%H:%M:%S")
    click.echo(
        f"{at}  round {shown.round_id}  {shown.level:<8} {shown.status:<10} {len(shown.approvals)}/{shown.needed}"
        f"  {printable(shown.requested_by)}: {printable(_subject(shown))}"
    )


def _print_round(shown: RoundResult) -> None:
    lines = [
        f"round {shown.round_id}: {shown.level}, {shown.status}",
        f"requested by {shown.requested_by} at {shown.created_at}, until {shown.expires_at}",
        f"needs {shown.needed} of: {', '.join(shown.voters)}",
        f"subject {shown.subject_digest}",
    ]
    if shown.tool is not None:
        definition = shown.shown.get("definition", {})
        lines += [
            f"tool {shown.tool} (contract {shown.subject.get('contract')})",
            str(definition.get("description", "")),
        ]
    for line in lines:
        click.echo(printable(line))
    print_json_line(shown.shown.get("arguments", shown.shown))
    for vote in shown.votes:
        void = "  void: two different votes" if vote.is_void else ""
        click.echo(printable(f"  {vote.signed_at}  {vote.voter}{_tell_caster(vote)}: {vote.choice}{void}"))
    if shown.call_id is not None:
        click.echo(f"used by call {shown.call_id}: {shown.status} {shown.outcome or ''}".rstrip())


def _tell_caster(vote: VoteResult) -> str:
    return f" (cast by {vote.cast_by})" if vote.cast_by is not None else ""


def _subject(shown: RoundResult) -> str:
    if shown.tool is not None:
        return f"{shown.tool} {msgspec.json.encode(shown.shown.get('arguments')).decode()}"
    return str(shown.shown.get("text", shown.shown.get("digest")))
