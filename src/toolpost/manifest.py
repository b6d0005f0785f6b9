"""Which parts there are, without loading any: those that come with Toolpost, and those of installed packages.

Each folder of `toolpost.parts` is a part: its package has a manifest, `PART`, of strings only, so that `toolpost --help` may
import all of them. Another package announces its manifest under the entry point group `toolpost.parts`, as `package:PART`. Only
its `entry_points.txt` is read, without `importlib.metadata`: to import that takes longer than the rest of `toolpost --help`.
This module imports nothing of Toolpost, so that anything may import it.
"""

import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

GROUP: Final = "toolpost.parts"

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
"""A name of a part: its tables begin with it, and its section is called so."""


@dataclass(frozen=True)
class Command:
    """A command that has not been loaded: where it is, and its line in the list of commands."""

    reference: str
    """`package.module:attribute`, a click command."""
    short_help: str
    heading: str | None = "Products"
    """Where `toolpost --help` lists it; None hides it."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A product on top of the kernel, by references `package.module:attribute`. Programs and tests may give objects instead."""

    name: str
    """The name of its folder or entry point, and of its migrations in the store."""
    summary: str = ""
    opens: str | Callable[..., Any]
    """A function that takes the `Host` and returns an asynchronous context manager of contributions. Leaving it closes the part.
    `CapabilityMissing` leaves the part out, with its message in `toolpost doctor`."""
    settings: tuple[Any, ...] = ()
    """Its sections of `toolpost.toml`, each a `Section`."""
    migrations: str | None = None
    """A package with the folders `sqlite` and `postgres`, each of numbered steps `0001_name.sql`; None without tables."""
    doctor: str | Callable[[], Any] | None = None
    """A `PartDoctor`, the checks that it adds to `toolpost doctor`."""
    plugins: tuple[str, ...] = ()
    """Its plugins that are loaded where `plugins.bundled` names them."""
    commands: Mapping[str, Command] = field(default_factory=dict)
    """By name; a command of a group of the core is named with it, as in `auth sessions`."""
    importers: Mapping[str, Command] = field(default_factory=dict)
    """Commands that it adds to `toolpost import`, by what they import."""
    is_required: str | Callable[[Any], bool] | None = None
    """A function that takes the `Config`: whether nothing may be served without this part, because its settings ask for a policy
    that it enforces."""
    works_without_plugin: str | Callable[[Any], bool] | None = None
    """A function that takes the `Config`: whether its sections have an effect although none of its plugins is loaded. If not, to
    set one is an error then."""
    find_idle: str | Callable[[Any], Any] | None = None
    """A function that takes the `Config`: returns settings of its sections that are set and have no effect, each with an error
    that says what to add."""

    @property
    def sections(self) -> tuple[Any, ...]:
        """Its sections of `toolpost.toml`, imported."""
        return tuple(map(resolve, self.settings))


@dataclass(frozen=True, kw_only=True)
class InstalledPart:
    """A part of another package, whose manifest has not been loaded."""

    name: str
    reference: str
    """`package:PART`."""

    def load(self) -> Part:
        """Import the manifest. Raises what its module raises, and `BadManifest`."""
        if any(part.name == self.name for part in bundled_parts()):
            raise BadManifest(
                f"its name is that of a part of Toolpost; name the entry point and the part `{self.name}` otherwise"
            )
        if not _NAME.fullmatch(self.name):
            raise BadManifest(f"`{self.name}` is no name of a part: write small letters, digits and `_`")
        found = resolve(self.reference)
        if not isinstance(found, Part):
            raise BadManifest(f"`{self.reference}` is {describe(found)}, not a `Part`")
        if found.name != self.name:
            raise BadManifest(
                f"its entry point is named `{self.name}`, and its `Part` `{found.name}`: give both one name"
            )
        if not isinstance(found.settings, tuple):
            raise BadManifest(f"`settings` is {describe(found.settings)}, not a tuple of references")
        return found


class BadManifest(Exception):
    """A manifest that breaks a rule, with what to write instead."""


def describe(value: object) -> str:
    """Return what a value is, for the message that something else was expected."""
    if value is None:
        return "None"
    return f"the class `{value.__name__}`" if isinstance(value, type) else f"a value of type {type(value).__name__}"


def resolve(reference: Any) -> Any:
    """Import the object of a reference `package.module:attribute`; return anything but a string as it is.

    Raises what the module raises, and `BadManifest` for a reference to nothing.
    """
    if not isinstance(reference, str):
        return reference
    module, _, attribute = reference.partition(":")
    if not (module and attribute):
        raise BadManifest(f"`{reference}` is no reference: write `package.module:attribute`")
    found = importlib.import_module(module)
    if not hasattr(found, attribute):
        raise BadManifest(f"`{reference}` does not exist: the module has no `{attribute}`")
    return getattr(found, attribute)


@cache
def bundled_parts() -> tuple[Part, ...]:
    """Return the manifests of the parts that come with Toolpost, in the order of their folders.

    They are opened in this order, which is then that of their contributions of one kind, such as guards.
    """
    path = importlib.import_module(GROUP).__path__
    return tuple(resolve(f"{GROUP}.{module.name}:PART") for module in pkgutil.iter_modules(path))


@cache
def bundled_plugins() -> tuple[str, ...]:
    """Return the plugins that come with Toolpost: they are loaded where `plugins.bundled` or `--with` names them."""
    return tuple(sorted(name for part in bundled_parts() for name in part.plugins))


@cache
def installed_parts() -> tuple[InstalledPart, ...]:
    """Find the parts that other packages announce, by name. Their modules are not loaded."""
    found: dict[str, str] = {}
    for text in _entry_point_files():
        for name, reference in _announced(text):
            # As with modules, what comes first on the path counts.
            found.setdefault(name, reference)
    return tuple(InstalledPart(name=name, reference=found[name]) for name in sorted(found))


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


def installed_part(name: str) -> InstalledPart | None:
    """Return the entry of an installed part; None if no package announces one of this name."""
    return next((entry for entry in installed_parts() if entry.name == name), None)


def part_of_command(command: Command) -> str | None:
    """Return the name of the installed part that brings a command; None for one of Toolpost."""
    for entry in installed_parts():
        try:
            part = entry.load()
        except Exception:  # noqa: BLE001, S112 (as below)
            continue
        if command in (*part.commands.values(), *part.importers.values()):
            return part.name
    return None


def installed_commands(table: str = "commands") -> dict[str, Command]:
    """Return the commands of installed parts, or another `table` of them: their `importers`.

    A part that cannot be loaded brings none; `toolpost doctor` says why.
    """
    found: dict[str, Command] = {}
    for entry in installed_parts():
        try:
            found |= getattr(entry.load(), table)
        except Exception:  # noqa: BLE001, S112 (a part may raise anything, and `--help` must work)
            continue
    return found
