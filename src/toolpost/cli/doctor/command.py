"""`toolpost doctor`: everything started once and looked at, before a client stumbles over it."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
import click

from toolpost.base.nearest import nearest_name
from toolpost.base.version import __version__
from toolpost.cli.doctor.contracts import with_contracts
from toolpost.cli.doctor.findings import Finding, Group, Level, problem, warning
from toolpost.cli.doctor.output import as_object, counted, print_groups, total
from toolpost.cli.doctor.servers import check_server
from toolpost.cli.doctor.setup import check_plugins, check_setup, with_results_seen
from toolpost.cli.doctor.tools import TOOLS_LIMIT
from toolpost.cli.examples import examples
from toolpost.cli.exits import ExitCode
from toolpost.cli.gateway import run_async
from toolpost.cli.logs import set_up_logging
from toolpost.cli.options import config_option, configured, is_debugging, json_option, plugin_option
from toolpost.cli.servers.command import complete_server_names
from toolpost.cli.show import print_json_line
from toolpost.cli.signals import on_signals
from toolpost.cli.terminal import printable
from toolpost.contracts.errors import BadConfiguration, NotFound
from toolpost.host import Doctor
from toolpost.registry import BUNDLED, installed_parts
from toolpost.settings import Config

AT_ONCE: Final = 4
"""How many servers are started side by side."""


@click.command(
    epilog=examples(
        ("toolpost doctor", "check everything"),
        ("toolpost doctor github time", "check two servers alone"),
        ("toolpost doctor --strict", "in a pipeline: let warnings fail too"),
        ("toolpost doctor --json | jq '.groups[].findings[]'", "for other programs"),
    )
)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_server_names)
@config_option
@plugin_option
@click.option("--strict", is_flag=True, help="Let warnings fail too.")
@json_option("Print `{ok, problems, warnings, groups}` on one line.")
def doctor(
    names: tuple[str, ...], config_path: Path | None, plugins: tuple[str, ...], *, strict: bool, as_json: bool
) -> ExitCode:
    """Check every server, plugin, tool and agent, and what they run on.

    Each server and agent is started and ended again; with NAME, only those servers, plugins and agents. A problem keeps
    something from working and ends with exit code 1; a warning is about what some client may reject.
    """
    set_up_logging("debug" if is_debugging() else "critical")
    try:
        config = configured(config_path, plugins)
    except BadConfiguration as error:
        groups: list[Group] | None = [
            Group(kind="toolpost", name=__version__, findings=(problem("configuration", error),))
        ]
    else:
        with redirect_stdout(sys.stderr):
            groups = run_async(_examined, config, config_path, names)
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


async def _examined(config: Config, config_path: Path | None, names: Sequence[str]) -> list[Group] | None:
    """Look at everything, or at what was named; None if whoever started it asked to end it."""
    with anyio.CancelScope() as scope, on_signals(scope.cancel):
        wanted = set(names)
        doctors = _doctors(config)
        others = [name for doctor in doctors for name in doctor.names(config)]
        groups = [] if names else [await check_setup(config, config_path, doctors)]
        if not names or not wanted <= {*config.servers, *others}:
            found = await check_plugins(config, doctors)
            _refuse_unknown(wanted, {*config.servers, *others, *(plugin.name for plugin in found)})
            groups += [group for group in found if not names or group.name in wanted]
        groups += await _servers(config, [name for name in config.servers if not names or name in wanted])
        for doctor in doctors:
            groups += await doctor.check(config, [n for n in doctor.names(config) if not names or n in wanted])
        groups = await with_results_seen(await with_contracts(groups, config), config)
        return groups if names else _with_totals(groups)
    return None


def _doctors(config: Config) -> list[Doctor]:
    """Return what parts have to look at. A part that cannot be loaded is found among the plugins, and keeps nothing else back."""
    doctors: list[Doctor] = []
    for entry in (*BUNDLED, *(installed_parts() if config.plugins.installed else ())):
        if entry.name in config.plugins.disable and entry not in BUNDLED:
            continue
        try:
            doctor = entry.load().doctor()
        except Exception:  # noqa: BLE001, S112 (a part may raise anything)
            continue
        if doctor is not None:
            doctors.append(doctor)
    return doctors


def _refuse_unknown(wanted: set[str], known: set[str]) -> None:
    for name in sorted(wanted - known):
        near = nearest_name(name, known)
        hint = f"did you mean `{near}`?" if near else f"there are: {', '.join(sorted(known))}"
        raise NotFound(f"No server, plugin or agent is called `{name}`.", hint=hint)


async def _servers(config: Config, names: Sequence[str]) -> list[Group]:
    found: dict[str, Group] = {}
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def check(name: str) -> None:
        async with limiter:
            found[name] = await check_server(name, config)
            _tell(f"({len(found)} of {len(names)}) {name}: {_in_short(found[name])}")

    if names:
        _tell(f"checking {counted(len(names), 'server')}")
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(check, name)
    return [found[name] for name in names]


def _in_short(group: Group) -> str:
    counts = [(group.count(level), level) for level in (Level.PROBLEM, Level.WARNING)]
    return ", ".join(counted(number, level) for number, level in counts if number) or "ok"


def _tell(text: str) -> None:
    click.echo(printable(text), err=True)


def _with_totals(groups: list[Group]) -> list[Group]:
    """Add what only shows when all tools are counted."""
    count = sum(group.facts.get("tools", 0) for group in groups)
    if count <= TOOLS_LIMIT:
        return groups
    finding: Finding = warning(
        "many-tools",
        f"{count} tools in all; some models take {TOOLS_LIMIT} at most, and the more there are, the worse they choose",
        hint="give servers `allow` lists, or clients a part: /mcp/server/NAME or /mcp/tags/a,b",
    )
    first = groups[0]
    return [replace(first, findings=(*first.findings, finding)), *groups[1:]]
