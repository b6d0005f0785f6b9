"""The MCP clients that Toolpost knows: where each keeps its servers, on every system, and how it writes one."""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from toolpost.base.ids import JsonObject

Scope = Literal["project", "user"]


# What the MCP SDKs hand on to a server that they start, unless its entry says more.
_INHERITED: Final = frozenset(
    {
        *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"),
        *("APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PROCESSOR_ARCHITECTURE", "PROGRAMFILES"),
        *("SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE"),
    }
)


@dataclass(frozen=True, kw_only=True)
class Client:
    """A client and the way it writes servers."""

    name: str
    title: str
    key: str
    """The member of its file that holds them."""
    has_types: bool
    """Whether each entry says its `type`."""
    scopes: tuple[Scope, ...]
    token_reference: str | None
    """How it refers to TOOLPOST_TOKEN; None if it reaches no server over HTTP."""
    passes_environment: bool = False
    """Whether a server that it starts gets its whole environment; most get a few variables, as the MCP SDKs have it."""

    def stdio_entry(self, command: str, args: list[str]) -> JsonObject:
        """Write a server that it starts."""
        return ({"type": "stdio"} if self.has_types else {}) | {"command": command, "args": args}

    def may_set(self, variable: str, environment: Mapping[str, str] = os.environ) -> bool:
        """Say whether a server that it starts can count on a variable, as far as can be told from here."""
        return variable in _INHERITED or (self.passes_environment and variable in environment)

    def http_entry(self, url: str, *, has_token: bool) -> JsonObject:
        """Write a server that it connects to; the token itself is never written."""
        headers = {"headers": {"Authorization": f"Bearer {self.token_reference}"}} if has_token else {}
        return ({"type": "http"} if self.has_types else {}) | {"url": url} | headers


@dataclass(frozen=True, kw_only=True)
class Place:
    """A file that a client may keep servers in."""

    client: Client
    scope: Scope
    path: Path


CLIENTS: Final = {
    client.name: client
    for client in (
        Client(
            name="claude-code",
            title="Claude Code",
            key="mcpServers",
            has_types=True,
            scopes=("project", "user"),
            token_reference="${TOOLPOST_TOKEN}",  # noqa: S106 (its name, not itself)
            passes_environment=True,
        ),
        Client(
            name="claude-desktop",
            title="Claude Desktop",
            key="mcpServers",
            has_types=False,
            scopes=("user",),
            token_reference=None,
        ),
        Client(
            name="cursor",
            title="Cursor",
            key="mcpServers",
            has_types=False,
            scopes=("project", "user"),
            token_reference="${env:TOOLPOST_TOKEN}",  # noqa: S106
        ),
        Client(
            name="vscode",
            title="VS Code",
            key="servers",
            has_types=True,
            scopes=("project", "user"),
            token_reference="${env:TOOLPOST_TOKEN}",  # noqa: S106
        ),
    )
}


def places(folder: Path, *, platform: str = sys.platform, environment: Mapping[str, str] = os.environ) -> list[Place]:
    """List the files that clients may keep servers in, each once: those of the project first, as they win."""
    found: dict[Path, Place] = {}
    for place in _all_places(folder, platform, environment):
        # In the home folder, what the project has and what the user has may be the same file.
        found.setdefault(place.path, place)
    return list(found.values())


def place_of(client: Client, scope: Scope, folder: Path) -> Place:
    """Return the file that a client's new servers go into: the first of those it reads."""
    known = _all_places(folder, sys.platform, os.environ)
    return next(place for place in known if place.client == client and place.scope == scope)


def _all_places(folder: Path, platform: str, environment: Mapping[str, str]) -> list[Place]:
    home = Path.home()
    projects = [
        Place(client=CLIENTS[name], scope="project", path=folder / path)
        for name, path in (
            ("claude-code", ".mcp.json"),
            ("cursor", ".cursor/mcp.json"),
            ("vscode", ".vscode/mcp.json"),
            ("vscode", ".vscode/settings.json"),
        )
    ]
    users = [
        Place(client=CLIENTS[name], scope="user", path=path)
        for name, path in _user_files(home, _applications(home, platform, environment), environment)
    ]
    return projects + users


def _user_files(home: Path, applications: Path, environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    yield "claude-code", Path(environment.get("CLAUDE_CONFIG_DIR") or home) / ".claude.json"
    yield "claude-desktop", applications / "Claude" / "claude_desktop_config.json"
    yield "cursor", home / ".cursor" / "mcp.json"
    yield "vscode", applications / "Code" / "User" / "mcp.json"
    yield "vscode", applications / "Code" / "User" / "settings.json"


def _applications(home: Path, platform: str, environment: Mapping[str, str]) -> Path:
    """Return the folder that a user's programs keep their settings in."""
    if platform == "darwin":
        return home / "Library" / "Application Support"
    if platform == "win32":
        return Path(environment.get("APPDATA") or home / "AppData" / "Roaming")
    return Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
