"""The name of a server, which is the prefix of its tools."""

import re

from toolpost.base.normalization import normalize


def usable_name(name: str) -> str:
    """Make a valid server name: anything but letters, digits, `-` and single `_` becomes `-`."""
    plain = normalize("NFKD", name).encode("ascii", "ignore").decode()
    dashed = re.sub(r"[^A-Za-z0-9_-]+", "-", plain)
    return re.sub(r"_+", "_", dashed).strip("-_") or "server"
