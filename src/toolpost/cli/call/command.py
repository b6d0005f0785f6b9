"""`toolpost call`: call one tool, in this process or through a running gateway."""

import base64
import binascii
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from toolpost.base.ids import Json, JsonObject
from toolpost.cli.call.answer import CallAnswer
from toolpost.cli.call.arguments import parse_words
from toolpost.cli.call.gateway import call_gateway
from toolpost.cli.call.in_process import RequestedCall, call_in_process
from toolpost.cli.call.questions import NO_TERMINAL
from toolpost.cli.open_app_problems import complete_tool_names
from toolpost.contracts.errors import ErrorCode
from toolpost.settings import Config
from toolpost.terminal import (
    ExitCode,
    RunningGateway,
    config_option,
    examples,
    format_size,
    json_option,
    load_cli_config,
    plugin_option,
    printable,
    run_async,
    show_error,
)
from toolpost.terminal.failures import as_clause, is_debugging, issues_in, tell
from toolpost.terminal.options import debug_option, refuse_plugins_beside_url
from toolpost.terminal.tables import print_encoded, print_json

BLOCKS_LIMIT: Final = 100
"""Blocks shown of one answer: a server may send tens of thousands of tiny images."""

_NUMBERS_TRIED: Final = 100_000
_NAME_LIMIT: Final = 100
_SHOWN_LIMIT: Final = 200

