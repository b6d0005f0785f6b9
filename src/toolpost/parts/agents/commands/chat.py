"""`toolpost chat`: a conversation with an agent, in a terminal or in a pipe."""

import os
import stat
import sys
from pathlib import Path
from typing import Any

import click

from toolpost import CapabilityMissing
from toolpost.parts.agents.commands.client import ChatClient
from toolpost.parts.agents.commands.gateway import open_gateway
from toolpost.parts.agents.commands.loop import Chat, explain_agents, run_loop
from toolpost.parts.agents.commands.output import view_for
from toolpost.parts.agents.commands.schedules import schedules
from toolpost.terminal import (
    ExitCode,
    SuggestingGroup,
    config_option,
    examples,
    json_option,
    load_cli_config,
    plugin_option,
    show_failure,
    url_option,
)


class ChatGroup(SuggestingGroup):
    """`toolpost chat QUESTION`; a command below it is meant where its name is the first argument."""

    allow_interspersed_args = True
    """Options may follow the question, unlike the name of a command."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = super().get_params(ctx)
        # The usage of a command below it has no question.
        return params if ctx.command is self else [one for one in params if isinstance(one, click.Option)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in self.commands:
            ctx.args = args
            return args
        click.Command.parse_args(self, ctx, args)
        if (question := ctx.params["question"]) in self.commands and "--" not in args:
            raise click.UsageError(f"`{question}` comes before its options; `-- {question}` asks that question", ctx)
        return ctx.args

    def invoke(self, ctx: click.Context) -> Any:
        if not ctx.args:
            return click.Command.invoke(self, ctx)
        name, *args = ctx.args
        with self.commands[name].make_context(name, args, parent=ctx) as inner:
            return inner.command.invoke(inner)


@click.group(
    cls=ChatGroup,
    invoke_without_command=True,
    subcommand_metavar="| COMMAND [ARGS]...",
    epilog=examples(
        ("toolpost chat", "chat in the terminal; /help lists commands"),
        ('toolpost chat "what time is it in Tokyo?"', "one question, one answer"),
        ('git diff | toolpost chat "what does this change?"', "add the output of another program"),
        ("toolpost chat --thread t-210dcfde", "continue a conversation"),
        ("toolpost chat schedules", "the prompts that agents have scheduled"),
        ('toolpost chat --json "…" | jq -r \'select(.type == "ended").text\'', "for other programs"),
    ),
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
@click.option("-q", "--quiet", is_flag=True, help="In a pipe, do not print tool calls to stderr.")
@json_option("Print each event of the answer, one JSON object per line.")
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
    """Talk to an agent, or list its schedules.

    Its tool calls pass the gateway. Ctrl-C cancels the answer and keeps the thread. If no gateway runs, one is opened for the
    time of the chat.
    """
    if url and here:
        raise click.UsageError("--url and --here cannot be used together")
    config, out = load_cli_config(config_path, plugins), sys.stdout
    text = _read_prompt(question)
    is_typed = text is None and out.isatty() and not as_json
    if text is None and not is_typed:
        raise click.UsageError("no prompt: give one as an argument, pipe one in, or run this in a terminal")
    with open_gateway(config, url, here=here or bool(plugins), is_typed=is_typed) as gateway:
        view = view_for(out, as_json=as_json, quiet=quiet)
        conversation = Chat(ChatClient(gateway=gateway), view, agent=agent)
        conversation.switch_thread(thread)
        return run_loop(conversation) if text is None else _ask_once(conversation, text)


chat.add_command(schedules)


def _ask_once(conversation: Chat, text: str) -> ExitCode:
    """Send one message; if it fails because there is no agent, explain how to add one. A plugin may answer without an agent."""
    try:
        code = conversation.ask(text)
    except CapabilityMissing as error:
        code = show_failure(error)
    if code is ExitCode.SETUP and not conversation.client.list_agents():
        explain_agents()
    return code


def _read_prompt(question: str | None) -> str | None:
    """Return the argument followed by piped input; None if there is neither."""
    piped = _read_piped_input()
    if question is None:
        return piped or None
    return f"{question}\n\n{piped}" if piped else question


def _read_piped_input() -> str:
    """Read stdin if it is a pipe or a file; a terminal, socket or closed stdin is not read, since it may never end."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return ""
    return sys.stdin.read().strip() if stat.S_ISFIFO(mode) or stat.S_ISREG(mode) else ""
