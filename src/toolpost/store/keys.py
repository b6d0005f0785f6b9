"""Secrets that gateways of one store share, and nobody types: made by whoever needs one first."""

from typing import Final, Protocol

SECRET_BYTES: Final = 32


class Keys(Protocol):
    """Random bytes by name."""

    async def of(self, name: str) -> bytes:
        """Return the secret of this name, the same for all who open the store; made if there is none."""
        ...
