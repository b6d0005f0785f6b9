"""Which server has a resource: the one that lists its URI, else the one whose template fits it best.

A template is compared by its literal text alone: it says whose URIs these are, and the server itself decides which of them
exist. So any template of RFC 6570 counts, and none can take long to match: its literals are searched for one after the other.

Example: with `file:///{+path}` of one server and `file:///logs/{day}` of another, `file:///logs/today` belongs to the second,
whose template has more literal text.
"""

import re
from collections.abc import Collection, Iterable
from typing import Final

_EXPRESSION: Final = re.compile(r"\{[^{}]*\}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

TEMPLATES_LIMIT: Final = 1_000
"""How many templates of a server are compared with a URI."""


class ResourceOwners:
    """The URIs and templates that servers have listed."""

    def __init__(self) -> None:
        self._listed: dict[str, dict[str, None]] = {}
        """The servers that list a URI, in the order in which they are asked."""
        self._templates: dict[str, dict[str, tuple[str, ...]]] = {}
        """By server, templates as their literal pieces."""

    def note_uri(self, uri: str, server: str) -> None:
        self._listed.setdefault(uri, {})[server] = None

    def note_templates(self, server: str, templates: Iterable[str]) -> None:
        """Replace the templates of a server. One whose scheme is not literal is left out: it would take every URI."""
        found: dict[str, tuple[str, ...]] = {}
        for template in templates:
            literals = tuple(_EXPRESSION.split(template))
            if _SCHEME.match(literals[0]) and len(found) < TEMPLATES_LIMIT:
                found[template] = literals
        self._templates[server] = found

    def forget(self, server: str) -> None:
        """Forget what a server has listed, after it announced a change."""
        self._templates.pop(server, None)
        for uri, servers in tuple(self._listed.items()):
            servers.pop(server, None)
            if not servers:
                del self._listed[uri]

    def find(self, uri: str, among: Collection[str]) -> str | None:
        """Return the server that lists a URI, else the one whose template fits it best; None if there is none."""
        for server in self._listed.get(uri, ()):
            if server in among:
                return server
        best, most = None, -1
        for server in among:
            for template, literals in self._templates.get(server, {}).items():
                # A completion names the template itself.
                length = len(template) if template == uri else sum(map(len, literals))
                # Of two that fit alike, the server that is configured first.
                if length > most and _fits(literals, uri):
                    best, most = server, length
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
