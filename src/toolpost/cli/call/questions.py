"""Questions of a tool to the person at the terminal: forms and addresses (MCP's elicitation).

Questions are printed to stderr and answered on stdin, a line for each field, so that the answer of the call can still be piped.
Ctrl-D declines, Ctrl-C cancels the call. Where stdin or stderr is no terminal, `open_terminal_channel` returns None, and the
tool is told that there is no client to ask.
"""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

import anyio
import click
import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.cli.call.schemas import describe_type
from toolpost.contracts.issues import find_issues_quickly
from toolpost.contracts.schema import Schema, SchemaProblem, compile_schema
from toolpost.terminal.text import printable, style_stderr
from toolpost.upstreams.server_requests import ELICITATION
from toolpost.upstreams.transport import ServerRefused, encode

NO_TERMINAL: Final = "run it at a terminal, or use a client that declares the capability `elicitation`"
"""What to do where a tool asks and there is no terminal."""

_METHOD_NOT_FOUND: Final = -32601
_INVALID_PARAMS: Final = -32602
_LINE_BYTES: Final = 65_536
_SHOWN_LIMIT: Final = 2_000
_YES_NO: Final = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}

Pause = Callable[[], AbstractContextManager[None]]


class _Declined(Exception):
    """The person pressed Ctrl-D."""


def open_terminal_channel(tool: str, pause: Pause) -> "TerminalChannel | None":
    """Return a channel to the person at the terminal, None without one. `pause` hides the progress while a question is open."""
    # On Windows the input of a terminal cannot be waited for together with Ctrl-C.
    if sys.platform == "win32" or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    return TerminalChannel(tool, pause)


class TerminalChannel:
    """A `ClientChannel` whose client is the person at the terminal. Questions are asked one after another."""

    client = "terminal"
    capabilities: JsonObject = {"elicitation": {"form": {}, "url": {}}}  # noqa: RUF012 (never changed)
    log_level: str | None = None
    takes_input_required = False
    can_tell = False

    def __init__(self, tool: str, pause: Pause) -> None:
        self._tool = tool
        self._pause = pause
        self._asking = anyio.Lock()

    @property
    def has_open_request(self) -> bool:
        return self._asking.locked()

    def wants_log(self, level: str) -> bool:  # noqa: ARG002 (as `ClientChannel` has it)
        return False

    def tell(self, method: str, params: bytes) -> None:
        """Drop a notification: progress has a way of its own, and of other notifications nothing is shown."""

    async def ask(self, method: str, params: bytes, *, key: str | None = None) -> bytes:  # noqa: ARG002 (only rounds name requests)
        """Ask the person, and return the result of the elicitation; raises `ServerRefused` for what cannot be asked."""
        if method != ELICITATION:
            raise ServerRefused(_METHOD_NOT_FOUND, f"The command line does not answer {method}")
        request: Json = msgspec.json.decode(params)
        async with self._asking:
            with self._pause():
                try:
                    return encode(await self._ask(request))
                except _Declined:
                    return encode({"action": "decline"})

    async def _ask(self, request: JsonObject) -> JsonObject:
        _show(style_stderr(f"{self._tool} asks:", "cyan", bold=True) + f" {_shorten(request.get('message'))}")
        if request.get("mode") == "url":
            _show(f"  {_shorten(request.get('url'))}")
            await _read_line("open this address in a browser, then press Enter (Ctrl-D declines): ")
            return {"action": "accept"}
        fields = _read_form(request.get("requestedSchema"))
        if not fields:
            while (is_accepted := _YES_NO.get((await _read_line("accept? (y, n): ")).strip().lower())) is None:
                _show("  answer y or n")
            return {"action": "accept", "content": {}} if is_accepted else {"action": "decline"}
        _show("(Ctrl-D declines)")
        content: JsonObject = {}
        for field in fields:
            if (value := await field.ask()) is not None:
                content[field.name] = value
        return {"action": "accept", "content": content}


