"""`toolpost store`: show the store, or copy it to another database."""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import click

from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import BadConfiguration, CapabilityMissing, NotFound
from toolpost.manifest import bundled_parts, installed_part
from toolpost.settings import Config, expand_variables
from toolpost.settings.key_place import key_place_of
from toolpost.store import Store, open_store, store_exists
from toolpost.store.copying import CopyResult, Progress, copy_store
from toolpost.store.part_migrations import find_part_tables, migrate_part, parts_with_tables
from toolpost.store.tables import AUDIT, TABLES
from toolpost.store.urls import parse_store_url, shown_url
from toolpost.terminal import (
    SuggestingGroup,
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


@click.group(
    cls=SuggestingGroup,
    epilog=examples(
        ("toolpost store status", "database, size and rows"),
        ("toolpost store migrate --to 'postgresql://me:${DB_PASSWORD}@db/toolpost'", "SQLite to PostgreSQL"),
    ),
)
def store() -> None:
    """Show the store, or copy it to another database."""


@store.command(
    epilog=examples(
        ("toolpost store status", "database, size and rows"),
        ("toolpost store status --json | jq .rows.audit", "for other programs"),
    )
)
@config_option
@json_option("Print `{url, kind, version, migration, sizeBytes, rows, head}` on one line.")
def status(config_path: Path | None, *, as_json: bool) -> None:
    """Show which database the store is, and how much it contains."""
    found = run_async(_read_status, load_cli_config(config_path))
    if as_json:
        print_json_line(found)
        return
    rows = found["rows"]
    assert isinstance(rows, dict)
    facts = [
        ("store", str(found["url"])),
        ("runs on", str(found["version"])),
        ("migration", str(found["migration"])),
        ("size", f"{int(str(found['sizeBytes'])) / 2**20:,.1f} MiB"),
        *((f"rows of {name}", f"{count:,}") for name, count in rows.items()),
    ]
    print_table(table("", "", rows=facts, header=False))


@store.command(
    epilog=examples(
        ("toolpost store migrate --to postgresql://toolpost@db/toolpost --dry-run", "count the rows to copy"),
        ("toolpost store migrate --to 'postgresql://me:${DB_PASSWORD}@db/toolpost'", "copy it"),
        ("toolpost store migrate --to sqlite:.toolpost/back.db", "and back"),
    )
)
@click.option(
    "--to", "target", required=True, metavar="URL", help="Target: sqlite:PATH or postgresql://…; ${VAR} is replaced."
)
@click.option("--dry-run", is_flag=True, help="Count the rows to copy, change nothing.")
@config_option
@json_option("Print `{from, to, rows, written, head, dryRun}` on one line.")
def migrate(config_path: Path | None, target: str, *, dry_run: bool, as_json: bool) -> None:
    """Copy everything into another store, and verify the copy.

    The audit is verified on both sides, and rows are counted. An interrupted copy continues when the command is run again. A
    target with other data is refused. Stop the gateways that use either store first. Where the key of the credentials is a file
    beside the store, it is copied too.
    """
    config = load_cli_config(config_path)
    target = expand_variables(target, environment=os.environ, project=Path(config.project).absolute(), place="--to")
    copied = run_async(_migrate, config, target, dry_run)
    if as_json:
        print_json_line(
            {
                "from": shown_url(config.store_url),
                "to": shown_url(target),
                "rows": dict(copied.rows),
                "written": dict(copied.written),
                "head": copied.head,
                "dryRun": dry_run,
            }
        )
        return
    lines = [(name, f"{count:,}", f"{copied.written[name]:,}") for name, count in copied.rows.items()]
    print_table(table("table", "rows", "to be copied" if dry_run else "copied", rows=lines))
    if not dry_run:
        shown = printable(shown_url(target))
        click.echo(
            f'The copy is complete and verified. To use it, set store.url = "{shown}" in toolpost.toml', err=True
        )


async def _read_status(config: Config) -> JsonObject:
    async with _open_existing(config) as opened:
        facts = await opened.facts()
        rows = {"audit": await opened.audit.newest()}
        for one in (*TABLES, *await find_part_tables(opened)):
            rows[one.name] = await opened.tables.count(one)
        newest = await opened.tables.up_to(AUDIT, (rows["audit"] - 1,), (rows["audit"],))
    return {
        "url": facts.url,
        "kind": facts.kind,
        "version": facts.version,
        "migration": facts.migration,
        "sizeBytes": facts.size_bytes,
        "rows": dict(rows),
        "head": newest[-1][-1] if newest else None,
    }


async def _migrate(config: Config, target: str, dry_run: bool) -> CopyResult:
    if parse_store_url(config.store_url) == parse_store_url(target):
        raise BadConfiguration("--to is the store that is in use.", hint="give --to the URL of another store")
    async with _open_existing(config) as source, _open_target(target, dry_run=dry_run) as there:
        if not dry_run:
            for name in await parts_with_tables(source):
                package = _migrations_of(name)
                # Both, so that they have the same columns.
                await migrate_part(source, config.store_url, name, package)
                await migrate_part(there, target, name, package)
            # Before any row: a credential is never where its key is not.
            _copy_key(config, target)
        with _open_progress() as progress:
            return await copy_store(source, there, progress=progress, dry_run=dry_run)


def _copy_key(config: Config, target: str) -> None:
    """Take the key of the credentials along: the file is beside the SQLite file, if no setting names another place."""
    source, there = key_place_of(config), key_place_of(config, target)
    keys = source.read() if source.shown != there.shown and there.is_writable else []
    if not keys:
        return
    # A key that is there already may be in use by another store beside it.
    if not (known := there.read()):
        there.create()
    there.replace([*keys, *(key for key in known if key not in keys)])


def _migrations_of(part: str) -> str:
    """Return the package with the migrations of a part. Raises CapabilityMissing if it is not installed."""
    found = next((each for each in bundled_parts() if each.name == part), None)
    if found is None and (entry := installed_part(part)) is not None:
        found = entry.load()
    if found is None or (package := found.migrations) is None:
        raise CapabilityMissing(
            f"The store has tables of the part `{part}`, which is not installed.",
            hint="install the package that brings this part: without it its tables cannot be made in the other store",
        )
    return package


@asynccontextmanager
async def _open_existing(config: Config) -> AsyncIterator[Store]:
    """Open the store; raises `NotFound` if there is none, because opening it would create one."""
    if not await store_exists(config.store_url):
        raise NotFound(
            f"There is no store at {shown_url(config.store_url)} yet.",
            hint="`toolpost serve` and `toolpost call` create it",
        )
    async with open_store(config.store_url) as opened:
        yield opened


@asynccontextmanager
async def _open_target(url: str, *, dry_run: bool) -> AsyncIterator[Store]:
    # A dry run must not create the target: one that does not exist counts as empty.
    is_there = not dry_run or await store_exists(url)
    async with open_store(url if is_there else "sqlite::memory:", durable=True) as opened:
        yield opened


@contextmanager
def _open_progress() -> Iterator[Progress]:
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    with Bars(console=Console(stderr=True), transient=True, redirect_stdout=False) as bars:
        tasks: dict[str, TaskID] = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=None)
            bars.update(tasks[name], completed=done, total=max(total, 1))

        yield show
