"""A chat as it is led: what was typed is said, or is a command; Ctrl-C cancels an answer, and keeps the thread."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import click

from toolpost.base.ids import JsonObject
from toolpost.base.nearest import nearest_name
from toolpost.base.turns import TurnEnded, TurnStarted
from toolpost.cli.exits import ExitCode, exit_code_of
from toolpost.cli.failures import show_failure
from toolpost.cli.terminal import printable, suppress_echo
from toolpost.contracts.errors import CapabilityMissing, NotFound, ToolpostError
from toolpost.parts.conversations.commands.agent_help import explain_agents
from toolpost.parts.conversations.commands.client import ChatClient
from toolpost.parts.conversations.commands.output import TerminalView, TurnView

RECALLED: Final = 6
"""How many messages are shown when a conversation is resumed."""

COMMANDS: Final = {
    "/threads": "list your conversations",
    "/resume ID": "go on with one; the beginning of its id is enough, or its number in the list",
    "/new": "begin another",
    "/agent NAME": "have somebody else answer from now on",
    "//…": "say what begins with /: a plugin may answer it",
    "/help": "show this",
    "/quit": "end; so does Ctrl-D",
}


class Chat:
    """One person in one thread at a time."""

    def __init__(self, client: ChatClient, view: TurnView, *, agent: str | None = None) -> None:
        self.client = client
        self.view = view
        self.agent = agent
        self.thread: str | None = None
        """None until something is said."""
        self.turn: str | None = None
        """The turn that is under way; None until it has begun."""
        self.listed: list[JsonObject] = []

    def choose(self, wanted: str | None) -> JsonObject | None:
        """Go on with a thread: by its id, the beginning of it, its number in the list, or `last`; None begins another."""
        if wanted is None:
            self.thread = None
            return None
        found = self._find(wanted)
        self.thread = str(found["id"])
        self.client.prewarm(self.thread)
        return found

    def _find(self, wanted: str) -> JsonObject:
        if wanted.isdigit() and 0 < int(wanted) <= len(self.listed):
            return self.listed[int(wanted) - 1]
        latest = self.client.threads(200)
        if wanted == "last" and latest:
            return latest[0]
        near = [thread for thread in latest if str(thread["id"]).startswith(wanted)]
        if len(near) == 1:
            return near[0]
        if len(near) > 1:
            raise NotFound(f"{len(near)} threads begin with `{wanted}`.", hint="type more of the id")
        return self.client.thread(wanted)

    def ask(self, text: str) -> ExitCode:
        """Say something and show what comes of it."""
        is_new = self.thread is None
        if self.thread is None:
            self.thread = str(self.client.create(self.agent)["id"])
        thread, ended, self.turn = self.thread, None, None
        with _interrupting(lambda: self.client.cancel(thread, self.turn)), suppress_echo():
            self.view.begin()
            try:
                for event in self.client.say(thread, text, self.agent):
                    self.view.show(event)
                    self.turn = event.turn if isinstance(event, TurnStarted) else self.turn
                    ended = event if isinstance(event, TurnEnded) else None
            except CapabilityMissing:
                # Nobody could be asked: a thread that was made for this message would stay empty.
                if is_new:
                    self.client.delete(thread)
                    self.thread = None
                raise
            finally:
                self.view.end()
        return _exit_code(ended)


def _exit_code(ended: TurnEnded | None) -> ExitCode:
    if ended is None or ended.state in ("cancelled", "interrupted"):
        return ExitCode.CANCELLED
    if ended.state == "failed":
        return exit_code_of(str((ended.error or {}).get("code", "INTERNAL")))
    return ExitCode.OK


@contextmanager
def _interrupting(react: Callable[[], None]) -> Iterator[None]:
    """Have the first Ctrl-C cancel the answer; the second ends the chat, should the gateway not react."""

    def interrupt(*_: Any) -> None:
        react()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def converse(chat: Chat) -> ExitCode:
    """Read what is typed until there is no more."""
    with suppress(ImportError):
        import readline  # noqa: F401 (input() edits lines once it is loaded)
    # Whoever started us in the background of a script has Ctrl-C ignored, but here is somebody who types.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _greet(chat)
    while (line := _typed()) is not None:
        if not line:
            continue
        try:
            if not line.startswith("/") or line.startswith("//"):
                chat.ask(line.removeprefix("/") if line.startswith("//") else line)
            elif not _obey(chat, line):
                break
        except ToolpostError as error:
            show_failure(error, debug=False)
    if chat.thread is not None:
        click.echo(f"to go on: toolpost chat --thread {chat.thread}", err=True)
    return ExitCode.OK


def _greet(chat: Chat) -> None:
    agents = chat.client.agents()
    answers = chat.agent or next((a["name"] for a in agents if a.get("isDefault")), None)
    who = f"{answers} answers" if answers else "no agent is configured"
    click.echo(printable(f"{who} at {chat.client.gateway.url}; /help lists commands, Ctrl-D ends it"), err=True)
    if not agents:
        explain_agents()
    if chat.thread is not None:
        _recall(chat, chat.client.thread(chat.thread))


def _typed() -> str | None:
    """Read a line; Ctrl-C drops what was typed, Ctrl-D ends. A backslash at the end of a line goes on in the next."""
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


def _obey(chat: Chat, line: str) -> bool:
    """Do what a command says; False ends the chat."""
    word, _, rest = line.partition(" ")
    rest = rest.strip()
    if word in ("/quit", "/exit"):
        return False
    if word == "/threads":
        _list(chat)
    elif word == "/resume" and rest:
        found = chat.choose(rest)
        assert found is not None
        _recall(chat, found)
    elif word == "/new":
        chat.choose(None)
        click.echo("a new conversation", err=True)
    elif word == "/agent" and rest:
        _change_agent(chat, rest)
    else:
        _help(word)
    return True


def _change_agent(chat: Chat, name: str) -> None:
    names = [str(agent["name"]) for agent in chat.client.agents()]
    if name not in names:
        raise NotFound(f"Unknown agent `{name}`.", hint=f"there are: {', '.join(names) or 'none'}")
    chat.agent = name
    click.echo(printable(f"{name} answers from now on"), err=True)


def _help(word: str) -> None:
    names = [name.partition(" ")[0] for name in COMMANDS]
    if word not in names and (near := nearest_name(word, names)):
        click.echo(f"there is no {printable(word)}; did you mean {near}?", err=True)
    for name, meaning in COMMANDS.items():
        click.echo(f"  {name:<12} {meaning}", err=True)


def _list(chat: Chat) -> None:
    chat.listed = chat.client.threads()
    for number, thread in enumerate(chat.listed, 1):
        mark = "*" if thread["id"] == chat.thread else " "
        title = printable(str(thread["title"])) or "(nothing said yet)"
        when = str(thread["changedAt"])[:16].replace("T", " ")
        click.echo(f"{mark}{number:>3}  {thread['id']}  {when}  {title}")
    if not chat.listed:
        click.echo("there are no conversations yet", err=True)


def _recall(chat: Chat, thread: JsonObject) -> None:
    """Show the end of what was said before."""
    last = int(thread["messages"])
    title = printable(str(thread["title"]))
    click.echo(f"going on with {thread['id']}: {title} ({last} messages)", err=True)
    for message in chat.client.messages(str(thread["id"]), after=max(0, last - RECALLED)):
        if message["role"] == "user":
            click.echo(f"> {printable(str(message['text']))}")
        elif isinstance(chat.view, TerminalView):
            chat.view.recall(message)
