"""How the tools of servers become known: remembered from an earlier start, else learned by starting the server.

Tools that are remembered are served at once, before the server runs. Servers whose tools are not known, or have to be compared
with their lock or pin before they are served (`enforce`), are started first, and waited for up to a limit; tools of slower ones
are listed later.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio

from toolpost.base.events import event
from toolpost.contracts.errors import CredentialRequired, LoginRequired, ToolpostError
from toolpost.providers.schema_limits import RememberedLimits
from toolpost.providers.server_provider import ServerProvider
from toolpost.providers.supervisors import Supervisors
from toolpost.store.known_tools import KnownTools
from toolpost.store.verdicts import Verdicts
from toolpost.upstreams.report import ServerProfile, ServerState

_log = logging.getLogger("toolpost.servers")

LEARN_LIMIT_S: Final = 10.0
"""How long the start waits for servers whose tools are not known, unless `StartWait` says otherwise."""

KEEP_READY_S: Final = 2.0

LEARNED_S: Final = 300.0
"""How long a long list may cause work after it came: each changed tool is judged one by one."""

WAIT_REPORT_S: Final = 1.5
"""After how long the start reports the servers that it waits for."""


@dataclass(frozen=True, kw_only=True)
class StartWait:
    """How the start waits for servers whose tools are not known."""

    limit_s: float | None = None
    """How long it waits; `LEARN_LIMIT_S` unless given. Later their tools come by themselves."""
    on_wait: Callable[[Collection[str]], None] = lambda _names: None
    """Called with the names of servers that are waited for longer than `WAIT_REPORT_S`."""


class Learning:
    """Learns the tools of servers, and remembers them for the next start."""

    def __init__(
        self,
        providers: Mapping[str, ServerProvider],
        supervisors: Supervisors,
        known: KnownTools,
        verdicts: Verdicts,
        wait: StartWait,
    ) -> None:
        self._providers = providers
        self._supervisors = supervisors
        self._known = known
        self._schema_limits = RememberedLimits(verdicts)
        self._limit_s = LEARN_LIMIT_S if wait.limit_s is None else wait.limit_s
        self._on_wait = wait.on_wait
        self._seen = anyio.Event()
        self._unsaved: set[ServerProvider] = set()

    async def recall(self, provider: ServerProvider) -> bool:
        """Give a provider the tools that its server listed at an earlier start; returns whether some are known."""
        remembered = await self._known.recall(provider.name, provider.owner)
        # A server that cannot be started as it is configured offers no tools.
        if remembered is None or provider.spec.problem is not None:
            return False
        if provider.owner:
            provider.has_own_definitions = True
        await provider.learn(
            remembered.definitions,
            remembered.build,
            ServerProfile.recall(remembered.description, remembered.offers),
            is_live=False,
            known={} if provider.owner else await self._schema_limits.recall(provider),
        )
        return True

    async def learn_missing(self) -> None:
        """Start the servers whose tools are not known or unchecked, concurrently, and wait for them up to the limit."""
        missing = [each for each in self._providers.values() if each.definitions is None or each.is_unchecked]
        async with anyio.create_task_group() as around:
            around.start_soon(self._report_waiting, missing)
            with anyio.move_on_after(self._limit_s):
                async with anyio.create_task_group() as tasks:
                    for provider in missing:
                        tasks.start_soon(self._learn, provider)
            around.cancel_scope.cancel()

    async def _report_waiting(self, missing: Collection[ServerProvider]) -> None:
        await anyio.sleep(WAIT_REPORT_S)
        waiting = [provider.name for provider in missing if provider.supervisor.state is ServerState.STARTING]
        if waiting:
            self._on_wait(waiting)

    def start(self, provider: ServerProvider) -> None:
        """Learn the tools of a server in the background, unless they are known."""
        if provider.owner and (not provider.has_own_definitions or provider.is_unchecked):
            self._supervisors.start_soon(self.learn_for_owner, provider)
        elif provider.definitions is None or provider.is_unchecked:
            self._supervisors.start_soon(self._learn, provider)

    async def learn_for_owner(self, provider: ServerProvider) -> None:
        """Have a server list its tools to an owner; until it does, the owner has those that all others have."""
        with anyio.move_on_after(self._limit_s):
            await self._learn(provider)
        common = provider.by_owner.find_common() if provider.by_owner is not None else None
        if provider.definitions is None and common is not None:
            await provider.learn(*common)

    async def _learn(self, provider: ServerProvider) -> None:
        try:
            await provider.supervisor.ensure_ready()
        except CredentialRequired as error:
            # Callers without a name need none where each caller has its own.
            level = logging.INFO if provider.by_owner is not None else logging.WARNING
            event(_log, level, "server not started", server=provider.name, reason=error.message)
            provider.show_remembered()
        except ToolpostError as error:
            if isinstance(error, LoginRequired):
                provider.show_remembered()
            event(_log, logging.WARNING, "server not available", server=provider.name, reason=error.message)

    async def keep_ready(self) -> None:
        """Keep servers running that have `min_ready` or subscriptions, and retry those whose tools are not known or unchecked."""
        starting: set[ServerProvider] = set()
        is_first = True

        async def keep(provider: ServerProvider) -> None:
            with suppress(ToolpostError):  # It is in the report, and tried again after its backoff.
                await (
                    provider.supervisor.keep_ready if provider.spec.min_ready else provider.supervisor.ensure_ready
                )()
            starting.discard(provider)

        async with anyio.create_task_group() as tasks:
            while True:
                for provider in [one for each in self._providers.values() for one in each.all_owners]:
                    # `learn_missing` has just tried those whose tools are not known. Where callers have their own
                    # credentials, tools are learned when a caller comes.
                    is_wanted = (
                        provider.spec.min_ready and not provider.owner
                    ) or provider.supervisor.has_subscriptions
                    is_missing = provider.definitions is None or provider.is_unchecked
                    is_wanted = is_wanted or (is_missing and not is_first and provider.by_owner is None)
                    if is_wanted and provider not in starting:
                        starting.add(provider)
                        # In a task: a slow start must not delay the others.
                        tasks.start_soon(keep, provider)
                is_first = False
                await anyio.sleep(KEEP_READY_S)

    def has_learned_many(self) -> bool:
        """Whether a long list of tools came within `LEARNED_S`, so that there are very many new objects."""
        now = time.monotonic()
        return any(now - provider.learned_many_at < LEARNED_S for provider in self._providers.values())

    def note_seen(self, provider: ServerProvider) -> None:
        """Have the definitions that a server has just listed saved for the next start."""
        if provider.owner and not provider.has_own_definitions:
            return  # those of others
        self._unsaved.add(provider)
        self._seen.set()

    async def save_seen(self) -> None:
        """Save definitions for the next start, whenever some were seen."""
        while True:
            await self._seen.wait()
            self._seen = anyio.Event()
            await self.save()

    async def save(self) -> None:
        """Save what was seen; a failure is logged, since it only slows down the next start."""
        while self._unsaved:
            provider = self._unsaved.pop()
            current = self._providers.get(provider.name)
            if not provider.owner:
                provider = current or provider
            if current is not None and provider.definitions is not None:
                try:
                    await self._known.remember(
                        provider.name,
                        provider.definitions,
                        provider.build,
                        provider.description,
                        owner=provider.owner,
                        offers=provider.profile.offers,
                    )
                    if not provider.owner:
                        await self._schema_limits.remember(provider)
                except Exception as error:  # noqa: BLE001 (a list that is not saved only slows down the next start)
                    event(_log, logging.WARNING, "tools not remembered", server=provider.name, reason=str(error))
