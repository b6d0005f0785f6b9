"""URLs of stores: parsed, and rendered without their secrets."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from toolpost.base.redaction import REDACTED, is_secret_name, remember_secrets
from toolpost.contracts.errors import BadConfiguration

MEMORY: Final = ":memory:"
SCHEMA: Final = "toolpost"
"""Where the tables are in PostgreSQL, unless the URL ends in `?schema=NAME`."""

_HINT: Final = "use `sqlite:` and a path, as in `sqlite:.toolpost/toolpost.db`, or `postgresql://user@host/database`"
_SECRET_OPTIONS: Final = frozenset({"key", "sslpassword"})
"""Besides those whose name says so wherever it is."""
_SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}")


@dataclass(frozen=True, kw_only=True)
class SqliteLocation:
    """A file, or memory."""

    path: str | Path

    def exists(self) -> bool:
        return self.path != MEMORY and Path(self.path).expanduser().exists()

    @property
    def display_url(self) -> str:
        return f"sqlite:{self.path}"


@dataclass(frozen=True, kw_only=True)
class PostgresLocation:
    """A schema in a database."""

    dsn: str = field(repr=False)
    schema: str
    display_url: str


def parse_store_url(url: str | Path) -> SqliteLocation | PostgresLocation:
    """Parse `sqlite:path`, a plain path, `sqlite::memory:` or `postgresql://…`; raises `BadConfiguration`."""
    if isinstance(url, Path):
        return SqliteLocation(path=url)
    if url.startswith(("postgresql:", "postgres:")):
        return _parse_postgres_url(url)
    path = url.removeprefix("sqlite:")
    if not path or "://" in path:
        raise BadConfiguration("store.url has an unknown kind of store", hint=_HINT)
    return SqliteLocation(path=path if path == MEMORY else Path(path))


def _parse_postgres_url(url: str) -> PostgresLocation:
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError as error:
        # The error may quote the part that holds the password.
        raise BadConfiguration("store.url is not a valid URL", hint=_HINT) from error
    if not parts.scheme or not url.startswith(f"{parts.scheme}://"):
        raise BadConfiguration("store.url has an unknown kind of store", hint=_HINT)
    if parts.password:
        remember_secrets((parts.password, unquote(parts.password)))
    schema = dict(options).get("schema", SCHEMA)
    if not _SCHEMA_NAME.fullmatch(schema) or schema.startswith("pg_"):
        raise BadConfiguration(
            "the schema in the store's URL is not a plain name",
            hint="use lower-case letters, digits and underscores, for example ?schema=team_a",
        )
    rest = urlencode([(name, value) for name, value in options if name != "schema"])
    dsn = urlunsplit((parts.scheme, parts.netloc, parts.path, rest, ""))
    # urlunsplit omits an empty host, which stands for a Unix socket.
    dsn = dsn if "://" in dsn else dsn.replace(":", "://", 1)
    return PostgresLocation(dsn=dsn, schema=schema, display_url=shown_url(url))


def shown_url(url: str | Path) -> str:
    """Return a URL without its password, and without options whose name says that they are secret."""
    text = str(url)
    if "://" not in text:
        return text
    scheme, _, rest = text.partition("://")
    # Up to the last @: a password that was not encoded may contain slashes and @.
    access, at, place = rest.rpartition("@")
    user, colon, password = access.partition(":")
    if at and colon and password:
        access = f"{user}:{REDACTED}"
    place, mark, query = place.partition("?")
    return f"{scheme}://{access}{at}{place}{mark}{_redact_query(query)}"


def _redact_query(query: str) -> str:
    named = (option.partition("=") for option in query.split("&")) if query else ()
    return "&".join(
        f"{name}{equals}{REDACTED if is_secret_name(name) or name in _SECRET_OPTIONS else value}"
        for name, equals, value in named
    )
