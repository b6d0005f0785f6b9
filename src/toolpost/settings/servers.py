"""`[servers.NAME]`: the MCP servers behind the gateway, as written and with variables replaced."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from toolpost.base.server_name import usable_name
from toolpost.contracts.errors import BadConfiguration
from toolpost.credentials.values import Template
from toolpost.net.network import DIRECT, Network
from toolpost.settings.marks import ADVANCED, LATE
from toolpost.settings.network import UNSET, NetworkSettings, resolve_network
from toolpost.settings.variables import expand_variables, fill_around, has_own_values, split_references
from toolpost.upstreams.spec import AuthSpec, AuthType, ClientAuth, Subject

Transport = Literal["stdio", "http", "sse"]
UnknownArguments = Literal["allow", "reject"]
Results = Literal["enforce", "warn", "off"]
Contracts = Literal["observe", "enforce"]
Strategy = Literal["shared", "per_session", "singleton"]
Era = Literal["auto", "handshake", "stateless"]
Credentials = Literal["shared", "caller"]

# As in `check_plugin_name`: a double `_` separates server and tool.
_NAME: Final = r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*"
ServerName = Annotated[str, Meta(pattern=f"^{_NAME}$")]

_ISSUER: Final = "the authorization server that may get its secret, as the server's metadata names it"
_NEEDED: Final[Mapping[str, Mapping[str, str]]] = {
    "client_credentials": {"client_id": "a client", "issuer": _ISSUER},
    "token_exchange": {"subject_token": "a token to exchange", "issuer": _ISSUER},
    "id_jag": {"subject_token": "a token to exchange", "idp_token_url": "the identity provider's token endpoint"},
    "jwt_bearer": {"assertion": "an assertion", "issuer": _ISSUER},
}
"""What each type of `auth` cannot do without."""

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class AuthSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the gateway gets access tokens for a server. Without it, a server that asks for OAuth is treated as `oauth`."""

    type: Annotated[
        AuthType,
        Meta(
            description="`oauth`: a person logs in (`toolpost login NAME`); the others need no person: `client_credentials`,"
            " `token_exchange` (RFC 8693), `id_jag` (an assertion of a company's identity provider), `jwt_bearer` (RFC 7523)"
        ),
    ] = "oauth"
    issuer: Annotated[
        str | None,
        Meta(
            description="the authorization server; if not set, the one that the server names. Required with a secret, which"
            " would go there: `client_secret`, and every `type` but `oauth` and `id_jag`",
            extra=ADVANCED,
        ),
    ] = None
    authorization_url: Annotated[
        str | None,
        Meta(
            description="page for logins of an authorization server without metadata; needs `token_url` and `client_id`",
            extra=ADVANCED,
        ),
    ] = None
    token_url: Annotated[str | None, Meta(description="where that one issues tokens", extra=ADVANCED)] = None
    client_id: Annotated[
        str | None, Meta(description="client that was registered by hand; if not set, the gateway registers itself")
    ] = None
    client_secret: Annotated[str | None, Meta(description="its secret")] = None
    client_auth: Annotated[
        ClientAuth | None,
        Meta(
            description="how the client authenticates; if not set, as the authorization server supports", extra=ADVANCED
        ),
    ] = None
    client_metadata_url: Annotated[
        str | None,
        Meta(description="URL of a client ID metadata document, the client id where that is supported", extra=ADVANCED),
    ] = None
    private_key: Annotated[str | None, Meta(description="private key (PEM) for `private_key_jwt`", extra=ADVANCED)] = (
        None
    )
    signing_algorithm: Annotated[
        str | None, Meta(description="its algorithm; if not set, the usual one for the key", extra=ADVANCED)
    ] = None
    scopes: Annotated[list[str] | None, Meta(description="scopes to ask for; if not set, the server's")] = None
    resource: Annotated[
        str | None,
        Meta(description="resource indicator (RFC 8707), if not the server's own; empty to send none", extra=ADVANCED),
    ] = None
    parameters: Annotated[
        dict[str, str],
        Meta(description="more parameters of the login's URL, such as `access_type` for Google", extra=ADVANCED),
    ] = {}
    redirect_port: Annotated[
        Annotated[int, Meta(ge=1, le=65_535)] | None,
        Meta(description="port of `toolpost login`, for clients that were registered with a fixed one", extra=ADVANCED),
    ] = None
    assume_pkce: Annotated[
        bool,
        Meta(
            description="use an authorization server that supports PKCE without saying so in its metadata",
            extra=ADVANCED,
        ),
    ] = False
    subject: Annotated[
        Subject,
        Meta(
            description="which token `token_exchange` exchanges: `configured` is `subject_token`, `caller` the access token"
            " with which each caller comes (`[http.oauth]`)",
            extra=ADVANCED,
        ),
    ] = "configured"
    subject_issuer: Annotated[
        str | None,
        Meta(description="whose tokens of callers are exchanged; if not set, those of `issuer`", extra=ADVANCED),
    ] = None
    subject_token: Annotated[
        str | None, Meta(description="token to exchange, for `token_exchange` and `id_jag`", extra=ADVANCED)
    ] = None
    subject_token_type: Annotated[
        str | None, Meta(description="its type, such as `access_token`, `id_token` or `jwt`, or a URN", extra=ADVANCED)
    ] = None
    audience: Annotated[
        str | None, Meta(description="audience of the exchanged token, if it must be named", extra=ADVANCED)
    ] = None
    idp_token_url: Annotated[
        str | None, Meta(description="token endpoint of the identity provider, for `id_jag`", extra=ADVANCED)
    ] = None
    idp_client_id: Annotated[str | None, Meta(description="client at the identity provider", extra=ADVANCED)] = None
    idp_client_secret: Annotated[str | None, Meta(description="its secret", extra=ADVANCED)] = None
    assertion: Annotated[str | None, Meta(description="signed assertion (JWT), for `jwt_bearer`", extra=ADVANCED)] = (
        None
    )

    def __repr__(self) -> str:
        """Leave out values that may be secrets."""
        return f"AuthSettings(type={self.type!r}, …)"


class ServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An MCP server behind the gateway: started by `command`, or reached at `url`. `${VAR}` is replaced at the start."""

    command: Annotated[str | None, Meta(description="program that serves MCP on stdio", extra=LATE)] = None
    args: Annotated[list[str], Meta(description="its arguments", extra=LATE)] = []
    env: Annotated[dict[str, str], Meta(description="its environment variables", extra=LATE)] = {}
    cwd: Annotated[str | None, Meta(description="working directory; the project, if not set", extra=LATE)] = None
    url: Annotated[str | None, Meta(description="URL of a remote or already running server", extra=LATE)] = None
    headers: Annotated[dict[str, str], Meta(description="HTTP headers of every request to it", extra=LATE)] = {}
    credentials: Annotated[
        Credentials | None,
        Meta(
            description="whose credentials it is used with: `shared` by all callers, or each `caller`'s own; if not set,"
            " the caller's where a value refers to `${caller:KEY}` or `auth.subject` is `caller`",
            extra=ADVANCED,
        ),
    ] = None
    network: Annotated[
        NetworkSettings,
        Meta(description="certificates and proxy for this server, over those of `[network]`", extra=LATE),
    ] = UNSET
    auth: Annotated[
        AuthSettings | None, Meta(description="how the gateway gets access tokens for it (OAuth)", extra=LATE)
    ] = None
    transport: Annotated[
        Transport | None,
        Meta(description="if not set: stdio for a command; for a url http, and sse where that fails", extra=ADVANCED),
    ] = None
    tags: Annotated[list[str], Meta(description="tags to select its tools by")] = []
    allow: Annotated[
        list[str], Meta(description="patterns of tool names to serve", extra_json_schema={"default": ["*"]})
    ] = msgspec.field(default_factory=lambda: ["*"])
    deny: Annotated[list[str], Meta(description="patterns of tool names to leave out, even if allowed")] = []
    timeout_s: Annotated[
        Annotated[float, Meta(gt=0, le=86_400)] | None,
        Meta(description="time limit of its tools, instead of `limits.timeout_s`"),
    ] = None
    unknown_arguments: Annotated[
        UnknownArguments,
        Meta(description="action for arguments that a tool's schema neither declares nor forbids", extra=ADVANCED),
    ] = "allow"
    results: Annotated[
        Results, Meta(description="action for results that violate the output schema", extra=ADVANCED)
    ] = "enforce"
    contracts: Annotated[
        Contracts | None,
        Meta(description="overrides `contracts` for this server: `observe` or `enforce`", extra=ADVANCED),
    ] = None
    extensions: Annotated[
        bool,
        Meta(
            description="pass its extensions on: what it declares, and methods and notifications that MCP itself does not know,"
            " in both directions; a rule of `[approvals]` that matches refuses them",
            extra=ADVANCED,
        ),
    ] = True
    client_meta: Annotated[
        bool,
        Meta(
            description="pass the `_meta` of clients' requests on, as a direct connection would; false: the trace context alone",
            extra=ADVANCED,
        ),
    ] = True
    client_extensions: Annotated[
        dict[str, dict[str, Any]],
        Meta(
            description="extensions, with their settings, that are declared to it as the client's in a handshake",
            extra=ADVANCED,
        ),
    ] = {}
    unlisted_resources: Annotated[
        bool,
        Meta(
            description="ask it for resources that no server lists; for a server that does not list all of its own",
            extra=ADVANCED,
        ),
    ] = False
    strategy: Annotated[Strategy, Meta(description="which clients share a running server", extra=ADVANCED)] = "shared"
    era: Annotated[
        Era,
        Meta(description="MCP era to use with a server that supports both; auto: the calling client's", extra=ADVANCED),
    ] = "auto"
    min_ready: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="instances kept running without calls; more than 1 only with `per_session`",
            extra=ADVANCED,
        ),
    ] = 0
    idle_s: Annotated[
        float, Meta(gt=0, le=86_400 * 365, description="idle time after which an instance is stopped", extra=ADVANCED)
    ] = 300.0
    relist_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            description="how often its tools are listed again while it runs, since a server need not say that they have"
            " changed; 0: only when it says so",
            extra=ADVANCED,
        ),
    ] = 60.0
    enabled: Annotated[bool, Meta(description="false turns it off")] = True

    def __repr__(self) -> str:
        """Leave out values that may be secrets."""
        what = f"command={self.command!r}" if self.command is not None else f"url={_host_of(self.url or '')!r}"
        return f"ServerSettings({what}, …)"


@dataclass(frozen=True, kw_only=True, repr=False)
class ResolvedServer:
    """A server with variables replaced and absolute paths. It may hold secrets, which its repr leaves out."""

    name: str
    command: tuple[str, ...] | None
    """Program and arguments; None for a server with a url."""
    env: Mapping[str, str] = field(hash=False)
    cwd: Path
    """Absolute; the project by default."""
    url: str | None
    headers: Mapping[str, str] = field(hash=False)
    own_env: Mapping[str, Template] = field(hash=False)
    """Variables that contain values of the credential's owner."""
    own_headers: Mapping[str, Template] = field(hash=False)
    credentials: Credentials
    network: Network
    auth: AuthSpec | None
    transport: Transport | None
    """None: try http, then sse. A command is always `stdio`."""
    tags: frozenset[str]
    allow: tuple[str, ...]
    deny: tuple[str, ...]
    timeout_s: float | None
    unknown_arguments: UnknownArguments
    results: Results
    contracts: Contracts | None
    extensions: bool
    client_meta: bool
    client_extensions: Mapping[str, Any] = field(hash=False)
    unlisted_resources: bool
    strategy: Strategy
    era: Era
    min_ready: int
    idle_s: float
    relist_s: float

    def __repr__(self) -> str:
        """Leave out values, arguments and the path of the URL, as they may be secrets."""
        if self.command is not None:
            what = f"command={self.command[0]!r} with {len(self.command) - 1} arguments"
        else:
            what = f"url={_host_of(self.url or '')!r}"
        names = f"env={sorted(self.env)}, headers={sorted(self.headers)}"
        return f"<ResolvedServer {self.name!r} {what}, {names}, transport={self.transport!r}>"


