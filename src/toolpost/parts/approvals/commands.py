"""`toolpost approvals`: see which calls wait for approval, and vote on them."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import anyio
import click
import msgspec

from toolpost.base.caller import OPERATOR, Caller
from toolpost.base.ids import CallerId
from toolpost.cli.examples import examples
from toolpost.cli.gateway import run_async
from toolpost.cli.group import SuggestingGroup
from toolpost.cli.options import config_option, json_option
from toolpost.cli.show import print_json_line, print_table, table
from toolpost.cli.terminal import printable
from toolpost.contracts.errors import NotFound
from toolpost.parts.approvals.part import MIGRATIONS, encode_key, make_approvals
from toolpost.parts.approvals.peers import Peers
from toolpost.parts.approvals.results import RoundResult, render_round, render_vote
from toolpost.parts.approvals.rounds import Choice
from toolpost.parts.approvals.service import Approvals, parse_round_id
from toolpost.parts.approvals.settings import PEERS
from toolpost.settings import Config, load_config
from toolpost.store import Store, store_exists
from toolpost.store.part_migrations import open_part_store
from toolpost.store.urls import shown_url

LISTED: Final = 100

as_option: Callable[[Any], Any] = click.option(
    "--as", "voter", metavar="CALLER", default=OPERATOR.id, show_default=True, help="Vote as this caller."
)
signature_option: Callable[[Any], Any] = click.option(
    "--signature", metavar="BASE64", help="The voter's own signature, where [approvals.keys] has their public key."
)
signed_at_option: Callable[[Any], Any] = click.option(
    "--signed-at", metavar="TIME", help="The time that was signed, ISO 8601; with --signature."
)


@click.group(
    cls=SuggestingGroup,
    epilog=examples(
        ("toolpost approvals list", "calls that wait for votes"),
        ("toolpost approvals show 7", "its arguments, the contract of the tool, and all votes"),
        ("toolpost approvals approve 7", "as `cli`, the person at the command line"),
        ("toolpost approvals watch", "new rounds and votes, until Ctrl-C"),
    ),
)
def approvals() -> None:
    """See which calls wait for approval, and vote on them."""


@approvals.command(
    "list",
    epilog=examples(
        ("toolpost approvals list", "rounds that wait for votes"),
        ("toolpost approvals list --all --json", "all of them, for other programs"),
    ),
)
@click.option("--all", "shows_all", is_flag=True, help="Decided and expired rounds too.")
@click.option("--before", type=click.IntRange(min=1), metavar="ROUND", help="Rounds before this one.")
@config_option
@json_option("Print `{rounds}` on one line.")
def list_rounds(config_path: Path | None, *, shows_all: bool, before: int | None, as_json: bool) -> None:
    """List the rounds that wait for votes, the newest first, at most 100."""
    rounds = run_async(_list, load_config(config_path), shows_all, before)
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
        ("toolpost approvals show 7", "its arguments, the contract of the tool, and all votes"),
        ("toolpost approvals show 7 --json", "for other programs"),
    )
)
@click.argument("round_id")
@config_option
@json_option("Print the round on one line.")
def show(round_id: str, config_path: Path | None, *, as_json: bool) -> None:
    """Show what a round is about, and every vote in it."""
    shown = run_async(_read, load_config(config_path), round_id)
    if as_json:
        print_json_line(shown.model_dump(mode="json"))
    else:
        _print_round(shown)


@approvals.command(
    epilog=examples(
        ("toolpost approvals approve 7", "as `cli`, the person at the command line"),
        ("toolpost approvals approve 7 --as ann", "as another caller"),
        ("toolpost approvals approve 7 --as ann --signature … --signed-at …", "who signs with a key of their own"),
    )
)
@click.argument("round_id")
@as_option
@signature_option
@signed_at_option
@config_option
@json_option("Print the vote on one line.")
def approve(
    round_id: str,
    voter: str,
    signature: str | None,
    signed_at: str | None,
    config_path: Path | None,
    *,
    as_json: bool,
) -> None:
    """Vote for a call or a proposal."""
    _vote(round_id, "approve", voter, (signature, signed_at), config_path, as_json=as_json)


@approvals.command(
    epilog=examples(
        ("toolpost approvals deny 7", "as `cli`, the person at the command line"),
        ("toolpost approvals deny 7 --as ann", "as another caller"),
    )
)
@click.argument("round_id")
@as_option
@signature_option
@signed_at_option
@config_option
@json_option("Print the vote on one line.")
def deny(
    round_id: str,
    voter: str,
    signature: str | None,
    signed_at: str | None,
    config_path: Path | None,
    *,
    as_json: bool,
) -> None:
    """Vote against a call or a proposal."""
    _vote(round_id, "deny", voter, (signature, signed_at), config_path, as_json=as_json)


@approvals.command(
    epilog=examples(
        ("toolpost approvals watch", "new rounds and votes, until Ctrl-C"),
        ("toolpost approvals watch --json", "one JSON object in each line"),
    )
)
@config_option
@json_option("Print each round that changed on a line of its own.")
def watch(config_path: Path | None, *, as_json: bool) -> None:
    """Show rounds as they are opened, voted on and decided, until Ctrl-C."""
    run_async(_watch, load_config(config_path), as_json)


@approvals.command(
    epilog=examples(
        ("toolpost approvals key", "what peers put into [peers.NAME]"),
        ("toolpost approvals key --config other/toolpost.toml", "of another project"),
    )
)
@config_option
@json_option("Print `{key}` on one line.")
def key(config_path: Path | None, *, as_json: bool) -> None:
    """Print the public key of this gateway, for the `[peers.NAME]` of others."""
    found = run_async(_key, load_config(config_path))
    if as_json:
        print_json_line({"key": found})
    else:
        click.echo(found)


@approvals.command(
    epilog=examples(
        ("toolpost approvals peers", "how far the exchange with each has come, and who has rewritten its history"),
        ("toolpost approvals peers --json", "for other programs, with both signed heads of each fork"),
    )
)
@config_option
@json_option("Print `{peers, forks}` on one line; a fork has both signed heads.")
def peers(config_path: Path | None, *, as_json: bool) -> None:
    """Show the peers of this gateway, and which of them have rewritten their history."""
    found, forks = run_async(_read_peers, load_config(config_path))
    if as_json:
        print_json_line({"peers": found, "forks": forks})
        return
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


def _vote(
    round_id: str,
    choice: Choice,
    voter: str,
    signed: tuple[str | None, str | None],
    config_path: Path | None,
    *,
    as_json: bool,
) -> None:
    """Cast a vote; `signed` is the voter's own signature and its time, or neither."""
    if (signed[0] is None) != (signed[1] is None):
        raise click.UsageError("--signature and --signed-at go together")
    by = replace(OPERATOR, id=CallerId(voter))
    vote, shown = run_async(_cast, load_config(config_path), round_id, choice, by, signed)
    if as_json:
        print_json_line({"vote": vote.model_dump(mode="json"), "round": shown.model_dump(mode="json")})
    else:
        click.echo(
            f"round {shown.round_id}: {voter} says {choice}; {shown.level}, {shown.status},"
            f" {len(shown.approvals)} of {shown.needed} approvals"
        )


