"""The instances of one server: which one a call gets, when one is started, when one is stopped.

An instance is kept under a key: the empty key for one that all callers share, `caller\nsession` where each session has its own
(`strategy = "per_session"`), `#1`, `#2`, ... for spare ones that `min_ready` asks for and that a session takes over later.

A server that speaks both eras is used in the stateless one. Its requests to a client (elicitation, sampling, roots) work in the
handshake era alone, so callers of that era that can be asked get a second instance, opened by a handshake, whose key ends with
`HANDSHAKE_SUFFIX`. Tools are listed from the first one only: in another era the same definitions may look different, and would
seem to change. A server that refuses the handshake has no second instance.

Example: with `per_session`, a call of session `s` of caller `ann` asks for `ready("ann\ns")`. If there is none, the oldest idle
instance of `ann` may be retired to make room, a spare one takes the key if there is one, and otherwise one is started. Starting
and running an instance is left to `lifecycle`, the calls on it to `supervisor`.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Final

import anyio
from anyio.abc import TaskGroup

from toolpost.base.caller import Caller
from toolpost.base.events import event
from toolpost.base.ids import CallerId, JsonObject
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.shares import over_limit
from toolpost.upstreams import backoff
from toolpost.upstreams import instance as instances
from toolpost.upstreams.backoff import Backoff
from toolpost.upstreams.changes import InstanceSubscriptions
from toolpost.upstreams.failures import LastFailure, hint_of, is_refusal, reason_of
from toolpost.upstreams.handshake import ToolsListener
from toolpost.upstreams.instance import HANDSHAKE_SUFFIX, Instance
from toolpost.upstreams.lifecycle import HandshakeMode, run_instance
from toolpost.upstreams.notifications import ClientIds
from toolpost.upstreams.report import ServerState
from toolpost.upstreams.spec import ServerLimits, ServerSpec

_log = logging.getLogger("toolpost.upstreams")

YOUNG_S: Final = 5.0
"""A server that exits within this time after its start, without having been used, counts as a failed start."""

FULL_RETRY_S: Final = 5.0
"""When a caller is told to try again whose instances are all busy or stopping."""


class InstancePool:
    """The instances of one server, as their `InstanceOwner`: those in use by key, and those that are stopping."""

    def __init__(
        self,
        spec: ServerSpec,
        limits: ServerLimits,
        *,
        failure: LastFailure,
        on_tools: ToolsListener,
        on_notification: Callable[[Instance, str, bytes, ClientIds, CallerId | None], None],
        subscriptions: Callable[[str], InstanceSubscriptions],
    ) -> None:
        self.limits = limits
        self.learn = on_tools
        self.take_notification = on_notification
        self._subscriptions = subscriptions
        self.backoff = Backoff()
        self.mode = HandshakeMode(
            is_sse=spec.transport == "sse", probe_first=spec.transport != "sse" and spec.era != "handshake"
        )
        self.is_modern: bool | None = None
        """Whether the server knows the stateless era; None before the first negotiation."""
        self._refuses_handshake = False
        self.capabilities: JsonObject | None = None
        """Of the instance that started last; None before the first negotiation."""
        self.starts = 0
        self.past_oddities = 0
        """The sum over instances that have ended."""
        self.stopped: tuple[str, str] | None = None
        """Why the server must not be started, and a hint; None if it may be."""
        self.tasks: TaskGroup | None = None
        self._spec = spec
        self._failure = failure
        self._by_key: dict[str, Instance] = {}
        self._leaving: set[Instance] = set()
        self._one_ended = anyio.Event()
        """Set when an instance has ended, and then replaced by a new event."""

    def adopt(self, spec: ServerSpec, on_tools: ToolsListener) -> None:
        """Keep the instances under another specification, which must reach the server in the same way."""
        self._spec = spec
        self.learn = on_tools

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
        has_failed = self._spec.problem is not None or self.backoff.failures > 0
        return ServerState.FAILED if has_failed and not self.stopped else ServerState.STOPPED

    # Starting

    async def find_or_start(self, key: str, caller: Caller | None = None) -> Instance:
        """Return an instance that is ready: the one of this key, a spare one, or a new one.

        Raises `UpstreamUnavailable` if it does not start or may not be started, `QueueOverloaded` if the caller has too many.
        """
        while True:
            if (instance := self._by_key.get(key)) is None:
                self._make_room(key)
                spare = None if key.endswith(HANDSHAKE_SUFFIX) else self._take_spare(key)
                instance = spare or await self._start(key, caller)
            if not instance.settled.is_set():
                await instance.settled.wait()
            if instance.failure is not None:
                raise instance.failure
            # It may have been retired while this task waited: then the next round starts another one.
            if not instance.stopping.is_set():
                return instance

    async def find_or_start_by_handshake(self, key: str, caller: Caller | None) -> Instance:
        """Return an instance that was opened by a handshake; of a server that takes none, the one that all callers use."""
        if self.is_modern is None:
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
        return may_have and bool(self.is_modern) and not self._refuses_handshake

    def subscriptions_of(self, instance: Instance) -> InstanceSubscriptions:
        return self._subscriptions(instance.key)

    def find_ready(self, key: str) -> Instance | None:
        """Return the instance of this key if it is ready, else None."""
        instance = self._by_key.get(key)
        is_ready = instance is not None and instance.ready_at and not instance.stopping.is_set()
        return instance if is_ready else None

    def find_any_ready(self) -> Instance | None:
        """Return any instance that is ready, None if there is none."""
        return next((i for i in self._by_key.values() if i.ready_at), None)

    def _take_spare(self, key: str) -> Instance | None:
        """Give a spare instance this key, preferably one that is ready; None if there is no spare."""
        spare = max(self._find_spares(), key=lambda i: i.ready_at is not None, default=None)
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
        started = [await self._start(self._make_spare_key()) for _ in range(missing)]
        for instance in started:
            await instance.settled.wait()
            if instance.failure is not None:
                raise instance.failure

    def _find_spares(self) -> Iterator[Instance]:
        """Iterate over instances that belong to no session and have had no call."""
        unused = (i for i in self._by_key.values() if not i.has_served and not i.is_handshake_only)
        return (i for i in unused if _owner_of(i.key) is None)

    def _make_spare_key(self) -> str:
        return next(key for n in count() if (key := f"#{n}" if n else "") not in self._by_key)

    async def _start(self, key: str, caller: Caller | None = None) -> Instance:
        while self._spec.strategy == "singleton" and self._leaving:
            # One process at a time: the files and ports of the last one are free when it has ended.
            await self._one_ended.wait()
        # Another task may have started it while this one waited.
        if (started := self._by_key.get(key)) is not None:
            return started
        self._check_startable(caller)
        assert self.tasks is not None, "the supervisor is not running"
        instance = self._by_key[key] = Instance(key=key)
        self.tasks.start_soon(self._run, instance)
        return instance

    def _check_startable(self, caller: Caller | None) -> None:
        failure, command = self._failure, f"`toolpost servers start {self._spec.name}`"
        if self.stopped is not None:
            raise failure.make_error(self.stopped[0], hint=self.stopped[1])
        if self._spec.problem is not None:
            # Not counted as a failed start: it would fail in the same way each time, and be logged each time.
            raise failure.note(self._spec.problem, hint=self._spec.hint)
        if self.backoff.is_suspended:
            before = f"it failed {backoff.FAILURES_LIMIT} times in a row and was given up: "
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

    async def _run(self, instance: Instance) -> None:
        self.starts += 1
        try:
            mode = replace(self.mode, probe_first=False) if instance.is_handshake_only else self.mode
            await run_instance(instance, self._spec, mode, self)
        finally:
            self._forget(instance)

    def note_ready(self, instance: Instance, mode: HandshakeMode) -> None:
        if not instance.is_handshake_only and instance.negotiation is not None:
            self.mode = mode
            self.is_modern = instance.negotiation.is_modern
            self.capabilities = instance.negotiation.capabilities
        instance.settled.set()
        event(_log, logging.INFO, "server ready", server=self._spec.name, pid=instance.pid)

    def note_failure(self, instance: Instance, error: BaseException) -> None:
        if instance.settled.is_set():
            return
        is_late = instance.starting.cancel_called and not instance.stopping.is_set()
        if isinstance(error, asyncio.CancelledError) and not is_late:
            return  # It was stopped, which `_forget` reports.
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
            self._note_loss(instance, reason)
        elif is_fault:
            self._failure.note(reason)
        event(_log, logging.INFO, "server leaves", server=self._spec.name, pid=instance.pid, reason=reason)

    def retire_all(self, reason: str) -> None:
        for instance in tuple(self._by_key.values()):
            self.retire(instance, reason)

    def _note_loss(self, instance: Instance, reason: str) -> None:
        """Record why a process ended by itself; an early exit without any call counts as a failed start."""
        self._failure.note(reason, lines=instance.stderr_tail, served=instance.callers)
        is_young = instance.ready_at is not None and time.monotonic() - instance.ready_at < YOUNG_S
        if is_young and not instance.has_served:
            self.backoff.note_failure(began_at=instance.began_at)

    def _move_to_leaving(self, instance: Instance) -> None:
        if self._by_key.get(instance.key) is instance:
            del self._by_key[instance.key]
        self._leaving.add(instance)

    def _forget(self, instance: Instance) -> None:
        instance.is_over = True
        self.past_oddities += instance.oddities
        self._move_to_leaving(instance)
        self._leaving.discard(instance)
        if not instance.settled.is_set():
            instance.failure = self._failure.make_error("it was stopped while it started")
            instance.settled.set()
        self._one_ended.set()
        self._one_ended = anyio.Event()


def _owner_of(key: str) -> CallerId | None:
    """Return the caller in the key of a session's instance, `caller\nsession`; None for any other key."""
    owner, separator, _ = key.partition("\n")
    return CallerId(owner) if separator else None
