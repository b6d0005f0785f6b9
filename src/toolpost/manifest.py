"""Which parts there are, without loading any: those that come with Toolpost, and those of installed packages.

A part is announced under the entry point group `toolpost.parts`. The bundled parts are in a table as well, with what must be
known of them before they are loaded: commands, and plugins that may be named. Of the other packages only their
`entry_points.txt` is read, without `importlib.metadata`: to import that takes longer than the rest of `toolpost --help`.
This module imports nothing of Toolpost, so that anything may import it.
"""

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

GROUP: Final = "toolpost.parts"


@dataclass(frozen=True)
class Command:
    """A command that has not been loaded: where it is, and its line in the list of commands."""

    reference: str
    """`package.module:attribute`, a click command."""
    short_help: str
    heading: str | None = "Products"
    """Where `toolpost --help` lists it; None hides it."""


@dataclass(frozen=True, kw_only=True)
class PartEntry:
    """A part that has not been loaded."""

    name: str
    reference: str
    """`package.module:attribute`, a `Part` or a class whose instances are parts."""
    plugins: tuple[str, ...] = ()
    """Its plugins that are loaded where `plugins.bundled` names them."""
    commands: Mapping[str, Command] = field(default_factory=dict)
    """By name; a command of a group of the core is named with it, as in `auth sessions`."""
    importers: Mapping[str, Command] = field(default_factory=dict)
    """Commands below `toolpost import`, by what they import."""

    def load(self) -> Any:
        """Import the part. Raises what its module raises."""
        module, _, attribute = self.reference.partition(":")
        found = getattr(importlib.import_module(module), attribute)
        return found() if isinstance(found, type) else found


BUNDLED: Final = (
    PartEntry(
        name="apis",
        reference="toolpost.parts.openapi.part:ApisPart",
        importers={
            "openapi": Command(
                "toolpost.parts.openapi.commands:import_openapi", "Turn an API into tools, by its OpenAPI document."
            )
        },
    ),
    PartEntry(
        name="conversations",
        reference="toolpost.parts.agents.part:ConversationsPart",
        commands={
            "chat": Command("toolpost.parts.agents.commands.chat:chat", "Talk to an agent, or list its schedules.")
        },
    ),
    PartEntry(
        name="bus",
        reference="toolpost.parts.bus.part:BusPart",
        plugins=("bus",),
        commands={
            "bus": Command(
                "toolpost.parts.bus.commands.group:bus", "Hand tasks to agents, and see what becomes of them."
            )
        },
    ),
    PartEntry(
        name="workspace",
        reference="toolpost.parts.workspace.part:WorkspacePart",
        plugins=("workspace",),
        commands={
            "workspace": Command(
                "toolpost.parts.workspace.commands:workspace", "Build, search and look after the code index."
            )
        },
    ),
    PartEntry(
        name="models",
        reference="toolpost.parts.models.part:ModelsPart",
        plugins=("models",),
        commands={
            "models": Command(
                "toolpost.parts.models.commands:models",
                "Show the models and groups of the running gateway, their statistics, or reset a circuit.",
            )
        },
    ),
    PartEntry(name="tasks", reference="toolpost.parts.tasks.part:TasksPart"),
    PartEntry(
        name="approvals",
        reference="toolpost.parts.approvals.part:ApprovalsPart",
        plugins=("approvals",),
        commands={
            "approvals": Command(
                "toolpost.parts.approvals.commands:approvals", "See which calls wait for approval, and vote on them."
            )
        },
    ),
    PartEntry(name="export", reference="toolpost.parts.export.part:ExportPart"),
    PartEntry(
        name="login",
        reference="toolpost.parts.authorization_server.part:LoginPart",
        commands={
            "auth passphrase": Command(
                "toolpost.parts.authorization_server.commands:passphrase",
                "Hash a passphrase, for `passphrase_hash` in [callers.NAME].",
            ),
            "auth sessions": Command(
                "toolpost.parts.authorization_server.commands:sessions",
                "List or revoke the logins of clients at this gateway.",
            ),
        },
    ),
    PartEntry(name="results", reference="toolpost.parts.results.part:ResultsPart", plugins=("results",)),
    PartEntry(name="telemetry", reference="toolpost.parts.telemetry.part:TelemetryPart"),
    PartEntry(
        name="console",
        reference="toolpost.parts.console.part:ConsolePart",
        commands={
            "console": Command(
                "toolpost.parts.console.command:console", "Open the web console in a browser.", heading="Operate"
            )
        },
    ),
    PartEntry(
        name="trail",
        reference="toolpost.parts.trail.part:TrailPart",
        plugins=("trail",),
        commands={
            "trail": Command(
                "toolpost.parts.trail.commands:trail", "Show, verify and export what agents decided and did."
            )
        },
    ),
)
"""The parts that come with Toolpost; a test compares them with the entry points in pyproject.toml."""


@cache
def installed_parts() -> tuple[PartEntry, ...]:
    """Find the parts that other packages announce, by name. Their modules are not loaded."""
    known = {entry.name for entry in BUNDLED}
    found: dict[str, str] = {}
    for text in _entry_point_files():
        for name, reference in _announced(text):
            # As with modules, what comes first on the path counts.
            found.setdefault(name, reference)
    return tuple(PartEntry(name=name, reference=found[name]) for name in sorted(found.keys() - known))


def _entry_point_files() -> Iterator[str]:
    """Read the entry points of every installed package that has a word of ours in them."""
    for folder in dict.fromkeys(sys.path):
        try:
            names = [name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info"))]  # noqa: PTH208
        except OSError:
            continue  # a zip file, or not there
        for name in sorted(names):
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), encoding="utf-8") as file:  # noqa: PTH118, PTH123
                    text = file.read()
            except (OSError, UnicodeDecodeError):
                continue
            if f"[{GROUP}]" in text:
                yield text


def _announced(text: str) -> Iterator[tuple[str, str]]:
    """Return names and references of the group in an `entry_points.txt`: lines `name = package.module:attribute`."""
    is_ours = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            is_ours = line == f"[{GROUP}]"
        elif is_ours and "=" in line and not line.startswith(("#", ";")):
            name, _, reference = line.partition("=")
            yield name.strip(), reference.partition("[")[0].strip()


def installed_part(name: str) -> PartEntry | None:
    """Return the entry of an installed part; None if no package announces one of this name."""
    return next((entry for entry in installed_parts() if entry.name == name), None)


def installed_commands(table: str = "commands") -> dict[str, Command]:
    """Return the commands of installed parts, or another `table` of them: their `importers`.

    A part that cannot be loaded brings none; `toolpost doctor` says why.
    """
    found: dict[str, Command] = {}
    for entry in installed_parts():
        try:
            found |= getattr(entry.load(), table, None) or {}
        except Exception:  # noqa: BLE001, S112 (a part may raise anything, and `--help` must work)
            continue
    return found
