"""Random secrets that the gateways of one store share; the first gateway that needs one creates it."""

import secrets
from typing import Final

from toolpost.store.scripts import NOW, Script, Statement, TableAccess, reads, writes

SECRET_BYTES: Final = 32


class Keys(TableAccess):
    """Random bytes by name."""

    async def of(self, name: str) -> bytes:
        """Return the secret of this name, the same for all gateways of the store; created if there is none."""
        if (known := await self.find(name)) is None:
            known = await self.add(name, secrets.token_bytes(SECRET_BYTES))
        return known

    @reads
    def find(self, name: str) -> Script[bytes | None]:
        """Return the secret of this name, None if there is none."""
        return (yield from _find(name))

    @writes(durable=False)
    def add(self, name: str, secret: bytes) -> Script[bytes]:
        """Store a secret, and return the one that is stored: another gateway may have been first."""
        ((now,),) = yield NOW
        yield Statement(
            "INSERT INTO keys (name, made_at, secret) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING", (name, now, secret)
        )
        known = yield from _find(name)
        assert known is not None
        return known


def _find(name: str) -> Script[bytes | None]:
    rows = yield Statement("SELECT secret FROM keys WHERE name = ?1", (name,))
    return bytes(rows[0][0]) if rows else None
