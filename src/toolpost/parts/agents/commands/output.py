"""Prints turns: as growing Markdown on a terminal, as plain text in a pipe, as one JSON event per line for programs."""

import json
import re
import sys
from typing import Final, Protocol, TextIO

import click
import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.markdown import Markdown
from rich.spinner import Spinner
from rich.text import Text

from toolpost.base import Json, JsonObject
from toolpost.parts.agents.turn_events import (
    SessionReady,
    TextChunk,
    ThoughtChunk,
    ToolUsed,
    TurnEnded,
    TurnEvent,
    encode_event,
)
from toolpost.terminal import printable, show_error

DETAIL_LENGTH: Final = 300
"""Characters that are printed of a tool's arguments, and of its result."""

STDERR_LINES: Final = 10
"""How many lines of an agent's stderr are printed if it ends."""

_FENCE: Final = re.compile(r"^ {0,3}(```|~~~)", re.MULTILINE)
_MARKS: Final = {"running": ("▸", "cyan"), "done": ("✓", "green"), "failed": ("✗", "red")}


class TurnView(Protocol):
    """Prints the events of turns: `begin`, `show` for each event, `end`."""

    def begin(self) -> None:
        """Prepare for a turn, before its first event."""
        ...

    def show(self, event: TurnEvent) -> None:
        """Print an event."""
        ...

    def end(self) -> None:
        """Complete the output; called even if the turn has failed, and may be called twice."""
        ...


class JsonView:
    """Prints events as JSON, one per line."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def begin(self) -> None:
        """Do nothing."""

    def show(self, event: TurnEvent) -> None:
        self._out.write(printable(encode_event(event).decode()) + "\n")
        self._out.flush()

    def end(self) -> None:
        """Do nothing."""


class PlainView:
    """Prints the answer to stdout, and tool calls to stderr unless `quiet`."""

    def __init__(self, out: TextIO, *, quiet: bool = False) -> None:
        self._out = out
        self._quiet = quiet
        self._last = "\n"

    def begin(self) -> None:
        """Do nothing."""

    def show(self, event: TurnEvent) -> None:
        if isinstance(event, TextChunk) and event.text:
            self._out.write(printable(event.text))
            self._out.flush()
            self._last = event.text
        elif isinstance(event, ToolUsed) and not self._quiet:
            click.echo(printable(f"tool: {event.tool} {event.state}{_render_details(event)}"), err=True)
        elif isinstance(event, TurnEnded):
            self.end()
            show_ending(event)

    def end(self) -> None:
        """Complete the last line."""
        if not self._last.endswith("\n"):
            self._out.write("\n")
            self._out.flush()
        self._last = "\n"


class TerminalView:
    """Prints growing Markdown and tool calls.

    What is complete is printed once and scrolls up. What still changes (the last block, running tools) is redrawn below it.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self._text = ""
        self._tools: dict[str, ToolUsed] = {}
        self._note = ""
        self._live: Live | None = None
        self._spinner = Spinner("dots")

    def begin(self) -> None:
        """Show a spinner until the first event."""
        self._text, self._note, self._tools = "", "", {}
        self._live = Live(
            console=self.console, refresh_per_second=12, transient=True, get_renderable=self._render_changing
        )
        self._live.start()

    def show(self, event: TurnEvent) -> None:
        if isinstance(event, TextChunk):
            self._note = ""
            self._text += event.text
            self._print_finished()
        elif isinstance(event, ThoughtChunk):
            self._note = f"{self._note}{event.text}".replace("\n", " ")[-200:]
        elif isinstance(event, SessionReady) and event.replayed:
            self._note = f"the agent was given {event.replayed} earlier messages"
        elif isinstance(event, ToolUsed):
            self._show_tool(event)
        elif isinstance(event, TurnEnded):
            self.end()
            show_ending(event)

    def end(self) -> None:
        """Print the rest, and stop redrawing."""
        if self._live is None:
            return
        live, text, tools = self._live, self._text, list(self._tools.values())
        self._text, self._note, self._tools, self._live = "", "", {}, None
        live.stop()
        for tool in tools:
            self.console.print(_render_tool(tool))
        if text.strip():
            self.console.print(_render_markdown(text))

    def recall(self, message: JsonObject) -> None:
        """Print an earlier answer, after its tool calls."""
        details = message.get("details") or {}
        for used in details.get("tools", ()):
            self.console.print(_render_tool(msgspec.convert({"id": "", **used}, ToolUsed)))
        if message["text"]:
            self.console.print(_render_markdown(str(message["text"])))
        if "state" in details:
            click.echo(printable(f"({details['state']})"), err=True)

    def _show_tool(self, event: ToolUsed) -> None:
        known = self._tools.get(event.id)
        if known is not None and event.arguments is None:
            event = ToolUsed(
                id=event.id,
                tool=event.tool or known.tool,
                state=event.state,
                arguments=known.arguments,
                result=event.result,
            )
        if event.state == "running":
            self._tools[event.id] = event
            return
        # Text from before the tool call stays above it.
        before, self._text = self._text, ""
        self._tools.pop(event.id, None)
        self._refresh()
        if before.strip():
            self.console.print(_render_markdown(before))
        self.console.print(_render_tool(event))

    def _refresh(self) -> None:
        """Redraw without the text that is about to be printed above."""
        if self._live is not None:
            self._live.refresh()

    def _print_finished(self) -> None:
        """Print complete blocks, since the part that is redrawn must fit on the screen."""
        cut = find_finished(self._text)
        if cut:
            done, self._text = self._text[:cut], self._text[cut:]
            self._refresh()
            self.console.print(_render_markdown(done))

    def _render_changing(self) -> Group:
        parts: list[Text | Markdown | Spinner] = []
        if self._text.strip():
            parts.append(_render_markdown(self._text))
        parts += [_render_tool(tool) for tool in self._tools.values()]
        self._spinner.update(text=Text(printable(self._note), style="dim", overflow="ellipsis", no_wrap=True))
        parts.append(self._spinner)
        return Group(*parts)


