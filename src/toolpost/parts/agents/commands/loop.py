"""The interactive chat: each line is a message or a command; Ctrl-C cancels an answer and keeps the thread."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import click

from toolpost import CapabilityMissing, NotFound, ToolpostError
from toolpost.base import JsonObject, nearest_name
from toolpost.parts.agents.commands.client import ChatClient
from toolpost.parts.agents.commands.output import TerminalView, TurnView
from toolpost.parts.agents.turn_events import TurnEnded, TurnStarted
from toolpost.settings import CONFIG_NAME
from toolpost.terminal import ExitCode, printable, show_failure

RECALLED: Final = 6
"""How many messages are printed when a conversation is resumed."""

EXAMPLE: Final = """\
[agents.claude]                     # Claude Code, as it is logged in on this machine
kind = "claude"

[agents.gemini]                     # or any program that implements the Agent Client Protocol
command = "gemini"
args = ["--experimental-acp"]
"""

COMMANDS: Final = {
    "/threads": "list your conversations",
    "/resume ID": "continue one, by its number in the list or the beginning of its id",
    "/new": "start another",
    "/agent NAME": "have another agent answer from now on",
    "//…": "send a message that begins with /; a plugin may answer it",
    "/help": "show this",
    "/quit": "end the chat; so does Ctrl-D",
}


class Chat:
    """A chat in one thread at a time."""

    def __init__(self, client: ChatClient, view: TurnView, *, agent: str | None = None) -> None:
        self.client = client
        self.view = view
        self.agent = agent
        self.thread: str | None = None
        """None until the first message is sent."""
        self.turn: str | None = None
        """The turn in progress; None until it has started."""
        self.listed: list[JsonObject] = []
        """The threads as last listed, for `/resume NUMBER`."""

    def switch_thread(self, reference: str | None) -> JsonObject | None:
        """Continue a thread, by its id, the beginning of it, its number in the list, or `last`; None starts another."""
        if reference is None:
            self.thread = None
            return None
        found = self._find_thread(reference)
        self.thread = str(found["id"])
        self.client.prewarm(self.thread)
        return found

    def _find_thread(self, reference: str) -> JsonObject:
        if reference.isdigit() and 0 < int(reference) <= len(self.listed):
            return self.listed[int(reference) - 1]
        latest = self.client.list_threads(200)
        if reference == "last" and latest:
            return latest[0]
        matches = [thread for thread in latest if str(thread["id"]).startswith(reference)]
        if len(matches) == 1:
            return matches[0]
        if len(matches) > 1:
            raise NotFound(f"{len(matches)} threads begin with `{reference}`.", hint="type more of the id")
        return self.client.find_thread(reference)

    def ask(self, text: str) -> ExitCode:
        """Send a message and show its turn; returns the exit code for its end. The first message creates the thread."""
        is_new = self.thread is None
        if self.thread is None:
            self.thread = str(self.client.create_thread(self.agent)["id"])
        thread, ended, self.turn = self.thread, None, None
        with _cancel_on_interrupt(lambda: self.client.cancel(thread, self.turn)), _suppress_echo():
            self.view.begin()
            try:
                for event in self.client.send_message(thread, text, self.agent):
                    self.view.show(event)
                    self.turn = event.turn if isinstance(event, TurnStarted) else self.turn
                    ended = event if isinstance(event, TurnEnded) else None
            except CapabilityMissing:
                # There is no agent: a thread that was created for this message would stay empty.
                if is_new:
                    self.client.delete_thread(thread)
                    self.thread = None
                raise
            finally:
                self.view.end()
        if ended is None or ended.state in ("cancelled", "interrupted"):
            return ExitCode.CANCELLED
        if ended.state == "failed":
            return ExitCode.of(str((ended.error or {}).get("code", "INTERNAL")))
        return ExitCode.OK


@contextmanager
def _cancel_on_interrupt(cancel: Callable[[], None]) -> Iterator[None]:
    """Call `cancel` on the first Ctrl-C; a second one ends the chat, in case the gateway does not respond."""

    def interrupt(*_: Any) -> None:
        cancel()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def run_loop(chat: Chat) -> ExitCode:
    """Read and handle lines until the end of input or `/quit`."""
    with suppress(ImportError):
        import readline  # noqa: F401 (input() edits lines once it is loaded)
    # A script that starts this in the background has SIGINT ignored; in a terminal, Ctrl-C has to work.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _print_greeting(chat)
    while (line := _read_line()) is not None:
        if not line:
            continue
        try:
            if not line.startswith("/") or line.startswith("//"):
                chat.ask(line.removeprefix("/") if line.startswith("//") else line)
            elif not _run_command(chat, line):
                break
        except ToolpostError as error:
            show_failure(error, debug=False)
    if chat.thread is not None:
        click.echo(f"to continue: toolpost chat --thread {chat.thread}", err=True)
    return ExitCode.OK


def _print_greeting(chat: Chat) -> None:
    agents = chat.client.list_agents()
    agent = chat.agent or next((a["name"] for a in agents if a.get("isDefault")), None)
    who = f"{agent} answers" if agent else "no agent is configured"
    click.echo(printable(f"{who} at {chat.client.gateway.url}; /help lists commands, Ctrl-D ends the chat"), err=True)
    if not agents:
        explain_agents()
    if chat.thread is not None:
        _print_recent(chat, chat.client.find_thread(chat.thread))


def _read_line() -> str | None:
    """Read a line, and further ones while they end with a backslash; empty on Ctrl-C, None on Ctrl-D."""
    lines: list[str] = []
    while True:
        try:
            line = input("… " if lines else "> ")
        except KeyboardInterrupt:
            click.echo()
            return ""
        except EOFError:
            click.echo()
            return None
        lines.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            return "\n".join(lines).strip()


def _run_command(chat: Chat, line: str) -> bool:
    """Run a `/` command; returns False if it ends the chat."""
    word, _, rest = line.partition(" ")
    rest = rest.strip()
    if word in ("/quit", "/exit"):
        return False
    if word == "/threads":
        _print_threads(chat)
    elif word == "/resume" and rest:
        found = chat.switch_thread(rest)
        assert found is not None
        _print_recent(chat, found)
    elif word == "/new":
        chat.switch_thread(None)
        click.echo("a new conversation", err=True)
    elif word == "/agent" and rest:
        _change_agent(chat, rest)
    else:
        _print_help(word)
    return True


def _change_agent(chat: Chat, name: str) -> None:
    names = [str(agent["name"]) for agent in chat.client.list_agents()]
    if name not in names:
        raise NotFound(f"Unknown agent `{name}`.", hint=f"known: {', '.join(names) or 'none'}")
    chat.agent = name
    click.echo(printable(f"{name} answers from now on"), err=True)


def _print_help(word: str) -> None:
    names = [name.partition(" ")[0] for name in COMMANDS]
    if word not in names and (near := nearest_name(word, names)):
        click.echo(f"there is no {printable(word)}; did you mean {near}?", err=True)
    for name, meaning in COMMANDS.items():
        click.echo(f"  {name:<12} {meaning}", err=True)


def _print_threads(chat: Chat) -> None:
    chat.listed = chat.client.list_threads()
    for number, thread in enumerate(chat.listed, 1):
        mark = "*" if thread["id"] == chat.thread else " "
        title = printable(str(thread["title"])) or "(no messages yet)"
        when = str(thread["changedAt"])[:16].replace("T", " ")
        click.echo(f"{mark}{number:>3}  {thread['id']}  {when}  {title}")
    if not chat.listed:
        click.echo("there are no conversations yet", err=True)


def _print_recent(chat: Chat, thread: JsonObject) -> None:
    """Print the last messages of a thread."""
    last = int(thread["messages"])
    title = printable(str(thread["title"]))
    click.echo(f"continuing {thread['id']}: {title} ({last} messages)", err=True)
    for message in chat.client.list_messages(str(thread["id"]), after=max(0, last - RECALLED)):
        if message["role"] == "user":
            click.echo(f"> {printable(str(message['text']))}")
        elif isinstance(chat.view, TerminalView):
            chat.view.recall(message)


@contextmanager
def _suppress_echo() -> Iterator[None]:
    """Turn off the terminal's echo while something is drawn; what is typed stays readable on stdin."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin)
    changed = [*before]
    changed[3] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def explain_agents() -> None:
    """Print an example of the configuration, and the next steps, to stderr."""
    indented = "".join(f"    {line}" if line.strip() else line for line in EXAMPLE.splitlines(keepends=True))
    click.echo(
        f"\nAdd one to the gateway's {CONFIG_NAME}:\n\n{indented}\n"
        "Both need the extra `agents`: pip install 'toolpost[agents]' adds it to an installation.\n"
        "`toolpost doctor` tries each agent. Restart a gateway that runs already, to have it use the agent.",
        err=True,
    )
