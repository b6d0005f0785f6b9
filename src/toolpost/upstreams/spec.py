"""The specification of a server: how it is started or reached, and which rules its tools follow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal

from toolpost.shares import Callers

TransportKind = Literal["stdio", "http", "sse"]
Strategy = Literal["shared", "per_session", "singleton"]
Era = Literal["auto", "handshake", "stateless"]


_REACHING: Final = ("name", "command", "env", "cwd", "url", "headers", "transport", "strategy", "era", "problem")


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """Limits that the callers of a server share."""

    callers: Callers = field(default_factory=Callers)
    instances: int = 100
    """How many sessions may have an instance of their own at the same time."""
    waiting: int = 64
    """How many calls may wait for a server that takes one at a time."""


@dataclass(frozen=True, kw_only=True)
class ServerSpec:
    """One `[servers.NAME]`, resolved: every variable expanded, every path absolute."""

    name: str
    command: tuple[str, ...] | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: Path | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
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
    strategy: Strategy = "shared"
    era: Era = "auto"
    """The era in which a server that knows both is used; `auto` is the era of the caller."""
    min_ready: int = 0
    idle_s: float = 300.0
    problem: str | None = None
    """Why it cannot be started as it is configured, such as a variable that is not set; None if it can be."""
    hint: str | None = None
    """What can be done about the problem."""
    conceal: Callable[[str], str] = field(default=str, repr=False, compare=False)
    """Masks the secrets of the server's settings in a text."""

    def reaches_like(self, other: "ServerSpec") -> bool:
        """Whether the server is reached and run in the same way, so that a change to the other needs no restart."""
        return all(getattr(self, name) == getattr(other, name) for name in _REACHING)

    def admits(self, tool: str) -> bool:
        """Whether the allow and deny lists let this tool through."""
        return any(fnmatchcase(tool, p) for p in self.allow) and not any(fnmatchcase(tool, p) for p in self.deny)