class _Field:
    """One field of a form: text, a number, a boolean, a choice or a list of choices."""

    def __init__(self, name: str, schema: JsonObject, *, is_required: bool) -> None:
        self.name = name
        self._raw = schema
        self._schema: Schema = compile_schema({"type": "object", "properties": {name: schema}}, root_object=True)
        self._is_required = is_required
        self._is_list = schema.get("type") == "array"
        self._choices = _choices_of(schema.get("items") if self._is_list else schema)

    async def ask(self) -> Json:
        """Return the value that was typed or the default; None if an optional field was left empty."""
        described = self._raw.get("description") or self._raw.get("title")
        if described and described != self.name:
            _show(f"  {_shorten(described)}")
        question = f"{printable(self.name)} ({self._describe_kind()}){self._describe_default()}: "
        while True:
            if text := (await _read_line(question)).strip():
                value = self._parse(text)
                if not (problems := self._find_problems(value)):
                    return value
                _show(f"  {_shorten('; '.join(problems))}")
            elif (default := self._raw.get("default")) is not None:
                return default
            elif not self._is_required:
                return None
            else:
                _show("  it is required")

    def _describe_kind(self) -> str:
        if self._choices:
            names = [value if title == value else f"{value} = {title}" for value, title in self._choices]
            return _shorten(("some of " if self._is_list else "") + ", ".join(names))
        if self._raw.get("type") == "boolean":
            return "y, n"
        kind = describe_type(self._raw, {}).replace("string", "text")
        form = self._raw.get("format")
        return _shorten(f"{kind}, {form}" if form else kind)

    def _describe_default(self) -> str:
        default = self._raw.get("default")
        if default is None:
            return "" if self._is_required else " [none]"
        if isinstance(default, bool):
            return " [y]" if default else " [n]"
        shown = ", ".join(map(str, default)) if isinstance(default, list) else str(default)
        return f" [{_shorten(shown) or 'none'}]"

    def _parse(self, text: str) -> Json:
        if self._is_list:
            return [self._find_choice(part.strip()) for part in text.split(",") if part.strip()]
        if self._choices:
            return self._find_choice(text)
        kind = self._raw.get("type")
        if kind == "boolean":
            return _YES_NO.get(text.lower(), text)
        if kind in ("integer", "number"):
            try:
                return msgspec.json.decode(text, type=int | float)
            except msgspec.DecodeError:
                return text
        return text

    def _find_choice(self, text: str) -> str:
        """Return the value of a choice, which may be given by its title."""
        return next((value for value, title in self._choices if text in (value, title)), text)

    def _find_problems(self, value: Json) -> Sequence[str]:
        if self._raw.get("type") == "boolean":
            return () if isinstance(value, bool) else ("answer y or n",)
        given = {self.name: value}
        issues = find_issues_quickly(self._schema, given, len(encode(given)))
        # None: the schema is not provably cheap. The server compares the answer with it, too.
        return [issue.message for issue in issues or ()]


def _read_form(schema: Json) -> list[_Field]:
    if not isinstance(schema, dict) or not isinstance(properties := schema.get("properties", {}), dict):
        raise ServerRefused(_INVALID_PARAMS, "The form has no fields that can be asked for")
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    try:
        return [
            _Field(name, field if isinstance(field, dict) else {}, is_required=name in names)
            for name, field in properties.items()
        ]
    except SchemaProblem as problem:
        raise ServerRefused(_INVALID_PARAMS, f"The form cannot be asked for: {problem.reason}") from problem


def _choices_of(schema: Json) -> list[tuple[str, str]]:
    """Return the values of a choice with their titles; empty if any value will do."""
    if not isinstance(schema, dict):
        return []
    if isinstance(values := schema.get("enum"), list):
        titles = schema.get("enumNames")
        titles = titles if isinstance(titles, list) and len(titles) == len(values) else values
        return [(str(value), str(title)) for value, title in zip(values, titles, strict=True)]
    options = schema.get("oneOf") or schema.get("anyOf")
    return [
        (str(option["const"]), str(option.get("title") or option["const"]))
        for option in (options if isinstance(options, list) else ())
        if isinstance(option, dict) and "const" in option
    ]


async def _read_line(question: str) -> str:
    """Return the next line of the terminal; raises `_Declined` at its end (Ctrl-D)."""
    click.echo(question, err=True, nl=False)
    descriptor = sys.stdin.fileno()
    # Not in a thread: one that waits for a line cannot be ended when the call is cancelled.
    await anyio.wait_readable(descriptor)
    line = os.read(descriptor, _LINE_BYTES)
    if not line.endswith(b"\n"):
        click.echo(err=True)
    if not line:
        raise _Declined
    return line.decode("utf-8", "replace").rstrip("\n")


def _show(text: str) -> None:
    click.echo(text, err=True)


def _shorten(text: Json) -> str:
    shown = " ".join(str(text or "").split())
    return printable(shown if len(shown) <= _SHOWN_LIMIT else f"{shown[:_SHOWN_LIMIT]}…")
