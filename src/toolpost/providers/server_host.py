"""All servers of one gateway: their supervisors run here, their tools are remembered, and configuration changes are applied.

Tools that are remembered from an earlier start are served at once, before the server runs; servers whose tools are not known, or
have to be compared with their lock or pin before they are served (`enforce`), are started first. A change of the configuration is
applied as a whole or not at all: servers that are new, or reached in another way, must start before anything is replaced; one
whose rules alone changed keeps its processes.
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from toolpost.base.events import event
from toolpost.base.ids import PluginName
from toolpost.contracts.errors import CredentialRequired, LoginRequired, ToolpostError
from toolpost.contracts.lockfile import LockedTools
from toolpost.credentials.oauth import Authorizations
from toolpost.credentials.pending_logins import Logins
from toolpost.credentials.values import fill_in
from toolpost.credentials.vault import TOPIC, Vault
from toolpost.providers.caller_providers import CallerProviders
from toolpost.providers.contract_watch import ContractWatch, Mode
from toolpost.providers.findings import FindingsScanner
from toolpost.providers.functions import FunctionProvider
from toolpost.providers.limits import RememberedLimits
from toolpost.providers.quarantine import PinnedPlugin
from toolpost.providers.servers import ServerProvider
from toolpost.store import KnownServer, KnownTools, Verdicts
from toolpost.upstreams.notifications import Notification
from toolpost.upstreams.report import ServerProfile, ServerState
from toolpost.upstreams.server_requests import Sampler
from toolpost.upstreams.spec import ServerLimits, ServerSpec
from toolpost.upstreams.supervisor import Supervisor

_log = logging.getLogger("toolpost.servers")

LEARN_LIMIT_S: Final = 10.0
"""How long the start waits for servers whose tools are not known; tools of slower servers are listed later."""

JUDGE_LIMIT_S: Final = 5.0
"""How long the start waits for judgements on changed tools."""

KEEP_READY_S: Final = 2.0

LEARNED_S: Final = 300.0
"""How long a long list may cause work after it came: each changed tool is judged one by one."""

CREDENTIALS_S: Final = 30.0
"""How often stored credentials are compared with those in use, should a notice of their change be missed."""

SETTLE_S: Final = 0.1
"""How long to wait for further changes of credentials or common tools before they are acted upon."""

WAIT_REPORT_S: Final = 1.5
"""After how long the start reports the servers that it waits for."""


@dataclass(frozen=True, kw_only=True)
class AppliedChanges:
    """The names of servers that a change of the configuration affected."""

    added: list[str]
    removed: list[str]
    restarted: list[str]
    """Servers that are reached in another way now."""
    revised: list[str]
    """Servers with other rules, and the same processes."""

    @property
    def is_nothing(self) -> bool:
        return not (self.added or self.removed or self.restarted or self.revised)


@dataclass(frozen=True)
class LoginTargets:
    """What people log in to besides servers, by name: `/login/NAME` and `toolpost login NAME` are the same for it."""

    list: Callable[[], Mapping[str, ServerSpec]]


class Servers:
    """The servers of one gateway. Use it within `open_running`."""

    def __init__(
        self,
        specs: Iterable[ServerSpec],
        limits: ServerLimits | None = None,
        *,
        known: KnownTools,
        verdicts: Verdicts,
        promises: ContractWatch,
        contracts: Mode = "observe",
        default_timeout_s: float,
        on_change: Callable[[Collection[str]], None],
        beside: Iterable[str] = (),
        on_notification: Callable[[Notification], None] = lambda _notification: None,
        learn_limit_s: float | None = None,
        on_wait: Callable[[Collection[str]], None] | None = None,
        sampler: Sampler | None = None,
        vault: Vault | None = None,
        on_owner_change: Callable[[str, str], None] = lambda _owner, _server: None,
        authorizations: Authorizations | None = None,
        login_key: bytes = b"",
        other_logins: Callable[[], Mapping[str, ServerSpec]] = dict,
    ) -> None:
        """Take specifications and listeners.

        `on_change` gets the names of servers whose tools changed; no name if only the description of a server changed. `beside`
        are the names of tools of other providers. The start waits `learn_limit_s` for servers whose tools are not known; if that
        takes longer than `WAIT_REPORT_S`, `on_wait` gets their names. `sampler` answers sampling where a client does not.
        `vault` has the values that specifications refer to. `on_owner_change` gets an owner and a server that lists that owner
        other tools now; callers who share their credentials have none of these. `other_logins` returns what people log in to
        here without a server.
        """
        self._vault = vault
        self._on_owner_change = on_owner_change
        self._is_following = False
        self._has_common_changed = anyio.Event()
        self._on_wait = on_wait
        self._authorizations = authorizations
        self._other_logins = other_logins
        self.logins = Logins(authorizations, self._list_specs, login_key) if authorizations is not None else None
        if self.logins is not None:
            self.logins.on_login = self._note_login
        self._sampler = sampler
        self._known = known
        self._schema_limits = RememberedLimits(verdicts)
        self._limits = limits
        self.promises = promises
        promises.on_judged = self._recheck
        self.findings = FindingsScanner(
            lambda: {provider.name: provider.contracts for provider in self.watched}, verdicts, beside=beside
        )
        promises.names = self.findings.find_names
        self._contracts: Mode = contracts
        self._default_timeout_s = default_timeout_s
        self._on_change = on_change
        self._on_notification = on_notification
        self._learn_limit_s = LEARN_LIMIT_S if learn_limit_s is None else learn_limit_s
        self._seen = anyio.Event()
        self._unsaved: set[ServerProvider] = set()
        self._has_others_changed = anyio.Event()
        self._unchecked: set[PluginName] = set()
        self._tasks: TaskGroup | None = None
        self._running: dict[Supervisor, anyio.CancelScope] = {}
        self._applying = anyio.Lock()
        self.providers = {spec.name: self._make_provider(spec) for spec in specs}
        """By name. Changed in place, so that references to it stay valid."""
        self._held: dict[PluginName, PinnedPlugin] = {}

    async def apply(self, specs: Iterable[ServerSpec]) -> "AppliedChanges":
        """Replace the specifications, all or none: if a server does not start, its error is raised and nothing changes."""
        async with self._applying:
            wanted = {spec.name: spec for spec in specs}
            staged = {name: provider for name, spec in wanted.items() if (provider := self._stage(spec)) is not None}
            try:
                await self._try_out(staged)
            except BaseException:
                for provider in staged.values():
                    self._retire(provider)
                raise
            return self._commit(wanted, staged, await self._revise(wanted, staged))

    @property
    def watched(self) -> "list[ServerProvider | PinnedPlugin]":
        """Everything whose tools are compared with their lock or pin: servers, and plugins that are held to it too."""
        return [*self.providers.values(), *self._held.values()]

    def _list_watched(self) -> "list[ServerProvider | PinnedPlugin]":
        """The same, for all owners."""
        return [*self.list_all(), *self._held.values()]

    async def hold(self, provider: FunctionProvider, mode: Mode) -> PinnedPlugin:
        """Hold the tools of a plugin to their lock or pin, in place of what was held under its name before.

        Returns once changes are judged, which takes a moment, or after `JUDGE_LIMIT_S`.
        """
        name = provider.name
        held = PinnedPlugin(provider, self.promises, mode, partial(self._note_held_change, name))
        if name not in self._held:
            await self.promises.recall(name)
        self._held[name] = held
        await held.recheck()
        self.findings.request_scan()
        await self.promises.settle(JUDGE_LIMIT_S)
        return held

    def release(self, name: str) -> None:
        """Forget a plugin whose tools were held."""
        if self._held.pop(PluginName(name), None) is not None:
            self._note_held_change(PluginName(name))

    def _note_held_change(self, name: PluginName) -> None:
        self.findings.request_scan()
        self._on_change([name])

    @property
    def has_caller_credentials(self) -> bool:
        """Whether callers use a server with credentials of their own."""
        return any(provider.owned is not None for provider in self.providers.values())

    @property
    def exchanges_callers_tokens(self) -> bool:
        """Whether a server is used with tokens that are got in exchange for those of callers."""
        specs = [provider.spec for provider in self.providers.values()]
        return any(spec.auth is not None and spec.auth.exchanges_callers_tokens for spec in specs)

    def list_for(self, owner: str) -> list[ServerProvider]:
        """Return the providers that an owner's catalog is made of; where it has none, those of the empty owner."""
        return [
            (provider.owned.find(owner) if provider.owned is not None else None) or provider
            for provider in self.providers.values()
        ]

    async def open_for(self, owner: str) -> None:
        """Open the providers of an owner that are not open yet; one that cannot be opened is logged, and tried by each call."""

        async def open_one(owned: CallerProviders) -> None:
            try:
                await owned.of(owner)
            except Exception as error:  # noqa: BLE001 (the tools of all other servers are listed)
                event(_log, logging.WARNING, "server not opened", server=owned.base.name, owner=owner, exception=error)

        async with anyio.create_task_group() as tasks:
            for provider in tuple(self.providers.values()):
                if provider.owned is not None and provider.owned.find(owner) is None:
                    tasks.start_soon(open_one, provider.owned)

    def list_all(self) -> list[ServerProvider]:
        """Return the providers of all servers and owners."""
        return list(chain.from_iterable(p.owned or (p,) for p in self.providers.values()))

    def _make_provider(
        self, spec: ServerSpec, successor_of: ServerProvider | None = None, beside: ServerProvider | None = None
    ) -> ServerProvider:
        provider = ServerProvider(
            spec,
            self._limits,
            default_timeout_s=self._default_timeout_s,
            on_seen=self._note_seen,
            on_change=self._note_change,
            # Some servers put the time of day into their instructions: the index is updated, but clients are not notified.
            on_described=lambda: self._on_change([]),
            promises=self.promises,
            contracts=self._contracts,
            on_notification=self._on_notification,
            sampler=self._sampler,
            authorizations=self._authorizations,
            logins=self.logins,
            successor_of=successor_of,
            fill_in=self._fill_in,
            beside=beside,
        )
        if spec.credentials == "caller" and beside is None:
            provider.owned = CallerProviders(provider, self._open_owned, self._retire, self._forget_owner)
        return provider

    def _forget_owner(self, provider: ServerProvider) -> None:
        self.promises.forget(provider.promise_name)
        if self._authorizations is not None:
            self._authorizations.forget(provider.spec)

    async def _open_owned(self, base: ServerProvider, owner: str) -> ServerProvider:
        """Open the provider of an owner with the tools that it was last listed; if none are known, the server is started."""
        assert self._tasks is not None, "the servers are not running"
        provider = self._make_provider(replace(base.spec, owner=owner), beside=base)
        await self._tasks.start(self._run, provider.supervisor)
        if base.supervisor.is_stopped:
            provider.supervisor.stop()
        await self.promises.recall(provider.promise_name)
        if (remembered := await self._known.recall(base.name, owner)) is not None:
            provider.has_own_definitions = True
            await provider.learn(remembered.definitions, remembered.build, _recall(remembered), is_live=False)
        if remembered is None or provider.is_unchecked:
            await self._learn_owned(provider)
        return provider

    async def _learn_owned(self, provider: ServerProvider) -> None:
        """Have a server list its tools to an owner; until it does, the owner has those that all others have."""
        with anyio.move_on_after(self._learn_limit_s):
            await self._learn(provider)
        common = provider.owned.find_common() if provider.owned is not None else None
        if provider.definitions is None and common is not None:
            await provider.learn(*common)

    def _start_following(self, tasks: TaskGroup) -> None:
        """Follow changes of credentials from now on, if a server uses some."""
        is_needed = any(
            provider.spec.caller_values or provider.owned is not None for provider in self.providers.values()
        )
        if is_needed and not self._is_following and self._vault is not None:
            self._is_following = True
            tasks.start_soon(self._follow_credentials, self._vault)

    def count_logins(self) -> dict[str, int]:
        """Count the logins at servers, by state."""
        return self._authorizations.count() if self._authorizations is not None else {}

    async def _follow_credentials(self, vault: Vault) -> None:
        """Restart servers whose credentials have been changed, and stop those whose credentials were removed."""
        async with vault.wakeups.open_listener(TOPIC) as listener:
            while True:
                with anyio.move_on_after(CREDENTIALS_S):
                    await listener.wait()
                    await anyio.sleep(SETTLE_S)
                for provider in self.list_all():
                    if provider.spec.caller_values:
                        await self._renew(provider)
                    elif (provider.spec.owner or provider.owned is not None) and self._tasks is not None:
                        # Its owner may have logged in at another gateway, or at the command line. What the empty owner is
                        # listed is shown to callers who have not logged in yet, so that a call can tell them to.
                        self._start_learning(provider, self._tasks)

    async def _renew(self, provider: ServerProvider) -> None:
        try:
            has_credentials = await provider.supervisor.renew_credentials()
        except Exception as error:  # noqa: BLE001 (the store may be unreachable; the credentials in use stay valid)
            event(_log, logging.WARNING, "credentials not compared", server=provider.name, reason=str(error))
            return
        if has_credentials and not provider.has_own_definitions and self._tasks is not None:
            # The owner may have set its credentials just now.
            self._tasks.start_soon(self._learn_owned, provider)

    async def _follow_common(self) -> None:
        """Give owners whose tools are not known those that all others have in common."""
        while True:
            await self._has_common_changed.wait()
            await anyio.sleep(SETTLE_S)
            self._has_common_changed = anyio.Event()
            for base in tuple(self.providers.values()):
                if base.owned is None or (common := base.owned.find_common()) is None:
                    continue
                for provider in [*base.owned]:
                    if not provider.has_own_definitions:
                        await provider.learn(*common)

    async def _fill_in(self, spec: ServerSpec) -> ServerSpec:
        assert self._vault is not None, "there is no vault for the values that a server's settings refer to"
        return await fill_in(spec, self._vault)

    def _stage(self, spec: ServerSpec) -> ServerProvider | None:
        """Make a provider for a server that is new or reached in another way; None for any other."""
        current = self.providers.get(spec.name)
        if current is None or not current.spec.reaches_like(spec):
            return self._make_provider(spec)
        # Where each owner has a provider, all of them are made again: rare, and one path less.
        return self._make_provider(spec) if spec.credentials == "caller" and current.spec != spec else None

    async def _try_out(self, staged: Mapping[str, ServerProvider]) -> None:
        assert self._tasks is not None, "the servers are not running"
        for provider in staged.values():
            await self.promises.recall(provider.name)
            await self._tasks.start(self._run, provider.supervisor)
        async with anyio.create_task_group() as tasks:
            for provider in staged.values():
                tasks.start_soon(self._try_start, provider)
        for name, provider in staged.items():
            before = self.providers.get(name)
            if provider.owned is not None and before is not None and before.owned is not None:
                for one in [*before.owned]:
                    await provider.owned.of(one.owner)

    async def _try_start(self, provider: ServerProvider) -> None:
        try:
            await provider.supervisor.ensure_ready()
        except LoginRequired:
            return  # A person has to log in, which is possible only once the server is there.
        except CredentialRequired:
            # Callers without a name need not have credentials for it; those of others are tried when they call.
            if provider.owned is None:
                raise

    async def _revise(
        self, wanted: Mapping[str, ServerSpec], staged: Mapping[str, ServerProvider]
    ) -> dict[str, ServerProvider]:
        """Make providers for running servers whose rules changed; processes and calls in flight are not affected."""
        revised: dict[str, ServerProvider] = {}
        for name, spec in wanted.items():
            if name not in staged and (current := self.providers[name]).spec != spec:
                revised[name] = self._make_provider(spec, successor_of=current)
                await revised[name].copy_definitions(current)
        return revised

    def _commit(
        self,
        wanted: Mapping[str, ServerSpec],
        staged: Mapping[str, ServerProvider],
        revised: Mapping[str, ServerProvider],
    ) -> "AppliedChanges":
        before = dict(self.providers)
        after = {name: staged.get(name) or revised.get(name) or before[name] for name in wanted}
        for name, provider in revised.items():
            provider.supervisor.adopt(provider.spec, on_tools=provider.learn)
            if self._tasks is not None:
                # The old provider may have got other tools just before the supervisor was adopted.
                self._tasks.start_soon(provider.copy_definitions, before[name])
        self.providers.clear()
        self.providers.update(after)
        for name, provider in before.items():
            if after.get(name) is not provider and (name not in after or name in staged):
                self._retire(provider)
            if name in staged:
                # Calls that have looked up the old tool go to the new server, with the credentials that they use from now on.
                after_owned = staged[name].owned
                for one in provider.owned or (provider,):
                    if after_owned is not None:
                        one.owned = after_owned
                        successor = after_owned.find(one.owner)
                    else:
                        successor = staged[name] if one is provider else None
                    if successor is not None:
                        one.supervisor = successor.supervisor
        if self._tasks is not None:
            self._start_following(self._tasks)
        self.findings.request_scan()
        self._on_change([name for name in before.keys() | after.keys() if before.get(name) is not after.get(name)])
        return AppliedChanges(
            added=sorted(after.keys() - before.keys()),
            removed=sorted(before.keys() - after.keys()),
            restarted=sorted(name for name in staged if name in before),
            revised=sorted(revised),
        )

    def _retire(self, provider: ServerProvider) -> None:
        """Stop a server for good, after the calls in flight."""
        if provider.owned is not None and provider is provider.owned.base:
            provider.owned.close()
        provider.supervisor.stop("it is no longer configured", hint="list the tools again")
        if self._tasks is not None:
            self._tasks.start_soon(self._end, provider.supervisor)

    async def _end(self, supervisor: Supervisor) -> None:
        while supervisor.report().pids or supervisor.report().in_flight:  # noqa: ASYNC110 (rare, and in the background)
            await anyio.sleep(0.1)
        supervisor.leave()
        if (scope := self._running.get(supervisor)) is not None:
            scope.cancel()

    async def _run(self, supervisor: Supervisor, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        with anyio.CancelScope() as self._running[supervisor]:
            try:
                await supervisor.run(task_status=task_status)
            finally:
                del self._running[supervisor]

    @asynccontextmanager
    async def open_running(self) -> AsyncIterator[None]:
        """Run every server's supervisor; leaving ends every server."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            for provider in self.providers.values():
                await tasks.start(self._run, provider.supervisor)
                await self.promises.recall(provider.name)
                remembered = await self._known.recall(provider.name)
                # A server that cannot be started as it is configured offers no tools.
                if remembered is not None and provider.spec.problem is None:
                    profile, limits = _recall(remembered), await self._schema_limits.recall(provider)
                    await provider.learn(remembered.definitions, remembered.build, profile, is_live=False, known=limits)
            tasks.start_soon(self._save_seen)
            tasks.start_soon(self._recheck_noted)
            self._start_following(tasks)
            tasks.start_soon(self._follow_common)
            tasks.start_soon(self.promises.run)
            tasks.start_soon(self.findings.run)
            await self._learn_missing()
            # A pending judgement quarantines a tool: a client that lists tools at once must not miss a harmless change.
            await self.promises.settle(JUDGE_LIMIT_S)
            tasks.start_soon(self._keep_ready)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await self._save()
                    await self.promises.save()

    async def _learn_missing(self) -> None:
        """Start the servers whose tools are not known or unchecked, concurrently, and wait for them up to the limit."""
        missing = [each for each in self.providers.values() if each.definitions is None or each.is_unchecked]
        async with anyio.create_task_group() as around:
            around.start_soon(self._report_waiting, missing)
            with anyio.move_on_after(self._learn_limit_s):
                async with anyio.create_task_group() as tasks:
                    for provider in missing:
                        tasks.start_soon(self._learn, provider)
            around.cancel_scope.cancel()

    async def _report_waiting(self, missing: Collection[ServerProvider]) -> None:
        await anyio.sleep(WAIT_REPORT_S)
        waiting = [provider.name for provider in missing if provider.supervisor.state is ServerState.STARTING]
        if self._on_wait is not None and waiting:
            self._on_wait(waiting)

    async def _learn(self, provider: ServerProvider) -> None:
        try:
            await provider.supervisor.ensure_ready()
        except CredentialRequired as error:
            # Callers without a name need none where each caller has its own.
            level = logging.INFO if provider.owned is not None else logging.WARNING
            event(_log, level, "server not started", server=provider.name, reason=error.message)
            provider.show_remembered()
        except ToolpostError as error:
            if isinstance(error, LoginRequired):
                provider.show_remembered()
            event(_log, logging.WARNING, "server not available", server=provider.name, reason=error.message)

    def _note_login(self, server: str, owner: str) -> None:
        """List the tools of a server to an owner at once, now that it lets us."""
        base = self.providers.get(server)
        provider = base.owned.find(owner) if base is not None and base.owned is not None else base
        if self._tasks is not None and provider is not None:
            self._start_learning(provider, self._tasks)

    def _start_learning(self, provider: ServerProvider, tasks: TaskGroup) -> None:
        if provider.spec.owner and (not provider.has_own_definitions or provider.is_unchecked):
            tasks.start_soon(self._learn_owned, provider)
        elif provider.definitions is None or provider.is_unchecked:
            tasks.start_soon(self._learn, provider)

    async def _keep_ready(self) -> None:
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
                for provider in self.list_all():
                    # `_learn_missing` has just tried those whose tools are not known. Where callers have their own
                    # credentials, tools are learned when a caller comes.
                    is_wanted = (
                        provider.spec.min_ready and not provider.owner
                    ) or provider.supervisor.has_subscriptions
                    is_missing = provider.definitions is None or provider.is_unchecked
                    is_wanted = is_wanted or (is_missing and not is_first and provider.owned is None)
                    if is_wanted and provider not in starting:
                        starting.add(provider)
                        # In a task: a slow start must not delay the others.
                        tasks.start_soon(keep, provider)
                is_first = False
                await anyio.sleep(KEEP_READY_S)

    def has_learned_many(self) -> bool:
        """Whether a long list of tools came within `LEARNED_S`, so that there are very many new objects."""
        now = time.monotonic()
        return any(now - provider.learned_many_at < LEARNED_S for provider in self.providers.values())

    async def relock(self, locked: LockedTools | None) -> bool:
        """Compare every tool with another lock; returns whether it differs from the one before."""
        is_another = await self.promises.relock(locked)
        for provider in self._list_watched() if is_another else ():
            await provider.recheck()
        return is_another

    async def _recheck(self, server: PluginName) -> None:
        for provider in self._list_watched():
            if provider.promise_name == server:
                await provider.recheck()

    async def _recheck_noted(self) -> None:
        """Check servers again whose findings may depend on tools of another server that changed."""
        # Not in `_note_change`, which runs under the lock of one provider: two providers would wait for each other.
        while True:
            await self._has_others_changed.wait()
            self._has_others_changed = anyio.Event()
            while self._unchecked:
                await self._recheck(self._unchecked.pop())

    def _list_specs(self) -> dict[str, ServerSpec]:
        return {**self._other_logins(), **{name: provider.spec for name, provider in self.providers.items()}}

    def _note_change(self, provider: ServerProvider) -> None:
        if provider.owner:
            self._has_common_changed.set()
            self._on_owner_change(provider.owner, provider.name)
            return
        self.findings.request_scan()
        if self.providers.get(provider.name) is provider:
            self._on_change([provider.name])
        for other in self.watched:
            # A tool of the changed server may imitate one of these, or no longer do so.
            if other is not provider and other.statuses:
                self._unchecked.add(other.name)
                self._has_others_changed.set()

    def _note_seen(self, provider: ServerProvider) -> None:
        if provider.owner and not provider.has_own_definitions:
            return  # those of others
        self._unsaved.add(provider)
        self._seen.set()

    async def _save_seen(self) -> None:
        """Save definitions for the next start, in the background."""
        while True:
            await self._seen.wait()
            self._seen = anyio.Event()
            await self._save()

    async def _save(self) -> None:
        while self._unsaved:
            provider = self._unsaved.pop()
            current = self.providers.get(provider.name)
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


def _recall(known: KnownServer) -> ServerProfile:
    return ServerProfile.recall(known.description, known.offers)
