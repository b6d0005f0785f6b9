"""`toolpost audit`: the record of calls, read, followed or verified."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, get_args

import anyio
import click

from toolpost.cli.audit.output import JSON_VIEW, TABLE_VIEW, View
from toolpost.cli.examples import examples
from toolpost.cli.exits import ExitCode
from toolpost.cli.gateway import run_async
from toolpost.cli.options import config_option, configured, json_option
from toolpost.cli.signals import on_signals
from toolpost.cli.times import Moment
from toolpost.contracts.errors import ErrorCode, NotFound
from toolpost.settings import Config
from toolpost.store import (
    AuditFilter,
    AuditLog,
    AuditRecord,
    AuditVerdict,
    Outcome,
    open_store,
    store_exists,
    verify_audit,
)
from toolpost.store.urls import shown_url

POLL_S: Final = 0.5
_BATCH: Final = 1_000


@click.command(
    epilog=examples(
        ("toolpost audit", "the last 20 calls"),
        ("toolpost audit --since 2h --outcome error", "what went wrong lately"),
        ("toolpost audit --tool 'time__*' --follow", "calls as they end, until Ctrl-C"),
        ("toolpost audit --verify", "prove that nothing was changed"),
        ("toolpost audit --last 1000 --json | jq .durationMs", "for other programs"),
    )
)
@click.option("--last", type=click.IntRange(min=0), default=20, show_default=True, metavar="N", help="How many calls.")
@click.option("--tool", metavar="GLOB", help="Calls of tools whose name matches; * and ? stand for others.")
@click.option("--caller", help="Calls of one caller; `cli` is this command.")
@click.option(
    "--code",
    type=click.Choice([c.value for c in ErrorCode], case_sensitive=False),
    metavar="CODE",
    help="Calls that ended with this error code.",
)
@click.option("--outcome", type=click.Choice(get_args(Outcome)), help="Calls that ended like this.")
@click.option("--since", type=Moment(), metavar="TIME", help="From then on: ISO 8601 in UTC, or 30m, 2h, 7d ago.")
@click.option("--until", type=Moment(), metavar="TIME", help="Before then.")
@click.option("--call", "call_id", metavar="ID", help="One call.")
@click.option("--trace", "trace_id", metavar="ID", help="The calls of one trace.")
@click.option("--follow", is_flag=True, help="Go on with calls as they end.")
@click.option("--verify", is_flag=True, help="Check the whole chain instead, and change nothing; filters do not apply.")
@config_option
@json_option("Print one JSON object a line.")
def audit(config_path: Path | None, *, follow: bool, verify: bool, as_json: bool, **wanted: Any) -> ExitCode:
    """Show the record of calls, follow it or verify it.

    Arguments and results are on record as digests. Times are UTC.
    """
    config = configured(config_path)
    view = JSON_VIEW if as_json else TABLE_VIEW
    if verify:
        verdict = run_async(_verified, config)
        view.show_verdict(verdict)
        if verdict.is_empty:
            return ExitCode.USAGE
        return ExitCode.OK if verdict.is_intact else ExitCode.FAILED
    matching = AuditFilter(**wanted)
    if follow:
        run_async(_follow, config, matching, view)
    else:
        view.show(run_async(_found, config, matching), is_first=True)
    return ExitCode.OK


async def _verified(config: Config) -> AuditVerdict:
    await _refuse_without_store(config)
    return await verify_audit(config.store_url)


async def _found(config: Config, matching: AuditFilter) -> Sequence[AuditRecord]:
    async with _open_log(config) as log:
        return await log.entries(matching, limit=_limit(matching))


async def _follow(config: Config, matching: AuditFilter, view: View) -> None:
    stop = asyncio.Event()
    async with _open_log(config) as log:
        with on_signals(stop.set):
            seen = await log.newest()
            before = await log.entries(matching, limit=_limit(matching))
            view.show(before, is_first=True)
            seen = max([seen, *(record.seq for record in before)])
            while not stop.is_set():
                seen = await _show_news(log, matching, seen, view)
                with anyio.move_on_after(POLL_S):
                    await stop.wait()


async def _show_news(log: AuditLog, matching: AuditFilter, seen: int, view: View) -> int:
    """Show what came after `seen`, and return how far that was."""
    while True:
        newest = await log.newest()
        records = await log.entries(replace(matching, last=None), after=seen, limit=_BATCH)
        view.show(records, is_first=False)
        seen = max([seen, *(record.seq for record in records)])
        if len(records) < _BATCH:
            return max(seen, newest)


def _limit(matching: AuditFilter) -> int:
    return matching.last or 0


@asynccontextmanager
async def _open_log(config: Config) -> AsyncIterator[AuditLog]:
    await _refuse_without_store(config)
    async with open_store(config.store_url) as store:
        yield store.audit


async def _refuse_without_store(config: Config) -> None:
    if why := await _why_nothing_is_on_record(config):
        raise NotFound(f"{why}: nothing is on record.", hint="`toolpost serve` and `toolpost call` make one")


async def _why_nothing_is_on_record(config: Config) -> str | None:
    """Look before the store is opened, which would make one."""
    url = config.store_url
    if url == "sqlite::memory:":
        return "The store is kept in memory"
    shown = shown_url(url).removeprefix("sqlite:")
    return None if await store_exists(url) else f"There is no store at {shown} yet"
