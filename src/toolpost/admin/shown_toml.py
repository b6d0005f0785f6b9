"""The text of `toolpost.toml` as it may be shown: every line, without the secrets.

Secrets are found in the values, and concealed in the text: as whole strings, however they are written (quotes, escapes, several
lines), and also in comments, since a line that was commented out has its secret all the same.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolpost.base.redaction import SHORTEST
from toolpost.settings import ServerSettings
from toolpost.settings.secrets import AUTH_SECRETS, rewrite_secrets

MASK: Final = "…"

_TABLES: Final = frozenset({"env", "headers", "security"})
"""Tables of values that may all be secret."""
_PLAIN: Final = frozenset({"auth", "credentials"})
"""Settings whose names sound secret, and whose values are words such as `caller`."""
_TOKEN: Final = re.compile(
    r"""#[^\r\n]*|\"""(?:\\.|[^\\])*?(?:\"""\"{0,2}|\Z)|'''.*?(?:''''{0,2}|\Z)|"(?:\\.|[^"\\\n])*"?|'[^'\n]*'?""",
    re.DOTALL,
)
"""A comment or a string, in a text that is valid TOML. One without an end is matched too, in linear time."""


def conceal_secrets(before: str, after: str) -> tuple[str, str]:
    """Return a file as it was and as it would be, both without secrets.

    Every value of `env` and `headers` that was there already is concealed; of those that are added, only what looks secret, so
    that the person who adds them can check them.
    """
    masked = dict(_find(tomllib.loads(after), is_strict=False)) | dict(_find(tomllib.loads(before), is_strict=True))
    return _conceal(before, masked), _conceal(after, masked)


def _find(table: Mapping[str, Any], *, is_strict: bool, is_secret: bool = False) -> Iterator[tuple[str, str]]:
    """Yield every text that is or contains a secret, and its masked form."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _find(value, is_strict=is_strict, is_secret=is_strict and name in _TABLES)
        elif isinstance(value, str):
            shown = _mask_value(name, value, is_secret=is_secret or name in AUTH_SECRETS)
            if shown != value:
                yield value, shown
        elif isinstance(value, list):
            words = [one for one in value if isinstance(one, str)]
            found = rewrite_secrets(ServerSettings(args=words), _mask).args
            yield from ((word, shown) for word, shown in zip(words, found, strict=True) if shown != word)
            for one in value:
                if isinstance(one, dict):
                    yield from _find(one, is_strict=is_strict)


def _mask_value(name: str, value: str, *, is_secret: bool) -> str:
    if not is_secret and (name in _PLAIN or name.endswith("_env")):
        name = "value"
    return rewrite_secrets(ServerSettings(env={name: value}), _mask, is_strict=is_secret).env[name]


def _mask(_key: str, _name: str, _secret: str) -> str:
    return MASK


def _conceal(text: str, masked: Mapping[str, str]) -> str:
    def replace(found: re.Match[str]) -> str:
        token = found[0]
        if token.startswith("#"):
            return _conceal_comment(token, masked)
        value = tomllib.loads(f"x = {token}")["x"]
        # Not written as TOML again: it is shown, and never read.
        return f'"{masked[value]}"' if value in masked else token

    return _TOKEN.sub(replace, text)


def _conceal_comment(comment: str, masked: Mapping[str, str]) -> str:
    body = comment[1:]
    try:
        own = dict(_find({"env": tomllib.loads(body)}, is_strict=True))
    except (ValueError, RecursionError):
        body = rewrite_secrets(ServerSettings(args=[body]), _mask).args[0]
    else:
        body = _conceal(body, own)
    for secret in sorted(masked, key=len, reverse=True):
        if len(secret) >= SHORTEST:
            body = body.replace(secret, masked[secret])
    return f"#{body}"