_ENDINGS: Final = {
    "application/gzip": "gz",
    "application/json": "json",
    "application/pdf": "pdf",
    "application/xml": "xml",
    "application/zip": "zip",
    "audio/aac": "aac",
    "audio/flac": "flac",
    "audio/mp4": "m4a",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "audio/wav": "wav",
    "audio/webm": "weba",
    "audio/x-wav": "wav",
    "image/avif": "avif",
    "image/bmp": "bmp",
    "image/gif": "gif",
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/svg+xml": "svg",
    "image/tiff": "tiff",
    "image/webp": "webp",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "text/plain": "txt",
    "video/mp4": "mp4",
    "video/webm": "webm",
}
"""File extensions by media type; any other is `.bin`. None of them is executable on any system."""

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")


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
    help="Call it through the running gateway at this URL; its token comes from TOOLPOST_TOKEN or http.token.",
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
    later ones override earlier ones. A tool that asks its user asks at the terminal. The call passes all middleware and is
    audited, as caller `cli`; with --url, as the caller that the token belongs to.
    """
    refuse_plugins_beside_url(url, plugins)
    request = RequestedCall(tool=name, words=parse_words(arguments), limit_s=limit_s, quiet=quiet)
    config = load_cli_config(config_path, plugins)
    if url is None:
        answer = run_async(call_in_process, config, request)
    else:
        gateway = RunningGateway.of(config, url)
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


def call_and_show(
    config: Config,
    tool: str,
    arguments: JsonObject,
    show: Callable[[Any], None],
    *,
    quiet: bool,
    as_json: bool,
) -> ExitCode:
    """Call a tool in this process, and print its answer: the data with `show`, or the whole as one line of JSON.

    The call passes all middleware, as that of any other caller. Errors are printed too; `quiet` leaves out progress and warnings.
    """
    request = RequestedCall(tool=tool, words=[arguments], quiet=quiet)
    answer = run_async(call_in_process, config, request)
    if as_json:
        print_encoded(answer.encoded)
    if answer.error is not None:
        return show_answer_error(answer, answer.error)
    if not as_json:
        show(answer.data)
    return ExitCode.OK


def show_answer_error(answer: CallAnswer, error: JsonObject, *, has_log: bool = False) -> ExitCode:
    """Print the error that a call was answered with; returns the exit code.

    `has_log` says that the gateway keeps a log with the traceback; else `--debug` shows it here.
    """
    code = ExitCode.of(error["code"])
    # The message of a tool is shown unchanged.
    message = error["message"] if code is ExitCode.FAILED else as_clause(error["message"])
    hint = error.get("hint")
    if _has_traceback(error) and not hint:
        hint = "the gateway's log has the traceback, under the call id" if has_log else None
        if not has_log and not is_debugging():
            hint = "--debug shows the traceback"
    details = error.get("details", {})
    if error["code"] == ErrorCode.CAPABILITY_MISSING and details.get("capability") == "elicitation":
        message, hint = "the tool asks its user a question, and there is no terminal to answer it at", NO_TERMINAL
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


@dataclass(frozen=True, kw_only=True)
class _Attachment:
    kind: str
    media_type: str
    data: bytes

    def __str__(self) -> str:
        return f"{_shorten(self.media_type)}, {format_size(len(self.data))}"


def show_content(blocks: Iterable[Json], *, tool: str, save: Path | None, beside_data: bool) -> ExitCode:
    """Print content blocks, and write those that are not text into the folder `save`.

    Text goes to stdout, or to stderr where it is `beside_data` that other programs may read; the rest is reported on stderr.
    """
    for number, block in enumerate(blocks):
        if number == BLOCKS_LIMIT:
            tell("note", f"the answer has more than {BLOCKS_LIMIT} content blocks; --json prints all", color="yellow")
            break
        kind = str(block.get("type")) if isinstance(block, dict) else "malformed block"
        if kind == "text":
            click.echo(printable(str(block.get("text"))), err=beside_data)
        elif kind == "resource_link":
            tell("link", _format_link(block), color="cyan")
        elif (attachment := _read_attachment(kind, block)) is None:
            tell(_shorten(kind), "cannot be read; --json prints it", color="yellow")
        elif save is not None:
            try:
                path = _save(attachment, tool, save)
            except OSError as error:
                show_error(f"cannot save {attachment} in {save}: {error.strerror or error}")
                return ExitCode.SETUP
            tell("saved", f"{path} ({attachment})", color="green")
        elif attachment.kind == "text":
            click.echo(printable(attachment.data.decode()), err=beside_data)
        else:
            tell(attachment.kind, f"{attachment}; --save DIR writes it to a file", color="cyan")
    return ExitCode.OK


def _read_attachment(kind: str, block: Json) -> _Attachment | None:
    """Decode a block that can be a file; a text resource gets the kind `text`. None if it is malformed."""
    if kind in ("image", "audio"):
        data, media_type = block.get("data"), block.get("mimeType")
    elif kind == "resource" and isinstance(resource := block.get("resource"), dict):
        media_type = resource.get("mimeType")
        if isinstance(text := resource.get("text"), str):
            encoded = text.encode("utf-8", "replace")
            return _Attachment(kind="text", media_type=str(media_type or "text/plain"), data=encoded)
        data = resource.get("blob")
    else:
        return None
    try:
        decoded = base64.b64decode(data, validate=True) if isinstance(data, str) else None
    except (binascii.Error, ValueError):
        return None
    if decoded is None:
        return None
    return _Attachment(kind=kind, media_type=str(media_type or "application/octet-stream"), data=decoded)


def _save(attachment: _Attachment, tool: str, folder: Path) -> Path:
    """Write a new file, with the permissions of the umask; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    name = _UNSAFE.sub("-", tool).strip("-")[:_NAME_LIMIT] or "tool"
    ending = _ENDINGS.get(attachment.media_type.partition(";")[0].strip().lower(), "bin")
    for number in range(1, _NUMBERS_TRIED):
        path = folder / f"{name}-{number}.{ending}"
        try:
            # O_EXCL fails for an existing name, even for a dangling symbolic link.
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        except FileExistsError:
            continue
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(attachment.data)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path
    raise FileExistsError(f"there are {_NUMBERS_TRIED - 1:,} files called {name}-….{ending}")


def _format_link(block: Json) -> str:
    name, uri = block.get("title") or block.get("name"), _shorten(str(block.get("uri")))
    media_type = f" ({_shorten(str(block['mimeType']))})" if block.get("mimeType") else ""
    return f"{_shorten(str(name))} {uri}{media_type}" if name else f"{uri}{media_type}"


def _shorten(text: str) -> str:
    """Limit text of a server to one line of `_SHOWN_LIMIT` characters."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_LIMIT else f"{line[:_SHOWN_LIMIT]}…"
