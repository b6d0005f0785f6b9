"""The instances of one server: which one a call gets, when one is started, when one is stopped.

An instance is kept under a key: the empty key for one that all callers share, `caller\nsession` where each session has its own
(`strategy = "per_session"`), `#1`, `#2`, ... for spare ones that `min_ready` asks for and that a session takes over later.

A server that speaks both eras is used in the stateless one. Its requests to a client (elicitation, sampling, roots) work in the
handshake era alone, so callers of that era that can be asked get a second instance, opened by a handshake, whose key ends with
`HANDSHAKE_SUFFIX`. Tools are listed from the first one only: in another era the same definitions may look different, and would
seem to change. A server that refuses the handshake has no second instance.

Example: with `per_session`, a call of session `s` of caller `ann` asks for `find_ready("ann\ns")`. If there is none, the oldest
idle instance of `ann` may be retired to make room, a spare one takes the key if there is one, and otherwise one is started.
Starting and running an instance is left to `lifecycle`, the calls on it to `supervisor`.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Final

import anyio
from anyio.abc import TaskGroup

from toolpost.base.caller import Caller
from toolpost.base.events import event
from toolpost.base.ids import CallerId, JsonObject
from toolpost.contracts.errors import CredentialRequired, CredentialUnreadable, LoginRequired, UpstreamUnavailable
from toolpost.credentials.server_tokens import ServerToken, ServerTokens
from toolpost.fairness import over_limit
from toolpost.protocol.extensions import merge_extensions, select_extensions
from toolpost.upstreams import failures
from toolpost.upstreams import instance as instances
from toolpost.upstreams.changes import InstanceSubscriptions
from toolpost.upstreams.failures import Backoff, LastFailure, copy_error, find_error, hint_of, is_refusal, reason_of
from toolpost.upstreams.handshake import ToolsListener
from toolpost.upstreams.instance import HANDSHAKE_SUFFIX, Instance
from toolpost.upstreams.lifecycle import NegotiationMode, run_instance
from toolpost.upstreams.notifications import ClientIds
from toolpost.upstreams.report import ServerState
from toolpost.upstreams.spec import ServerLimits, ServerSpec

_log = logging.getLogger("toolpost.upstreams")

YOUNG_S: Final = 5.0
"""A server that exits within this time after its start, without having been used, counts as a failed start."""

FULL_RETRY_S: Final = 5.0
"""When a caller is told to try again whose instances are all busy or stopping."""


AddOwnerValues = Callable[[ServerSpec], Awaitable[ServerSpec]]
"""Returns a specification with the values of its owner; raises `CredentialRequired` if one is not set."""


class InstancePool:
    """The instances of one server, as their `InstanceOwner`: those in use by key, and those that are stopping."""

    def __init__(
        self,
        spec: ServerSpec,
        limits: ServerLimits,
        *,
        failure: LastFailure,
        on_tools: ToolsListener,
        on_reconnected: Callable[[], None],
        on_notification: Callable[[Instance, str, bytes, ClientIds, CallerId | None], None],
        subscriptions: Callable[[str], InstanceSubscriptions],
        add_owner_values: AddOwnerValues | None = None,
        sibling_pools: "set[InstancePool] | None" = None,
        server_tokens: ServerTokens | None = None,
    ) -> None:
        """`add_owner_values` adds the owner's values to a specification that refers to some.

        `sibling_pools` are those of all owners of the same server, which share the limit on instances; this one is added.
        """
        self._add_owner_values = add_owner_values
        self._sibling_pools = sibling_pools
        if sibling_pools is not None:
            sibling_pools.add(self)
        self._server_tokens = server_tokens
        self.limits = limits
        self.learn = on_tools
        self.note_reconnected = on_reconnected
        self.take_notification = on_notification
        self._subscriptions = subscriptions
        self.backoff = Backoff()
        self.mode = NegotiationMode(
            is_sse=spec.transport == "sse", probe_first=spec.transport != "sse" and spec.era != "handshake"
        )
        self.is_stateless: bool | None = None
        """Whether the server knows the stateless era; None before the first negotiation."""
        self._refuses_handshake = False
        self._needs_login = False
        """Whether the last start failed for want of a login."""
        self.capabilities: JsonObject | None = None
        """Of the instance that started last; None before the first negotiation."""
        self.starts = 0
        self.past_protocol_errors = 0
        """The sum over instances that have ended."""
        self.stopped: tuple[str, str] | None = None
        """Why the server must not be started, and a hint; None if it may be."""
        self.tasks: TaskGroup | None = None
        self._spec = spec
        self._failure = failure
        self._by_key: dict[str, Instance] = {}
        self._leaving: set[Instance] = set()
        self._filled: tuple[Mapping[str, str], Mapping[str, str]] | None = None
        """The environment and the headers that `renew` saw last."""
        self._one_ended = anyio.Event()
        """Set when an instance has ended, and then replaced by a new event."""

    def adopt(self, spec: ServerSpec) -> None:
        """Keep the instances under another specification, which must reach the server in the same way."""
        self._spec = spec

    def __iter__(self) -> Iterator[Instance]:
        """Iterate over every instance, those that are stopping last."""
        return iter((*self._by_key.values(), *self._leaving))

    @property
    def state(self) -> ServerState:
        running = self._by_key.values()
        if any(i.ready_at and i.in_flight for i in running):
            return ServerState.BUSY
        if any(i.ready_at for i in running):
            return ServerState.READY
        if running:
            return ServerState.STARTING
        if any(i.in_flight for i in self._leaving):
            return ServerState.DRAINING
        if self.backoff.is_suspended:
            return ServerState.SUSPENDED
        has_failed = self._spec.problem is not None or self.backoff.failures > 0 or self._needs_login
        return ServerState.FAILED if has_failed and not self.stopped else ServerState.STOPPED

    # Starting

    async def find_or_start(self, key: str, caller: Caller | None = None) -> Instance:
        """Return an instance that is ready: the one of this key, a spare one, or a new one.

        Raises `UpstreamUnavailable` if it does not start or may not be started, `QueueOverloaded` if the caller has too many.
        """
        while True:
            if (instance := self._by_key.get(key)) is None:
                self._make_room(key)
                spare = None if key.endswith(HANDSHAKE_SUFFIX) else self._take_spare(key, caller)
                instance = spare or await self._start(key, caller)
            if not instance.settled.is_set():
                await instance.settled.wait()
            if instance.failure is not None:
                raise copy_error(instance.failure)
            # It may have been retired while this task waited: then the next round starts another one.
            if not instance.stopping.is_set():
                return instance

    async def find_or_start_by_handshake(self, key: str, caller: Caller | None) -> Instance:
        """Return an instance that was opened by a handshake; of a server that takes none, the one that all callers use."""
        if self.is_stateless is None or not any(i.ready_at and not i.is_handshake_only for i in self._by_key.values()):
            # It also lists the tools, which a second instance alone would not do.
            await self.find_or_start(key, caller)
        if not self.may_use_handshake():
            return await self.find_or_start(key, caller)
        try:
            return await self.find_or_start(key + HANDSHAKE_SUFFIX, caller)
        except UpstreamUnavailable:
            # A refusal of the handshake has been noted by now, and is no failure of the server.
            if self.may_use_handshake():
                raise
            return await self.find_or_start(key, caller)

    def may_use_handshake(self) -> bool:
        """Whether callers of the handshake era get a second instance, opened by a handshake."""
        may_have = self._spec.era == "auto" and self._spec.strategy != "singleton"
        return may_have and bool(self.is_stateless) and not self._refuses_handshake

    def server_token_of(self, instance: Instance) -> ServerToken | None:  # noqa: ARG002 (one credential for all callers)
        return self._server_tokens.of(self._spec) if self._server_tokens is not None else None

    def subscriptions_of(self, instance: Instance) -> InstanceSubscriptions:
        return self._subscriptions(instance.key)

    def find_ready(self, key: str) -> Instance | None:
        """Return the instance of this key if it is ready, else None."""
        instance = self._by_key.get(key)
        is_ready = instance is not None and instance.ready_at and not instance.stopping.is_set()
        return instance if is_ready else None

    def find_any_ready(self) -> Instance | None:
        """Return an instance that is ready, None if there is none; one by a handshake alone only if there is no other."""
        ready = [i for i in self._by_key.values() if i.ready_at]
        return min(ready, key=lambda i: i.is_handshake_only, default=None)

    def _take_spare(self, key: str, caller: Caller | None) -> Instance | None:
        """Give a spare instance this key, preferably one that is ready; None if there is no spare.

        One that was greeted by a handshake does not know what extensions the caller's client has: it is taken for a client
        that has none, or if there is no room for another.
        """
        is_fitting = self.is_stateless or len(self._by_key) >= self.limits.instances
        declared = _list_declared(key, self._spec, caller)
        spares = (spare for spare in self._find_spares() if is_fitting or spare.declared == declared)
        spare = max(spares, key=lambda i: i.ready_at is not None, default=None)
        if spare is not None:
            del self._by_key[spare.key]
            spare.key = key
            self._by_key[key] = spare
        return spare

    async def start_missing(self) -> None:
        """Start the instances that `min_ready` asks for and that do not run; with `per_session`, as spares for sessions."""
        is_for_sessions = self._spec.strategy == "per_session"
        if not is_for_sessions and self._spec.min_ready:
            await self.find_or_start("")
            return
        room = self.limits.instances - len(self._by_key)
        missing = min(self._spec.min_ready - sum(1 for _ in self._find_spares()), room)
        started = []
        for _ in range(missing):
            free_key = next(key for n in count() if (key := f"#{n}" if n else "") not in self._by_key)
            started.append(await self._start(free_key))
        for instance in started:
            await instance.settled.wait()
            if instance.failure is not None:
                raise copy_error(instance.failure)

    def _find_spares(self) -> Iterator[Instance]:
        """Iterate over instances that belong to no session and have had no call."""
        unused = (i for i in self._by_key.values() if not i.has_served and not i.is_handshake_only)
        return (i for i in unused if _owner_of(i.key) is None)

    async def _start(self, key: str, caller: Caller | None = None) -> Instance:
        if self._server_tokens is not None and (server_token := self._server_tokens.of(self._spec)) is not None:
            await server_token.check_start()
        if self._add_owner_values is not None or self._sibling_pools is not None:
            return await self._start_for_owner(key, caller)
        while self._spec.strategy == "singleton" and self._leaving:
            # One process at a time: the files and ports of the last one are free when it has ended.
            await self._one_ended.wait()
        # Another task may have started it while this one waited.
        if (started := self._by_key.get(key)) is not None:
            return started
        self._check_startable(caller)
        return self._add(key, self._spec, caller)

    async def _start_for_owner(self, key: str, caller: Caller | None) -> Instance:
        """As `_start`, with the values of the owner, and with room among the instances of all owners."""
        while True:
            self._check_startable(caller)
            spec = await self._complete()
            if (started := self._by_key.get(key)) is not None:
                return started
            leaving = self if self._spec.strategy == "singleton" and self._leaving else self._make_room_among_siblings()
            if leaving is None:
                self._failure.conceal = spec.conceal
                return self._add(key, spec, caller)
            await leaving.wait_for_end()

    async def _complete(self) -> ServerSpec:
        if self._add_owner_values is None:
            return self._spec
        try:
            return await self._add_owner_values(self._spec)
        except (CredentialRequired, CredentialUnreadable) as error:
            # Shown by `toolpost servers` and `toolpost call`. Not counted as a failed start: the server is not to blame.
            self._failure.note(error.message.removesuffix("."), hint=error.hint)
            raise

    def _add(self, key: str, spec: ServerSpec, caller: Caller | None) -> Instance:
        assert self.tasks is not None, "the supervisor is not running"
        declared = _list_declared(key, spec, caller)
        instance = self._by_key[key] = Instance(key=key, env=spec.env, headers=spec.headers, declared=declared)
        self.tasks.start_soon(self._run, instance, spec)
        return instance

    async def wait_for_end(self) -> None:
        """Wait until an instance that is stopping has ended; returns at once if none is."""
        if self._leaving:
            await self._one_ended.wait()

    def _make_room_among_siblings(self) -> "InstancePool | None":
        """Retire the idle instance of any owner that was used longest ago, if all owners together have too many.

        Returns the pool in which one is stopping and has to be waited for, None if there is room. Raises `QueueOverloaded` if
        all of them are busy. Instances of sessions are left alone: they have state.
        """
        pools, total = self._sibling_pools or (), self.limits.instances
        running = [(pool, i) for pool in pools for i in pool._by_key.values()]  # noqa: SLF001 (of its own kind)
        leaving = [pool for pool in pools for _ in pool._leaving]  # noqa: SLF001
        if len(running) + len(leaving) < total:
            return None
        if len(running) >= total:
            idle = [
                (pool, i)
                for pool, i in running
                if pool._spec.strategy != "per_session" and i.ready_at and not i.in_flight and not i.subscriptions.uris  # noqa: SLF001
            ]
            if not idle:
                what = f"servers `{self._spec.name}`"
                raise over_limit(what, 0, total, self.limits.callers, retry_s=FULL_RETRY_S)
            pool, oldest = min(idle, key=lambda found: found[1].used_at)
            pool.retire(oldest, "another caller needs the room")
            return pool
        return leaving[0]

    async def renew(self) -> bool:
        """Retire instances whose credentials have been changed or removed since they were started.

        Returns whether there are credentials.
        """
        if self._add_owner_values is None:
            return True
        try:
            spec = await self._add_owner_values(self._spec)
        except (CredentialRequired, CredentialUnreadable) as error:
            self.retire_all(error.message)
            return False
        for instance in tuple(self._by_key.values()):
            if (instance.env, instance.headers) != (spec.env, spec.headers):
                self.retire(instance, "its credentials have changed")
        if (spec.env, spec.headers) != self._filled:
            # A server that was given up because of its credentials is tried again with others.
            self._filled = spec.env, spec.headers
            self.backoff.forget()
        return True

    def leave(self) -> None:
        """Count no longer among the pools of the server: it is not used again."""
        if self._sibling_pools is not None:
            self._sibling_pools.discard(self)

    def _check_startable(self, caller: Caller | None) -> None:
        failure, command = self._failure, f"`toolpost servers start {self._spec.name}`"
        if self.stopped is not None:
            raise failure.make_error(self.stopped[0], hint=self.stopped[1])
        if self._spec.problem is not None:
            # Not counted as a failed start: it would fail in the same way each time, and be logged each time.
            raise failure.note(self._spec.problem, hint=self._spec.hint)
        if self.backoff.is_suspended:
            before = f"it failed {failures.FAILURES_LIMIT} times in a row and was given up: "
            raise failure.make_error_for(caller, before=before, hint=f"fix it, then {command} tries again")
        if (wait_s := self.backoff.wait_s) > 0:
            hint = f"{failure.hint}; " if failure.hint else ""
            raise failure.make_error_for(caller, hint=f"{hint}it may be started again in {wait_s:.1f} s")

    def _make_room(self, key: str) -> None:
        """Retire the owner's idle instance that was used longest ago, if a limit on instances is reached.

        Only the owner's: sessions have state, and a caller with many sessions must not end those of others.
        """
        owner = _owner_of(key)
        if owner is None:
            return
        total, share = self.limits.instances, self.limits.callers.share_of(self.limits.instances)
        own = [i for i in self._by_key.values() if _owner_of(i.key) == owner]
        is_full = len(self._by_key) >= total and not any(self._find_spares())
        if len(own) < share and not is_full:
            return
        idle = [i for i in own if i.ready_at and not i.in_flight]
        # Instances that are stopping are processes too: as many of them as the limit allow no further start.
        is_leaving = sum(_owner_of(i.key) == owner for i in self._leaving) >= share
        if not idle or is_leaving:
            what = f"servers `{self._spec.name}` of your own" if len(own) >= share else f"servers `{self._spec.name}`"
            raise over_limit(what, len(own), total, self.limits.callers, retry_s=FULL_RETRY_S)
        self.retire(min(idle, key=lambda i: i.used_at), "its caller needs the room")

    async def _run(self, instance: Instance, spec: ServerSpec) -> None:
        self.starts += 1
        try:
            mode = replace(self.mode, probe_first=False) if instance.is_handshake_only else self.mode
            await run_instance(instance, spec, mode, self)
        finally:
            self._forget(instance)

    def note_ready(self, instance: Instance, mode: NegotiationMode) -> None:
        if not instance.is_handshake_only and instance.negotiation is not None:
            self.mode = mode
            self.is_stateless = instance.negotiation.is_stateless
            self.capabilities = instance.negotiation.capabilities
        self._needs_login = False
        instance.settled.set()
        event(_log, logging.INFO, "server ready", server=self._spec.name, pid=instance.pid)

    def note_failure(self, instance: Instance, error: BaseException) -> None:
        if instance.settled.is_set():
            return
        is_late = instance.starting.cancel_called and not instance.stopping.is_set()
        if isinstance(error, asyncio.CancelledError) and not is_late:
            return  # It was stopped, which `_forget` reports.
        required = find_error(error, LoginRequired) or find_error(error, CredentialRequired)
        if required is not None:
            # No failed start: it would be given up after five calls, and is not at fault.
            self._failure.note(required.message, hint=required.hint)
            instance.failure = required
            self._needs_login = True
            instance.settled.set()
            self._move_to_leaving(instance)
            event(_log, logging.INFO, "server requires a login", server=self._spec.name, reason=required.message)
            return
        reason = f"it did not get ready within {instances.START_LIMIT_S:g} s" if is_late else reason_of(error)
        instance.failure = self._failure.note(reason, lines=instance.stderr_tail, hint=hint_of(error))
        if instance.is_handshake_only and is_refusal(error):
            # The server knows the stateless era only. That is no failure: its first instance serves all callers.
            self._refuses_handshake = True
        else:
            self.backoff.note_failure(began_at=instance.began_at)
        instance.settled.set()
        self._move_to_leaving(instance)
        event(_log, logging.WARNING, "server failed to start", server=self._spec.name, reason=reason)

    # Stopping

    def may_leave(self, instance: Instance) -> bool:
        """Whether an instance is idle for `idle_s`, has no subscriptions, and is not kept by `min_ready`."""
        if time.monotonic() - instance.used_at < self._spec.idle_s or instance.subscriptions.uris:
            return False
        if instance.key + HANDSHAKE_SUFFIX in self._by_key:
            return False  # The tools that the second instance is used for are listed by this one.
        if self._spec.strategy != "per_session":
            return instance.is_handshake_only or not self._spec.min_ready
        # The instance of a session has its state, so it cannot serve as a spare for another session.
        spares = list(self._find_spares())
        return instance not in spares or len(spares) > self._spec.min_ready

    def retire(self, instance: Instance, reason: str, *, is_fault: bool = False) -> None:
        """Send an instance no further calls, and stop it when those in flight are answered."""
        if instance.stopping.is_set() or instance.is_over:
            return
        self._move_to_leaving(instance)
        instance.stop()
        if instance.is_lost:
            self._failure.note(reason, lines=instance.stderr_tail, served=instance.callers)
            self._failure.losses.append(time.time())
            is_young = instance.ready_at is not None and time.monotonic() - instance.ready_at < YOUNG_S
            if is_young and not instance.has_served:
                self.backoff.note_failure(began_at=instance.began_at)
        elif is_fault:
            self._failure.note(reason)
        event(_log, logging.INFO, "server leaves", server=self._spec.name, pid=instance.pid, reason=reason)

    def retire_all(self, reason: str) -> None:
        for instance in tuple(self._by_key.values()):
            self.retire(instance, reason)

    def _move_to_leaving(self, instance: Instance) -> None:
        if self._by_key.get(instance.key) is instance:
            del self._by_key[instance.key]
        self._leaving.add(instance)

    def _forget(self, instance: Instance) -> None:
        instance.is_over = True
        self.past_protocol_errors += instance.protocol_errors
        self._move_to_leaving(instance)
        self._leaving.discard(instance)
        if not instance.settled.is_set():
            instance.failure = self._failure.make_error("it was stopped while it started")
            instance.settled.set()
        # Waiters look again at what there is: several may wait for one that ended.
        self._one_ended.set()
        self._one_ended = anyio.Event()


def _list_declared(key: str, spec: ServerSpec, caller: Caller | None) -> JsonObject:
    """Return the client's extensions that a handshake declares: those of the settings, and of the session that it is for.

    An instance that several clients share is told of none of theirs: it would take them for those of all the others.
    """
    configured: JsonObject = {"extensions": dict(spec.client_extensions)} if spec.client_extensions else {}
    if not spec.extensions or _owner_of(key) is None or caller is None or caller.client is None:
        return configured
    return merge_extensions([select_extensions(caller.client.capabilities), configured])


def _owner_of(key: str) -> CallerId | None:
    """Return the caller in the key of a session's instance, `caller\nsession`; None for any other key."""
    owner, separator, _ = key.partition("\n")
    return CallerId(owner) if separator else None
