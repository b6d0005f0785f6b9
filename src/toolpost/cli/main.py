"""The `toolpost` command and its table of sub-commands; installed parts add theirs."""

from typing import Final

import click

from toolpost.base.version import __version__
from toolpost.manifest import Command
from toolpost.terminal.epilog import examples
from toolpost.terminal.group import RootGroup, commands_of_parts

COMMANDS: Final = {
    "serve": Command("toolpost.cli.serve:serve", "Serve tools to MCP clients.", heading="Start"),
    "tools": Command("toolpost.cli.tools.command:tools", "List the tools, find some, or show one.", heading="Start"),
    "call": Command("toolpost.cli.call.command:call", "Call a tool.", heading="Start"),
    "new": Command(
        "toolpost.cli.new:new", "Create a project for a plugin: code, tests, lock, CI and packaging.", heading="Start"
    ),
    "import": Command(
        "toolpost.cli.clients.import_servers:import_servers",
        "Import MCP servers from Claude, Cursor or VS Code, or an API.",
        heading="Start",
    ),
    "install": Command(
        "toolpost.cli.clients.install:install",
        "Add Toolpost to the configuration of an MCP client, or remove it.",
        heading="Start",
    ),
    "lock": Command(
        "toolpost.cli.contracts.command:lock",
        "Write the definitions of all tools to toolpost.lock.",
        heading="Contracts",
    ),
    "check": Command(
        "toolpost.cli.contracts.check:check", "Compare every tool with toolpost.lock.", heading="Contracts"
    ),
    "diff": Command(
        "toolpost.cli.contracts.diff:diff", "Explain each change between two states of the tools.", heading="Contracts"
    ),
    "servers": Command(
        "toolpost.cli.servers.command:servers",
        "Show the servers behind the running gateway, or start, stop and restart one.",
        heading="Operate",
    ),
    "login": Command(
        "toolpost.cli.login.command:login",
        "Log in to a server behind the gateway that requires OAuth.",
        heading="Operate",
    ),
    "doctor": Command(
        "toolpost.cli.doctor.command:doctor",
        "Check every server, plugin, tool and agent, and the environment.",
        heading="Operate",
    ),
    "audit": Command(
        "toolpost.cli.audit.command:audit", "Show the record of calls, follow, verify or export it.", heading="Operate"
    ),
    **dict(sorted(commands_of_parts().items())),
    "auth": Command(
        "toolpost.cli.auth.group:auth", "Manage credentials, their key, tokens and sessions.", heading="More"
    ),
    "config": Command("toolpost.cli.config:config", "Show the configuration, or its JSON Schema.", heading="More"),
    "logs": Command(
        "toolpost.cli.logs.command:logs",
        "Show the logs of this project's gateways, and the stderr of their servers.",
        heading="More",
    ),
    "store": Command("toolpost.cli.store:store", "Show the store, or copy it to another database.", heading="More"),
    "completion": Command(
        "toolpost.cli.completion:completion", "Print the completion script of a shell.", heading=None
    ),
}
"""The commands, in the order of `toolpost --help`, by heading."""


@click.group(
    cls=RootGroup,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        ("toolpost serve", "serve on http://127.0.0.1:8420/mcp"),
        ("toolpost tools", "list all tools"),
        ("toolpost call time__current_time", "call a tool"),
        ("toolpost import", "import the MCP servers of your clients"),
        ("toolpost install claude-code", "add Toolpost to a client"),
    ),
)
@click.version_option(__version__, prog_name="toolpost")
@click.option("--debug", is_flag=True, envvar="TOOLPOST_DEBUG", help="Show tracebacks and every log event.")
def main(*, debug: bool) -> None:
    """One MCP endpoint for all your servers and plugins, with every tool held to its contract."""
    # `debug` is read from the context, where a failure is shown.
