"""The callers that were made while a gateway runs, rather than in `toolpost.toml`: names, limits, and hashes of tokens.

They are valid at every gateway of the store. A gateway that is told by `TOPIC` reads them again.
"""

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

import msgspec

from toolpost.store.scripts import NOW, Row, Script, Statement, TableAccess, change, reads, writes

TOPIC: Final = "callers"
"""Rung when callers were added or removed."""

_COLUMNS: Final = "name, token_hash, tags, tools, mode, made_at, made_by"


def hash_token(token: bytes) -> str:
    """Return the form in which a token is stored. It has 256 random bits, which need neither salt nor a slow hash."""
    return sha256(token).hexdigest()


@dataclass(frozen=True, kw_only=True)
class StoredCaller:
    """A caller of the store."""

    name: str
    token_hash: str = field(repr=False)
    tags: tuple[str, ...] | None
    """None is no limit, as for `tools`."""
    tools: tuple[str, ...] | None
    mode: str
    made_at: float
    """In seconds of the store's time."""
    made_by: str
    """The caller who made it."""


class StoredCallers(TableAccess):
    """The callers of the store, by name."""

    @reads
    def all(self) -> Script[list[StoredCaller]]:
        """Return all of them, by name."""
        rows = yield Statement(f"SELECT {_COLUMNS} FROM callers ORDER BY name")  # noqa: S608 - constants
        return [_parse(row) for row in rows]

    @writes(repeatable=False)
    def add(
        self,
        name: str,
        token: str,
        tags: tuple[str, ...] | None,
        tools: tuple[str, ...] | None,
        *,
        mode: str,
        made_by: str,
    ) -> Script[bool]:
        """Add a caller with this token, of which only a hash is stored; False if there is one of this name."""
        ((now,),) = yield NOW
        row = (name, hash_token(token.encode()), _encode(tags), _encode(tools), mode, now, made_by)
        # `repeatable=False`: a second run after a lost commit would not find out that the caller of this name is its own.
        added = yield change(
            f"INSERT INTO callers ({_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",  # noqa: S608
            row,
        )
        return bool(added)

    @writes(repeatable=False)
    def remove(self, name: str) -> Script[bool]:
        """Remove a caller, with its token; False if there is none of this name."""
        removed = yield change("DELETE FROM callers WHERE name = ?1", (name,))
        return bool(removed)


def _encode(names: tuple[str, ...] | None) -> str | None:
    return None if names is None else msgspec.json.encode(names).decode()


def _decode(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else msgspec.json.decode(text, type=tuple[str, ...])


def _parse(row: Row) -> StoredCaller:
    name, token_hash, tags, tools, mode, made_at, made_by = row
    return StoredCaller(
        name=name,
        token_hash=token_hash,
        tags=_decode(tags),
        tools=_decode(tools),
        mode=mode,
        made_at=made_at,
        made_by=made_by,
    )
