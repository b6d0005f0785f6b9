"""Every setting of the kernel and its default; `servers.py` has those of one server, each part brings its own section."""

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from toolpost.base.nearest import nearest_name
from toolpost.base.state_folder import STATE_FOLDER
from toolpost.contracts.errors import BadConfiguration
from toolpost.manifest import bundled_plugins
from toolpost.net.network import Network
from toolpost.settings.audit import AuditSettings, ExportName, ExportSettings
from toolpost.settings.callers import (
    CallerName,
    CallerSettings,
    Mode,
    OAuthSettings,
    Tags,
    Tools,
    read_caller_token,
)
from toolpost.settings.marks import ADVANCED, LATE, SECRET
from toolpost.settings.network import UNSET, NetworkSettings, resolve_network
from toolpost.settings.servers import ResolvedServer, ServerName, ServerSettings, resolve_server
from toolpost.settings.variables import expand_variables, files_of, read_secret

CONFIG_NAME: Final = "toolpost.toml"
LOCK_NAME: Final = "toolpost.lock"

DEFAULT_PLUGINS: Final = ("time",)
"""The plugins that are loaded where nothing at all is configured, so that there is something to try."""

LEAST_SESSIONS: Final = 10_000
LEAST_STREAMS: Final = 512

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]


class HttpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The HTTP endpoint."""

    listen: Annotated[str, Meta(description="host:port; other than on localhost, a token is required")] = (
        "127.0.0.1:8420"
    )
    token: Annotated[
        str | None,
        Meta(
            description="the token that every client must send, such as `${file:token}`; TOOLPOST_TOKEN overrides it",
            extra=SECRET,
        ),
    ] = None
    public_url: Annotated[
        str | None,
        Meta(
            description="URL at which clients and browsers reach this server, without `/mcp`, such as"
            " https://tools.example.com; if not set, where it listens"
        ),
    ] = None
    allowed_hosts: Annotated[
        list[str], Meta(description="further names of this server that the Host header may have", extra=ADVANCED)
    ] = []
    allowed_origins: Annotated[
        list[str], Meta(description="web origins whose pages may call tools", extra=ADVANCED)
    ] = []
    body_limit_bytes: Annotated[int, Meta(ge=1024, description="largest request body", extra=ADVANCED)] = (
        4 * 1024 * 1024
    )
    trusted_proxies: Annotated[
        list[str],
        Meta(
            description="addresses or networks of proxies, such as 10.0.0.0/8, without a limit per address; the login counts by"
            " the address in their X-Forwarded-For",
            extra=ADVANCED,
        ),
    ] = []
    head_timeout_s: Annotated[
        Seconds,
        Meta(
            description="time limit for the headers of a request, and for the first request of a connection",
            extra=ADVANCED,
        ),
    ] = 10.0
    body_timeout_s: Annotated[
        Seconds,
        Meta(description="time limit for the body of a request, plus a second for every 4 KiB of it", extra=ADVANCED),
    ] = 30.0
    tags: Tags = None
    tools: Tools = None
    oauth: Annotated[OAuthSettings | None, Meta(description="access tokens of authorization servers")] = None

    def base_url(self, listening: str | None) -> str | None:
        """Return where browsers reach this server, without a path; None if that is not known.

        `listening` is the URL of its own listener, None for one on all addresses.
        """
        parts = urlsplit(self.public_url or listening or "")
        return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") and parts.netloc else None

    @property
    def resource(self) -> str | None:
        """The URL of the endpoint as access tokens name it; None without a public URL."""
        return f"{self.public_url.rstrip('/')}/mcp" if self.public_url else None

    @property
    def trusted_networks(self) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
        """Parse `trusted_proxies`; raises `BadConfiguration`."""
        networks = []
        for text in self.trusted_proxies:
            try:
                networks.append(ipaddress.ip_network(text))
            except ValueError as error:
                raise BadConfiguration(
                    f"http.trusted_proxies: `{text}` is not an address or a network ({error}).",
                    hint="write an address or a network, such as 10.0.0.7 or 10.0.0.0/8",
                ) from error
        return networks


class ModeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The tools that the gateway serves at all, to any caller."""

    mode: Annotated[
        Mode,
        Meta(
            description="`readonly`: only tools that are annotated read-only; `test`: only servers with the tag `test`;"
            " `minimal`: only the tools that `minimal` names; `full`: everything"
        ),
    ] = "full"
    confirmed: Annotated[
        list[str],
        Meta(
            description="servers whose annotations an operator has confirmed: they count in the mode `readonly` and in rules"
            " of `[approvals]`; those of other servers are claims",
            extra=ADVANCED,
        ),
    ] = []
    minimal: Annotated[
        list[str], Meta(description="patterns of tool names that the mode `minimal` serves", extra=ADVANCED)
    ] = []


class LogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The log on disk, which `toolpost logs` shows."""

    keep_mb: Annotated[
        int,
        Meta(
            ge=0,
            le=100_000,
            description="megabytes that are kept, half of them of ended processes; 0 keeps no log",
            extra=ADVANCED,
        ),
    ] = 20


class StdioSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The client that starts Toolpost, on stdio."""

    tags: Tags = None
    tools: Tools = None


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The database of the store."""

    url: Annotated[
        str,
        Meta(
            description="sqlite:PATH, relative to the project, or postgresql://…; without a toolpost.toml it is in the"
            " user's data directory",
            extra=LATE,
        ),
    ] = "sqlite:.toolpost/toolpost.db"
    pool: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="connections to PostgreSQL at once; a few more are kept for writing and wake-ups",
            extra=ADVANCED,
        ),
    ] = 8


class CredentialSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Credentials that are stored for servers."""

    key: Annotated[
        str | None,
        Meta(
            description="where the key that encrypts them is kept: file:PATH or keychain:SERVICE/NAME; if not set, the file"
            " `credentials.key` beside a SQLite store, else in `.toolpost`; TOOLPOST_CREDENTIALS_KEY overrides it",
            extra=ADVANCED,
        ),
    ] = None


class LimitSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of time and number."""

    timeout_s: Annotated[Seconds, Meta(description="time limit of tools that declare none")] = 60.0
    share: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="part of each limit that one caller may have where there are several callers",
            extra=ADVANCED,
        ),
    ] = 0.5
    calls: Annotated[Count, Meta(description="calls in flight at once")] = 1024
    waiting: Annotated[
        Count, Meta(description="calls that may wait for one lock, or for a `singleton` server", extra=ADVANCED)
    ] = 64
    threads: Annotated[Count, Meta(description="synchronous tools that may run at once", extra=ADVANCED)] = 40
    instances: Annotated[Count, Meta(description="processes of one `per_session` server at once", extra=ADVANCED)] = 100
    grace_s: Annotated[
        Seconds, Meta(description="how long calls in flight may continue at shutdown", extra=ADVANCED)
    ] = 5.0
    instructions: Annotated[
        int,
        Meta(
            ge=0,
            le=100_000,
            description="characters of servers' own instructions that clients are shown; 0 shows none",
            extra=ADVANCED,
        ),
    ] = 8_000

    # Both follow from the calls at once, and are never less than what suits the usual number of them.
    @property
    def sessions(self) -> int:
        """Sessions over HTTP at once, in the handshake era."""
        return max(LEAST_SESSIONS, 8 * self.calls)

    @property
    def streams(self) -> int:
        """Event streams without a call that are open at once, over HTTP."""
        return max(LEAST_STREAMS, self.calls // 2)


class TaskSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Calls that outlive their requests, for clients that declare the tasks extension of MCP."""

    ttl_s: Annotated[Seconds, Meta(description="how long the outcome of a task can be read", extra=ADVANCED)] = 3_600.0
    after_s: Annotated[
        float,
        Meta(
            ge=0,
            le=60,
            description="a call that ends sooner is answered directly; with 0 every call becomes a task",
            extra=ADVANCED,
        ),
    ] = 0.5


class PluginSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which plugins are loaded."""

    load: Annotated[
        list[str],
        Meta(
            description="plugins, and FastMCP or SDK servers, to load besides installed ones: module:attribute or ./file.py"
        ),
    ] = []
    bundled: Annotated[
        list[str],
        Meta(
            description=f"bundled plugins to load: {', '.join(bundled_plugins())}; `time` if there is no toolpost.toml"
        ),
    ] = []
    disable: Annotated[list[str], Meta(description="names of plugins to turn off")] = []
    tags: Annotated[
        dict[str, list[str]], Meta(description="tags to select tools by, for each plugin", extra=ADVANCED)
    ] = {}
    only: Annotated[
        str | list[str] | None,
        Meta(description="serve only this plugin, or these, their tools without the prefix", extra=ADVANCED),
    ] = None
    installed: Annotated[
        bool, Meta(description="load plugins of installed packages (entry points)", extra=ADVANCED)
    ] = True

    @property
    def chosen(self) -> tuple[str, ...]:
        """The plugins that are served alone, under bare names; empty where everything is served."""
        return (self.only,) if isinstance(self.only, str) else tuple(self.only or ())


class MiddlewareSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Functions that run around every call."""

    load: Annotated[
        list[str],
        Meta(description="package.module:function, the outermost first; middleware of plugins runs inside these"),
    ] = []


def check_bundled(names: Iterable[str], place: str) -> None:
    """Raise `BadConfiguration` for a plugin that does not come with Toolpost."""
    for name in names:
        if name not in bundled_plugins():
            near = nearest_name(name, bundled_plugins())
            known = ", ".join(bundled_plugins())
            raise BadConfiguration(
                f"{place}: unknown bundled plugin `{name}`.",
                hint=f"did you mean `{near}`?" if near else f"known: {known}; add others to plugins.load",
            )


class RerankerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model that reranks search results; off without one."""

    models: Annotated[
        list[str], Meta(description="models of `[models]`, the best of which is asked", extra=ADVANCED)
    ] = []
    timeout_s: Annotated[Seconds, Meta(description="how long a search waits for its answer", extra=ADVANCED)] = 2.0


class DiscoverySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How agents find tools."""

    mode: Annotated[
        Literal["all", "automatic", "both"],
        Meta(description="which tools are listed: all, only `automatic_mcp` and `automatic_eval`, or both"),
    ] = "all"
    reranker: RerankerSettings = RerankerSettings()


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings; every section has a default that works."""

    http: HttpSettings = HttpSettings()
    stdio: StdioSettings = StdioSettings()
    callers: Annotated[dict[CallerName, CallerSettings], Meta(description="callers over HTTP, by name")] = {}
    modes: ModeSettings = ModeSettings()
    audit: AuditSettings = AuditSettings()
    export: Annotated[
        dict[ExportName, ExportSettings], Meta(description="where the audit is passed on to, by name")
    ] = {}
    log: LogSettings = LogSettings()
    store: StoreSettings = StoreSettings()
    credentials: CredentialSettings = CredentialSettings()
    network: Annotated[NetworkSettings, Meta(extra=LATE)] = UNSET
    limits: LimitSettings = LimitSettings()
    tasks: TaskSettings = TaskSettings()
    plugins: PluginSettings = PluginSettings()
    middleware: MiddlewareSettings = MiddlewareSettings()
    discovery: DiscoverySettings = DiscoverySettings()
    servers: Annotated[
        dict[ServerName, ServerSettings], Meta(description="MCP servers behind the gateway, by name")
    ] = {}
    contracts: Annotated[
        Literal["observe", "enforce"],
        Meta(
            description="`observe` reports a server's tool that changed since it was locked or first seen,"
            " `enforce` quarantines it as well"
        ),
    ] = "observe"
    lock: Annotated[str, Meta(description="the lock file, relative to the project")] = LOCK_NAME
    project: str = "."
    """The folder that relative paths start from: that of the file."""
    parts: dict[str, Any] = {}
    """The sections of parts that are set, by name; read one by its `Section`."""

    @property
    def lock_path(self) -> Path:
        return Path(self.project) / self.lock

    @property
    def store_url(self) -> str:
        """The store's URL, with variables replaced and an absolute path."""
        project = Path(self.project)
        url = expand_variables(self.store.url, environment=os.environ, project=project.absolute(), place="store.url")
        scheme, _, path = url.partition(":")
        if scheme != "sqlite" or path == ":memory:":
            return url
        return f"sqlite:{project / path}"

    @property
    def log_path(self) -> Path | None:
        """The folder of the log on disk: beside the store. None if that is in memory."""
        scheme, _, path = self.store_url.partition(":")
        if scheme != "sqlite":
            return Path(self.project) / STATE_FOLDER / "log"
        # Named after the store, as its other companions are: a folder `log` may be a project's own.
        return Path(f"{path}-log") if path != ":memory:" else None

    @property
    def address(self) -> tuple[str, int]:
        return parse_address(self.http.listen)

    def token(self) -> str | None:
        """Read the token from TOOLPOST_TOKEN, else from `http.token`; None if there is none."""
        if token := os.environ.get("TOOLPOST_TOKEN"):
            return token
        if self.http.token is None:
            return None
        return read_secret(self.http.token, project=Path(self.project), place="http.token")

    def caller_tokens(self) -> dict[str, str | None]:
        """Read the token of every caller; None for one that is identified by claims. Raises if two share one."""
        tokens = {
            name: read_caller_token(name, caller, project=Path(self.project)) for name, caller in self.callers.items()
        }
        owner = {self.token(): "TOOLPOST_TOKEN or http.token"}
        for name, token in tokens.items():
            if token is not None and (other := owner.setdefault(token, f"callers.{name}")) != f"callers.{name}":
                raise BadConfiguration(
                    f"callers.{name} has the same token as {other}.", hint="give each caller its own token"
                )
        return tokens

    @property
    def requires_token(self) -> bool:
        """Whether clients over HTTP must authenticate."""
        has_token = bool(os.environ.get("TOOLPOST_TOKEN")) or self.http.token is not None
        return has_token or bool(self.callers) or self.http.oauth is not None

    @property
    def secret_files(self) -> list[Path]:
        """The files that decide who may call: tokens, passphrases, signing keys and secrets of clients."""
        callers = self.callers.values()
        named = files_of(self.http.token)
        named += [name for each in callers for text in (each.token, each.passphrase_hash) for name in files_of(text)]
        if self.http.oauth is not None:
            for issuer in self.http.oauth.issuers.values():
                named += files_of(issuer.introspection_secret)
        return [Path(self.project) / Path(name).expanduser() for name in named]

    def resolve_server(self, name: str, environment: Mapping[str, str] | None = None) -> ResolvedServer:
        """Return one server, enabled or not, with variables replaced; raises `BadConfiguration` for one that is not set."""
        given = os.environ if environment is None else environment
        return resolve_server(
            name,
            self.servers[name],
            environment=given,
            project=Path(self.project).absolute(),
            network=self.network,
        )

    def resolve_network(self) -> Network:
        """Return how connections to anything but servers are made; raises `BadConfiguration`."""
        project = Path(self.project).absolute()

        def fill(text: str, place: str) -> str:
            return expand_variables(text, environment=os.environ, project=project, place=place)

        return resolve_network(UNSET, self.network, fill, project)


def parse_address(text: str) -> tuple[str, int]:
    """Parse `host:port`, `[::1]:port` or a bare port; raises `BadConfiguration`."""
    host, _, port = text.rpartition(":")
    if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65_535:
        raise BadConfiguration(
            f"`{text}` is not an address.", hint="write host:port, such as 127.0.0.1:8420; ports end at 65535"
        )
    return host.strip("[]") or "127.0.0.1", int(port)


def check_http(http: HttpSettings) -> None:
    """Check the addresses of `[http]`; raises `BadConfiguration`."""
    try:
        parse_address(http.listen)
    except BadConfiguration as error:
        raise BadConfiguration(f"http.listen: {error.message}", hint=error.hint) from error
    if http.public_url is not None and http.base_url(None) is None:
        raise BadConfiguration(
            "http.public_url is not a valid HTTP URL.", hint='such as public_url = "https://tools.example.com"'
        )
