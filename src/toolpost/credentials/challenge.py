"""The challenge of a server that refuses access: `WWW-Authenticate` (RFC 6750, RFC 9728)."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Challenge:
    """The challenge of a 401 or 403 in `WWW-Authenticate`."""

    status: int = 401
    resource_metadata: str | None = None
    scope: str | None = None
    error: str | None = None

    @property
    def is_insufficient_scope(self) -> bool:
        return self.status == 403 and self.error == "insufficient_scope"


def parse_challenge(status: int, header: str) -> Challenge:
    """Parse `WWW-Authenticate`; what is not in it is None.

    Not by the SDK, which takes a second to load: a refused request must not stop all others for so long.
    """
    return Challenge(
        status=status,
        resource_metadata=_find(header, "resource_metadata"),
        scope=_find(header, "scope"),
        error=_find(header, "error"),
    )


def _find(header: str, name: str) -> str | None:
    found = re.search(rf'(?<![\w-]){name}\s*=\s*(?:"([^"]*)"|([^\s,"]+))', header, re.IGNORECASE)
    return (found[1] or found[2] or None) if found else None
