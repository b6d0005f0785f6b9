"""Who is measured: Toolpost and its peers, each with the same echo tool."""

import sys
from dataclasses import dataclass, replace
from typing import Literal

from bench.processes import BIN

Style = Literal["schemas", "hints"]
Answers = Literal["json", "events"]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One server, in one way of writing its tool and of answering over HTTP."""

    name: str
    module: str
    style: Style
    """Whether the tool's schemas are written down or made from type hints: only like is compared with like."""
    answers: Answers = "json"
    """How a peer answers over HTTP: as JSON, or as server-sent events, which is its default."""

    @property
    def is_toolpost(self) -> bool:
        return self.module.startswith("toolpost")

    @property
    def tool(self) -> str:
        return "bench__echo" if self.is_toolpost else "echo"

    def http_command(self, port: int) -> list[str]:
        if self.is_toolpost:
            return [*self._toolpost(), "--listen", f"127.0.0.1:{port}"]
        return [*self._peer(), "http", str(port), self.answers]

    def stdio_command(self) -> list[str]:
        return [*self._toolpost(), "--stdio"] if self.is_toolpost else [*self._peer(), "stdio"]

    def answering(self, answers: Answers) -> "Candidate":
        return replace(self, answers=answers)

    def _toolpost(self) -> list[str]:
        return [str(BIN / "toolpost"), "serve", "--plugin", f"bench.servers.{self.module}:plugin"]

    def _peer(self) -> list[str]:
        return [sys.executable, "-m", f"bench.servers.{self.module}"]


TOOLPOST = Candidate(name="Toolpost", module="toolpost_schema", style="schemas")
TOOLPOST_HINTS = Candidate(name="Toolpost, hints", module="toolpost_hints", style="hints")
SDK_LOW = Candidate(name="SDK Server", module="sdk_low", style="schemas")
SDK_HIGH = Candidate(name="SDK MCPServer", module="sdk_high", style="hints")
FASTMCP = Candidate(name="FastMCP", module="fastmcp_echo", style="hints")

ALL = (TOOLPOST, TOOLPOST_HINTS, SDK_LOW, SDK_HIGH, FASTMCP)
PEERS = (SDK_LOW, SDK_HIGH, FASTMCP)


NAMES = tuple(candidate.name for candidate in ALL)


def like(peer: Candidate) -> Candidate:
    """Return the Toolpost that a peer is compared with."""
    return TOOLPOST if peer.style == "schemas" else TOOLPOST_HINTS


PAIRS = tuple((like(peer).name, peer.name) for peer in PEERS)
