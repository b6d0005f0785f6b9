"""The scopes of a login: the permitted uses of a caller's tools.

There are two, and no settings for more: which tools there are for a person is said by `[callers]`, which a token can only narrow.
A tool that a token is not for is not listed, and a call of it is FORBIDDEN, as for a caller in the mode `readonly`.
"""

from collections.abc import Sequence
from typing import Final

ALL: Final = "tools"
"""Every tool that the caller sees, at each moment."""

READ: Final = "tools:read"
"""Those of them that are annotated read-only, as in the mode `readonly`: of servers, where an operator has confirmed it."""

SCOPES: Final = (ALL, READ)


def select_scopes(requested: str | None) -> list[str]:
    """Return the scopes that are known of those that a client asks for; all tools, if none is (RFC 6749, 3.3)."""
    return [scope for scope in SCOPES if scope in (requested or "").split()] or [ALL]


def is_read_only(scopes: Sequence[str]) -> bool:
    """Whether a token with these scopes is for read-only tools alone."""
    return ALL not in scopes
