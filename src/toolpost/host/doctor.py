"""The base class of a part's checks, which `toolpost.parts` exports. Its manifest is a `Part` (`toolpost.manifest`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolpost.settings import Config


class PartDoctor:
    """The checks that a part adds to `toolpost doctor`; without overrides there are none.

    `toolpost.terminal` has `ok`, `note`, `warning` and `problem`, which make a `Diagnosis`. What a method raises, or returns by
    mistake, is a problem that names the part; the other checks run.
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
