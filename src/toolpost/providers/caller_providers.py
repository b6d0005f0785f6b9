"""The providers of a server whose callers have credentials of their own: one for each owner, with its own supervisor.

Everything that could carry one caller's data to another is separate by construction: processes, connections, sessions,
definitions, listings, subscriptions, the queue of a singleton. What owners share is the limit on instances, and the list of tools
for an owner of whom nothing is known yet: the definitions that all known owners have in common.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final

import anyio

from toolpost.base.ids import JsonObject
from toolpost.upstreams.report import UNKNOWN_PROFILE, ServerProfile

if TYPE_CHECKING:
    from toolpost.providers.servers import ServerProvider

OWNERS_LIMIT: Final = 1_000
"""How many owners' providers are kept for one server; those without a process that were used longest ago are dropped first."""


class CallerProviders:
    """The providers of one server, by owner. The empty owner is that of callers without a name, and always there."""

    def __init__(
        self,
        base: "ServerProvider",
        open_provider: "Callable[[ServerProvider, str], Awaitable[ServerProvider]]",
        close_provider: "Callable[[ServerProvider], None]",
        forget_owner: "Callable[[ServerProvider], None]" = lambda _: None,
    ) -> None:
        """`open_provider` makes the provider of an owner beside the first one, and runs its supervisor.

        `forget_owner` is called for a provider that is dropped because it was not used for long.
        """
        self.base = base
        self._open = open_provider
        self._close = close_provider
        self._forget = forget_owner
        self._by_owner: dict[str, ServerProvider] = {}
        self._opening: dict[str, anyio.Event] = {}

    def __iter__(self) -> "Iterator[ServerProvider]":
        """Iterate over all providers, that of the empty owner first."""
        return iter((self.base, *self._by_owner.values()))

    def find(self, owner: str) -> "ServerProvider | None":
        """Return the provider of an owner, None if it is not open."""
        return self.base if owner == "" else self._by_owner.get(owner)

    async def of(self, owner: str) -> "ServerProvider":
        """Return the provider of an owner; the first time it is opened, and its tools are learned if that is possible."""
        while (found := self.find(owner)) is None:
            if (opening := self._opening.get(owner)) is not None:
                await opening.wait()
                continue
            done = self._opening[owner] = anyio.Event()
            try:
                self._drop_unused()
                self._by_owner[owner] = await self._open(self.base, owner)
            finally:
                del self._opening[owner]
                done.set()
        if owner:
            # The last one in the dictionary was used last.
            self._by_owner[owner] = self._by_owner.pop(owner)
        return found

    def find_common(self) -> tuple[list[JsonObject], str, ServerProfile] | None:
        """Return the definitions that all known owners have in common, with build and profile; None if none are known.

        What a single caller is listed is its own, and may name its projects: the empty owner's, or two that agree, are common.
        """
        known = [
            one for one in self if one.definitions is not None and one.has_own_definitions and not one.is_unchecked
        ]
        if len(known) < 2 and self.base not in known:
            # Those that were common to all when the gateway last ran.
            base = self.base
            is_usable = base.definitions is not None and not base.is_unchecked
            return (base.definitions or [], base.build, base.profile) if is_usable else None
        first, *others = known
        common = list(first.definitions or ())
        for other in others:
            by_name = {str(definition.get("name")): definition for definition in other.definitions or ()}
            common = [one for one in common if by_name.get(str(one.get("name"))) == one]
        is_alike = all(other.profile == first.profile for other in others)
        return common, first.build, first.profile if is_alike else UNKNOWN_PROFILE

    def close(self) -> None:
        """Stop the servers of all owners but the empty one, after the calls in flight."""
        for provider in self._by_owner.values():
            self._close(provider)

    def _drop_unused(self) -> None:
        for owner, provider in list(self._by_owner.items())[: max(0, len(self._by_owner) - OWNERS_LIMIT + 1)]:
            if not provider.supervisor.has_instances:
                del self._by_owner[owner]
                self._close(provider)
                self._forget(provider)
