"""Who is calling, and what of all tools they may see: what an endpoint learnt before it let a request in."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from toolpost.base.ids import CallerId, ThreadId

EXCEPT: Final = "!"
"""Begins a pattern of what is not seen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """Somebody, as the audit will name them; never a secret."""

    id: CallerId
    """`local` without authentication, `token` for the one token, else the caller's name."""

    transport: str
    """`stdio`, `http`, `memory` or `cli`."""

    session: str | None = None
    """The MCP session, where the era has one."""

    thread: ThreadId | None = None
    """The conversation whose agent calls, in the name of whoever leads it."""

    answers_handshake: bool = False
    """Whether the client has shaken hands and can be asked something: a server that knows both eras is met in that one for it."""

    is_admin: bool = False
    """Whether they may act on what belongs to others; never true of an agent that calls in somebody's name."""


OPERATOR: Final = Caller(id=CallerId("cli"), transport="cli", is_admin=True)
"""Who runs a command on the machine itself, with the store in their hands."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What a caller, or an endpoint, is limited to. What is None does not limit; what is empty leaves nothing."""

    tags: frozenset[str] | None = None
    """A server is seen if it carries one of these; one without tags never is."""

    tools: tuple[str, ...] | None = None
    """Patterns of names, `github__*`; `!github__delete_*` takes away, wherever it stands."""

    @property
    def is_limited(self) -> bool:
        """Whether anything is left out."""
        return self.tags is not None or self.tools is not None

    def carries(self, tags: frozenset[str]) -> bool:
        """Whether a source with these tags is seen."""
        return self.tags is None or bool(self.tags & tags)

    def admits(self, name: str) -> bool:
        """Whether the patterns let a name through. With nothing but exceptions, everything else is."""
        if self.tools is None:
            return True
        wanted = [pattern for pattern in self.tools if not pattern.startswith(EXCEPT)]
        unwanted = [pattern[1:] for pattern in self.tools if pattern.startswith(EXCEPT)]
        return (_any(name, wanted) or (not wanted and bool(unwanted))) and not _any(name, unwanted)


UNLIMITED: Final = Scope()


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Who somebody is, and all that they are limited to."""

    caller: Caller
    scopes: tuple[Scope, ...] = ()
    is_admin: bool = False


@dataclass(frozen=True, kw_only=True)
class GatewayAccess:
    """A way in to the gateway that is lent, for one session of an agent."""

    url: str
    token: str = field(repr=False)
    """Lets in nobody else, and them in the name of whoever leads the conversation."""


def _any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
