"""Which names hold secrets, and values without them; and the secrets that this process was given, wherever they turn up.

Names are judged by their words. Values are not: the only ones that are known to be secret are those that were remembered, and
log lines, tracebacks and errors are shown without them.
"""

import functools
import itertools
import re
from collections.abc import Iterable

from toolpost.base.ids import Json

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


NAME_LIMIT = 256
"""Longer names are taken for secret ones unread: no property is called so, and a caller may send one of megabytes."""
DISTINCT_NAMES_LIMIT = 2_000
"""To read a name takes microseconds, and a caller may send tens of thousands of different ones in a value."""


def is_secret_name(name: str) -> bool:
    """Return whether what is kept under this name must not be shown; words are read in any spelling of names."""
    return len(name) > NAME_LIMIT or _is_secret_name(name)


@functools.lru_cache(maxsize=4096)
def _is_secret_name(name: str) -> bool:
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


def redact(value: Json) -> Json:
    """Return the value without what secret names hold; the very same object when there is nothing to hide.

    In a value with more than `DISTINCT_NAMES_LIMIT` different names the later ones are all taken for secret.
    """
    if isinstance(value, dict):
        return _redact_object(value, {})
    if isinstance(value, list):
        return _redact_array(value, {})
    return value


def _redact_object(value: dict[str, Json], judged: dict[str, bool]) -> Json:
    changed: dict[str, Json] = {}
    for name, held in value.items():
        if (is_secret := judged.get(name)) is None:
            if len(judged) < DISTINCT_NAMES_LIMIT:
                is_secret = judged[name] = len(name) > NAME_LIMIT or _is_secret_name(name)
            else:
                is_secret = True
        if is_secret:
            changed[name] = REDACTED
        elif isinstance(held, dict):
            if (kept := _redact_object(held, judged)) is not held:
                changed[name] = kept
        elif isinstance(held, list) and (kept := _redact_array(held, judged)) is not held:
            changed[name] = kept
    return value | changed if changed else value


def _redact_array(value: list[Json], judged: dict[str, bool]) -> Json:
    changed: dict[int, Json] = {}
    for number, item in enumerate(value):
        if isinstance(item, dict):
            if (kept := _redact_object(item, judged)) is not item:
                changed[number] = kept
        elif isinstance(item, list) and (kept := _redact_array(item, judged)) is not item:
            changed[number] = kept
    return [changed.get(number, item) for number, item in enumerate(value)] if changed else value
