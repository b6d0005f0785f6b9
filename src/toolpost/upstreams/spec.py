"""What is known about a server before it is reached: how to start or find it, and how its tools are held."""

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
    """What the callers of a server share, and how much of it there is."""

    callers: Callers = field(default_factory=Callers)
    instances: int = 100
    """How many sessions may have a server of their own at the same time."""
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
    """None finds out: a command is stdio; a URL is streamable HTTP, and the older SSE if the server knows only that."""
    tags: frozenset[str] = frozenset()
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    timeout_s: float | None = None
    unknown_arguments: Literal["allow", "reject"] = "allow"
    results: Literal["enforce", "warn", "off"] = "enforce"
    contracts: Literal["observe", "enforce"] | None = None
    """What happens to a tool that is not as it promised; None is what holds for all servers."""
    strategy: Strategy = "shared"
    era: Era = "auto"
    """In which era a server that knows both is met; `auto`: in the caller's."""
    min_ready: int = 0
    idle_s: float = 300.0
    problem: str | None = None
    """Why it cannot be reached as it is configured, such as a variable that is not set; None if it can be."""
    hint: str | None = None
    """What can be done about the problem."""
    conceal: Callable[[str], str] = field(default=str, repr=False, compare=False)
    """Takes the secrets that the server was given out of what it says."""

    def reaches_like(self, other: "ServerSpec") -> bool:
        """Whether the server is reached and run in the same way: then a change needs no restart."""
        return all(getattr(self, name) == getattr(other, name) for name in _REACHING)

    def admits(self, tool: str) -> bool:
        """Whether the allow and deny lists let this tool through."""
        return any(fnmatchcase(tool, p) for p in self.allow) and not any(fnmatchcase(tool, p) for p in self.deny)
