"""`toolpost servers`: show, start, stop and restart the servers behind a running gateway."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from toolpost.base.ids import Json, JsonObject
from toolpost.terminal import (
    ExitCode,
    NoGateway,
    RunningGateway,
    SuggestingGroup,
    config_option,
    examples,
    json_option,
    load_cli_config,
    print_json_line,
    print_table,
    printable,
    show_failure,
    table,
    url_option,
)
from toolpost.terminal.findings import pluralize

_COLUMNS: Final = ("NAME", "STATE", "PID", "MEMORY", "RESTARTS", "TOOLS", "LAST ERROR")
_SHOWN_LINES: Final = 5
_SHOWN_FINDINGS: Final = 3
_DOWN: Final = ("failed", "suspended")


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

    A gateway's token comes from TOOLPOST_TOKEN or http.token.
    """
    if context.invoked_subcommand is not None:
        return ExitCode.OK
    config = load_cli_config(config_path)
    show = print_json_line if as_json else print_servers
    try:
        found = RunningGateway.of(config, url).servers()
    except NoGateway as error:
        if url is None:
            # In the form of a running gateway's reports.
            show(
                [
                    {
                        "name": name,
                        "state": "not running" if server.enabled else "disabled",
                        "transport": "stdio" if server.command else server.transport or "http",
                        "tags": sorted(server.tags),
                    }
                    for name, server in config.servers.items()
                ]
            )
        return show_failure(error, debug=False)
    show(found)
    return ExitCode.OK


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
            gateway = RunningGateway.of(
                load_cli_config(config_path or outer.get("config_path")), url or outer.get("url")
            )
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


def print_servers(reports: Sequence[JsonObject]) -> None:
    """Print a table of servers, then changed tools, findings, and the last stderr lines of failed servers."""
    if not reports:
        click.echo("no servers are configured; `toolpost import` adds those of your MCP clients", err=True)
        return
    rows = [
        (
            str(report.get("name")),
            f"{report.get('state')}, degraded" if report.get("degraded") else str(report.get("state")),
            _format_pids(report),
            format_mib(report.get("memoryBytes")),
            str(report.get("restarts", "-")),
            _format_tools(report),
            _format_last_error(report),
        )
        for report in reports
    ]
    print_table(table(*_COLUMNS, rows=rows))
    for report in reports:
        for line in (*_describe_changes(report), *_describe_findings(report), *_describe_stderr(report)):
            click.echo(printable(line))


def print_server(report: JsonObject) -> None:
    pids = _format_pids(report)
    facts = [str(report.get("state")), f"pid {pids}" if pids != "-" else ""]
    if calls := report.get("inFlight"):
        facts.append(f"{calls} in flight")
    click.echo(printable(f"{report.get('name')}: {', '.join(fact for fact in facts if fact)}"))


def format_mib(size: Json) -> str:
    """Format bytes as MiB; `-` if unknown."""
    return f"{size / 1024 / 1024:.1f} MiB" if isinstance(size, int | float) else "-"


def _format_pids(report: JsonObject) -> str:
    return ", ".join(str(pid) for pid in report.get("pids") or ()) or "-"


def _format_tools(report: JsonObject) -> str:
    contracts = report.get("contracts") or {}
    counts = {
        "refused": len(report.get("refused") or ()),
        "changed": sum(not standing.get("quarantined") for standing in contracts.values()),
        "quarantined": sum(bool(standing.get("quarantined")) for standing in contracts.values()),
        "suspicious": len(report.get("findings") or ()),
    }
    noted = ", ".join(f"{number} {what}" for what, number in counts.items() if number)
    return f"{report.get('tools', '-')}" + (f" ({noted})" if noted else "")


def _describe_changes(report: JsonObject) -> Iterator[str]:
    contracts = report.get("contracts") or {}
    if contracts:
        yield f"\nchanged tools of {report.get('name')}:"
    for name, standing in contracts.items():
        state = ", quarantined" if standing.get("quarantined") else ""
        since = "locked" if standing.get("promise") == "lock" else "first seen"
        kinds = dict.fromkeys(standing.get("findings") or ())
        reasons = (*(standing.get("rules") or ()), *(f"brings {kind}" for kind in kinds))
        yield f"  {name}: {standing.get('verdict')} since {since}{state} ({', '.join(reasons)})"
    if contracts:
        yield "hint: `toolpost diff` explains each change, `toolpost lock --accept NAME` accepts it"


def _describe_findings(report: JsonObject) -> Iterator[str]:
    findings = report.get("findings") or {}
    if findings:
        yield f"\npossible instructions to the model in {report.get('name')}:"
    for name, found in findings.items():
        for finding in found[:_SHOWN_FINDINGS]:
            yield f"  {name} {finding.get('place')}: {finding.get('message')}"
            yield f"    in: {finding.get('excerpt')}"
        if (rest := len(found) - _SHOWN_FINDINGS) > 0:
            yield f"  {name}: {rest} more"


def _format_last_error(report: JsonObject) -> str:
    facts = [str(error)] if (error := report.get("lastError")) else []
    if error and (moment := report.get("lastErrorAt")):
        facts = [f"{error} ({moment})"]
    if problem := report.get("degraded"):
        facts.append(str(problem))
    if count := report.get("protocolErrors"):
        facts.append(f"sent invalid messages, {pluralize(count, 'time')}")
    return "; ".join(facts) or "-"


def _describe_stderr(report: JsonObject) -> Iterator[str]:
    lines = report.get("stderrTail") or ()
    if report.get("state") in _DOWN and lines:
        yield f"\nlast stderr lines of {report.get('name')}:"
        for line in lines[-_SHOWN_LINES:]:
            yield f"  {line}"
