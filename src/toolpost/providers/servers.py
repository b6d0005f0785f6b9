"""The servers of one gateway: a table of their providers that runs, and that a changed configuration replaces.

How tools become known is left to `learning`, the providers of single callers to `caller_providers`, locks and pins to `watched`,
and changed credentials to `credential_changes`.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
from anyio import to_thread

from toolpost.base.action_items import ActionItem
from toolpost.contracts.errors import CredentialRequired, LoginRequired
from toolpost.credentials.expiring import list_expiring
from toolpost.credentials.gateway_logins import GatewayLogins
from toolpost.processes.memory import read_memory
from toolpost.providers.caller_providers import CallerProviders, CallerServers
from toolpost.providers.credential_changes import CredentialChanges
from toolpost.providers.learning import Learning, StartWait
from toolpost.providers.quarantine import PinnedPlugin
from toolpost.providers.server_context import ProviderListeners, ServerAccess, ServerContext, ServerListeners
from toolpost.providers.server_provider import ServerProvider
from toolpost.providers.supervisors import Supervisors
from toolpost.providers.watched import JUDGE_LIMIT_S, WatchedTools, WatchOptions
from toolpost.store import Store
from toolpost.upstreams.spec import ServerLimits, ServerSpec


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


@dataclass(frozen=True, kw_only=True)
class ApplyPlan:
    """The steps that make servers as specified."""

    names: Sequence[str]
    """Those of all servers there will be, in their order."""
    removed: frozenset[str]
    added: Mapping[str, ServerSpec]
    restarted: Mapping[str, ServerSpec]
    revised: Mapping[str, ServerSpec]

    @classmethod
    def between(cls, current: Mapping[str, ServerSpec], specs: Iterable[ServerSpec]) -> "ApplyPlan":
        """Compare the specifications of the servers that there are, by name, with those that replace them."""
        wanted = {spec.name: spec for spec in specs}
        changed = {name: spec for name, spec in wanted.items() if name in current and spec != current[name]}
        # Where each owner has a provider, all of them are made again: rare, and one path less.
        restarted = {
            name: spec
            for name, spec in changed.items()
            if spec.credentials == "caller" or not current[name].reaches_like(spec)
        }
        return cls(
            names=[*wanted],
            removed=frozenset(current.keys() - wanted.keys()),
            added={name: spec for name, spec in wanted.items() if name not in current},
            restarted=restarted,
            revised={name: spec for name, spec in changed.items() if name not in restarted},
        )

    @property
    def changed(self) -> set[str]:
        """The names of all servers that are affected."""
        return {*self.removed, *self.added, *self.restarted, *self.revised}

    def as_changes(self) -> AppliedChanges:
        return AppliedChanges(
            added=sorted(self.added),
            removed=sorted(self.removed),
            restarted=sorted(self.restarted),
            revised=sorted(self.revised),
        )


@dataclass(frozen=True)
class LoginTargets:
    """Login targets of people besides servers, by name: `/login/NAME` and `toolpost login NAME` are the same for it."""

    list: Callable[[], Mapping[str, ServerSpec]]


class Servers:
    """The servers of one gateway, by name. Changed only by `apply`, as a whole or not at all. Use it within `open_running`."""

    def __init__(
        self,
        specs: Iterable[ServerSpec],
        *,
        limits: ServerLimits,
        default_timeout_s: float,
        store: Store,
        watch: WatchOptions,
        access: ServerAccess,
        listeners: ServerListeners,
        wait: StartWait,
    ) -> None:
        self.providers: dict[str, ServerProvider] = {}
        """By name. Changed in place, so that references to it stay valid."""
        self._listeners = listeners
        self._access = access
        self._supervisors = Supervisors()
        self.watched_tools = WatchedTools(self.providers, store.pins, store.verdicts, watch, listeners.on_change)
        self.learning = Learning(self.providers, self._supervisors, store.known_tools, store.verdicts, wait)
        self._credentials = CredentialChanges(self.providers, self._supervisors, self.learning, access.vault)
        self.logins = GatewayLogins(
            access.server_tokens, self._list_specs, access.login_key, on_login=self._credentials.note_login
        )
        self._context = ServerContext(
            limits=limits,
            default_timeout_s=default_timeout_s,
            watch=self.watched_tools.watch,
            access=access,
            logins=self.logins,
            tools=ProviderListeners(
                on_seen=self.learning.note_seen,
                on_change=self._note_change,
                # Some servers put the time of day into their instructions: the index is updated, but clients are not notified.
                on_described=lambda: listeners.on_change([]),
            ),
            servers=listeners,
        )
        self._callers = CallerServers(self.providers, self._context, self._supervisors, self.learning)
        self._applying = anyio.Lock()
        self.providers.update({spec.name: self._make(spec) for spec in specs})

    async def apply(self, specs: Iterable[ServerSpec]) -> AppliedChanges:
        """Replace the specifications. Servers that are new or reached in another way must start first; else nothing changes."""
        async with self._applying:
            plan = ApplyPlan.between({name: provider.spec for name, provider in self.providers.items()}, specs)
            started = {name: self._make(spec) for name, spec in {**plan.added, **plan.restarted}.items()}
            try:
                await self._start_all(started)
                revised = {name: await self._revise(spec) for name, spec in plan.revised.items()}
            except BaseException:
                for provider in started.values():
                    self._retire(provider)
                raise
            # Nothing waits from here on: every call finds either all servers of before, or all of these.
            before = dict(self.providers)
            self.providers.clear()
            self.providers.update({name: started.get(name) or revised.get(name) or before[name] for name in plan.names})
            for name in plan.removed | plan.restarted.keys():
                self._retire(before[name])
            for name in plan.restarted:
                _hand_over_calls(before[name], started[name])
            for name, provider in revised.items():
                provider.supervisor.adopt(provider.spec, on_tools=provider.learn)
                # The old provider may have got other tools just before the supervisor was adopted.
                self._supervisors.start_soon(provider.copy_definitions, before[name])
            self._credentials.follow()
            self.watched_tools.findings.request_scan()
            self._listeners.on_change(plan.changed)
            return plan.as_changes()

    @asynccontextmanager
    async def open_running(self) -> AsyncIterator[None]:
        """Run every server's supervisor; leaving ends every server."""
        watch = self.watched_tools.watch
        async with self._supervisors.open_running():
            for provider in self.providers.values():
                await self._supervisors.start(provider.supervisor)
                await watch.recall(provider.name)
                await self.learning.recall(provider)
            self._credentials.follow()
            for task in (self.learning.save_seen, self._callers.follow_common, self.watched_tools.run):
                self._supervisors.start_soon(task)
            await self.learning.learn_missing()
            # A pending judgement quarantines a tool: a client that lists tools at once must not miss a harmless change.
            await watch.settle(JUDGE_LIMIT_S)
            self._supervisors.start_soon(self.learning.keep_ready)
            try:
                yield
            finally:
                self._supervisors.cancel()
                with anyio.CancelScope(shield=True):
                    await self.learning.save()
                    await watch.save()

    @property
    def watched(self) -> list[ServerProvider | PinnedPlugin]:
        """Everything whose tools are compared with their lock or pin: servers, and plugins that are held to it too."""
        return self.watched_tools.list_all()

    @property
    def has_caller_credentials(self) -> bool:
        """Whether callers use a server with credentials of their own."""
        return any(provider.by_owner is not None for provider in self.providers.values())

    @property
    def exchanges_callers_tokens(self) -> bool:
        """Whether a server is used with tokens that are got in exchange for those of callers."""
        specs = [provider.spec for provider in self.providers.values()]
        return any(spec.auth is not None and spec.auth.exchanges_callers_tokens for spec in specs)

    def list_for(self, owner: str) -> list[ServerProvider]:
        """Return the providers that an owner's catalog is made of; where it has none, those of the empty owner."""
        return [
            (provider.by_owner.find(owner) if provider.by_owner is not None else None) or provider
            for provider in self.providers.values()
        ]

    async def open_for(self, owner: str) -> None:
        """Open the providers of an owner that are not open yet; one that cannot be opened is logged, and tried by each call."""
        await self._callers.open_all(owner)

    def count_logins(self) -> dict[str, int]:
        """Count the logins at servers, by state."""
        return self._access.server_tokens.count()

    async def measure_memory(self) -> dict[str, int]:
        """Return the memory of each server that runs, with its descendants, in bytes. Takes a while, in a thread."""
        pids = {name: [pid for one in each.supervisors for pid in one.pids] for name, each in self.providers.items()}
        return await to_thread.run_sync(read_memory, pids)

    def list_expiring_logins(self, now: float) -> list[ActionItem]:
        """Return an item for each login at a server that needs a person by now, or soon."""
        return list_expiring(self._access.server_tokens, now)

    def _make(self, spec: ServerSpec) -> ServerProvider:
        provider = ServerProvider(spec, self._context)
        if spec.credentials == "caller":
            provider.by_owner = CallerProviders(provider, self._callers)
        return provider

    async def _start_all(self, started: Mapping[str, ServerProvider]) -> None:
        """Start servers, for all owners that their predecessors had; raises the errors of those that do not start."""
        for provider in started.values():
            await self._context.watch.recall(provider.name)
            await self._supervisors.start(provider.supervisor)
        async with anyio.create_task_group() as tasks:
            for provider in started.values():
                tasks.start_soon(_try_start, provider)
        for name, provider in started.items():
            before = self.providers.get(name)
            if provider.by_owner is not None and before is not None and before.by_owner is not None:
                for one in [*before.by_owner]:
                    await provider.by_owner.of(one.owner)

    async def _revise(self, spec: ServerSpec) -> ServerProvider:
        """Make a provider for a running server whose rules changed; processes and calls in flight are not affected."""
        current = self.providers[spec.name]
        revised = ServerProvider(spec, self._context, successor_of=current)
        await revised.copy_definitions(current)
        return revised

    def _retire(self, provider: ServerProvider) -> None:
        """Stop a server for good, after the calls in flight."""
        for one in provider.all_owners:
            self._supervisors.retire(one.supervisor)

    def _list_specs(self) -> dict[str, ServerSpec]:
        return {**self._access.other_logins(), **{name: provider.spec for name, provider in self.providers.items()}}

    def _note_change(self, provider: ServerProvider) -> None:
        if provider.owner:
            self._callers.note_change()
            self._listeners.on_owner_change(provider.owner, provider.name)
            return
        if self.providers.get(provider.name) is provider:
            self._listeners.on_change([provider.name])
        self.watched_tools.note_change(provider)


async def _try_start(provider: ServerProvider) -> None:
    try:
        await provider.supervisor.ensure_ready()
    except LoginRequired:
        return  # A person has to log in, which is possible only once the server is there.
    except CredentialRequired:
        # Callers without a name need not have credentials for it; those of others are tried when they call.
        if provider.by_owner is None:
            raise


def _hand_over_calls(old: ServerProvider, new: ServerProvider) -> None:
    """Let calls that have looked up a tool of the old provider go to the new one, with the credentials of that."""
    for one in old.all_owners:
        if new.by_owner is not None:
            one.by_owner = new.by_owner
            successor = new.by_owner.find(one.owner)
        else:
            successor = new if one is old else None
        if successor is not None:
            one.supervisor = successor.supervisor
