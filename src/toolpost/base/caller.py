"""Who is calling, and which tools they may see: what an endpoint finds out before it accepts a request."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from toolpost.base.ids import CallerId, ThreadId

EXCEPT: Final = "!"
"""Prefix of a pattern that excludes tools."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """An identified client, as the audit names it; never holds a secret."""

    id: CallerId
    """`local` without authentication, `token` for the single token, otherwise the configured name."""

    transport: str
    """`stdio`, `http`, `memory` or `cli`."""

    session: str | None = None
    """The MCP session, in the handshake era."""

    thread: ThreadId | None = None
    """The conversation whose agent is calling, on behalf of the conversation's owner."""

    answers_handshake: bool = False
    """Whether the client has done a handshake and can answer server requests.

    A server that speaks both eras is used in the handshake era for such a client.
    """

    is_admin: bool = False
    """Whether the caller may act on what belongs to others; never true of an agent that calls on someone's behalf."""


OPERATOR: Final = Caller(id=CallerId("cli"), transport="cli", is_admin=True)
"""The person at the command line, who has access to the store itself."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What a caller or an endpoint is limited to. None is no limit; an empty value leaves nothing."""

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

    def admits(self, name: str) -> bool:
        """Return whether the patterns allow a name. With exclusions only, every other name is allowed."""
        if self.tools is None:
            return True
        included = [pattern for pattern in self.tools if not pattern.startswith(EXCEPT)]
        excluded = [pattern[1:] for pattern in self.tools if pattern.startswith(EXCEPT)]
        return (_matches_any(name, included) or (not included and bool(excluded))) and not _matches_any(name, excluded)


UNLIMITED: Final = Scope()


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


def _matches_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
