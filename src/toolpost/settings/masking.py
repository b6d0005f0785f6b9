"""A server's own words without its secrets: what it was given, it may print."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol
from urllib.parse import quote, quote_plus, unquote

from toolpost.base.redaction import REDACTED, SHORTEST, remember_secrets
from toolpost.settings.secrets import rewritten
from toolpost.settings.servers import ServerSettings

LINE_SHORTEST: Final = 16


class GivenSecrets(Protocol):
    """A server with its variables filled in."""

    @property
    def command(self) -> Sequence[str] | None:
        """Program and arguments."""
        ...

    @property
    def env(self) -> Mapping[str, str]:
        """Its environment variables."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of every request to it."""
        ...

    @property
    def url(self) -> str | None:
        """Its address."""
        ...


def secrets_in(server: GivenSecrets) -> list[str]:
    """Return the secrets that a server was given, longest first, each as it is and as an address or JSON has it."""
    found: set[str] = set()

    def note(_key: str, _name: str, secret: str) -> str:
        given = secret.replace("$${", "${")
        # Of a key that has several lines, a line is printed at a time.
        lines = [line for line in given.splitlines() if len(line) >= LINE_SHORTEST]
        found.update((given, quote(given, safe=""), quote_plus(given), unquote(given), json.dumps(given)[1:-1], *lines))
        return REDACTED

    rewritten(_as_written(server), note)
    return sorted((secret for secret in found if len(secret) >= SHORTEST), key=len, reverse=True)


def concealing(server: GivenSecrets) -> Callable[[str], str]:
    """Return what takes a server's secrets out of a text; logs and errors of this process are shown without them from now on."""
    secrets = secrets_in(server)
    remember_secrets(secrets)

    def conceal(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, REDACTED)
        return text

    return conceal


def _as_written(server: GivenSecrets) -> ServerSettings:
    """Write the settings as if they had been so in the file, with nothing left to fill in."""
    words = [_literal(word) for word in server.command or ()]
    return ServerSettings(
        command=words[0] if words else None,
        args=words[1:],
        env={name: _literal(value) for name, value in server.env.items()},
        headers={name: _literal(value) for name, value in server.headers.items()},
        url=_literal(server.url) if server.url else None,
    )


def _literal(text: str) -> str:
    return text.replace("${", "$${")
