"""Which names hold secrets, and values without them; and the secrets that this process was given, wherever they turn up.

Names are judged by their words. Values are not: the only ones that are known to be secret are those that were remembered, and
log lines, tracebacks and errors are shown without them.
"""

import functools
import itertools
import re
from collections.abc import Iterable

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


SHORTEST = 4
"""What is shorter gives nothing away, and would be found in every other word."""

_REMEMBERED_LIMIT = 10_000

_remembered: dict[str, None] = {}
_longest_first: tuple[str, ...] = ()


def remember_secrets(secrets: Iterable[str]) -> None:
    """Have these values taken out of whatever `conceal_known` is given from now on; the oldest of very many are forgotten."""
    global _longest_first  # noqa: PLW0603 (one process, one log)
    new = [secret for secret in secrets if len(secret) >= SHORTEST and secret not in _remembered]
    if not new:
        return
    _remembered.update(dict.fromkeys(new))
    while len(_remembered) > _REMEMBERED_LIMIT:
        del _remembered[next(iter(_remembered))]
    _longest_first = tuple(sorted(_remembered, key=len, reverse=True))


def conceal_known(text: str) -> str:
    """Return a text without the values of secrets that were remembered."""
    for secret in _longest_first:
        if secret in text:
            text = text.replace(secret, REDACTED)
    return text


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
