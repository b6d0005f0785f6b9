"""`Vault`: credentials by server, owner and name, encrypted in the store. An empty owner is shared by all callers.

Server, owner and name are encrypted with the value, so that a row that was moved to another owner in the database is refused.
The store also has a short encrypted text of its own, the key check: a gateway with another key than the one that it was encrypted
with (a second machine that has made its own key file) is refused before it stores what the others could not read.

    vault = Vault(store, KeyFile(path))
    await vault.put("github", "ann", "TOKEN", b"ghp_…")
    async with vault.lease("github", "ann", "oauth", seconds=30) as has_lease: ...
"""

import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import EllipsisType
from typing import TYPE_CHECKING, Final

import anyio
import msgspec
from anyio import to_thread

from toolpost.contracts.errors import BadConfiguration, CredentialUnreadable
from toolpost.credentials.keys import KeyPlace, make_key
from toolpost.store import Store
from toolpost.store.credentials import CHECK, CredentialRow, Written

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

TOPIC: Final = "credentials"
"""Rung at the store's wake-ups whenever a credential was changed or removed."""

_ROTATION_S: Final = 60.0


class _Sealed(msgspec.Struct, array_like=True):
    """What is encrypted."""

    server: str
    owner: str
    name: str
    value: bytes


@dataclass(frozen=True, kw_only=True)
class CredentialInfo:
    """A stored credential, without its value."""

    server: str
    owner: str
    """Empty if all callers share it."""
    name: str
    changed_at: float
    """In seconds since 1970, by the wall clock."""
    is_readable: bool
    """Whether the key at hand decrypts it."""


