"""Removes a server's secrets from what it prints: it may print what it was given."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol
from urllib.parse import quote, quote_plus, unquote

from toolpost.base.redaction import REDACTED, SHORTEST, remember_secrets
from toolpost.settings.secrets import rewrite_secrets
from toolpost.settings.servers import ServerSettings

LINE_SHORTEST: Final = 16


class ServerWithSecrets(Protocol):
    """A server with its variables replaced."""

    @property
    def command(self) -> Sequence[str] | None: ...

    @property
    def env(self) -> Mapping[str, str]: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def url(self) -> str | None: ...


def find_secrets(server: ServerWithSecrets) -> list[str]:
    """Return the secrets that a server was given, longest first, each also as URL- and JSON-encoded."""
    found: set[str] = set()

    def note(_key: str, _name: str, secret: str) -> str:
        given = secret.replace("$${", "${")
        # A multi-line key is printed one line at a time.
        lines = [line for line in given.splitlines() if len(line) >= LINE_SHORTEST]
        found.update((given, quote(given, safe=""), quote_plus(given), unquote(given), json.dumps(given)[1:-1], *lines))
        return REDACTED

    rewrite_secrets(_to_settings(server), note)
    return sorted((secret for secret in found if len(secret) >= SHORTEST), key=len, reverse=True)


def make_concealer(server: ServerWithSecrets) -> Callable[[str], str]:
    """Return a function that removes a server's secrets from a text.

    The secrets are also remembered for the process, so that its logs and errors conceal them.
    """
    secrets = find_secrets(server)
    remember_secrets(secrets)

    def conceal(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, REDACTED)
        return text

    return conceal


def _to_settings(server: ServerWithSecrets) -> ServerSettings:
    """Convert back to settings with nothing left to replace, so that `rewrite_secrets` can search them."""
    words = [_escape_references(word) for word in server.command or ()]
    return ServerSettings(
        command=words[0] if words else None,
        args=words[1:],
        env={name: _escape_references(value) for name, value in server.env.items()},
        headers={name: _escape_references(value) for name, value in server.headers.items()},
        url=_escape_references(server.url) if server.url else None,
    )


def _escape_references(text: str) -> str:
    return text.replace("${", "$${")
