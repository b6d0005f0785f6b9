"""`[servers.NAME]`: the MCP servers behind the gateway, as written and with variables replaced."""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from toolpost.contracts.errors import BadConfiguration
from toolpost.settings.variables import expand_variables, split_references

Transport = Literal["stdio", "http", "sse"]
UnknownArguments = Literal["allow", "reject"]
Results = Literal["enforce", "warn", "off"]
Contracts = Literal["observe", "enforce"]
Strategy = Literal["shared", "per_session", "singleton"]
Era = Literal["auto", "handshake", "stateless"]

# As in `check_plugin_name`: a double `_` separates server and tool.
_NAME: Final = r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*"
ServerName = Annotated[str, Meta(pattern=f"^{_NAME}$")]

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class ServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An MCP server behind the gateway: started by `command`, or reached at `url`. `${VAR}` is replaced at the start."""

    command: Annotated[str | None, Meta(description="program that serves MCP on stdio")] = None
    args: Annotated[list[str], Meta(description="its arguments")] = []
    env: Annotated[dict[str, str], Meta(description="its environment variables")] = {}
    cwd: Annotated[str | None, Meta(description="working directory; the project, if not set")] = None
    url: Annotated[str | None, Meta(description="URL of a remote or already running server")] = None
    headers: Annotated[dict[str, str], Meta(description="HTTP headers of every request to it")] = {}
    transport: Annotated[
        Transport | None, Meta(description="if not set: stdio for a command; for a url http, and sse where that fails")
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
        Meta(description="what to do with arguments that a tool's schema neither declares nor forbids"),
    ] = "allow"
    results: Annotated[Results, Meta(description="what to do with results that violate the output schema")] = "enforce"
    contracts: Annotated[
        Contracts | None, Meta(description="overrides `contracts` for this server: `observe` or `enforce`")
    ] = None
    strategy: Annotated[Strategy, Meta(description="which clients share a running server")] = "shared"
    era: Annotated[
        Era, Meta(description="MCP era to use with a server that supports both; auto: the calling client's")
    ] = "auto"
    min_ready: Annotated[
        int, Meta(ge=0, le=100, description="instances kept running without calls; more than 1 only with `per_session`")
    ] = 0
    idle_s: Annotated[
        float, Meta(gt=0, le=86_400 * 365, description="idle time after which an instance is stopped")
    ] = 300.0
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
    transport: Transport | None
    """None: try http, then sse. A command is always `stdio`."""
    tags: frozenset[str]
    allow: tuple[str, ...]
    deny: tuple[str, ...]
    timeout_s: float | None
    unknown_arguments: UnknownArguments
    results: Results
    contracts: Contracts | None
    strategy: Strategy
    era: Era
    min_ready: int
    idle_s: float

    def __repr__(self) -> str:
        """Leave out values, arguments and the path of the URL, as they may be secrets."""
        if self.command is not None:
            what = f"command={self.command[0]!r} with {len(self.command) - 1} arguments"
        else:
            what = f"url={_host_of(self.url or '')!r}"
        names = f"env={sorted(self.env)}, headers={sorted(self.headers)}"
        return f"<ResolvedServer {self.name!r} {what}, {names}, transport={self.transport!r}>"


def check_server(name: str, server: ServerSettings) -> None:
    """Raise `BadConfiguration` for a name that cannot be part of a tool's name, and for contradicting settings."""
    place = f"servers.{name}"
    if not re.fullmatch(_NAME, name):
        raise BadConfiguration(
            f"servers.`{name}`: a server's name may contain letters, digits, `-` and single `_`.",
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
        return ["headers"] if server.headers else []
    return [key for key in ("args", "env", "cwd") if getattr(server, key)]


def usable_name(name: str) -> str:
    """Make a valid server name: anything but letters, digits, `-` and single `_` becomes `-`."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    dashed = re.sub(r"[^A-Za-z0-9_-]+", "-", plain)
    return re.sub(r"_+", "_", dashed).strip("-_") or "server"


def resolve_server(
    name: str, server: ServerSettings, *, environment: Mapping[str, str], project: Path
) -> ResolvedServer:
    """Replace the variables of a server's settings; errors name the server and the key, never a value."""
    check_server(name, server)
    place = f"servers.{name}"

    def fill(text: str, key: str) -> str:
        filled = expand_variables(text, environment=environment, project=project, place=f"{place}.{key}")
        if "\0" in filled:
            raise BadConfiguration(f"{place}.{key} contains a NUL character.")
        return filled

    command = None
    if server.command is not None:
        words = [fill(word, f"args[{number}]") for number, word in enumerate(server.args)]
        command = (_check_not_empty(fill(server.command, "command"), f"{place}.command"), *words)
    url = None
    if server.url is not None:
        url = fill(server.url, "url")
        _check_url(url, place)
    return ResolvedServer(
        name=name,
        command=command,
        env={key: fill(value, f"env.{key}") for key, value in server.env.items()},
        cwd=_resolve_folder(fill(server.cwd or "", "cwd"), project, place),
        url=url,
        headers={
            key: _check_header(fill(value, f"headers.{key}"), key, place) for key, value in server.headers.items()
        },
        transport="stdio" if command else server.transport,
        tags=frozenset(server.tags),
        allow=tuple(server.allow),
        deny=tuple(server.deny),
        timeout_s=server.timeout_s,
        unknown_arguments=server.unknown_arguments,
        results=server.results,
        contracts=server.contracts,
        strategy=server.strategy,
        era=server.era,
        min_ready=server.min_ready,
        idle_s=server.idle_s,
    )


def _check_not_empty(text: str, place: str) -> str:
    if not text:
        raise BadConfiguration(f"{place} is empty after its variables are replaced.")
    return text


def _resolve_folder(text: str, project: Path, place: str) -> Path:
    try:
        return project / Path(text).expanduser()
    except RuntimeError as error:
        raise BadConfiguration(f"{place}.cwd: `~` cannot be resolved: unknown user or no home directory.") from error


def _check_url(url: str, place: str) -> None:
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or _CONTROL.search(url):
        raise BadConfiguration(f"{place}.url is not a valid HTTP URL.", hint="write http://… or https://…")


def _check_header(value: str, key: str, place: str) -> str:
    if _CONTROL.search(value):
        raise BadConfiguration(f"{place}.headers.{key} contains a line break or another control character.")
    return value.strip()


def _host_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}/…"
