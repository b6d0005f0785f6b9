"""Removes a server's credentials from its output: a server may repeat its input, such as the headers of a request.

Bytes are compared, before a message is parsed, so that results, errors, notifications and lists are covered alike, at the price
of one search for each value. A value is found as it is, URL- or JSON-encoded, and in JSON inside a text; not in base64 or any
other form that a server makes up: it has the credential anyway, and this is no protection from the server itself.
"""

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from toolpost.base.redaction import REDACTED, forms_of

SHORTEST: Final = 8
"""Shorter values are not masked: they are found in texts that have nothing to do with them."""


class Mask:
    """The credentials of one server, or of one caller at a server."""

    __slots__ = ("_forms", "_secrets", "_tokens")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = tuple(secrets)
        self._tokens: tuple[str, ...] = ()
        self._forms = _write_all(self._secrets)

    def use_token(self, header: str | None) -> None:
        """Mask the token of an `Authorization` header from now on, and the one before it, which an answer may still have."""
        token = (header or "").rpartition(" ")[2]
        if token and token not in self._tokens:
            self._tokens = (*self._tokens[-1:], token)
            self._forms = _write_all((*self._secrets, *self._tokens))

    def apply(self, raw: bytes) -> bytes:
        """Return a message without the credentials; the same object if it has none."""
        for form, replacement in self._forms:
            if form in raw:
                raw = raw.replace(form, replacement)
        return raw


@lru_cache(maxsize=256)
def make_mask(secrets: tuple[str, ...]) -> Mask:
    """Return the mask of these secrets, the same one for the same secrets."""
    return Mask(secrets)


def _write_all(secrets: Iterable[str]) -> tuple[tuple[bytes, bytes], ...]:
    """Return all forms with their replacements, the longest first: one may be a part of another."""
    forms = {form for secret in secrets if len(secret) >= SHORTEST for form in _write_forms(secret)}
    return tuple((form, _replacement(form)) for form in sorted(forms, key=lambda form: (-len(form), form)))


def _write_forms(secret: str) -> set[bytes]:
    forms: set[str] = set()
    for form in forms_of(secret):
        if len(form) >= SHORTEST:
            inner = json.dumps(form, ensure_ascii=False)[1:-1]
            # As JSON, as PHP writes it, and as JSON that is the text of another.
            forms |= {inner, json.dumps(form)[1:-1], inner.replace("/", "\\/"), json.dumps(inner)[1:-1]}
    return {form.encode("utf-8", "surrogateescape") for form in forms}


def _replacement(form: bytes) -> bytes:
    # Digits may be a number, of which another number must be left.
    return b"9" * len(form) if form.isdigit() else REDACTED.encode()


NO_MASK: Final = Mask()
