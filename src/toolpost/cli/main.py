"""The `toolpost` command and its table of sub-commands; installed parts add theirs."""

from typing import Final

import click

from toolpost.base.version import __version__
from toolpost.manifest import Command, bundled_parts
from toolpost.terminal.examples import examples
from toolpost.terminal.group import RootGroup

COMMANDS: Final = {
    "serve": Command("toolpost.cli.serve:serve", "Serve tools to MCP clients."),
    "tools": Command("toolpost.cli.tools:tools", "List the tools, or show one in full."),
    "search": Command("toolpost.cli.search:search", "Find tools by what they do."),
    "call": Command("toolpost.cli.call.command:call", "Call a tool."),
    **{name: command for part in bundled_parts() for name, command in part.commands.items()},
    "token": Command("toolpost.cli.token:token", "Make a token for a caller, and show the lines for toolpost.toml."),
    "new": Command("toolpost.cli.new:new", "Create a project for a plugin: code, tests, lock, CI and packaging."),
    "dev": Command("toolpost.cli.dev:dev", "Serve plugins and load them again when their files change."),
    "servers": Command(
        "toolpost.cli.servers.command:servers",
        "Show the servers behind the running gateway, or start, stop and restart one.",
    ),
    "credentials": Command(
        "toolpost.cli.credentials:credentials",
        "Set, list and remove the credentials that servers are used with.",
    ),
    "login": Command("toolpost.cli.login.command:login", "Log in to a server behind the gateway that requires OAuth."),
    "logout": Command("toolpost.cli.login.command:logout", "Log out of a server, and revoke its tokens."),
    "doctor": Command(
        "toolpost.cli.doctor.command:doctor", "Check every server, plugin, tool and agent, and the environment."
    ),
    "lock": Command("toolpost.cli.lock.command:lock", "Write the definitions of all tools to toolpost.lock."),
    "check": Command("toolpost.cli.lock.check:check", "Compare every tool with toolpost.lock."),
    "diff": Command("toolpost.cli.lock.diff:diff", "Explain each change between two states of the tools."),
    "logs": Command(
        "toolpost.cli.logs.command:logs",
        "Show what gateways of this project have logged, and what their servers wrote to stderr.",
    ),
    "audit": Command("toolpost.cli.audit:audit", "Show the record of calls, follow, verify or export it."),
    "store": Command("toolpost.cli.store:store", "Show the store, or copy it to another database."),
    "config": Command("toolpost.cli.config:config", "Show the configuration, or its JSON Schema."),
    "import": Command(
        "toolpost.cli.clients.import_servers:import_servers",
        "Import MCP servers from Claude, Cursor or VS Code, or an API.",
    ),
    "install": Command("toolpost.cli.clients.install:install", "Add Toolpost to the configuration of an MCP client."),
    "uninstall": Command(
        "toolpost.cli.clients.install:uninstall", "Remove Toolpost from the configuration of an MCP client."
    ),
    "completion": Command("toolpost.cli.completion:completion", "Print the completion script of a shell."),
}


@click.group(
    cls=RootGroup,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        ("toolpost serve", "serve on http://127.0.0.1:8420/mcp"),
        ("toolpost tools", "list all tools"),
        ("toolpost call time__current_time timezone=Asia/Tokyo", "call a tool"),
        ("toolpost import", "import the MCP servers of your clients"),
        ("toolpost install claude-code", "add Toolpost to a client"),
    ),
)
@click.version_option(__version__, prog_name="toolpost")
@click.option("--debug", is_flag=True, envvar="TOOLPOST_DEBUG", help="Show tracebacks and every log event.")
def main(*, debug: bool) -> None:
    """One MCP endpoint for all your servers and plugins, with every tool held to its contract."""
    # `debug` is read from the context, where a failure is shown.
