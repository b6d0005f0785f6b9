"""Every setting of the kernel and its default; `servers.py` has those of one server, each part brings its own section."""

import ipaddress
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from toolpost.base.nearest import nearest_name
from toolpost.contracts.errors import BadConfiguration
from toolpost.plugins import BUNDLED
from toolpost.settings.callers import CallerName, CallerSettings, OAuthSettings, Tags, Tools, token_in, token_of
from toolpost.settings.servers import ResolvedServer, ServerName, ServerSettings, resolve_server
from toolpost.settings.variables import expand_variables

CONFIG_NAME: Final = "toolpost.toml"
LOCK_NAME: Final = "toolpost.lock"

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]


class HttpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The HTTP endpoint."""

    listen: Annotated[str, Meta(description="host:port; off localhost a token is mandatory")] = "127.0.0.1:8420"
    token_file: Annotated[str | None, Meta(description="file that holds the token; TOOLPOST_TOKEN wins")] = None
    allowed_hosts: Annotated[list[str], Meta(description="further names that this server goes by")] = []
    allowed_origins: Annotated[list[str], Meta(description="origins whose pages may call tools")] = []
    body_limit_bytes: Annotated[int, Meta(ge=1024, description="largest request body")] = 4 * 1024 * 1024
    connections: Annotated[
        Count | None, Meta(description="connections at once; three quarters of what the system allows, if not set")
    ] = None
    connections_per_address: Annotated[
        Count | None,
        Meta(description="the same from one address, not loopback or a trusted proxy; a quarter of it, if not set"),
    ] = None
    trusted_proxies: Annotated[
        list[str], Meta(description="addresses or networks of proxies, as in 10.0.0.0/8: no limit for one address")
    ] = []
    head_timeout_s: Annotated[
        Seconds, Meta(description="until a request's headers must be there, and an unknown client must send them")
    ] = 10.0
    body_timeout_s: Annotated[
        Seconds, Meta(description="until a request's body must be there, and a second more for every 4 KiB of it")
    ] = 30.0
    bare_names: Annotated[
        bool, Meta(description="serve a server's tools and prompts under their own names at `/mcp/server/NAME`")
    ] = True
    tags: Tags = None
    tools: Tools = None
    oauth: Annotated[OAuthSettings | None, Meta(description="access tokens of an authorization server")] = None

    @property
    def trusted_networks(self) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
        """Read `trusted_proxies`; what is no address and no network is an error."""
        networks = []
        for text in self.trusted_proxies:
            try:
                networks.append(ipaddress.ip_network(text))
            except ValueError as error:
                raise BadConfiguration(
                    f"http.trusted_proxies: `{text}` is no address and no network ({error}).",
                    hint="write an address or a network, as in 10.0.0.7 or 10.0.0.0/8",
                ) from error
        return networks


class StdioSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The client that starts Toolpost."""

    tags: Tags = None
    tools: Tools = None


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where things are remembered."""

    url: Annotated[
        str,
        Meta(
            description="sqlite:PATH, relative to the project, or postgresql://…; ${VAR} is filled in; without a "
            "toolpost.toml it is in the user's data directory"
        ),
    ] = "sqlite:.toolpost/toolpost.db"
    pool: Annotated[
        int,
        Meta(
            ge=1, le=100, description="connections to PostgreSQL at once; a few more are kept for writing and wake-ups"
        ),
    ] = 8
    retry_s: Annotated[Seconds, Meta(description="how long a PostgreSQL that is away is waited for")] = 30.0


class LimitSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bounds on time and number."""

    timeout_s: Annotated[Seconds, Meta(description="time limit of a tool that names none")] = 60.0
    share: Annotated[
        float,
        Meta(gt=0, le=1, description="part of each limit that one caller may have where there are several callers"),
    ] = 0.5
    calls: Annotated[Count, Meta(description="calls in flight at once")] = 1024
    waiting: Annotated[Count, Meta(description="calls that may wait for one lock, or for a `singleton` server")] = 64
    threads: Annotated[Count, Meta(description="synchronous tools that may run at once")] = 40
    instances: Annotated[Count, Meta(description="processes of one `per_session` server at once")] = 100
    sessions: Annotated[Count, Meta(description="sessions over HTTP at once, in the handshake era")] = 10_000
    streams: Annotated[Count, Meta(description="event streams over HTTP that are open at once, without calls")] = 512
    tasks: Annotated[Count, Meta(description="MCP tasks that are kept at once")] = 20_000
    conversations: Annotated[Count, Meta(description="conversations with agents that are kept")] = 100_000
    grace_s: Annotated[Seconds, Meta(description="how long calls may go on at shutdown")] = 5.0
    page_size: Annotated[Count, Meta(description="tools on one page of tools/list")] = 1000


class PluginSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which plugins are loaded."""

    load: Annotated[list[str], Meta(description="package.module:attribute, beside those that are installed")] = []
    bundled: Annotated[
        list[str],
        Meta(description="plugins of ours to load: bus, time, workspace; time, where there is no file at all"),
    ] = []
    disable: Annotated[list[str], Meta(description="names of plugins to leave out")] = []
    tags: Annotated[dict[str, list[str]], Meta(description="words to choose a plugin's tools by, for each plugin")] = {}
    only: Annotated[str | None, Meta(description="serve this plugin alone, its tools under their bare names")] = None
    installed: Annotated[bool, Meta(description="load plugins announced by installed packages")] = True


class MiddlewareSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Functions around every call."""

    load: Annotated[
        list[str],
        Meta(description="package.module:function, the outermost first; plugins' own middleware stands inside these"),
    ] = []


def check_bundled(names: Iterable[str], place: str) -> None:
    """Refuse the name of a plugin that we do not bring."""
    for name in names:
        if name not in BUNDLED:
            near = nearest_name(name, BUNDLED)
            known = ", ".join(BUNDLED)
            raise BadConfiguration(
                f"{place}: no bundled plugin is called `{name}`.",
                hint=f"did you mean `{near}`?" if near else f"there are {known}; others go into plugins.load",
            )


class RerankerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A second opinion on the ranking, asked of an OpenAI-compatible endpoint; without a URL nobody is asked."""

    url: Annotated[str | None, Meta(description="where its API is, as in http://127.0.0.1:11434/v1")] = None
    model: Annotated[str, Meta(description="the model that is asked")] = ""
    key_env: Annotated[str | None, Meta(description="environment variable that holds the key")] = None
    timeout_s: Annotated[Seconds, Meta(description="how long a search waits for it")] = 2.0
    candidates: Annotated[int, Meta(ge=5, le=50, description="how many of the best it is shown")] = 30

    def key(self, environment: Mapping[str, str] | None = None) -> str | None:
        """Read the key from the environment; one that is named and not set is an error."""
        if self.key_env is None:
            return None
        if key := (os.environ if environment is None else environment).get(self.key_env):
            return key
        raise BadConfiguration(
            f"discovery.reranker.key_env: `{self.key_env}` is not set.", hint="set it, or leave key_env out"
        )


class DiscoverySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How tools are found."""

    mode: Annotated[
        Literal["all", "automatic", "both"],
        Meta(description="what is served: all tools, only `automatic_mcp` and `automatic_eval`, or both"),
    ] = "all"
    embedder: Annotated[
        str | None,
        Meta(
            description="folder of a sentence model (`model.onnx`, `tokenizer.json`), relative to the project; needs "
            "`toolpost[embeddings]`"
        ),
    ] = None
    reranker: RerankerSettings = RerankerSettings()


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that may be set; every section has a default that works."""

    http: HttpSettings = HttpSettings()
    stdio: StdioSettings = StdioSettings()
    callers: Annotated[dict[CallerName, CallerSettings], Meta(description="who may call over HTTP, by name")] = {}
    store: StoreSettings = StoreSettings()
    limits: LimitSettings = LimitSettings()
    plugins: PluginSettings = PluginSettings()
    middleware: MiddlewareSettings = MiddlewareSettings()
    discovery: DiscoverySettings = DiscoverySettings()
    servers: Annotated[
        dict[ServerName, ServerSettings], Meta(description="the MCP servers behind this one, by name")
    ] = {}
    contracts: Annotated[
        Literal["observe", "enforce"],
        Meta(
            description="`observe` reports a server's tool that is not as it was locked or first seen,"
            " `enforce` withholds it as well"
        ),
    ] = "observe"
    lock: Annotated[str, Meta(description="the lock file, relative to the project")] = LOCK_NAME
    project: Annotated[str, Meta(description="the folder that relative paths start from")] = "."
    parts: dict[str, Any] = {}
    """The sections of parts that are set, by name; read one by its `Section`."""

    @property
    def lock_path(self) -> Path:
        """Where the lock file is."""
        return Path(self.project) / self.lock

    @property
    def embedder_path(self) -> Path | None:
        """Where the sentence model is, if there is to be one."""
        return Path(self.project) / self.discovery.embedder if self.discovery.embedder is not None else None

    @property
    def store_url(self) -> str:
        """The store's URL with its variables filled in and its path made absolute."""
        project = Path(self.project)
        url = expand_variables(self.store.url, environment=os.environ, project=project.absolute(), place="store.url")
        scheme, _, path = url.partition(":")
        if scheme != "sqlite" or path == ":memory:":
            return url
        return f"sqlite:{project / path}"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        return parse_address(self.http.listen)

    def token(self) -> str | None:
        """Read the token from the environment or its file; None if there is none."""
        if token := os.environ.get("TOOLPOST_TOKEN"):
            return token
        if self.http.token_file is None:
            return None
        return token_in(Path(self.project) / self.http.token_file, "http.token_file")

    def caller_tokens(self) -> dict[str, str | None]:
        """Read the token of every caller; None for one who comes in by claims alone. Two may not share one."""
        tokens = {name: token_of(name, caller, project=Path(self.project)) for name, caller in self.callers.items()}
        owner = {self.token(): "the one token"}
        for name, token in tokens.items():
            if token is not None and (other := owner.setdefault(token, f"callers.{name}")) != f"callers.{name}":
                raise BadConfiguration(f"callers.{name} has the same token as {other}.", hint="give each their own")
        return tokens

    @property
    def requires_token(self) -> bool:
        """Whether clients over HTTP must show who they are."""
        has_token = bool(os.environ.get("TOOLPOST_TOKEN")) or self.http.token_file is not None
        return has_token or bool(self.callers) or self.http.oauth is not None

    @property
    def secret_files(self) -> list[Path]:
        """The files beside the configuration that say who may come in."""
        named = [self.http.token_file, *(caller.token_file for caller in self.callers.values())]
        if self.http.oauth is not None:
            named.append(self.http.oauth.jwks_file)
        return [Path(self.project) / name for name in named if name is not None]

    def resolve_servers(self, environment: Mapping[str, str] | None = None) -> dict[str, ResolvedServer]:
        """Return the servers that are enabled, variables filled in from the environment; a missing one is an error."""
        return {name: self.resolve_server(name, environment) for name, server in self.servers.items() if server.enabled}

    def resolve_server(self, name: str, environment: Mapping[str, str] | None = None) -> ResolvedServer:
        """Return one server, enabled or not, with its variables filled in; a missing one is an error."""
        given = os.environ if environment is None else environment
        return resolve_server(name, self.servers[name], environment=given, project=Path(self.project).absolute())


def parse_address(text: str) -> tuple[str, int]:
    """Read `host:port`, `[::1]:port` or a bare port."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise BadConfiguration(f"`{text}` is not an address.", hint="write host:port, as in 127.0.0.1:8420")
    return host.strip("[]") or "127.0.0.1", int(port)
