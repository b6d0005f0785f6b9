"""Removes a server's secrets from what it prints: it may print what it was given."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from toolpost.base.redaction import REDACTED, SHORTEST, forms_of, remember_secrets
from toolpost.settings.secrets import AUTH_SECRETS, rewrite_secrets
from toolpost.settings.servers import AuthSettings, ServerSettings
from toolpost.upstreams.spec import AuthSpec


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

    @property
    def auth(self) -> AuthSpec | None: ...


def find_secrets(server: ServerWithSecrets) -> list[str]:
    """Return the secrets that a server was given, longest first, each also as URL- and JSON-encoded."""
    found: set[str] = set()

    def note(_key: str, _name: str, secret: str) -> str:
        found.update(forms_of(secret.replace("$${", "${")))
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
    secrets: Any = {
        key: _escape_references(value) for key in AUTH_SECRETS if (value := getattr(server.auth, key, None))
    }
    return ServerSettings(
        command=words[0] if words else None,
        args=words[1:],
        env={name: _escape_references(value) for name, value in server.env.items()},
        headers={name: _escape_references(value) for name, value in server.headers.items()},
        url=_escape_references(server.url) if server.url else None,
        auth=AuthSettings(**secrets) if server.auth is not None else None,
    )


def _escape_references(text: str) -> str:
    return text.replace("${", "$${")
