"""A part that brings nothing: what a part has nothing of, it leaves as it is here."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from toolpost.cli.doctor.findings import Finding, Group
    from toolpost.host import Host, Provided
    from toolpost.registry import Command
    from toolpost.settings import Config
    from toolpost.settings.section import Section


class Part:
    """Subclass this, name it, and implement `open`."""

    name: ClassVar[str]
    sections: ClassVar[tuple["Section[Any]", ...]] = ()
    commands: ClassVar[Mapping[str, "Command"]] = {}
    migrations: ClassVar[str | None] = None

    def doctor(self) -> "PartDoctor | None":
        """Return what `toolpost doctor` looks at; nothing, unless overridden."""
        return None

    def open(self, host: "Host") -> AbstractAsyncContextManager["Provided"]:
        """Open the part; leaving closes it."""
        raise NotImplementedError


class PartDoctor:
    """Looks at nothing; a part overrides what it has something to say on."""

    def names(self, config: "Config") -> Sequence[str]:  # noqa: ARG002 (to be overridden)
        """Return what can be checked by itself: `toolpost doctor NAME`."""
        return ()

    async def check_setup(self, config: "Config") -> "Sequence[Finding]":  # noqa: ARG002
        """Return findings on what the part runs on."""
        return ()

    async def check(self, config: "Config", names: Sequence[str]) -> "Sequence[Group]":  # noqa: ARG002
        """Return a group of findings for each of these names."""
        return ()

    def without_faults(self, config: "Config") -> "Config":
        """Return the configuration without what keeps the part from opening."""
        return config
