"""`toolpost tools --find`: the tools that an agent would find for a query, and why."""

import sys
from collections.abc import Sequence
from typing import Final

import click

from toolpost.app.quiet import open_quiet_app, without_store
from toolpost.base.ids import JsonObject
from toolpost.cli.open_app_problems import require_named_plugins, warn_of_problems
from toolpost.discovery import View
from toolpost.discovery.automatic import token_counts
from toolpost.discovery.finder import ToolSearchResult
from toolpost.discovery.search import RankedTool
from toolpost.settings import Config
from toolpost.terminal import ExitCode, console, cut, print_json_line, print_table, printable, run_async, table
from toolpost.terminal.failures import show_note, tell

WHAT_LIMIT: Final = 60
"""Columns of a description in a pipe; on a terminal, what fits."""
NEXT_SHOWN: Final = 10
NEXT_ROOM: Final = len("then:  and 10,000 more (--json)")


def print_found(query: str, config: Config, view: View, *, as_json: bool) -> ExitCode:
    """Print the tools that an agent would find for the query, best first; FAILED if a server or plugin failed."""
    # A shell can pass bytes that are not UTF-8.
    text = query.strip().encode("utf-8", "replace").decode()
    if not text:
        raise click.UsageError("there is nothing to find: the words are missing")
    found, code = run_async(_search, config, text, view)
    account = token_counts(sum(found.visible.entry(hit.name).tokens for hit in found.hits), found)
    if as_json:
        tools = [
            {
                "name": hit.name,
                "score": round(hit.score, 4),
                "tokens": found.visible.entry(hit.name).tokens,
                "why": [{"field": match.field, "words": list(match.words)} for match in hit.why],
            }
            for hit in found.hits
        ]
        print_json_line(
            {
                "query": text,
                "tools": tools,
                "more": list(found.next_names),
                "isWeak": found.is_weak,
                "sureness": round(found.confidence, 4),
                "isReranked": found.is_reranked,
                "totalAvailable": len(found.visible),
                "tokens": account,
            }
        )
    else:
        _print(found, account)
    return code


async def _search(config: Config, query: str, view: View) -> tuple[ToolSearchResult, ExitCode]:
    async with open_quiet_app(without_store(config), credentials_of=config) as app:
        require_named_plugins(app)
        if app.servers.has_caller_credentials and view.owner:
            await app.servers.open_for(view.owner)
        code = warn_of_problems(app)
        return await app.finder.find(query, view, explain=True), code


def _print(found: ToolSearchResult, account: JsonObject) -> None:
    if not found.hits:
        reason = "no tool matches" if found.visible else "there are no tools"
        click.echo(f"{reason}; `toolpost tools` lists all of them", err=True)
        return
    rows = [
        (
            f"{hit.score:.2f}",
            hit.name,
            _summarize(found, hit),
            # None for a hit by meaning, or because there are few tools.
            "; ".join(f"{match.field}: {' '.join(match.words)}" for match in hit.why) or "-",
        )
        for hit in found.hits
    ]
    if sys.stdout.isatty():
        _print_pairs(rows)
    else:
        brief = [(score, name, cut(what, WHAT_LIMIT), why) for score, name, what, why in rows]
        print_table(table("SCORE", "NAME", "DESCRIPTION", "WHY", rows=brief))
    if found.next_names:
        _print_next(found.next_names)
    for name in found.too_large:
        size = found.visible.entry(name).tokens
        show_note(f"{name} is only named: its definition takes about {size:,} tokens")
    if found.is_weak:
        servers = ", ".join(found.visible.servers)
        tell("note", f"no tool is a strong match; configured servers: {servers}", color="yellow")
    share = account["saved"] / account["listing"] if account["listing"] else 0.0
    click.echo(
        f"{len(found.hits)} of {len(found.visible):,} tools, about {account['sent']:,} tokens;"
        f" listing all takes {account['listing']:,} ({share:.1%} saved)",
        err=True,
    )


def _print_pairs(rows: Sequence[tuple[str, str, str, str]]) -> None:
    """Print two lines per hit, cut to the terminal's width: what the tool is, and why it was found."""
    width = console().width
    longest = max(len(name) for _, name, _, _ in rows)
    for score, name, what, why in rows:
        click.echo(cut(printable(f"{score}  {name:<{longest}}  {what}"), width))
        click.echo(cut(printable(f"      {why}"), width))


def _print_next(names: Sequence[str]) -> None:
    """Print the names that follow, on one line: what does not fit is counted."""
    line = ", ".join(names[:NEXT_SHOWN])
    left = max(len(names) - NEXT_SHOWN, 0)
    if sys.stdout.isatty():
        while "," in line and len(line) > console().width - NEXT_ROOM:
            line, left = line.rpartition(", ")[0], left + 1
    click.echo(printable(f"then: {line}{f' and {left:,} more (--json)' if left else ''}"))


def _summarize(found: ToolSearchResult, hit: RankedTool) -> str:
    line = " ".join(found.visible.entry(hit.name).description.split())
    sentence, stop, _ = line.partition(". ")
    return sentence + stop.rstrip()
