"""What a turn looks like: markdown as it grows on a terminal, plain text in a pipe, one event a line for programs."""

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

from toolpost.base.ids import Json, JsonObject
from toolpost.base.turns import SessionReady, TextChunk, ThoughtChunk, ToolUsed, TurnEnded, TurnEvent, encode_event
from toolpost.cli.failures import show_error
from toolpost.cli.terminal import printable

SHOWN: Final = 300
"""How much of a tool's arguments and results is shown, in characters."""

LAST_WORDS: Final = 10
"""How many lines are shown of what an agent said on stderr before it was gone."""

_FENCE: Final = re.compile(r"^ {0,3}(```|~~~)", re.MULTILINE)
_MARKS: Final = {"running": ("▸", "cyan"), "done": ("✓", "green"), "failed": ("✗", "red")}


class TurnView(Protocol):
    """Whatever shows turns."""

    def begin(self) -> None:
        """Show that an answer is awaited."""
        ...

    def show(self, event: TurnEvent) -> None:
        """Show what happens."""
        ...

    def end(self) -> None:
        """Let go of the screen, whatever has happened."""
        ...


class JsonView:
    """Events as they are sent, one a line."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def begin(self) -> None:
        """Show nothing."""

    def show(self, event: TurnEvent) -> None:
        """Write the event."""
        self._out.write(printable(encode_event(event).decode()) + "\n")
        self._out.flush()

    def end(self) -> None:
        """Show nothing."""


class PlainView:
    """The answer on stdout and nothing else there; tools on stderr."""

    def __init__(self, out: TextIO, *, quiet: bool = False) -> None:
        self._out = out
        self._quiet = quiet
        self._last = "\n"

    def begin(self) -> None:
        """Show nothing."""

    def show(self, event: TurnEvent) -> None:
        """Write what is said."""
        if isinstance(event, TextChunk) and event.text:
            self._out.write(printable(event.text))
            self._out.flush()
            self._last = event.text
        elif isinstance(event, ToolUsed) and not self._quiet:
            click.echo(printable(f"tool: {event.tool} {event.state}{_details(event)}"), err=True)
        elif isinstance(event, TurnEnded):
            self.end()
            show_ending(event)

    def end(self) -> None:
        """End the line."""
        if not self._last.endswith("\n"):
            self._out.write("\n")
            self._out.flush()
        self._last = "\n"


class TerminalView:
    """Markdown that grows, and tools as they run. What is finished is printed; what still changes is drawn below it."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self._text = ""
        self._tools: dict[str, ToolUsed] = {}
        self._note = ""
        self._live: Live | None = None
        self._spinner = Spinner("dots")

    def begin(self) -> None:
        """Show that somebody is at work."""
        self._text, self._note, self._tools = "", "", {}
        self._live = Live(console=self.console, refresh_per_second=12, transient=True, get_renderable=self._growing)
        self._live.start()

    def show(self, event: TurnEvent) -> None:
        """Show what happens."""
        if isinstance(event, TextChunk):
            self._note = ""
            self._text += event.text
            self._print_finished()
        elif isinstance(event, ThoughtChunk):
            self._note = f"{self._note}{event.text}".replace("\n", " ")[-200:]
        elif isinstance(event, SessionReady) and event.told:
            self._note = f"the agent was told {event.told} earlier messages"
        elif isinstance(event, ToolUsed):
            self._show_tool(event)
        elif isinstance(event, TurnEnded):
            self.end()
            show_ending(event)

    def end(self) -> None:
        """Print what is left, and let go of the screen."""
        if self._live is None:
            return
        live, text, tools = self._live, self._text, list(self._tools.values())
        self._text, self._note, self._tools, self._live = "", "", {}, None
        live.stop()
        for tool in tools:
            self.console.print(_tool_text(tool))
        if text.strip():
            self.console.print(_markdown(text))

    def recall(self, message: JsonObject) -> None:
        """Show an answer that was given before, after what was used for it."""
        details = message.get("details") or {}
        for used in details.get("tools", ()):
            self.console.print(_tool_text(msgspec.convert({"id": "", **used}, ToolUsed)))
        if message["text"]:
            self.console.print(_markdown(str(message["text"])))
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
        # What was said before the tool stays above it.
        before, self._text = self._text, ""
        self._tools.pop(event.id, None)
        self._refresh()
        if before.strip():
            self.console.print(_markdown(before))
        self.console.print(_tool_text(event))

    def _refresh(self) -> None:
        """Draw what still changes without what is about to be printed above it."""
        if self._live is not None:
            self._live.refresh()

    def _print_finished(self) -> None:
        """Print whole blocks for good: a screen that is redrawn can hold no more than the screen."""
        cut = finished(self._text)
        if cut:
            done, self._text = self._text[:cut], self._text[cut:]
            self._refresh()
            self.console.print(_markdown(done))

    def _growing(self) -> Group:
        parts: list[Text | Markdown | Spinner] = []
        if self._text.strip():
            parts.append(_markdown(self._text))
        parts += [_tool_text(tool) for tool in self._tools.values()]
        self._spinner.update(text=Text(printable(self._note), style="dim", overflow="ellipsis", no_wrap=True))
        parts.append(self._spinner)
        return Group(*parts)


def finished(text: str) -> int:
    """Return where the last block ends that nothing can change any more: at an empty line outside of code."""
    cut = text.rfind("\n\n")
    while cut > 0 and len(_FENCE.findall(text[:cut])) % 2:
        cut = text.rfind("\n\n", 0, cut)
    return cut + 2 if cut > 0 else 0


def show_ending(ended: TurnEnded) -> None:
    """Say on stderr what became of a turn that was not simply answered."""
    if ended.state == "failed":
        error = ended.error or {}
        show_error(str(error.get("message", "the agent failed")), error.get("hint"))
        for line in str(error.get("stderr") or "").splitlines()[-LAST_WORDS:]:
            click.echo(f"  {printable(line)}", err=True)
    elif ended.state in ("cancelled", "interrupted"):
        click.echo(f"({ended.state}; the thread is kept)", err=True)
    elif ended.reason == "limit":
        click.echo("(the agent has said all that it may in one turn)", err=True)
    elif ended.reason == "refused":
        click.echo("(the agent would not answer that)", err=True)


def _markdown(text: str) -> Markdown:
    # Links are shown with their address: a text that hides where it leads is not for untrusted words.
    return Markdown(printable(text), hyperlinks=False)


def _tool_text(event: ToolUsed) -> Text:
    mark, colour = _MARKS[event.state]
    text = Text(f"{mark} ", style=colour)
    text.append(printable(event.tool), style="bold")
    text.append(_details(event), style="dim")
    return text


def _details(event: ToolUsed) -> str:
    given = f" {_short(event.arguments)}" if event.arguments else ""
    return f"{given} → {_short(event.result)}" if event.result else given


def _short(value: Json) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = printable(" ".join(text.split()))
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def view_for(out: TextIO, *, as_json: bool, quiet: bool) -> TurnView:
    """Choose how turns are shown."""
    if as_json:
        return JsonView(out)
    if out.isatty():
        return TerminalView(Console(file=out))
    return PlainView(out, quiet=quiet or not sys.stderr)
