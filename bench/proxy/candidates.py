"""Who passes calls on: Toolpost, a proxy of the SDK's parts, FastMCP's proxy; and nobody at all, which is direct."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.processes import BIN, ROOT, Measured

Transport = Literal["HTTP", "stdio"]

UPSTREAM = ROOT / "bench" / "servers" / "upstream.py"
DIRECT = "direct"


@dataclass(frozen=True, kw_only=True)
class Target:
    """The upstream, as whoever passes calls on to it is told about it."""

    port: int | None = None
    command: tuple[str, ...] = ()
    server: Measured | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """One way to stand before an upstream."""

    name: str
    module: str | None = None

    @property
    def tool(self) -> str:
        return "echo" if self.module else "bench__echo"

    def http_command(self, port: int, target: Target) -> list[str]:
        if self.module is None:
            return [str(BIN / "toolpost"), "serve", "--listen", f"127.0.0.1:{port}"]
        return [*self._peer(), "http", str(port), _said(target)]

    def stdio_command(self, target: Target) -> list[str]:
        if self.module is None:
            return [str(BIN / "toolpost"), "serve", "--stdio"]
        return [*self._peer(), "stdio", _said(target)]

    def files(self, target: Target) -> Mapping[str, str]:
        """Return what it finds in its folder: Toolpost its configuration, with everything else as it is by default."""
        return {} if self.module else {"toolpost.toml": toolpost_toml({"bench": target})}

    def _peer(self) -> list[str]:
        return [sys.executable, "-m", f"bench.servers.{self.module}"]


TOOLPOST = Proxy(name="Toolpost")
SDK = Proxy(name="SDK proxy", module="sdk_proxy")
FASTMCP = Proxy(name="FastMCP proxy", module="fastmcp_proxy")

PROXIES = (TOOLPOST, SDK, FASTMCP)
PEERS = (SDK, FASTMCP)


def upstream_command(*arguments: object) -> tuple[str, ...]:
    """Return the command of the lean upstream."""
    return python_command(UPSTREAM, *arguments)


def python_command(script: Path, *arguments: object) -> tuple[str, ...]:
    """Return a command by the path of its script, since a server behind a proxy is given no PYTHONPATH."""
    return (sys.executable, str(script), *map(str, arguments))


def toolpost_toml(servers: Mapping[str, Target]) -> str:
    """Write a configuration with these servers."""
    return "".join(f"[servers.{name}]\n{_setting(target)}\n" for name, target in servers.items())


def _setting(target: Target) -> str:
    if not target.command:
        return f"url = {json.dumps(target.url)}"
    command, *arguments = target.command
    return f"command = {json.dumps(command)}\nargs = {json.dumps(arguments)}"


def _said(target: Target) -> str:
    return json.dumps(target.command) if target.command else target.url
