"""`toolpost chat`: a conversation with an agent, typed or piped."""

import os
import stat
import sys
from pathlib import Path

import click

from toolpost.cli.examples import examples
from toolpost.cli.exits import ExitCode
from toolpost.cli.failures import show_failure
from toolpost.cli.options import config_option, configured, is_debugging, json_option, plugin_option, url_option
from toolpost.contracts.errors import CapabilityMissing
from toolpost.parts.conversations.commands.agent_help import explain_agents
from toolpost.parts.conversations.commands.client import ChatClient
from toolpost.parts.conversations.commands.gateway import open_gateway
from toolpost.parts.conversations.commands.loop import Chat, converse
from toolpost.parts.conversations.commands.output import view_for


@click.command(
    epilog=examples(
        ("toolpost chat", "talk; /help lists what else can be typed"),
        ('toolpost chat "what time is it in Tokyo?"', "one question, one answer"),
        ('git diff | toolpost chat "what does this change?"', "with what another program says"),
        ("toolpost chat --thread t-210dcfde", "go on with a conversation"),
        ('toolpost chat --json "…" | jq -r \'select(.type == "ended").text\'', "for other programs"),
    )
)
@click.argument("question", required=False)
@click.option("--thread", metavar="ID", help="Continue this conversation; `last` is the latest.")
@click.option(
    "--agent", metavar="NAME", help="The agent that answers (default: the thread's agent, else the configured one)."
)
@url_option
@click.option("--here", is_flag=True, help="Open a gateway for this chat alone, even if one runs.")
@config_option
@plugin_option
@click.option("-q", "--quiet", is_flag=True, help="In a pipe, do not tell of tools on stderr.")
@json_option("Print every event of the answer as it is sent, one object a line.")
def chat(
    question: str | None,
    thread: str | None,
    agent: str | None,
    url: str | None,
    config_path: Path | None,
    plugins: tuple[str, ...],
    *,
    here: bool,
    quiet: bool,
    as_json: bool,
) -> ExitCode:
    """Talk to an agent.

    Everything that it uses passes the gateway. Ctrl-C cancels the answer and keeps the thread. Without a gateway that runs, one
    is opened for as long as this lasts.
    """
    if url and here:
        raise click.UsageError("--url and --here cannot be used together")
    config, out = configured(config_path, plugins), sys.stdout
    text = _asked(question)
    is_typed = text is None and out.isatty() and not as_json
    if text is None and not is_typed:
        raise click.UsageError("no prompt: give one as an argument, pipe one in, or run this in a terminal")
    with open_gateway(config, url, here=here or bool(plugins), is_typed=is_typed) as gateway:
        view = view_for(out, as_json=as_json, quiet=quiet)
        talk = Chat(ChatClient(gateway=gateway), view, agent=agent)
        talk.choose(thread)
        return converse(talk) if text is None else _ask_once(talk, text)


def _ask_once(talk: Chat, text: str) -> ExitCode:
    """Ask, and explain how to add an agent where there is none: a plugin may answer instead, so it is asked first."""
    try:
        code = talk.ask(text)
    except CapabilityMissing as error:
        code = show_failure(error, debug=is_debugging())
    if code is ExitCode.SETUP and not talk.client.agents():
        explain_agents()
    return code


def _asked(question: str | None) -> str | None:
    """Put together what was typed and what was piped in; None if it is yet to be typed."""
    piped = _piped()
    if question is None:
        return piped or None
    return f"{question}\n\n{piped}" if piped else question


def _piped() -> str:
    """Read what another program or a file says; whatever else stdin is, nobody speaks there."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return ""
    return sys.stdin.read().strip() if stat.S_ISFIFO(mode) or stat.S_ISREG(mode) else ""
