"""`toolpost chat schedules`: list and stop the prompts that agents have scheduled.

It works on the store, without a server: a user who can write to the store may stop the schedules of every caller.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from toolpost import CallerId, Item, NotFound
from toolpost.base import JsonObject
from toolpost.contracts import InvalidRequest
from toolpost.parts.agents.plugins.schedule import list_items, remove_item, render_schedule
from toolpost.settings import Config
from toolpost.store import KeyValueStore, open_store, store_exists
from toolpost.terminal import (
    config_option,
    examples,
    json_option,
    load_cli_config,
    print_json_line,
    print_table,
    printable,
    run_async,
    table,
)


@click.command(
    epilog=examples(
        ("toolpost chat schedules", "the next first"),
        ("toolpost chat schedules --stop s-1f0c2a9b", "stop one, of any caller"),
        ("toolpost chat schedules --json | jq -r .[].prompt", "for other programs"),
    )
)
@click.option(
    "--stop", metavar="ID", help="Stop this one, also for running servers; a turn that it has started goes on."
)
@click.option("--caller", metavar="NAME", help="Only the schedules of this caller.")
@config_option
@json_option("Print `[{id, caller, thread, prompt, next_at, cron}]` on one line; with --stop the stopped one.")
def schedules(stop: str | None, caller: str | None, config_path: Path | None, *, as_json: bool) -> None:
    """List the prompts that agents have scheduled, or stop one.

    All of them, of every caller, the next first. Agents schedule prompts when they are asked to, as in
    `toolpost chat "remind me at nine"`.
    """
    config = load_cli_config(config_path)
    if stop is not None:
        item = run_async(_stop, config, stop, caller)
        if as_json:
            print_json_line(_as_object(item))
        else:
            click.echo(printable(f"`{item.id}` is stopped: {_shorten(str(item.value['prompt']))}"))
        return
    found = run_async(_list, config, caller)
    if as_json:
        print_json_line([_as_object(item) for item in found])
    elif not found:
        click.echo("nothing is scheduled")
    else:
        print_table(table("id", "next", "repeats", "caller", "conversation", "prompt", rows=map(_row, found)))


async def _list(config: Config, caller: str | None) -> list[Item]:
    async with _open_values(config) as values:
        return [] if values is None else await list_items(values, CallerId(caller) if caller else None)


async def _stop(config: Config, schedule: str, caller: str | None) -> Item:
    async with _open_values(config) as values:
        owner = CallerId(caller) if caller else None
        found = [] if values is None else [item for item in await list_items(values, owner) if item.id == schedule]
        if len(found) > 1:
            named = ", ".join(item.owner for item in found)
            raise InvalidRequest(
                f"Several callers have a schedule `{schedule}`.", hint=f"choose one with --caller: {named}"
            )
        # It may have run for the last time since it was listed.
        stopped = await remove_item(values, found[0].owner, schedule) if values is not None and found else None
        if stopped is None:
            raise NotFound(f"Unknown schedule `{schedule[:64]}`.", hint="`toolpost chat schedules` lists all of them")
        return stopped


@asynccontextmanager
async def _open_values(config: Config) -> AsyncIterator[KeyValueStore | None]:
    """Open the key-value store; yields None if there is no store yet, rather than create one."""
    if not await store_exists(config.store_url):
        yield None
        return
    async with open_store(config.store_url, pool=config.store.pool) as store:
        yield store.key_values


def _row(item: Item) -> tuple[str, ...]:
    schedule = render_schedule(item)
    prompt = _shorten(schedule.prompt)
    return schedule.id, schedule.next_at, schedule.cron or "once", item.owner, schedule.thread, prompt


def _as_object(item: Item) -> JsonObject:
    schedule = render_schedule(item)
    return {
        "id": schedule.id,
        "caller": item.owner,
        "thread": schedule.thread,
        "prompt": schedule.prompt,
        "next_at": schedule.next_at,
        "cron": schedule.cron,
    }


def _shorten(prompt: str) -> str:
    text = " ".join(prompt.split())
    return text if len(text) <= 200 else f"{text[:199]}…"
