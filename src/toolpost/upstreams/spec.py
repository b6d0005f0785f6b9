"""The specification of a server: how it is started or reached, and which rules its tools follow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from toolpost.credentials.values import CallerValue, Template
from toolpost.fairness import Callers
from toolpost.net.network import DIRECT, Network
from toolpost.upstreams.in_process import InProcessServer

if TYPE_CHECKING:
    from toolpost.upstreams.observed import ServerObserver

TransportKind = Literal["stdio", "http", "sse"]
Strategy = Literal["shared", "per_session", "singleton"]
Era = Literal["auto", "handshake", "stateless"]
Credentials = Literal["shared", "caller"]


_REACHING: Final = (
    *(
        "name",
        "command",
        "env",
        "cwd",
        "url",
        "in_process",
        "headers",
        "auth",
        "transport",
        "strategy",
        "era",
        "problem",
    ),
    *("credentials", "own_env", "own_headers", "network", "client_extensions"),
)

AuthType = Literal["oauth", "client_credentials", "token_exchange", "id_jag", "jwt_bearer"]
Subject = Literal["configured", "caller"]
ClientAuth = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]


@dataclass(frozen=True, kw_only=True)
class AuthSpec:
    """One `[servers.NAME.auth]`, resolved: how the gateway gets access tokens for a server."""

    type: AuthType = "oauth"
    issuer: str | None = None
    """The authorization server; None for the one that the server names."""
    authorization_url: str | None = None
    """The page for logins at an authorization server without metadata, which is not looked for then."""
    token_url: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    client_auth: ClientAuth | None = None
    """How the client authenticates at the token endpoint; None for what it supports."""
    client_metadata_url: str | None = None
    """The URL of a client ID metadata document, which is the client id where that is supported."""
    private_key: str | None = field(default=None, repr=False)
    """PEM, for `private_key_jwt`."""
    signing_algorithm: str | None = None
    scopes: tuple[str, ...] | None = None
    """None for those that the server asks for."""
    resource: str | None = None
    """The resource indicator; None for the one in the server's metadata, empty to send none."""
    parameters: Mapping[str, str] = field(default_factory=dict, hash=False)
    """More parameters of the authorization URL."""
    redirect_port: int | None = None
    """The loopback port of `toolpost login`; None for any free one."""
    assume_pkce: bool = False
    subject: Subject = "configured"
    """Whether `subject_token` is exchanged, or the access token of each caller."""
    subject_issuer: str | None = None
    """The issuer of the callers' tokens that are exchanged; None for `issuer`."""
    subject_token: str | None = field(default=None, repr=False)
    subject_token_type: str | None = None
    audience: str | None = None
    idp_token_url: str | None = None
    idp_client_id: str | None = None
    idp_client_secret: str | None = field(default=None, repr=False)
    assertion: str | None = field(default=None, repr=False)
    """The JWT of `jwt_bearer`."""

    @property
    def needs_person(self) -> bool:
        """Whether tokens are granted by a person in a browser."""
        return self.type == "oauth"

    @property
    def exchanges_callers_tokens(self) -> bool:
        """Whether tokens are got in exchange for those with which callers come."""
        return self.subject == "caller"

    @property
    def configured_urls(self) -> tuple[str, ...]:
        """The URLs that the operator has set."""
        return tuple(url for url in (self.issuer, self.authorization_url, self.token_url, self.idp_token_url) if url)


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """Limits that the callers of a server share, and the observer of its requests."""

    callers: Callers = field(default_factory=Callers)
    instances: int = 100
    """How many sessions may have an instance of their own at the same time."""
    waiting: int = 64
    """How many calls may wait for a server that takes one at a time."""
    observe: "Callable[[ServerSpec], ServerObserver] | None" = None


@dataclass(frozen=True, kw_only=True)
class ServerSpec:
    """One `[servers.NAME]`, resolved: every variable expanded, every path absolute."""

    name: str
    command: tuple[str, ...] | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: Path | None = None
    url: str | None = None
    is_mcp: bool = True
    """False for an API: it is reached and logged in to like a server, and speaks another protocol."""
    in_process: InProcessServer | None = None
    """A server that is an object of this process, and has neither `command` nor `url`."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    credentials: Credentials = "shared"
    """Whether all callers use the server with the same credentials, or each with its own."""
    own_env: Mapping[str, Template] = field(default_factory=dict, repr=False)
    """Environment variables with values of the owner, which are read from the vault when an instance is started."""
    own_headers: Mapping[str, Template] = field(default_factory=dict, repr=False)
    owner: str = ""
    """Whose credentials are used; empty where callers share them."""
    network: Network = DIRECT
    auth: AuthSpec | None = None
    """None for a server without `auth`; one over HTTP that turns out to require OAuth is treated as `oauth` all the same."""
    transport: TransportKind | None = None
    """None to detect it: a command is stdio; a URL is streamable HTTP, and HTTP+SSE if the server knows only that."""
    tags: frozenset[str] = frozenset()
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    timeout_s: float | None = None
    unknown_arguments: Literal["allow", "reject"] = "allow"
    results: Literal["enforce", "warn", "off"] = "enforce"
    contracts: Literal["observe", "enforce"] | None = None
    """What happens to a tool that changed against its lock or pin; None for the setting of all servers."""
    extensions: bool = True
    """Whether extensions pass: those that it declares, and its methods, requests and notifications."""
    client_meta: bool = True
    """Whether the `_meta` of clients' requests passes, but for what is between them and the gateway; the trace always does."""
    client_extensions: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The client's extensions that are declared to it in a handshake, for any client."""
    unlisted_resources: bool = False
    """Whether it is asked for resources that no server lists."""
    strategy: Strategy = "shared"
    era: Era = "auto"
    """The era in which a server that knows both is used; `auto` is the era of the caller."""
    min_ready: int = 0
    idle_s: float = 300.0
    relist_s: float = 60.0
    """How often its tools are listed again while it runs, in seconds; 0 for only when it says that they have changed."""
    problem: str | None = None
    """Why it cannot be started as it is configured, such as a variable that is not set; None if it can be."""
    hint: str | None = None
    """What can be done about the problem."""
    conceal: Callable[[str], str] = field(default=str, repr=False, compare=False)
    """Masks the secrets of the server's settings in a text."""
    secrets: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """The same secrets, and values of the owner, which its messages are masked for."""

    def reaches_like(self, other: "ServerSpec") -> bool:
        """Whether the server is reached and run in the same way, so that a change to the other needs no restart."""
        return all(getattr(self, name) == getattr(other, name) for name in _REACHING)

    @property
    def caller_values(self) -> list[str]:
        """The names of the owner's values that headers and environment refer to, sorted."""
        templates = (*self.own_env.values(), *self.own_headers.values())
        return sorted({piece.name for template in templates for piece in template if isinstance(piece, CallerValue)})

    def admits(self, tool: str) -> bool:
        """Whether the allow and deny lists let this tool through."""
        return any(fnmatchcase(tool, p) for p in self.allow) and not any(fnmatchcase(tool, p) for p in self.deny)
