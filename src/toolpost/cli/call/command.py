"""`toolpost call`: one tool, once, in this process and through the same pipeline as any other call."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from toolpost.base.caller import OPERATOR
from toolpost.base.ids import Json
from toolpost.cli.call.arguments import Word, arguments_of, read_words
from toolpost.cli.call.progress import open_progress
from toolpost.cli.examples import examples
from toolpost.cli.exits import ExitCode, exit_code_of
from toolpost.cli.failures import as_clause, issues_in, show_error
from toolpost.cli.gateway import complete_tool_names, find_tool, open_quiet_app, run_async, warn_of_problems
from toolpost.cli.options import config_option, configured, json_option, plugin_option
from toolpost.cli.show import print_encoded, print_json
from toolpost.cli.signals import on_signals
from toolpost.cli.terminal import printable
from toolpost.contracts.envelope import ResultStyle
from toolpost.gateway import Answer
from toolpost.middleware import Call
from toolpost.settings import Config


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What was typed."""

    tool: str
    words: Sequence[Word]
    limit_s: float | None
    quiet: bool


@click.command(
    epilog=examples(
        ("toolpost call time__current_time timezone=Asia/Tokyo", "arguments by name"),
        ('toolpost call time__current_time \'{"timezone": "UTC"}\'', "arguments as JSON"),
        ("toolpost call my__tool count:=3 tags=a tags=b size.x=1", "raw JSON, a list, a part"),
        ("toolpost call my__tool @arguments.json", "arguments from a file; - is stdin"),
        ("toolpost call my__tool --json | jq .data", "the answer as it is sent"),
    )
)
@click.argument("name", shell_complete=complete_tool_names)
@click.argument("arguments", nargs=-1)
@config_option
@plugin_option
@click.option(
    "--timeout",
    "limit_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Cancel the call after this long, if its tool's own limit is not shorter.",
)
@click.option("-q", "--quiet", is_flag=True, help="Show no progress, and no warnings about plugins.")
@json_option("Print the answer exactly as it is sent, on one line.")
def call(
    name: str,
    arguments: tuple[str, ...],
    config_path: Path | None,
    plugins: tuple[str, ...],
    limit_s: float | None,
    *,
    quiet: bool,
    as_json: bool,
) -> ExitCode:
    """Call a tool.

    ARGUMENTS are key=value (read as the type that the tool declares), key:=json, one JSON object, @FILE, or - for stdin;
    what comes later wins. The call passes the whole pipeline and is on the audit's record, as caller `cli`.
    """
    wish = Wish(tool=name, words=read_words(arguments), limit_s=limit_s, quiet=quiet)
    answer, has_run_out = run_async(answered, configured(config_path, plugins), wish)
    if as_json:
        print_encoded(answer.payload)
    return _show(answer, has_run_out=has_run_out, only_failure=as_json)


async def answered(config: Config, wish: Wish) -> tuple[Answer, bool]:
    """Call the tool, showing its progress; says too whether the time of whoever typed it ran out."""
    async with open_quiet_app(config) as app:
        if not wish.quiet:
            warn_of_problems(app)
        contract = find_tool(app, app.gateway.catalogue, wish.tool).contract
        arguments = arguments_of(wish.words, contract.definition["inputSchema"])
        with open_progress(contract.name, quiet=wish.quiet) as show:
            made = app.gateway.admit(caller=OPERATOR, name=wish.tool, arguments=arguments, on_progress=show)
            with (
                on_signals(lambda: made.cancel("whoever started it asked for it")),
                _limited(made, wish) as has_run_out,
            ):
                answer = await app.gateway.call(made)
            return answer, has_run_out.is_set()


@contextmanager
def _limited(made: Call, wish: Wish) -> Iterator[asyncio.Event]:
    """Cancel the call when the time of whoever typed it has run out; the tool's own limit is the contract's business."""
    has_run_out = asyncio.Event()
    if wish.limit_s is None:
        yield has_run_out
        return

    def run_out() -> None:
        has_run_out.set()
        made.cancel(f"it took longer than {wish.limit_s:g} s")

    timer = asyncio.get_running_loop().call_later(wish.limit_s, run_out)
    try:
        yield has_run_out
    finally:
        timer.cancel()


def _show(answer: Answer, *, has_run_out: bool, only_failure: bool) -> ExitCode:
    payload: Json = msgspec.json.decode(answer.payload)
    if answer.passed is not None:
        return _show_servers_own(answer, payload, only_failure=only_failure)
    is_wrapped = answer.style is ResultStyle.ENVELOPE
    if answer.is_error:
        return show_failure_of(answer, payload["error"] if is_wrapped else payload, has_run_out=has_run_out)
    if not only_failure:
        print_json(payload["data"] if is_wrapped else payload)
        if kinds := ", ".join(str(block.get("type")) for block in answer.content):
            click.echo(printable(f"also in the answer, and not shown here: {kinds}"), err=True)
    return ExitCode.OK


def _show_servers_own(answer: Answer, result: Json, *, only_failure: bool) -> ExitCode:
    """Show what a server returned: its structured content, else what it said in text."""
    texts = [str(block.get("text")) for block in result.get("content") or () if block.get("type") == "text"]
    if answer.is_error:
        click.echo(printable(f"error: {' '.join(texts) or 'the server says that the tool failed'}"), err=True)
        click.echo(f"code: HANDLER_ERROR  call: {answer.call.id}", err=True)
        return ExitCode.FAILED
    if not only_failure:
        if result.get("structuredContent") is not None:
            print_json(result["structuredContent"])
        else:
            click.echo(printable("\n".join(texts)))
    return ExitCode.OK


def show_failure_of(answer: Answer, error: Json, *, has_run_out: bool) -> ExitCode:
    """Show the error that a call was answered with, and return what to end with."""
    code = exit_code_of(error["code"])
    # What a tool says in its own words is left as it is.
    message = error["message"] if code is ExitCode.FAILED else as_clause(error["message"])
    show_error(message, error.get("hint"), issues=issues_in(error.get("details", {})))
    for stream in ("stdout", "stderr"):
        if stream in error:
            click.echo(printable(f"{stream} of the tool:\n{error[stream]}"), err=True)
    click.echo(f"code: {error['code']}  call: {answer.call.id}", err=True)
    return ExitCode.TIMED_OUT if has_run_out and code is ExitCode.CANCELLED else code
