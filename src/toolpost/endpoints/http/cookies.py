"""The cookies of a request, by name.

The reader of the standard library takes quadratic time for quoted values before Python 3.11.10. Our own cookies have no quotes:
the pairs are split and compared, and nothing else.
"""

from collections.abc import Mapping
from typing import Final

HEADER_LIMIT_BYTES: Final = 16 * 1024
"""Browsers send at most 4 KB for each cookie; a longer header is not read."""

VALUES_LIMIT: Final = 8
"""Of one name: browsers send one for each path that it was set for."""


def read_cookies(headers: Mapping[bytes, bytes], name: str) -> list[str]:
    """Return the values of the cookies with this name, in their order; none if the header is too long."""
    header = headers.get(b"cookie", b"")
    if len(header) > HEADER_LIMIT_BYTES:
        return []
    pairs = (pair.strip().partition("=") for pair in header.decode("latin-1").split(";"))
    return [value for found, _, value in pairs if found == name][:VALUES_LIMIT]