@asynccontextmanager
async def _open(config: Config, *, make: bool = False) -> AsyncIterator[tuple[Approvals, Store]]:
    if not make and not await store_exists(config.store_url):
        raise NotFound(
            f"There is no store at {shown_url(config.store_url)} yet, and so no round.",
            hint="start the gateway first: `toolpost serve`",
        )
    async with open_part_store(config.store_url, "approvals", MIGRATIONS) as store:
        yield make_approvals(config, store), store


async def _list(config: Config, shows_all: bool, before: int | None) -> list[RoundResult]:
    async with _open(config) as (opened, _):
        views = await opened.list_rounds(only_open=not shows_all, limit=LISTED, before=before)
        return [render_round(opened, view) for view in views]


async def _read(config: Config, round_id: str) -> RoundResult:
    async with _open(config) as (opened, _):
        return render_round(opened, await opened.read(parse_round_id(round_id)))


async def _cast(
    config: Config, round_id: str, choice: Choice, by: Caller, signed: tuple[str | None, str | None]
) -> tuple[Any, RoundResult]:
    signature, signed_at = signed
    async with _open(config) as (opened, _):
        cast = await opened.vote(parse_round_id(round_id), choice, by=by, signature=signature, signed_at=signed_at)
        return render_vote(cast.view, cast.vote), render_round(opened, cast.view)


async def _watch(config: Config, as_json: bool) -> None:
    async with _open(config, make=True) as (opened, _), opened.watch() as listener:
        seen: dict[str, RoundResult] = {}
        while True:
            for view in reversed(await opened.list_rounds(only_open=False)):
                shown = render_round(opened, view)
                if seen.get(shown.round_id) != shown:
                    is_first = not seen.get(shown.round_id)
                    seen[shown.round_id] = shown
                    if not is_first or shown.status == "open":
                        _print_change(shown, as_json=as_json)
            with anyio.move_on_after(2.0):
                await listener.wait()


async def _key(config: Config) -> str:
    async with _open(config, make=True) as (opened, _):
        return encode_key((await opened.gateway_key()).public)


async def _read_peers(config: Config) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    async with _open(config) as (opened, store):
        peers = Peers(opened, store, PEERS.of(config))
        return await peers.report(), await peers.forks()


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
        click.echo(printable(f"  {vote.signed_at}  {vote.voter}: {vote.choice}{void}"))
    if shown.call_id is not None:
        click.echo(f"used by call {shown.call_id}: {shown.status} {shown.outcome or ''}".rstrip())


def _subject(shown: RoundResult) -> str:
    if shown.tool is not None:
        return f"{shown.tool} {msgspec.json.encode(shown.shown.get('arguments')).decode()}"
    return str(shown.shown.get("text", shown.shown.get("digest")))
