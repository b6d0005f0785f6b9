"""`toolpost servers`: show, start, stop and restart the servers behind a running gateway."""

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
from toolpost.cli.options import config_option, json_option, load_cli_config, own_url, url_option
from toolpost.cli.servers.client import NoGateway, RunningGateway, base_url
from toolpost.cli.servers.output import print_server, print_servers
from toolpost.cli.show import print_json_line
from toolpost.settings import Config


def complete_server_names(
    context: click.Context,
    parameter: click.Parameter,  # noqa: ARG001 (click's signature)
    incomplete: str,
) -> list[CompletionItem]:
    """Complete the name of a configured server; errors complete to nothing."""
    try:
        names = load_cli_config(context.params.get("config_path")).servers
    except Exception:  # noqa: BLE001 (completion cannot show messages)
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.group(
    cls=SuggestingGroup,
    invoke_without_command=True,
    epilog=examples(
        ("toolpost servers", "state, memory, restarts and last error of each"),
        ("toolpost servers restart github", "stop it and start it again"),
        ("toolpost servers --json | jq '.[] | select(.state == \"failed\")'", "for other programs"),
    ),
)
@url_option
@config_option
@json_option("Print the reports as one array, on one line.")
@click.pass_context
def servers(context: click.Context, url: str | None, config_path: Path | None, *, as_json: bool) -> ExitCode:
    """Show the servers behind the running gateway, or start, stop and restart one.

    A gateway's token comes from TOOLPOST_TOKEN or http.token_file.
    """
    if context.invoked_subcommand is not None:
        return ExitCode.OK
    config = load_cli_config(config_path)
    show = print_json_line if as_json else print_servers
    try:
        found = _find_gateway(config, url).servers()
    except NoGateway as error:
        if url is None:
            show(_report_configured(config))
        return show_failure(error, debug=False)
    show(found)
    return ExitCode.OK


def _find_gateway(config: Config, url: str | None) -> RunningGateway:
    return RunningGateway(
        url=base_url(url) if url else own_url(config, hint="give its address with --url"),
        token=config.token(),
        network=config.resolve_network(),
    )


def _report_configured(config: Config) -> list[JsonObject]:
    """Describe the configured servers in the form of a running gateway's reports."""
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
    """Turn a function with a docstring into a command that performs `action` on a server."""

    def make_command(described: Callable[..., None]) -> click.Command:
        @click.argument("name", shell_complete=complete_server_names)
        @url_option
        @config_option
        @json_option("Print its report afterwards, on one line.")
        @click.pass_context
        def act(context: click.Context, name: str, url: str | None, config_path: Path | None, *, as_json: bool) -> None:
            # Options before the action apply too.
            outer: dict[str, Any] = context.parent.params if context.parent else {}
            gateway = _find_gateway(load_cli_config(config_path or outer.get("config_path")), url or outer.get("url"))
            report = gateway.act(name, action)
            (print_json_line if as_json or outer.get("as_json") else print_server)(report)

        act.__doc__ = described.__doc__
        shown = examples(
            (f"toolpost servers {action} github", "behind the gateway of this folder"),
            (f"toolpost servers {action} github --url http://127.0.0.1:9000", "behind another one"),
        )
        return servers.command(action, epilog=shown)(act)

    return make_command


@_action("restart")
def restart() -> None:
    """Restart a server; calls in flight still get their answers."""


@_action("start")
def start() -> None:
    """Start a server, also one that was stopped or has failed too often."""


@_action("stop")
def stop() -> None:
    """Stop a server until `start` or `restart`."""
