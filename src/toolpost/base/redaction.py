"""Which names hold secrets, values without them, and the known secrets of this process.

Names are judged by their words; values are not. The only values known to be secret are those passed to `remember_secrets`: log
lines, tracebacks and errors are shown without them. Credentials in source code are masked in
`parts/workspace/masking.py`.
"""

import functools
import itertools
import json
from collections.abc import Iterable
from urllib.parse import quote, quote_plus, unquote

from toolpost.base.ids import Json
from toolpost.base.words import split_words

REDACTED = "(redacted)"

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
    for first in ("access", "api", "encryption", "priv", "private", "signing", "ssh")
    for second in ("key", "keys")
) | {("pass", "word"), ("pass", "phrase"), ("connection", "string")}
# `tokens` is usually a count, unless one of these words says what they are for.
_TOKEN_KINDS = frozenset({"access", "api", "auth", "bearer", "csrf", "id", "oauth", "refresh", "session"})
# A token beside one of these is a position in a list or a piece of text, not a credential.
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
# Last words of names that describe a secret without being one.
_ABOUT = frozenset({"count", "enabled", "length", "name", "policy", "required", "type"})


NAME_LIMIT = 256
"""Longer names count as secret unread: no real property is that long, and a caller may send megabytes."""
DISTINCT_NAMES_LIMIT = 2_000
"""Judging a name takes microseconds, and a value may have tens of thousands of different ones."""


def is_secret_name(name: str) -> bool:
    """Return whether a value under this name must not be shown; `apiKey`, `api_key` and `API-KEY` are the same name."""
    return len(name) > NAME_LIMIT or _is_secret_name(name)


@functools.lru_cache(maxsize=4096)
def _is_secret_name(name: str) -> bool:
    words = split_words(name)
    if not words or words[-1] in _ABOUT:
        return False
    if any(pair in _SECRET_PAIRS for pair in itertools.pairwise(words)):
        return True
    found = _SECRET_WORDS.intersection(words)
    if found == {"token"}:
        return _HARMLESS_BESIDE_TOKEN.isdisjoint(words) or not _TOKEN_KINDS.isdisjoint(words)
    return bool(found) or ("tokens" in words and not _TOKEN_KINDS.isdisjoint(words))


LINE_SHORTEST = 16
SHORTEST = 4
"""Shorter values give nothing away, and would be found in every other word."""

_REMEMBERED_LIMIT = 10_000

_remembered: dict[str, None] = {}
_longest_first: tuple[str, ...] = ()


def remember_secrets(secrets: Iterable[str]) -> None:
    """Have `conceal_known` remove these values from now on; beyond 10,000 the oldest are forgotten."""
    global _longest_first  # noqa: PLW0603 (one process, one log)
    new = [secret for secret in secrets if len(secret) >= SHORTEST and secret not in _remembered]
    if not new:
        return
    _remembered.update(dict.fromkeys(new))
    while len(_remembered) > _REMEMBERED_LIMIT:
        del _remembered[next(iter(_remembered))]
    _longest_first = tuple(sorted(_remembered, key=len, reverse=True))


def forms_of(secret: str) -> set[str]:
    """Return a secret as it may be printed: as it is, URL- and JSON-encoded, and by its lines."""
    # A multi-line key is printed one line at a time.
    lines = [line for line in secret.splitlines() if len(line) >= LINE_SHORTEST]
    return {secret, quote(secret, safe=""), quote_plus(secret), unquote(secret), json.dumps(secret)[1:-1], *lines}


def forget_secrets(secrets: Iterable[str]) -> None:
    """Stop removing these values: they are no longer valid. Tokens are replaced often, and must not push out other secrets."""
    global _longest_first  # noqa: PLW0603 (one process, one log)
    for secret in secrets:
        _remembered.pop(secret, None)
    _longest_first = tuple(sorted(_remembered, key=len, reverse=True))


def conceal_known(text: str) -> str:
    """Return a text without the remembered secrets."""
    for secret in _longest_first:
        if secret in text:
            text = text.replace(secret, REDACTED)
    return text


def redact(value: Json) -> Json:
    """Return the value without the values of secret names; the same object if there is nothing to hide.

    In a value with more than `DISTINCT_NAMES_LIMIT` different names, the later ones all count as secret.
    """
    if isinstance(value, dict):
        return _redact_object(value, {})
    if isinstance(value, list):
        return _redact_array(value, {})
    return value


def _redact_object(value: dict[str, Json], judged: dict[str, bool]) -> Json:
    changed: dict[str, Json] = {}
    for name, inner in value.items():
        if (is_secret := judged.get(name)) is None:
            if len(judged) < DISTINCT_NAMES_LIMIT:
                is_secret = judged[name] = len(name) > NAME_LIMIT or _is_secret_name(name)
            else:
                is_secret = True
        if is_secret:
            changed[name] = REDACTED
        elif isinstance(inner, dict):
            if (kept := _redact_object(inner, judged)) is not inner:
                changed[name] = kept
        elif isinstance(inner, list) and (kept := _redact_array(inner, judged)) is not inner:
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
