"""`toolpost servers`: the servers behind the gateway that runs, and what they are told to do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from toolpost.base.ids import JsonObject
from toolpost.cli.examples import examples
from toolpost.cli.exits import ExitCode
from toolpost.cli.failures import show_failure
from toolpost.cli.group import SuggestingGroup
from toolpost.cli.options import config_option, configured, json_option, own_url, url_option
from toolpost.cli.servers.client import NoGateway, RunningGateway, base_url
from toolpost.cli.servers.output import print_server, print_servers
from toolpost.cli.show import print_json_line
from toolpost.settings import Config


def complete_server_names(
    context: click.Context,
    parameter: click.Parameter,  # noqa: ARG001 (click's signature)
    incomplete: str,
) -> list[CompletionItem]:
    """Complete the name of a configured server; whoever presses Tab is not told of errors."""
    try:
        names = configured(context.params.get("config_path")).servers
    except Exception:  # noqa: BLE001 (a shell that completes has no place for a message)
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.group(
    cls=SuggestingGroup,
    invoke_without_command=True,
    epilog=examples(
        ("toolpost servers", "state, memory, restarts and last error of each"),
        ("toolpost servers restart github", "end it, and start it again"),
        ("toolpost servers --json | jq '.[] | select(.state == \"failed\")'", "for other programs"),
    ),
)
@url_option
@config_option
@json_option("Print the reports as one array, on one line.")
@click.pass_context
def servers(context: click.Context, url: str | None, config_path: Path | None, *, as_json: bool) -> ExitCode:
    """Show the servers behind the running gateway, or start, stop and restart one.

    The token of a gateway that asks for one comes from TOOLPOST_TOKEN or http.token_file.
    """
    if context.invoked_subcommand is not None:
        return ExitCode.OK
    config = configured(config_path)
    show = print_json_line if as_json else print_servers
    try:
        found = _gateway(config, url).servers()
    except NoGateway as error:
        if url is None:
            show(_not_running(config))
        return show_failure(error, debug=False)
    show(found)
    return ExitCode.OK


def _gateway(config: Config, url: str | None) -> RunningGateway:
    return RunningGateway(url=base_url(url) if url else own_url(config, hint="--url names it"), token=config.token())


def _not_running(config: Config) -> list[JsonObject]:
    """Say what is configured, in the form of the reports that a gateway would give."""
    return [
        {
            "name": name,
            "state": "not running" if server.enabled else "disabled",
            "transport": "stdio" if server.command else server.transport or "http",
            "tags": sorted(server.tags),
        }
        for name, server in config.servers.items()
    ]


def _action(action: str) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function that has nothing but its help: tell a server to do this."""

    def made(described: Callable[..., None]) -> click.Command:
        @click.argument("name", shell_complete=complete_server_names)
        @url_option
        @config_option
        @json_option("Print how it is doing afterwards, on one line.")
        @click.pass_context
        def act(context: click.Context, name: str, url: str | None, config_path: Path | None, *, as_json: bool) -> None:
            # What stands before the action holds for it too.
            outer: dict[str, Any] = context.parent.params if context.parent else {}
            gateway = _gateway(configured(config_path or outer.get("config_path")), url or outer.get("url"))
            report = gateway.act(name, action)
            (print_json_line if as_json or outer.get("as_json") else print_server)(report)

        act.__doc__ = described.__doc__
        shown = examples(
            (f"toolpost servers {action} github", "behind the gateway of this folder"),
            (f"toolpost servers {action} github --url http://127.0.0.1:9000", "behind another one"),
        )
        return servers.command(action, epilog=shown)(act)

    return made


@_action("restart")
def restart() -> None:
    """End a server and start it again; calls in flight keep their answers."""


@_action("start")
def start() -> None:
    """Start a server, one that was stopped or given up too."""


@_action("stop")
def stop() -> None:
    """End a server, and start it no more until somebody says so."""
