"""`toolpost doctor`: start everything once and report what would fail or confuse a client."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
import click

from toolpost.base.version import __version__
from toolpost.cli.doctor.contracts import with_contracts
from toolpost.cli.doctor.parts import check_commands, load_doctors
from toolpost.cli.doctor.servers import check_server
from toolpost.cli.doctor.setup import check_plugins, check_setup, with_results_seen
from toolpost.cli.doctor.tools import TOOLS_LIMIT
from toolpost.cli.main import COMMANDS
from toolpost.cli.servers.command import complete_server_names
from toolpost.contracts.errors import BadConfiguration, NotFound
from toolpost.settings import Config
from toolpost.terminal import (
    Diagnosis,
    ExitCode,
    Group,
    config_option,
    examples,
    json_option,
    load_cli_config,
    on_signals,
    plugin_option,
    print_json_line,
    printable,
    problem,
    run_async,
    warning,
)
from toolpost.terminal.failures import is_debugging, suggest
from toolpost.terminal.findings import Level, as_object, pluralize, print_groups, total
from toolpost.terminal.logging import set_up_logging

AT_ONCE: Final = 4
"""How many servers are started in parallel."""


@click.command(
    epilog=examples(
        ("toolpost doctor", "check everything"),
        ("toolpost doctor github time", "check only two servers"),
        ("toolpost doctor --strict", "fail on warnings too"),
        ("toolpost doctor --json | jq '.groups[].findings[]'", "for other programs"),
    )
)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_server_names)
@config_option
@plugin_option
@click.option("--strict", is_flag=True, help="Fail on warnings too.")
@json_option("Print `{ok, problems, warnings, groups}` on one line.")
def doctor(
    names: tuple[str, ...], config_path: Path | None, plugins: tuple[str, ...], *, strict: bool, as_json: bool
) -> ExitCode:
    """Check every server, plugin, tool and agent, and the environment.

    Each server and agent is started and stopped again; with NAME, only those servers, plugins and agents. A problem keeps
    something from working and makes the exit code 1; a warning is about something that some clients may reject.
    """
    set_up_logging("debug" if is_debugging() else "critical")
    try:
        config = load_cli_config(config_path, plugins)
    except BadConfiguration as error:
        groups: list[Group] | None = [
            Group(kind="toolpost", name=__version__, findings=(problem("configuration", error),))
        ]
    else:
        with redirect_stdout(sys.stderr):
            groups = run_async(_run_checks, config, config_path, names)
    if groups is None:
        click.echo("toolpost: cancelled", err=True)
        return ExitCode.CANCELLED
    counts = total(groups, Level.PROBLEM), total(groups, Level.WARNING)
    is_ok = not counts[0] and not (strict and counts[1])
    if as_json:
        print_json_line(as_object(groups, is_ok=is_ok))
    else:
        print_groups(groups)
    return ExitCode.OK if is_ok else ExitCode.FAILED


async def _run_checks(config: Config, config_path: Path | None, names: Sequence[str]) -> list[Group] | None:
    """Check everything, or what was named; None if interrupted."""
    with anyio.CancelScope() as scope, on_signals(scope.cancel):
        selected = set(names)
        doctors, unloaded = load_doctors(config)
        others = [name for doctor in doctors for name in doctor.names(config)]
        groups = [] if names else [await check_setup(config, config_path, doctors)]
        if not names or not selected <= {*config.servers, *others}:
            try:
                found = await check_plugins(config, doctors)
            except BadConfiguration as error:
                if names:
                    raise
                # The gateway would not start. What else there is can be looked at all the same.
                found, groups = [], [_add_problem(groups[0], error)]
            known = {*config.servers, *others, *(plugin.name for plugin in found)}
            for name in sorted(selected - known):
                hint = suggest(name, known, f"known: {', '.join(sorted(known))}")
                raise NotFound(f"Unknown server, plugin or agent `{name}`.", hint=hint)
            groups += [group for group in found if not names or group.name in selected]
        groups += await _check_servers(config, [name for name in config.servers if not names or name in selected])
        for doctor in doctors:
            groups += await doctor.check(config, [n for n in doctor.names(config) if not names or n in selected])
        failures = [*unloaded, *check_commands(COMMANDS), *(each for doctor in doctors for each in doctor.problems)]
        groups = _add_failures(groups, failures)
        groups = await with_results_seen(await with_contracts(groups, config), config)
        return groups if names else _add_totals(groups)
    return None


def _add_failures(groups: list[Group], failures: Sequence[Diagnosis]) -> list[Group]:
    """Add what kept checks of parts from being made, in a group of its own where the setup is not checked."""
    if not failures:
        return groups
    if groups and groups[0].kind == "toolpost":
        return [replace(groups[0], findings=(*groups[0].findings, *failures)), *groups[1:]]
    return [Group(kind="toolpost", name=__version__, findings=tuple(failures)), *groups]


def _add_problem(group: Group, error: BadConfiguration) -> Group:
    """Add what keeps the gateway from starting, unless a part has reported it."""
    found = problem("configuration", error)
    reported = {each.message.casefold() for each in group.findings if each.level is Level.PROBLEM}
    return group if found.message.casefold() in reported else replace(group, findings=(*group.findings, found))


async def _check_servers(config: Config, names: Sequence[str]) -> list[Group]:
    found: dict[str, Group] = {}
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def check(name: str) -> None:
        async with limiter:
            found[name] = await check_server(name, config)
            _print_progress(f"({len(found)} of {len(names)}) {name}: {_summarize(found[name])}")

    if names:
        _print_progress(f"checking {pluralize(len(names), 'server')}")
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(check, name)
    return [found[name] for name in names]


def _summarize(group: Group) -> str:
    counts = [(group.count(level), level) for level in (Level.PROBLEM, Level.WARNING)]
    return ", ".join(pluralize(number, level) for number, level in counts if number) or "ok"


def _print_progress(text: str) -> None:
    click.echo(printable(text), err=True)


def _add_totals(groups: list[Group]) -> list[Group]:
    """Add a warning if all servers together have too many tools."""
    count = sum(group.facts.get("tools", 0) for group in groups)
    if count <= TOOLS_LIMIT:
        return groups
    finding: Diagnosis = warning(
        "many-tools",
        f"{count} tools in total; some models accept at most {TOOLS_LIMIT}, and choose worse the more there are",
        hint='set discovery.mode = "automatic", add `allow` lists to servers, or give clients /mcp/server/NAME or /mcp/tags/a,b',
    )
    first = groups[0]
    return [replace(first, findings=(*first.findings, finding)), *groups[1:]]
