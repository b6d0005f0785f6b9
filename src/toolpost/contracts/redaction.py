"""Which names hold secrets, and values without them. Judged by name alone: a value never says what it is."""

import functools
import itertools
import re

from toolpost.contracts.ids import Json

REDACTED = "(redacted)"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_SECRET_WORDS = frozenset(
    {
        "apikey",
        "apikeys",
        "auth",
        "authorization",
        "bearer",
        "cookie",
        "cookies",
        "credential",
        "credentials",
        "creds",
        "jwt",
        "passphrase",
        "passwd",
        "password",
        "passwords",
        "pwd",
        "secret",
        "secrets",
        "token",
    }
)
_SECRET_PAIRS = frozenset(
    (first, second)
    for first in ("access", "api", "encryption", "private", "signing", "ssh")
    for second in ("key", "keys")
) | {("pass", "word"), ("pass", "phrase"), ("connection", "string")}
# `tokens` are counted more often than kept, unless one of these says what they are for.
_TOKEN_KINDS = frozenset({"access", "api", "auth", "bearer", "csrf", "id", "oauth", "refresh", "session"})
# A token beside one of these is a place in a list or a piece of text, not a key to anything.
_HARMLESS_BESIDE_TOKEN = frozenset(
    {
        "budget",
        "chunk",
        "completion",
        "continuation",
        "count",
        "cursor",
        "id",
        "index",
        "input",
        "length",
        "limit",
        "max",
        "min",
        "next",
        "number",
        "output",
        "page",
        "pagination",
        "prev",
        "previous",
        "size",
        "start",
        "stop",
        "sync",
        "type",
        "usage",
    }
)
# These say something about a secret without being one.
_ABOUT = frozenset({"count", "enabled", "length", "name", "policy", "required", "type"})


@functools.lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Say whether what is kept under this name must not be shown; words are read in any spelling of names."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[-1] in _ABOUT:
        return False
    if any(pair in _SECRET_PAIRS for pair in itertools.pairwise(words)):
        return True
    found = _SECRET_WORDS.intersection(words)
    if found == {"token"}:
        return _HARMLESS_BESIDE_TOKEN.isdisjoint(words) or not _TOKEN_KINDS.isdisjoint(words)
    return bool(found) or ("tokens" in words and not _TOKEN_KINDS.isdisjoint(words))


def redacted(value: Json) -> Json:
    """Return the value without what secret names hold; the very same object when there is nothing to hide."""
    if isinstance(value, dict):
        return _redacted_object(value)
    if isinstance(value, list):
        return _redacted_array(value)
    return value


def _redacted_object(value: dict[str, Json]) -> Json:
    changed = {}
    for name, held in value.items():
        kept = REDACTED if is_secret_name(name) else redacted(held)
        if kept is not held:
            changed[name] = kept
    return value | changed if changed else value


def _redacted_array(value: list[Json]) -> Json:
    kept = [redacted(item) if isinstance(item, dict | list) else item for item in value]
    return kept if any(new is not old for new, old in zip(kept, value, strict=True)) else value
