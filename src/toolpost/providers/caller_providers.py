"""The providers of a server whose callers have credentials of their own: one for each owner, with its own supervisor.

Everything that could carry one caller's data to another is separate by construction: processes, connections, sessions,
definitions, listings, subscriptions, the queue of a singleton. What owners share is the limit on instances, and the list of tools
for an owner of whom nothing is known yet: the definitions that all known owners have in common.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import anyio

from toolpost.base import JsonObject, event
from toolpost.providers.learning import Learning
from toolpost.providers.server_context import ServerContext
from toolpost.providers.server_provider import ServerProvider
from toolpost.providers.supervisors import Supervisors
from toolpost.upstreams.report import UNKNOWN_PROFILE, ServerProfile

_log = logging.getLogger("toolpost.servers")

OWNERS_LIMIT: Final = 1_000
"""How many owners' providers are kept for one server; those without a process that were used longest ago are dropped first."""

SETTLE_S: Final = 0.1
"""How long to wait for further changes of common tools before they are acted upon."""


class CallerServers:
    """Opens and closes the providers of owners, for all servers whose callers have credentials of their own."""

    def __init__(
        self,
        providers: Mapping[str, ServerProvider],
        context: ServerContext,
        supervisors: Supervisors,
        learning: Learning,
    ) -> None:
        """`providers` are those of the empty owner, by server, now and later."""
        self._providers = providers
        self._context = context
        self._supervisors = supervisors
        self._learning = learning
        self._has_common_changed = anyio.Event()

    async def open_all(self, owner: str) -> None:
        """Open the providers of an owner that are not open yet; one that cannot be opened is logged, and tried by each call."""

        async def open_one(by_owner: "CallerProviders") -> None:
            try:
                await by_owner.of(owner)
            except Exception as error:  # noqa: BLE001 (the tools of all other servers are listed)
                event(
                    _log, logging.WARNING, "server not opened", server=by_owner.base.name, owner=owner, exception=error
                )

        async with anyio.create_task_group() as tasks:
            for provider in tuple(self._providers.values()):
                if provider.by_owner is not None and provider.by_owner.find(owner) is None:
                    tasks.start_soon(open_one, provider.by_owner)

    async def open(self, base: ServerProvider, owner: str) -> ServerProvider:
        """Open the provider of an owner with the tools that it was last listed; if none are known, the server is started."""
        provider = ServerProvider(replace(base.spec, owner=owner), self._context, base=base)
        await self._supervisors.start(provider.supervisor)
        if base.supervisor.is_stopped:
            provider.supervisor.stop()
        await self._context.watch.recall(provider.pin_name)
        if not await self._learning.recall(provider) or provider.is_unchecked:
            await self._learning.learn_for_owner(provider)
        return provider

    def drop(self, provider: ServerProvider) -> None:
        """End the server of an owner after the calls in flight, and forget what is known of it in memory."""
        self._supervisors.retire(provider.supervisor)
        self._context.watch.forget(provider.pin_name)
        self._context.access.server_tokens.forget(provider.spec)

    def note_change(self) -> None:
        """Note that the tools of an owner changed, and with them perhaps those that all have in common."""
        self._has_common_changed.set()

    async def follow_common(self) -> None:
        """Give owners whose tools are not known those that all others have in common, until cancelled."""
        while True:
            await self._has_common_changed.wait()
            await anyio.sleep(SETTLE_S)
            self._has_common_changed = anyio.Event()
            for base in tuple(self._providers.values()):
                if base.by_owner is None or (common := base.by_owner.find_common()) is None:
                    continue
                for provider in [*base.by_owner]:
                    if not provider.has_own_definitions:
                        await provider.learn(*common)


class CallerProviders:
    """The providers of one server, by owner. The empty owner is that of callers without a name, and always there."""

    def __init__(self, base: ServerProvider, servers: CallerServers) -> None:
        """`base` is the provider of the empty owner."""
        self.base = base
        self._servers = servers
        self._by_owner: dict[str, ServerProvider] = {}
        self._opening: dict[str, anyio.Event] = {}

    def __iter__(self) -> Iterator[ServerProvider]:
        """Iterate over all providers, that of the empty owner first."""
        return iter((self.base, *self._by_owner.values()))

    def find(self, owner: str) -> ServerProvider | None:
        """Return the provider of an owner, None if it is not open."""
        return self.base if owner == "" else self._by_owner.get(owner)

    async def of(self, owner: str) -> ServerProvider:
        """Return the provider of an owner; the first time it is opened, and its tools are learned if that is possible."""
        while (found := self.find(owner)) is None:
            if (opening := self._opening.get(owner)) is not None:
                await opening.wait()
                continue
            done = self._opening[owner] = anyio.Event()
            try:
                self._drop_unused()
                self._by_owner[owner] = await self._servers.open(self.base, owner)
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

    def _drop_unused(self) -> None:
        for owner, provider in list(self._by_owner.items())[: max(0, len(self._by_owner) - OWNERS_LIMIT + 1)]:
            if not provider.supervisor.has_instances:
                del self._by_owner[owner]
                self._servers.drop(provider)
