"""The base classes of a part and of its checks. `toolpost.parts` exports both.

The module of a part is imported whenever a configuration is read, so this one imports nothing at runtime.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from toolpost.contracts.errors import BadConfiguration
    from toolpost.host.host import Host
    from toolpost.manifest import Command
    from toolpost.settings import Config
    from toolpost.settings.section import Section


class Part:
    """A product on top of the kernel: subclass this, set `name`, and implement `open`.

    Its module should import what is heavy inside `open` and `doctor`.
    """

    name: ClassVar[str]
    """The name of its entry point."""
    sections: ClassVar[tuple["Section[Any]", ...]] = ()
    """Its sections of `toolpost.toml`."""
    commands: ClassVar[Mapping[str, "Command"]] = {}
    """Commands that it adds to `toolpost`, by name."""
    importers: ClassVar[Mapping[str, "Command"]] = {}
    """Commands that it adds to `toolpost import`, by what they import."""
    migrations: ClassVar[str | None] = None
    """A package with the folders `sqlite` and `postgres`, each of numbered steps `0001_name.sql`; None without tables."""

    def doctor(self) -> "PartDoctor | None":
        """Return the checks that it adds to `toolpost doctor`; None without any."""
        return None

    def must_open(self, config: "Config") -> bool:  # noqa: ARG002 (to be overridden)
        """Whether nothing may be served without this part, because its settings ask for a policy that it enforces."""
        return False

    def works_without_plugin(self, config: "Config") -> bool:  # noqa: ARG002 (to be overridden)
        """Whether its sections have an effect although none of its plugins is loaded. If not, to set one is an error then."""
        return False

    def find_idle(self, config: "Config") -> Iterable[tuple[str, "BadConfiguration"]]:  # noqa: ARG002 (to be overridden)
        """Return settings of its sections that are set and have no effect, each with an error that says what to add."""
        return ()

    def open(self, host: "Host") -> AbstractAsyncContextManager[Sequence[object]]:
        """Open the part and yield its contributions; leaving closes it.

        `CapabilityMissing` leaves it out, with its message in `toolpost doctor`.
        """
        raise NotImplementedError


class PartDoctor:
    """The checks that a part adds to `toolpost doctor`; without overrides there are none.

    `toolpost.parts` has `ok`, `note`, `warning` and `problem`, which make a `Diagnosis`.
    """

    def names(self, config: "Config") -> Sequence[str]:  # noqa: ARG002 (to be overridden)
        """Return the names that can be checked alone: `toolpost doctor NAME`."""
        return ()

    # The element types are in `cli.doctor`, which is above this module.
    async def check_setup(self, config: "Config") -> Sequence[Any]:  # noqa: ARG002
        """Return a `Diagnosis` for each requirement of the part: what is installed, whether its settings are consistent."""
        return ()

    async def check(self, config: "Config", names: Sequence[str]) -> Sequence[Any]:  # noqa: ARG002
        """Return a `Group` for each of these names."""
        return ()

    def without_faults(self, config: "Config") -> "Config":
        """Return the configuration without what keeps the part from opening, which `check_setup` or `check` report."""
        return config
