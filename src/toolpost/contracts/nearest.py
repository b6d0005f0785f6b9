"""The known name that somebody probably meant."""

import difflib
from collections.abc import Iterable


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that comes nearest, None if none does."""
    by_spelling = {_plain(candidate): candidate for candidate in sorted(known, reverse=True)}
    matches = difflib.get_close_matches(_plain(name), by_spelling, n=1, cutoff=0.6)
    return by_spelling[matches[0]] if matches else None


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()
