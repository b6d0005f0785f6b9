"""The caller and its visible tools: an endpoint reads both before it accepts a request."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from toolpost.base.ids import CallerId, ThreadId

EXCEPT: Final = "!"
"""Prefix of a pattern that excludes tools."""


@dataclass(frozen=True, kw_only=True)
class ClientInfo:
    """The client program that made a call, by its own words."""

    name: str = ""
    """Empty for a client that does not say it."""
    version: str = ""
    revision: str = ""
    """The revision of MCP that it speaks, such as `2026-07-28`; empty for a call without a client, as from Python."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """What it declared, as in MCP."""

    @property
    def can_elicit(self) -> bool:
        """Whether it shows forms to its user."""
        declared = self.capabilities.get("elicitation")
        return isinstance(declared, dict) and (not declared or "form" in declared)

    @property
    def can_open_urls(self) -> bool:
        """Whether it sends its user to an address, for `ctx.elicit(…, url=…)`."""
        declared = self.capabilities.get("elicitation")
        return isinstance(declared, dict) and "url" in declared

    @property
    def can_sample(self) -> bool:
        """Whether it has a model that it lets servers use."""
        return isinstance(self.capabilities.get("sampling"), dict)

    @property
    def has_roots(self) -> bool:
        """Whether it tells which folders it works in."""
        return isinstance(self.capabilities.get("roots"), dict)


def parse_client_info(info: object, capabilities: object, *, revision: str) -> ClientInfo:
    """Make a `ClientInfo` of what a client sent, which may be anything."""
    told = info if isinstance(info, dict) else {}
    return ClientInfo(
        name=str(told.get("name") or "")[:200],
        version=str(told.get("version") or "")[:200],
        revision=revision,
        capabilities=capabilities if isinstance(capabilities, dict) else {},
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """An identified client, as the audit names it; never holds a secret."""

    id: CallerId
    """`local` without authentication, `token` for the single token, otherwise the configured name."""

    transport: str
    """`stdio`, `http`, `memory`, `cli`, or `agent` for an agent that acts for a caller."""

    session: str | None = None
    """The MCP session, in the handshake era."""

    thread: ThreadId | None = None
    """The conversation whose agent is calling, on behalf of the conversation's owner."""

    takes_server_requests: bool = False
    """Whether the client has done a handshake and can answer server requests.

    A server that speaks both eras is used in the handshake era for such a client.
    """

    is_admin: bool = False
    """Whether the caller may act on what belongs to others; never true of an agent that calls on someone's behalf."""

    is_read_only: bool = False
    """Whether its token is for read-only tools alone, whatever else the caller may do with another token."""

    is_from_login: bool = False
    """Whether its token is from a login here: its person has let a client call tools, and not vote or administrate."""

    acted_by: CallerId | None = None
    """The administrator who calls with the rights of this caller, to see what it sees; None if the caller calls itself."""

    client: ClientInfo | None = field(default=None, compare=False, repr=False)
    """The client program, as it introduced itself in a handshake; one of the stateless era does so with each request."""

    @property
    def recorded_as(self) -> CallerId:
        """Its name in audit and log: both names, if an administrator calls with its rights."""
        return self.id if self.acted_by is None else CallerId(f"{self.acted_by} as {self.id}")

    @property
    def is_agent(self) -> bool:
        """Whether an agent calls on someone's behalf, in a conversation or outside of one."""
        return self.transport == "agent" or self.thread is not None


OPERATOR: Final = Caller(id=CallerId("cli"), transport="cli", is_admin=True)
"""The person at the command line, who has access to the store itself."""


_UNNAMED: Final = frozenset({"cli", "local", "token"})
"""Callers without a name of their own: the person who started the gateway, and the clients of that person. Reserved names."""

_IN_PROCESS: Final = frozenset({"application", "search"})
"""Callers inside the process of the gateway. Over HTTP, a caller may be configured under these names."""


def owner_of(caller: Caller) -> str:
    """Return the owner of a caller's credentials: its id, or empty for callers without a name, who share theirs.

    An administrator who calls with the rights of another has its own credentials all the same.
    """
    name = caller.acted_by or caller.id
    is_unnamed = name in _UNNAMED or (caller.transport == "memory" and name in _IN_PROCESS)
    return "" if is_unnamed else name


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The limits of a caller or an endpoint. None is no limit; an empty value leaves nothing."""

    tags: frozenset[str] | None = None
    """A server is visible if it has one of these tags; a server without tags never is."""

    tools: tuple[str, ...] | None = None
    """Patterns of tool names, `github__*`; `!github__delete_*` excludes, in any position."""

    is_read_only: bool = False
    """Whether only tools that are annotated read-only are visible."""

    confirmed: frozenset[str] = frozenset()
    """Servers whose annotations an operator has confirmed; those of the others are claims, and do not count."""

    @property
    def is_limited(self) -> bool:
        return self.tags is not None or self.tools is not None or self.is_read_only

    def allows(self, provider: str, annotations: Mapping[str, Any], *, is_upstream: bool) -> bool:
        """Return whether a tool with these annotations may be called."""
        if not self.is_read_only:
            return True
        return annotations.get("readOnlyHint") is True and (not is_upstream or provider in self.confirmed)

    def carries(self, tags: frozenset[str]) -> bool:
        """Return whether a provider with these tags is visible."""
        return self.tags is None or bool(self.tags & tags)

    def admits(self, *names: str) -> bool:
        """Return whether the patterns allow a tool with these names, all of which are its own.

        One that is included is enough, and one that is excluded too. With exclusions only, every other name is allowed.
        """
        if self.tools is None:
            return True
        included = [pattern for pattern in self.tools if not pattern.startswith(EXCEPT)]
        excluded = [pattern[1:] for pattern in self.tools if pattern.startswith(EXCEPT)]
        is_included = _matches_any(names, included) or (not included and bool(excluded))
        return is_included and not _matches_any(names, excluded)


UNLIMITED: Final = Scope()
READ_ONLY: Final = Scope(is_read_only=True)
"""Read-only tools of plugins; those of servers, only where they are `confirmed`."""


@dataclass(frozen=True, kw_only=True)
class Principal:
    """An authenticated caller with its limits: all scopes must allow a tool."""

    caller: Caller
    scopes: tuple[Scope, ...] = ()
    is_admin: bool = False


@dataclass(frozen=True, kw_only=True)
class GatewayAccess:
    """A URL and a token with which one agent session reaches the gateway."""

    url: str
    token: str = field(repr=False)
    """Valid for this session only; calls count as those of the conversation's owner."""


def _matches_any(names: Iterable[str], patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)