def check_server(name: str, server: ServerSettings, section: str = "servers") -> None:
    """Raise `BadConfiguration` for a name that cannot be part of a tool's name, and for contradicting settings."""
    place = f"{section}.{name}"
    if not re.fullmatch(_NAME, name):
        what = "a server's name" if section == "servers" else "a name"
        raise BadConfiguration(
            f"{section}.`{name}`: {what} may contain letters, digits, `-` and single `_`.",
            hint=f"rename it to `{usable_name(name)}`",
        )
    if (server.command is None) == (server.url is None):
        both = "has both `command` and `url`" if server.url is not None else "has neither `command` nor `url`"
        raise BadConfiguration(
            f"{place} {both}.", hint="set `command` for a server on stdio, or `url` for one over HTTP"
        )
    if server.command == "" or server.url == "":
        raise BadConfiguration(f"{place}.{'url' if server.command is None else 'command'} is empty.")
    if server.transport is not None and (server.transport == "stdio") != (server.command is not None):
        right = "a `command` needs stdio" if server.command is not None else "a `url` needs http or sse"
        raise BadConfiguration(f"{place}.transport is `{server.transport}`, but {right}.")
    for key in misplaced_keys(server):
        other = "a `url`" if server.command is not None else "a `command`"
        raise BadConfiguration(f"{place}.{key} needs {other}.", hint=f"remove {key}")
    if server.min_ready > 1 and server.strategy != "per_session":
        raise BadConfiguration(
            f"{place}.min_ready is {server.min_ready}, but strategy `{server.strategy}` runs one instance.",
            hint='set min_ready = 1, or strategy = "per_session"',
        )
    _check_names(server, place)
    if server.url is not None and all(isinstance(piece, str) for piece in split_references(server.url)):
        _check_url(server.url, place)


