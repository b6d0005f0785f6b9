"""`toolpost call`: call one tool, in this process or through a running gateway."""

from pathlib import Path

import click

from toolpost.base.ids import JsonObject
from toolpost.cli.call.answer import CallAnswer
from toolpost.cli.call.arguments import parse_words
from toolpost.cli.call.content import show_content
from toolpost.cli.call.gateway import call_gateway, mcp_url
from toolpost.cli.call.in_process import RequestedCall, call_in_process
from toolpost.cli.examples import examples
from toolpost.cli.exits import ExitCode, exit_code_of
from toolpost.cli.failures import as_clause, issues_in, show_error
from toolpost.cli.gateway import complete_tool_names, run_async
from toolpost.cli.options import (
    config_option,
    debug_option,
    is_debugging,
    json_option,
    load_cli_config,
    plugin_option,
    refuse_plugins_beside_url,
)
from toolpost.cli.servers.client import RunningGateway
from toolpost.cli.show import print_encoded, print_json
from toolpost.cli.terminal import printable
from toolpost.contracts.errors import ErrorCode


@click.command(
    epilog=examples(
        ("toolpost call time__current_time timezone=Asia/Tokyo", "arguments by name"),
        ('toolpost call time__current_time \'{"timezone": "UTC"}\'', "arguments as JSON"),
        ("toolpost call my__tool count:=3 tags=a tags=b size.x=1", "raw JSON, a list, a nested key"),
        ("toolpost call my__tool @arguments.json", "arguments from a file; - is stdin"),
        ("toolpost call my__tool --json | jq .data", "the answer as sent to clients"),
        ("toolpost call my__screenshot --save .", "save images in this folder"),
        ("toolpost call my__tool --debug", "with the traceback of a failure"),
        ("toolpost call my__tool --url http://127.0.0.1:8420", "through a running gateway"),
    )
)
@click.argument("name", shell_complete=complete_tool_names)
@click.argument("arguments", nargs=-1)
@click.option(
    "--url",
    metavar="URL",
    help="Call it through the running gateway at this URL; its token comes from TOOLPOST_TOKEN or http.token_file.",
)
@config_option
@plugin_option
@click.option(
    "--save",
    metavar="DIR",
    type=click.Path(file_okay=False, writable=True, path_type=Path),
    help="Save images, audio and embedded resources of the answer as new files in this folder.",
)
@click.option(
    "--timeout",
    "limit_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Cancel the call after this time, unless the tool's own limit is shorter.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no progress and no warnings about plugins.")
@debug_option
@json_option("Print the answer exactly as it is sent to clients, on one line.")
def call(
    name: str,
    arguments: tuple[str, ...],
    url: str | None,
    config_path: Path | None,
    plugins: tuple[str, ...],
    save: Path | None,
    limit_s: float | None,
    *,
    quiet: bool,
    as_json: bool,
) -> ExitCode:
    """Call a tool.

    ARGUMENTS are key=value (parsed as the type that the tool declares), key:=json, one JSON object, @FILE, or - for stdin;
    later ones override earlier ones. The call passes all middleware and is audited, as caller `cli`; with --url, as the caller
    that the token belongs to.
    """
    refuse_plugins_beside_url(url, plugins)
    request = RequestedCall(tool=name, words=parse_words(arguments), limit_s=limit_s, quiet=quiet)
    config = load_cli_config(config_path, plugins)
    if url is None:
        answer = run_async(call_in_process, config, request)
    else:
        gateway = RunningGateway(url=mcp_url(url), token=config.token(), network=config.resolve_network())
        answer = run_async(call_gateway, gateway, request)
    if as_json:
        print_encoded(answer.encoded)
    elif answer.has_data:
        print_json(answer.data)
    # `--json` has printed these blocks already: only `--save` needs them again.
    blocks = () if as_json and answer.has_content_encoded and save is None else answer.content
    beside_data = as_json or answer.has_data or answer.error is not None
    saved = show_content(blocks, tool=name, save=save, beside_data=beside_data)
    if answer.error is None:
        return saved
    return show_answer_error(answer, answer.error, has_log=url is not None)


def show_answer_error(answer: CallAnswer, error: JsonObject, *, has_log: bool = False) -> ExitCode:
    """Print the error that a call was answered with; returns the exit code.

    `has_log` says that the gateway keeps a log with the traceback; else `--debug` shows it here.
    """
    code = exit_code_of(error["code"])
    # The message of a tool is shown unchanged.
    message = error["message"] if code is ExitCode.FAILED else as_clause(error["message"])
    hint = error.get("hint")
    if _has_traceback(error) and not hint:
        hint = "the gateway's log has the traceback, under the call id" if has_log else None
        if not has_log and not is_debugging():
            hint = "--debug shows the traceback"
    details = error.get("details", {})
    if hint and isinstance(url := details.get("url"), str):
        # Details are not shown; the address of a login is all that a person needs of them.
        hint = hint.replace("`details.url`", url)
    show_error(message, hint, issues=issues_in(details))
    for stream in ("stdout", "stderr"):
        if stream in error:
            click.echo(printable(f"{stream} of the tool:\n{error[stream]}"), err=True)
    click.echo(f"code: {error['code']}" + (f"  call: {printable(answer.call_id)}" if answer.call_id else ""), err=True)
    return ExitCode.TIMED_OUT if answer.is_timed_out and code is ExitCode.CANCELLED else code


def _has_traceback(error: JsonObject) -> bool:
    """Whether an unexpected exception ended the call: its type is in the details."""
    details = error.get("details")
    return error["code"] == ErrorCode.HANDLER_ERROR and isinstance(details, dict) and "exception" in details
