"""Verdicts about the definitions of each server, so that the next start does not compute them again.

A verdict belongs to the digest of a definition and to the rules that it was made by: those made by other rules are not returned.
All verdicts of one kind about one server are one value, which the next one replaces.
"""

from typing import Final, Literal

from toolpost.store.scripts import Script, Statement, TableAccess, reads, writes

Kind = Literal["findings", "schemas"]

_REMEMBER: Final = (
    "INSERT INTO verdicts (server, kind, rules, found) VALUES (?1, ?2, ?3, ?4)"
    " ON CONFLICT (server, kind) DO UPDATE SET rules = excluded.rules, found = excluded.found"
)
_RECALL: Final = "SELECT found FROM verdicts WHERE server = ?1 AND kind = ?2 AND rules = ?3"


class Verdicts(TableAccess):
    """The verdicts about all servers, as JSON."""

    @reads
    def recall(self, kind: Kind, server: str, rules: str) -> Script[str | None]:
        """Return what was remembered last, None if that was by other rules."""
        rows = yield Statement(_RECALL, (server, kind, rules))
        return rows[0][0] if rows else None

    @writes(durable=False)
    def remember(self, kind: Kind, server: str, rules: str, found: str) -> Script[None]:
        yield Statement(_REMEMBER, (server, kind, rules, found))