def _check_names(server: ServerSettings, place: str) -> None:
    for name in server.env:
        if not name or "=" in name or "\0" in name:
            raise BadConfiguration(f"{place}.env: `{name}` is not a valid name of an environment variable.")
    for name in server.headers:
        if not _HEADER_NAME.fullmatch(name):
            raise BadConfiguration(f"{place}.headers: `{name}` is not a valid header name.")


def misplaced_keys(server: ServerSettings) -> list[str]:
    """Return the keys that belong to the other kind of server, `command` or `url`."""
    if server.command is not None:
        given = {"headers": server.headers, "auth": server.auth, "network": server.network != UNSET}
        return [key for key, value in given.items() if value]
    return [key for key in ("args", "env", "cwd") if getattr(server, key)]


def resolve_server(
    name: str,
    server: ServerSettings,
    *,
    environment: Mapping[str, str],
    project: Path,
    network: NetworkSettings = UNSET,
    section: str = "servers",
) -> ResolvedServer:
    """Replace the variables of a server's settings; errors name the server and the key, never a value.

    `section` is the one that the settings stand in.
    """
    check_server(name, server, section)
    place = f"{section}.{name}"

    def fill(text: str, key: str) -> str:
        filled = expand_variables(text, environment=environment, project=project, place=f"{place}.{key}")
        if "\0" in filled:
            raise BadConfiguration(f"{place}.{key} contains a NUL character.")
        return filled

    command = None
    if server.command is not None:
        words = [fill(word, f"args[{number}]") for number, word in enumerate(server.args)]
        command = (fill(server.command, "command"), *words)
        if not command[0]:
            raise BadConfiguration(f"{place}.command is empty after its variables are replaced.")
    url = None
    if server.url is not None:
        url = fill(server.url, "url")
        _check_url(url, place)

    env = {key: fill_around(value, partial(fill, key=f"env.{key}")) for key, value in server.env.items()}
    headers = {key: fill_around(value, partial(fill, key=f"headers.{key}")) for key, value in server.headers.items()}
    own_env = {key: template for key, template in env.items() if has_own_values(template)}
    own_headers = {key: template for key, template in headers.items() if has_own_values(template)}
    auth = _resolve_auth(server.auth, fill, place) if server.auth is not None else None
    is_own = bool(own_env or own_headers) or (auth is not None and auth.exchanges_callers_tokens)
    if server.credentials == "shared" and auth is not None and auth.exchanges_callers_tokens:
        # The first caller's token would be used for all of them.
        raise BadConfiguration(
            f'{place}.credentials is "shared", but auth.subject is "caller".', hint="remove `credentials`"
        )
    return ResolvedServer(
        name=name,
        command=command,
        env={key: "".join(map(str, template)) for key, template in env.items() if key not in own_env},
        cwd=_resolve_folder(fill(server.cwd or "", "cwd"), project, place),
        url=url,
        headers={
            key: _check_header("".join(map(str, template)), key, place)
            for key, template in headers.items()
            if key not in own_headers
        },
        own_env=own_env,
        own_headers=own_headers,
        network=resolve_network(server.network, network, fill, project) if url is not None else DIRECT,
        credentials=server.credentials or ("caller" if is_own else "shared"),
        auth=auth,
        transport="stdio" if command else server.transport,
        tags=frozenset(server.tags),
        allow=tuple(server.allow),
        deny=tuple(server.deny),
        timeout_s=server.timeout_s,
        unknown_arguments=server.unknown_arguments,
        results=server.results,
        contracts=server.contracts,
        extensions=server.extensions,
        client_meta=server.client_meta,
        client_extensions=server.client_extensions,
        unlisted_resources=server.unlisted_resources,
        strategy=server.strategy,
        era=server.era,
        min_ready=server.min_ready,
        idle_s=server.idle_s,
        relist_s=server.relist_s,
    )