def find_finished(text: str) -> int:
    """Return the end of the last complete Markdown block, an empty line outside of fenced code; 0 if there is none."""
    cut = text.rfind("\n\n")
    while cut > 0 and len(_FENCE.findall(text[:cut])) % 2:
        cut = text.rfind("\n\n", 0, cut)
    return cut + 2 if cut > 0 else 0


def show_ending(ended: TurnEnded) -> None:
    """Print to stderr how a turn ended if it did not end normally."""
    if ended.state == "failed":
        error = ended.error or {}
        show_error(str(error.get("message", "the agent failed")), error.get("hint"))
        for line in str(error.get("stderr") or "").splitlines()[-STDERR_LINES:]:
            click.echo(f"  {printable(line)}", err=True)
    elif ended.state in ("cancelled", "interrupted"):
        click.echo(f"({ended.state}; the thread is kept)", err=True)
    elif ended.reason == "limit":
        click.echo("(the agent stopped at its limit for one turn)", err=True)
    elif ended.reason == "refused":
        click.echo("(the agent refused to answer)", err=True)


def _render_markdown(text: str) -> Markdown:
    # Without hyperlinks, the URL is visible: the text of a link in untrusted output may hide where it leads.
    return Markdown(printable(text), hyperlinks=False)


def _render_tool(event: ToolUsed) -> Text:
    mark, color = _MARKS[event.state]
    text = Text(f"{mark} ", style=color)
    text.append(printable(event.tool), style="bold")
    text.append(_render_details(event), style="dim")
    return text


def _render_details(event: ToolUsed) -> str:
    arguments = f" {_shorten(event.arguments)}" if event.arguments else ""
    return f"{arguments} → {_shorten(event.result)}" if event.result else arguments


def _shorten(value: Json) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = printable(" ".join(text.split()))
    return text if len(text) <= DETAIL_LENGTH else f"{text[: DETAIL_LENGTH - 1]}…"


def view_for(out: TextIO, *, as_json: bool, quiet: bool) -> TurnView:
    """Return the view for a stream: JSON if asked for, else by whether it is a terminal."""
    if as_json:
        return JsonView(out)
    if out.isatty():
        return TerminalView(Console(file=out))
    return PlainView(out, quiet=quiet or not sys.stderr)
