"""`toolpost trail`: plans, decisions and calls of agents, shown, verified, proven and exported."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import click

from toolpost import CallerId, NotFound
from toolpost.base import JsonObject
from toolpost.parts.trail import PART
from toolpost.parts.trail.export import encode_line, export_proof, export_session, write_verifier
from toolpost.parts.trail.plugin import render_record, render_session, render_verdict
from toolpost.parts.trail.records import Record, TrailSession, require_kept
from toolpost.parts.trail.service import ChainVerdict, Trail
from toolpost.parts.trail.verify_trail import Invalid, check_export, read_lines
from toolpost.store import open_part_store, shown_url, store_exists
from toolpost.terminal import (
    ExitCode,
    SuggestingGroup,
    config_option,
    cut,
    examples,
    json_option,
    load_cli_config,
    print_json_line,
    print_table,
    printable,
    run_async,
    show_error,
    table,
)

_T = TypeVar("_T")

_caller_option = click.option(
    "--caller", metavar="NAME", help="The caller whose session it is, where several have one."
)


@click.group(
    cls=SuggestingGroup,
    epilog=examples(
        ("toolpost trail show", "the newest sessions"),
        ("toolpost trail show work", "thoughts and calls of one"),
        ("toolpost trail verify", "check every session"),
        ("toolpost trail export work -o work.jsonl", "for independent verification"),
    ),
)
def trail() -> None:
    """Show, verify and export the decisions and calls of agents.

    Sessions are written by the tools of the plugin `trail`: plugins.bundled = ["trail"].
    """


@trail.command(
    epilog=examples(
        ("toolpost trail show", "the newest sessions"),
        ("toolpost trail show work --json | jq .content", "for other programs"),
    )
)
@click.argument("session", required=False)
@_caller_option
@click.option("--last", type=click.IntRange(min=1), default=50, show_default=True, metavar="N", help="How many.")
@config_option
@json_option("Print one JSON object a line.")
def show(session: str | None, caller: str | None, last: int, config_path: Path | None, *, as_json: bool) -> None:
    """List sessions, or the records of one."""

    async def print_found(found: Trail) -> None:
        if session is None:
            _print_sessions(await found.sessions(_owner(caller), limit=last), as_json=as_json)
            return
        chosen = await found.find(_owner(caller), session)
        records = await found.read_page(chosen, after=max(0, chosen.size - last), limit=last)
        _print_records(chosen, records, as_json=as_json)

    _run(config_path, print_found)


@trail.command(
    epilog=examples(
        ("toolpost trail verify", "every session in the store"),
        ("toolpost trail verify work", "one of them"),
        ("toolpost trail verify --file work.jsonl", "an export, without a store"),
    )
)
@click.argument("session", required=False)
@_caller_option
@click.option(
    "--file", "path", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="An export or a proof."
)
@click.option("--key", metavar="HEX", help="The public key that must have signed the file.")
@config_option
@json_option("Print `{valid, broken_count, record_count, …}` on one line.")
def verify(
    session: str | None,
    caller: str | None,
    path: str | None,
    key: str | None,
    config_path: Path | None,
    *,
    as_json: bool,
) -> ExitCode:
    """Verify hashes, authors, Merkle trees, seals and contents."""
    if path is not None:
        return _verify_file(path, key, as_json=as_json)
    if key is not None:
        raise click.UsageError("--key needs --file: in the store, each seal is verified with the key that it names")

    async def check(found: Trail) -> ChainVerdict:
        if session is not None:
            return await found.verify(await found.find(_owner(caller), session))
        return await found.verify_all(_owner(caller), None)

    verdict = _run(config_path, check)
    if as_json:
        print_json_line(render_verdict(verdict))
    elif verdict.is_valid:
        click.echo(f"all {verdict.record_count} records are intact")
        if verdict.removed_count:
            click.echo(
                f"{verdict.removed_count} more were removed (trail.keep_days): the seals of their sessions are valid"
            )
    else:
        show_error(
            f"{verdict.broken_count} of {verdict.record_count} records are not as they were written",
            f"the first is record {verdict.first_broken_at} of the session {verdict.session_id}: {verdict.reason}",
        )
    return ExitCode.OK if verdict.is_valid else ExitCode.FAILED


@trail.command(
    epilog=examples(
        ("toolpost trail prove work 7 -o proof.json", "that record 7 is in the session"),
        ("toolpost trail prove work --first 5", "that 5 records are unchanged"),
    )
)
@click.argument("session")
@click.argument("record", required=False)
@click.option(
    "--first", type=click.IntRange(min=1), metavar="N", help="Prove that the first N records are as they were."
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write it here, and the verifier beside it."
)
@_caller_option
@config_option
def prove(
    session: str,
    record: str | None,
    first: int | None,
    output: Path | None,
    caller: str | None,
    config_path: Path | None,
) -> None:
    """Prove that a record is in a session.

    The record is named by its number, its hash or the id of a call.
    """
    if (record is None) == (first is None):
        raise click.UsageError("name a RECORD, or --first N")

    async def make_proof(found: Trail) -> JsonObject:
        chosen = await found.find(_owner(caller), session)
        if first is not None:
            return await export_proof(found, chosen, await found.prove_consistency(chosen, first))
        return await export_proof(found, chosen, await found.prove_inclusion(chosen, record or ""))

    line = _run(config_path, make_proof)
    with _open_output(output) as write:
        write(line)


@trail.command(
    epilog=examples(
        ("toolpost trail export work -o work.jsonl", "hashes only"),
        ("toolpost trail export work --content", "with the thoughts"),
    )
)
@click.argument("session")
@click.option("--content", is_flag=True, help="Export contents too; without it, only commitments to them.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write it here, and the verifier beside it."
)
@_caller_option
@config_option
def export(session: str, output: Path | None, caller: str | None, config_path: Path | None, *, content: bool) -> None:
    """Export a session as lines of JSON, to be verified without Toolpost.

    The command that verifies it is `python verify_trail.py FILE`.
    """

    async def write_session(found: Trail) -> None:
        # Before the file is made: a session that is not there, or has no records any more, leaves none.
        chosen = await found.find(_owner(caller), session)
        require_kept(chosen)
        with _open_output(output) as write:
            async for line in export_session(found, chosen, with_content=content):
                write(line)

    _run(config_path, write_session)


@contextmanager
def _open_output(output: Path | None) -> Iterator[Callable[[JsonObject], object]]:
    """Yield what writes a line, to a file with the verifier beside it, or to stdout."""
    if output is None:
        yield lambda line: click.echo(encode_line(line))
        return
    with output.open("w", encoding="utf-8") as file:
        yield lambda line: file.write(f"{encode_line(line)}\n")
    verifier = write_verifier(output.absolute().parent)
    click.echo(printable(f"wrote {output}; verify it with: python {verifier.name} {output.name}"), err=True)


def _verify_file(path: str, key: str | None, *, as_json: bool) -> ExitCode:
    try:
        sentences = list(check_export(read_lines(path), key))
        if not sentences:
            raise Invalid("there is nothing in it")
    except (Invalid, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = str(error) if isinstance(error, Invalid) else f"malformed ({type(error).__name__}: {error})"
        if as_json:
            print_json_line({"valid": False, "reason": reason})
        else:
            show_error(f"{path} is not valid: {reason}", "compare with another export of the session")
        return ExitCode.FAILED
    if as_json:
        print_json_line({"valid": True, "findings": sentences})
    else:
        click.echo("\n".join(map(printable, sentences)))
    return ExitCode.OK


def _run(config_path: Path | None, act: Callable[[Trail], Awaitable[_T]]) -> _T:
    """Act on the trail of the configured store; raises NotFound if there is no store."""

    async def run() -> _T:
        config = load_cli_config(config_path)
        if not await store_exists(config.store_url):
            raise NotFound(
                f"There is no store at {shown_url(config.store_url)} yet, and so no session.",
                hint='load the plugin and serve: plugins.bundled = ["trail"]',
            )
        async with open_part_store(config.store_url, PART.name, PART.migrations) as store:
            return await act(await Trail.open(store))

    return run_async(run)


def _owner(caller: str | None) -> CallerId | None:
    return None if caller is None else CallerId(caller)


def _print_sessions(sessions: Sequence[TrailSession], *, as_json: bool) -> None:
    if as_json:
        for session in sessions:
            print_json_line(render_session(session))
        return
    if not sessions:
        click.echo("no session yet", err=True)
        return
    rows = [
        (
            session.id,
            session.owner,
            f"{session.size}{'' if session.removed_at is None else ' (removed)'}",
            session.header_json["started_at"],
            session.seal_json["sealed_at"] if session.seal_json else "open",
            session.intent.decode(),
        )
        for session in sessions
    ]
    print_table(table("SESSION", "CALLER", "RECORDS", "STARTED", "SEALED", "INTENT", rows=rows))


def _print_records(session: TrailSession, records: Sequence[Record], *, as_json: bool) -> None:
    if as_json:
        for record in records:
            print_json_line(render_record(session.id, record))
        return
    rows = []
    for record in records:
        shown = render_record(session.id, record)
        rows.append(
            (
                str(record.seq),
                shown["at"],
                record.type or record.kind,
                shown["author"],
                record.hash[:12],
                _describe(shown),
            )
        )
    if session.removed_at is None:
        print_table(table("SEQ", "TIME (UTC)", "WHAT", "AUTHOR", "HASH", "", rows=rows))
    else:
        click.echo(f"its {session.size} records were removed at {session.removed_at} (trail.keep_days)", err=True)
    click.echo(printable(f"root {session.root}{'' if session.seal is None else ', sealed'}"))


def _describe(record: JsonObject) -> str:
    if record["kind"] == "thought":
        return cut(" ".join(record["content"].split()), 200)
    if record["kind"] == "call":
        follows = f", after the decision {record['follows'][:12]}" if record["follows"] else ""
        return f"{record['tool']}{follows}"
    code = f" {record['code']}" if record["code"] else ""
    return f"{record['outcome']}{code} of {record['call_id']}"
