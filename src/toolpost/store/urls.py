"""What a store's URL names, and how it may be shown: without what is secret in it."""

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
_SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}")


@dataclass(frozen=True, kw_only=True)
class SqlitePlace:
    """A file, or memory."""

    path: str | Path

    @property
    def shown(self) -> str:
        """The URL again."""
        return f"sqlite:{self.path}"


@dataclass(frozen=True, kw_only=True)
class PostgresPlace:
    """A schema in a database."""

    dsn: str = field(repr=False)
    schema: str
    shown: str


def place_of(url: str | Path) -> SqlitePlace | PostgresPlace:
    """Read a URL: `sqlite:path`, a plain path, `sqlite::memory:` or `postgresql://…`."""
    if isinstance(url, Path):
        return SqlitePlace(path=url)
    if url.startswith(("postgresql:", "postgres:")):
        return _postgres_place(url)
    path = url.removeprefix("sqlite:")
    if not path or "://" in path:
        raise BadConfiguration("store.url has an unknown kind of store", hint=_HINT)
    return SqlitePlace(path=path if path == MEMORY else Path(path))


def _postgres_place(url: str) -> PostgresPlace:
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
    # urlunsplit leaves out an empty host, which is a socket's.
    dsn = dsn if "://" in dsn else dsn.replace(":", "://", 1)
    return PostgresPlace(dsn=dsn, schema=schema, shown=shown_url(url))


def shown_url(url: str | Path) -> str:
    """Return a URL as it may be shown: no password, and no option that may be one."""
    text = str(url)
    if "://" not in text:
        return text
    scheme, _, rest = text.partition("://")
    # Up to the last @ before the path's end: a password that was not encoded may hold a slash.
    access, at, place = rest.rpartition("@")
    user, colon, password = access.partition(":")
    if at and colon and password:
        access = f"{user}:{REDACTED}"
    place, mark, query = place.partition("?")
    return f"{scheme}://{access}{at}{place}{mark}{_shown_query(query)}"


def _shown_query(query: str) -> str:
    named = (option.partition("=") for option in query.split("&")) if query else ()
    return "&".join(
        f"{name}{equals}{REDACTED if is_secret_name(name) or name == 'sslpassword' else value}"
        for name, equals, value in named
    )
