"""Random secrets that the gateways of one store share; the first gateway that needs one creates it."""

import secrets
from typing import Final

from toolpost.store.scripts import NOW, Script, Scripts, Statement

SECRET_BYTES: Final = 32


class Keys:
    """Random bytes by name."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def of(self, name: str) -> bytes:
        """Return the secret of this name, the same for all gateways of the store; created if there is none."""
        if (known := await self._scripts.read(lambda: _find(name))) is None:
            new = secrets.token_bytes(SECRET_BYTES)
            known = await self._scripts.run(lambda: _add(name, new), durable=False)
        return known


def _find(name: str) -> Script[bytes | None]:
    rows = yield Statement("SELECT secret FROM keys WHERE name = ?1", (name,))
    return bytes(rows[0][0]) if rows else None


def _add(name: str, secret: bytes) -> Script[bytes]:
    ((now,),) = yield NOW
    yield Statement(
        "INSERT INTO keys (name, made_at, secret) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING", (name, now, secret)
    )
    # Another gateway may have stored one first: that one is valid.
    known = yield from _find(name)
    assert known is not None
    return known