def _resolve_auth(auth: AuthSettings, fill: Callable[[str, str], str], place: str) -> AuthSpec:
    def resolve(key: str, value: object) -> object:
        if isinstance(value, str):
            return fill(value, f"auth.{key}")
        if isinstance(value, dict):
            return {name: fill(text, f"auth.{key}.{name}") for name, text in value.items()}
        return tuple(fill(text, f"auth.{key}") for text in value) if isinstance(value, list) else value

    resolved: Any = {key: resolve(key, getattr(auth, key)) for key in auth.__struct_fields__}
    spec = AuthSpec(**resolved)
    _check_auth(spec, place)
    for key in ("issuer", "authorization_url", "token_url", "idp_token_url", "client_metadata_url"):
        if (url := getattr(spec, key)) is not None:
            _check_url(url, f"{place}.auth", key)
    if spec.client_metadata_url is not None and not spec.client_metadata_url.startswith("https://"):
        raise BadConfiguration(f"{place}.auth.client_metadata_url must begin with https://.")
    return spec


def _check_auth(spec: AuthSpec, place: str) -> None:
    if spec.exchanges_callers_tokens and (spec.type != "token_exchange" or spec.subject_token):
        raise BadConfiguration(
            f'{place}.auth.subject is "caller", which needs type `token_exchange` and no `subject_token`.'
        )
    for key, needed in _NEEDED.get(spec.type, {}).items():
        if not getattr(spec, key) and not (key == "subject_token" and spec.exchanges_callers_tokens):
            raise BadConfiguration(f"{place}.auth.{key} is missing: type `{spec.type}` needs {needed}.")
    if spec.authorization_url is not None or spec.token_url is not None:
        for key in ("authorization_url", "token_url", "client_id"):
            if not getattr(spec, key):
                raise BadConfiguration(f"{place}.auth.{key} is missing: endpoints without metadata need all three.")
    if spec.client_secret and not (spec.issuer or spec.token_url):
        # Otherwise the secret would go wherever the MCP server says, which need not be honest, nor stay so.
        raise BadConfiguration(f"{place}.auth.issuer is missing: `client_secret` needs {_ISSUER}.")


def _resolve_folder(text: str, project: Path, place: str) -> Path:
    try:
        return project / Path(text).expanduser()
    except RuntimeError as error:
        raise BadConfiguration(f"{place}.cwd: `~` cannot be resolved: unknown user or no home directory.") from error


def _check_url(url: str, place: str, key: str = "url") -> None:
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or _CONTROL.search(url):
        raise BadConfiguration(f"{place}.{key} is not a valid HTTP URL.", hint="write http://… or https://…")


def _check_header(value: str, key: str, place: str) -> str:
    if _CONTROL.search(value):
        raise BadConfiguration(f"{place}.headers.{key} contains a line break or another control character.")
    return value.strip()


def _host_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}/…"
