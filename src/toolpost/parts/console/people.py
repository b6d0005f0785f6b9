"""The sessions of people who are signed in, in the store: any gateway of it knows them, and an end is one everywhere.

A browser has a session as a cookie, and its page a secret beside it: browsers send cookies to every port of a host, whose servers
cannot read it. Of both the store has hashes.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import msgspec

from toolpost.store import NOW, Row, Script, Statement, TableAccess, change, reads, writes

_COLUMNS: Final = "subject, name, groups, signed_in_at, expires_at"


def hash_of(secret: str) -> str:
    """Return the form in which the secrets of a session are stored: they are random, and cannot be guessed."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, kw_only=True)
class SignedIn:
    """Who is signed in, as the provider said when they signed in."""

    subject: str
    name: str
    groups: tuple[str, ...]
    """Those that had a role then."""
    signed_in_at: float
    """When they proved to the provider who they are, in seconds of the wall clock; 0 if it did not say so."""


class PeopleSessions(TableAccess):
    """The sessions of people."""

    @writes()
    def begin(self, cookie: str, who: SignedIn, *, secret_hash: str, seconds: float) -> Script[None]:
        """Begin a session, and forget those that are over."""
        ((now,),) = yield NOW
        yield Statement("DELETE FROM console_sessions WHERE expires_at < ?1", (now,))
        groups = msgspec.json.encode(who.groups).decode()
        yield Statement(
            f"INSERT INTO console_sessions (id, secret_hash, {_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"  # noqa: S608
            " ON CONFLICT DO NOTHING",
            (hash_of(cookie), secret_hash, who.subject, who.name, groups, who.signed_in_at, now + seconds),
        )

    @reads
    def find(self, cookies: Collection[str], secret: str) -> Script[tuple[SignedIn, float] | None]:
        """Return who has one of these cookies and this secret, and for how many seconds more; None for nobody."""
        ((now,),) = yield NOW
        for cookie in cookies:
            rows = yield Statement(
                f"SELECT {_COLUMNS} FROM console_sessions WHERE id = ?1 AND secret_hash = ?2 AND expires_at > ?3",  # noqa: S608
                (hash_of(cookie), hash_of(secret), now),
            )
            if rows:
                return _parse(rows[0]), rows[0][-1] - now
        return None

    @writes()
    def end(self, cookies: Collection[str], secret: str) -> Script[bool]:
        """End the sessions of a browser; False if there was none."""
        ended = False
        for cookie in cookies:
            gone = yield change(
                "DELETE FROM console_sessions WHERE id = ?1 AND secret_hash = ?2", (hash_of(cookie), hash_of(secret))
            )
            ended = ended or bool(gone)
        return ended


def _parse(row: Row) -> SignedIn:
    subject, name, groups, signed_in_at, _ = row
    return SignedIn(
        subject=subject, name=name, groups=msgspec.json.decode(groups, type=tuple[str, ...]), signed_in_at=signed_in_at
    )
