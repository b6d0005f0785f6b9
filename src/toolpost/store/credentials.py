"""Credentials for servers, by server, owner and name; an empty owner is shared by all callers.

Values come and go encrypted: `credentials/vault.py` has the key. Ciphertexts of the same value differ each time, so
that one stands for exactly one write: they are compared before they are replaced, and a write that is repeated knows its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import EllipsisType
from typing import Final

from toolpost.store.scripts import NOW, Script, Statement, TableAccess, change, reads, writes

CredentialKey = tuple[str, str, str]
"""Server, owner and name."""

CHECK: Final = ("", "", "key")
"""Where the key check is: a text that the key in use decrypts. No server has an empty name."""

_THIS: Final = "WHERE server = ?1 AND owner = ?2 AND name = ?3"
_INSERT: Final = "INSERT INTO credentials (server, owner, name, changed_at, value) VALUES (?1, ?2, ?3, ?4, ?5)"
_PUT: Final = (
    f"{_INSERT} ON CONFLICT (server, owner, name)"
    " DO UPDATE SET changed_at = excluded.changed_at, value = excluded.value"
)


class Written(Enum):
    """The outcome of a write."""

    DONE = auto()
    OTHER_VALUE = auto()
    """Nothing was written: the stored value is not the expected one."""
    OTHER_KEY = auto()
    """Nothing was written: the key has been rotated."""


@dataclass(frozen=True, kw_only=True)
class CredentialRow:
    """A stored credential."""

    server: str
    owner: str
    name: str
    changed_at: float
    """In seconds since 1970, on the clock of the store."""
    value: bytes
    """Encrypted."""


class CredentialRows(TableAccess):
    """The encrypted credentials of one store."""

    @reads
    def find(self, server: str, owner: str, name: str) -> Script[bytes | None]:
        """Return the encrypted value, None if there is none."""
        return (yield from _find(server, owner, name))

    @reads
    def names(self, server: str, owner: str) -> Script[Mapping[str, float]]:
        """Return the names of what an owner has for one server, and when each was changed, on the clock of the store."""
        sql = "SELECT name, changed_at FROM credentials WHERE server = ?1 AND owner = ?2"
        return dict((yield Statement(sql, (server, owner))))

    @reads
    def list(self) -> Script[list[CredentialRow]]:
        """Return all of them, ordered by server, owner and name."""
        rows = yield Statement(
            "SELECT server, owner, name, changed_at, value FROM credentials ORDER BY server, owner, name"
        )
        return [
            CredentialRow(server=server, owner=owner, name=name, changed_at=changed_at, value=bytes(value))
            for server, owner, name, changed_at, value in rows
        ]

    @writes()
    def write(
        self, row: CredentialKey, new: bytes, *, check: bytes, old: bytes | EllipsisType | None = ...
    ) -> Script[Written]:
        """Store an encrypted value while the key check is `check`; with `old`, only in the place of that one (None: of none)."""
        # Locked, so that a rotation of the key, which replaces the check first, comes before this write or finds its value.
        checked = yield Statement(f"SELECT value FROM credentials {_THIS} /*lock*/", CHECK)  # noqa: S608 - constants
        if not checked or bytes(checked[0][0]) != check:
            return Written.OTHER_KEY
        # If this script is run again after it was committed, its own value is there.
        if (current := (yield from _find(*row))) != new:
            if not isinstance(old, EllipsisType) and current != old:
                return Written.OTHER_VALUE
            ((now,),) = yield NOW
            yield Statement(_PUT, (*row, now, new))
        return Written.DONE

    @writes()
    def add_check(self, new: bytes) -> Script[bytes]:
        """Store the first key check, and return the one that is stored: another process may have been first."""
        ((now,),) = yield NOW
        yield Statement(f"{_INSERT} ON CONFLICT DO NOTHING", (*CHECK, now, new))
        return (yield from _find(*CHECK)) or b""

    @writes()
    def encrypt_again(self, row: CredentialRow, new: bytes) -> Script[None]:
        """Replace an encrypted value by the same one under another key, unless it has been changed since it was read."""
        sql = f"UPDATE credentials SET value = ?5 {_THIS} AND value = ?4"  # noqa: S608 - constants
        yield Statement(sql, (row.server, row.owner, row.name, row.value, new))

    @writes()
    def remove(self, server: str, owner: str, name: str | None = None) -> Script[int]:
        """Delete a value, or without a name all of an owner for this server; returns how many there were."""
        sql = "DELETE FROM credentials WHERE server = ?1 AND owner = ?2 AND (CAST(?3 AS TEXT) IS NULL OR name = ?3)"
        return len((yield change(sql, (server, owner, name))))

    @writes(durable=False)
    def lease(self, server: str, owner: str, name: str, *, holder: str, seconds: float) -> Script[bool]:
        """Take the lease of a credential, or extend it; False while another holder has it."""
        ((now,),) = yield NOW
        taken = yield change(
            "INSERT INTO credential_leases (server, owner, name, holder, until) VALUES (?1, ?2, ?3, ?4, ?5)"
            " ON CONFLICT (server, owner, name) DO UPDATE SET holder = excluded.holder, until = excluded.until"
            " WHERE credential_leases.until <= ?6 OR credential_leases.holder = excluded.holder",
            (server, owner, name, holder, now + seconds, now),
        )
        return bool(taken)

    @writes(durable=False)
    def end_lease(self, server: str, owner: str, name: str, *, holder: str) -> Script[None]:
        """Give a lease back; nothing happens if another holder has it by now."""
        yield Statement(f"DELETE FROM credential_leases {_THIS} AND holder = ?4", (server, owner, name, holder))  # noqa: S608


def _find(server: str, owner: str, name: str) -> Script[bytes | None]:
    rows = yield Statement(f"SELECT value FROM credentials {_THIS}", (server, owner, name))  # noqa: S608 - constants
    return bytes(rows[0][0]) if rows else None