class Vault:
    """Credentials by server, owner and name. All methods raise `StoreUnavailable` if the database cannot be reached."""

    def __init__(self, store: Store, keys: KeyPlace) -> None:
        self._rows = store.credentials
        self._scripts = store.scripts
        self.wakeups = store.wakeups
        self.keys = keys
        self._cipher: MultiFernet | None = None
        self._holder = secrets.token_hex(8)

    async def get(self, server: str, owner: str, name: str) -> bytes | None:
        """Return a value, None if there is none; raises `CredentialUnreadable` if no key decrypts it."""
        return (await self._read(server, owner, name))[1]

    async def put(
        self, server: str, owner: str, name: str, value: bytes, *, expect: bytes | EllipsisType | None = ...
    ) -> bool:
        """Store a value, and return True once it is durable.

        With `expect`, only if that is the stored value (None: if there is none); otherwise nothing happens, and False is
        returned. Raises `BadConfiguration` if the key at hand is not the one of this store.
        """
        while True:
            cipher, check = await self._cipher_for_writing()
            # With its place: a row that is copied to another caller's place is refused when it is read.
            new = cipher.encrypt(msgspec.msgpack.encode(_Sealed(server, owner, name, value)))
            old: bytes | EllipsisType | None = ...
            if not isinstance(expect, EllipsisType):
                old, current = await self._read(server, owner, name)
                if current != expect:
                    return False
            # If it was changed since it was read, perhaps only encrypted with another key, the next round sees it.
            if await self._rows.write((server, owner, name), new, check=check, old=old) is Written.DONE:
                self.wakeups.ring(TOPIC)
                return True

    async def remove(self, server: str, owner: str, name: str | None = None) -> int:
        """Delete a value, or without a name all of an owner for this server; returns how many there were."""
        if removed := await self._rows.remove(server, owner, name):
            self.wakeups.ring(TOPIC)
        return removed

    async def list(self) -> list[CredentialInfo]:
        """Return what there is, without values, ordered by server, owner and name."""
        rows = [row for row in await self._rows.list() if row.server]
        return [
            CredentialInfo(
                server=row.server,
                owner=row.owner,
                name=row.name,
                changed_at=self._scripts.wall(row.changed_at),
                is_readable=await self._is_readable(row.server, row.owner, row.name, row.value),
            )
            for row in rows
        ]

    async def list_changes(self, server: str, owner: str) -> dict[str, float]:
        """Return when each value of an owner for one server was changed, by name, in seconds since 1970. Decrypts none."""
        changes = await self._rows.names(server, owner)
        return {name: self._scripts.wall(changed_at) for name, changed_at in changes.items()}

    @asynccontextmanager
    async def lease(
        self, server: str, owner: str, name: str, *, seconds: float, holder: str | None = None
    ) -> AsyncIterator[bool]:
        """Try to be the only one, among all gateways of the store, that renews a credential; False if another one does.

        Does not wait. The lease ends with the block, or after `seconds` if this process is killed or stuck.
        """
        holder = holder or self._make_holder()
        has_lease = await self._rows.lease(server, owner, name, holder=holder, seconds=seconds)
        try:
            yield has_lease
        finally:
            if has_lease:
                # Otherwise a cancelled holder would make the others wait until the lease expires.
                with anyio.CancelScope(shield=True):
                    await self._rows.end_lease(server, owner, name, holder=holder)
                self.wakeups.ring(TOPIC)

    async def rotate(self) -> int:
        """Make a new key, encrypt everything with it, and return how many credentials there are.

        A place that Toolpost cannot write to must have the new key already, before the old one. The key before it is
        kept until the next rotation, for gateways that are just reading. Raises `CredentialUnreadable` if a value cannot be
        decrypted; nothing is lost then, and what was encrypted with the old key is still readable.
        """
        holder = self._make_holder()
        async with self.lease(*CHECK, seconds=_ROTATION_S, holder=holder) as has_lease:
            if not has_lease:
                raise BadConfiguration("The key is being rotated by another process.", hint="wait a minute")
            extend = self._make_extension(holder)
            known = await to_thread.run_sync(self.keys.read)
            # Before anything is changed: a value that cannot be decrypted now would be lost.
            for row in await self._rows.list():
                await extend()
                await self.get(row.server, row.owner, row.name)
            if self.keys.is_writable:
                known = [make_key(), *known]
                await to_thread.run_sync(self.keys.replace, known)
            elif len(known) < 2:
                await to_thread.run_sync(self.keys.replace, known)
            self._use(known)
            rotated = await self._encrypt_again(extend)
            # Read again: a process that was stopped for long in a rotation may go on in the middle of the next one, and must
            # not remove the key of that one.
            if self.keys.is_writable and await to_thread.run_sync(self.keys.read) == known:
                await to_thread.run_sync(self.keys.replace, known[:2])
                self._use(known[:2])
            return rotated

    def _make_holder(self) -> str:
        # Two tasks of one gateway are two holders.
        return f"{self._holder}-{secrets.token_hex(4)}"

    def _make_extension(self, holder: str) -> Callable[[], Awaitable[None]]:
        """Return a function to call before each row, which extends the lease of a rotation in time."""
        extended_at = time.monotonic()

        async def extend() -> None:
            nonlocal extended_at
            if time.monotonic() < extended_at + _ROTATION_S / 3:
                return
            extended_at = time.monotonic()
            if not await self._rows.lease(*CHECK, holder=holder, seconds=_ROTATION_S):
                # All keys are still there, so that nothing is lost.
                raise BadConfiguration("Another process has begun to rotate the key.", hint="run this again after it")

        return extend

    async def _encrypt_again(self, extend: Callable[[], Awaitable[None]]) -> int:
        assert self._cipher is not None
        if (check := await self._rows.find(*CHECK)) is None:
            return 0
        # First: from then on nothing can be written with the old key, and the list below is complete.
        row = CredentialRow(server=CHECK[0], owner=CHECK[1], name=CHECK[2], changed_at=0, value=check)
        await self._rows.encrypt_again(row, self._cipher.rotate(check))
        rows = [row for row in await self._rows.list() if row.server]
        for row in rows:
            await extend()
            await self._rows.encrypt_again(row, self._cipher.rotate(row.value))
        return len(rows)

    async def _cipher_for_writing(self) -> "tuple[MultiFernet, bytes]":
        """Return the cipher of the keys as they are now, and the key check that it decrypts; the first write makes both."""
        while True:
            # In this order: another process makes or rotates the key first, and then the check.
            check = await self._rows.find(*CHECK)
            keys = await to_thread.run_sync(self.keys.read)
            if not keys and check is not None:
                raise BadConfiguration(
                    "The credentials in the store are encrypted with a key that is not here: there is none in"
                    f" {self.keys.shown}.",
                    hint="copy the key from the machine that made it, or set TOOLPOST_CREDENTIALS_KEY",
                )
            cipher = self._use(keys or await to_thread.run_sync(self.keys.create))
            if check is None:
                check = await self._rows.add_check(cipher.encrypt(msgspec.msgpack.encode(_Sealed(*CHECK, b""))))
            if self._decrypt(check) is None:
                if check != await self._rows.find(*CHECK):
                    continue
                raise BadConfiguration(
                    f"The credentials in the store are encrypted with another key than the one in {self.keys.shown}.",
                    hint="use the same key on every machine that shares the store: copy it, or set TOOLPOST_CREDENTIALS_KEY",
                )
            return cipher, check

    def _use(self, keys: Sequence[str]) -> "MultiFernet":
        # Imported when it is needed: most gateways have no credentials, and start without it.
        from cryptography.fernet import Fernet, MultiFernet

        self._cipher = MultiFernet([Fernet(key) for key in keys])
        return self._cipher

    async def _read(self, server: str, owner: str, name: str) -> tuple[bytes | None, bytes | None]:
        """Return a value, encrypted and decrypted."""
        encrypted = await self._rows.find(server, owner, name)
        while encrypted is not None:
            try:
                return encrypted, await self._open(server, owner, name, encrypted)
            except CredentialUnreadable:
                # The key may have been rotated after the value was read: then it is encrypted with the new one by now.
                before, encrypted = encrypted, await self._rows.find(server, owner, name)
                if encrypted == before:
                    raise
        return None, None

    async def _is_readable(self, server: str, owner: str, name: str, encrypted: bytes) -> bool:
        try:
            await self._open(server, owner, name, encrypted)
        except CredentialUnreadable:
            return False
        return True

    async def _open(self, server: str, owner: str, name: str, encrypted: bytes) -> bytes:
        opened = self._decrypt(encrypted)
        if opened is None:
            # The key may have been rotated by another process since it was read.
            if not (keys := await to_thread.run_sync(self.keys.read)):
                raise CredentialUnreadable(
                    f"The credential {name} of the server {server} cannot be decrypted: there is no key in"
                    f" {self.keys.shown}.",
                    hint="copy the key from the machine that made it, or set TOOLPOST_CREDENTIALS_KEY",
                )
            self._use(keys)
            opened = self._decrypt(encrypted)
        if opened is None or (opened.server, opened.owner, opened.name) != (server, owner, name):
            what = "it belongs to another caller or server" if opened is not None else "its key is another one"
            raise CredentialUnreadable(
                f"The credential {name} of the server {server} cannot be decrypted: {what}.",
                hint=f"use the key with which it was stored (now: {self.keys.shown}), or set the credential again",
            )
        return opened.value

    def _decrypt(self, encrypted: bytes) -> _Sealed | None:
        if self._cipher is None:
            return None
        from cryptography.fernet import InvalidToken

        try:
            return msgspec.msgpack.decode(self._cipher.decrypt(encrypted), type=_Sealed)
        except InvalidToken:
            return None
