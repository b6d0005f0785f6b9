"""The callers of the store: made and removed while gateways run, and admitted by each of them.

A change is applied here before it is answered, and by the other gateways of the store when they are woken.
"""

import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

import anyio

from toolpost.base.caller import Scope
from toolpost.base.events import event
from toolpost.contracts.errors import InvalidRequest, NotFound, StoreUnavailable
from toolpost.endpoints.auth.roster import KnownCaller, Roster, TokenIssuer
from toolpost.store import Listener, Store
from toolpost.store.callers import TOPIC, StoredCaller

_log = logging.getLogger("toolpost.callers")

LOOK_S: Final = 30.0
"""How often the store is read without a wake-up, which may be lost."""


class CallerCheck(Protocol):
    """Checks what a caller would be."""

    def __call__(self, name: str, *, tags: Sequence[str] | None, tools: Sequence[str] | None, mode: str) -> None:
        """Raise `InvalidRequest` for a name or limits that no caller may have."""
        ...


class StoredCallers:
    """The callers of the store, in the roster of a gateway."""

    def __init__(
        self,
        store: Store,
        roster: Roster,
        *,
        check: CallerCheck,
        mode_scope: Callable[[str], Scope],
        login: TokenIssuer | None,
        on_change: Callable[[], None],
    ) -> None:
        """`mode_scope` returns what a mode limits a caller to, `on_change` is called when others are admitted than before."""
        self._store = store
        self._roster = roster
        self._check = check
        self._mode_scope = mode_scope
        self._login = login
        self._on_change = on_change
        self._applying = anyio.Lock()

    async def all(self) -> Sequence[StoredCaller]:
        """Return all of them, by name."""
        return await self._store.callers.all()

    def scopes_for(self, *, tags: Sequence[str] | None, tools: Sequence[str] | None, mode: str) -> tuple[Scope, ...]:
        """Return what would limit a caller; raises `InvalidRequest` for limits that no caller may have."""
        self._check("caller", tags=tags, tools=tools, mode=mode)
        own = _make_scope(tags, tools)
        return tuple(
            scope for scope in (self._roster.members.endpoint, own, self._mode_scope(mode)) if scope.is_limited
        )

    async def add(
        self, name: str, *, tags: Sequence[str] | None, tools: Sequence[str] | None, mode: str, made_by: str
    ) -> str:
        """Make a caller, admitted here from now on, and return its token, which is stored nowhere.

        Raises `InvalidRequest` for a name or limits that no caller may have, for a name that is taken, and where no token is
        required.
        """
        if self._roster.anonymous is not None:
            raise InvalidRequest(
                "This gateway asks for no token: a caller with one would see no less than everybody else.",
                hint="set TOOLPOST_TOKEN, or add an administrator to [callers] of toolpost.toml, first",
            )
        self._check(name, tags=tags, tools=tools, mode=mode)
        if any(known.name == name for known in self._roster.configured.callers):
            raise InvalidRequest(f"`{name}` is a caller of toolpost.toml, which would win.", hint="choose another name")
        token = secrets.token_urlsafe(32)
        limits = (None if each is None else tuple(dict.fromkeys(each)) for each in (tags, tools))
        if not await self._store.callers.add(name, token, *limits, mode=mode, made_by=made_by):
            raise InvalidRequest(f"There is a caller `{name}` already.", hint="choose another name, or revoke it first")
        event(_log, logging.WARNING, "caller added", caller=name, mode=mode, by=made_by)
        await self._publish()
        return token

    async def remove(self, name: str, *, by: str) -> None:
        """Remove a caller: its token is accepted here no longer, and what was opened with it is closed.

        Raises `NotFound` if there is none of this name in the store.
        """
        if not await self._store.callers.remove(name):
            raise NotFound(
                f"There is no caller `{name[:64]}` in the store.", hint="those of toolpost.toml are removed there"
            )
        event(_log, logging.WARNING, "caller removed", caller=name, by=by)
        await self._publish()

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Admit the callers of the store, and follow the changes of other gateways."""
        async with self._store.wakeups.open_listener(TOPIC) as listener, anyio.create_task_group() as tasks:
            await self._apply()
            tasks.start_soon(self._follow, listener)
            yield
            tasks.cancel_scope.cancel()

    async def _publish(self) -> None:
        # Shielded: a client that leaves now must not keep the others from being told.
        with anyio.CancelScope(shield=True):
            self._store.wakeups.ring(TOPIC)
            await self._apply()

    async def _follow(self, listener: Listener) -> None:
        while True:
            with anyio.move_on_after(LOOK_S):
                await listener.wait()
            try:
                await self._apply()
            except StoreUnavailable as error:
                event(_log, logging.WARNING, "callers of the store not read", reason=str(error))

    async def _apply(self) -> None:
        # Read within the lock: what was read earlier must not be applied later, or a removed caller would come back.
        async with self._applying:
            stored = tuple(map(self._make_known, await self._store.callers.all()))
            if stored == self._roster.stored:
                return
            before, after = ({one.name for one in each} for each in (self._roster.stored, stored))
            self._roster.replace_stored(stored)
        self._on_change()
        event(_log, logging.INFO, "callers of the store", added=sorted(after - before), removed=sorted(before - after))
        if stored and self._roster.anonymous is not None:
            hint = "set TOOLPOST_TOKEN, or add callers to toolpost.toml"
            event(_log, logging.WARNING, "callers of the store have no effect without a token", hint=hint)

    def _make_known(self, one: StoredCaller) -> KnownCaller:
        return KnownCaller(
            name=one.name,
            token_hash=one.token_hash,
            scope=_make_scope(one.tags, one.tools),
            mode=self._mode_scope(one.mode),
            secrets_hash=self._login.hash_secrets(f"stored\n{one.token_hash}") if self._login is not None else "",
        )


def _make_scope(tags: Sequence[str] | None, tools: Sequence[str] | None) -> Scope:
    return Scope(tags=None if tags is None else frozenset(tags), tools=None if tools is None else tuple(tools))
