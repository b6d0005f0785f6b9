"""The owner of a resource: the server that lists its URI, else the server with the best matching template.

A template is compared by its literal text alone: it says whose URIs these are, and the server itself decides which of them
exist. So any template of RFC 6570 counts, and none can take long to match: its literals are searched for one after the other.

Example: with `file:///{+path}` of one server and `file:///logs/{day}` of another, `file:///logs/today` belongs to the second,
whose template has more literal text.
"""

import re
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

_EXPRESSION: Final = re.compile(r"\{[^{}]*\}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

TEMPLATES_LIMIT: Final = 1_000
"""How many templates of a server are compared with a URI."""


class Account(NamedTuple):
    """A server, and the owner of the credentials with which it is asked; empty where callers share them."""

    server: str
    owner: str = ""


class ResourceOwners:
    """The URIs and templates that servers have listed, by account: one caller must not learn what another's account lists."""

    def __init__(self) -> None:
        self._listed: dict[Account, frozenset[str]] = {}
        """By account, the URIs of its last list: a server may list others each time."""
        self._templates: dict[Account, dict[str, tuple[str, ...]]] = {}
        """By account, templates as their literal pieces."""

    def note_uris(self, account: Account, uris: Iterable[str]) -> None:
        """Replace the URIs of an account."""
        self._listed[account] = frozenset(uris)

    def note_templates(self, account: Account, templates: Iterable[str]) -> None:
        """Replace the templates of an account. One whose scheme is not literal is left out: it would take every URI."""
        found: dict[str, tuple[str, ...]] = {}
        for template in templates:
            literals = tuple(_EXPRESSION.split(template))
            if _SCHEME.match(literals[0]) and len(found) < TEMPLATES_LIMIT:
                found[template] = literals
        self._templates[account] = found

    def forget(self, server: str) -> None:
        """Forget what a server has listed for any account, after it announced a change."""
        self._listed = {account: found for account, found in self._listed.items() if account.server != server}
        self._templates = {account: found for account, found in self._templates.items() if account.server != server}

    def find(self, uri: str, among: Collection[Account]) -> str | None:
        """Return the first server that lists a URI to its account, else that whose template fits best; None without one."""
        for account in among:
            if uri in self._listed.get(account, ()):
                return account.server
        best, most = None, -1
        for account in among:
            for template, literals in self._templates.get(account, {}).items():
                # A completion names the template itself.
                length = len(template) if template == uri else sum(map(len, literals))
                # Of two that fit alike, the server that is configured first.
                if length > most and _fits(literals, uri):
                    best, most = account.server, length
        return best


def _fits(literals: tuple[str, ...], uri: str) -> bool:
    first, *middle = literals
    if not middle:
        return uri == first
    last = middle.pop()
    if not uri.startswith(first) or not uri.endswith(last) or len(uri) < len(first) + len(last):
        return False
    position, end = len(first), len(uri) - len(last)
    for literal in middle:
        if (found := uri.find(literal, position, end)) < 0:
            return False
        position = found + len(literal)
    return True
