"""The MCP clients that Toolpost knows: where each keeps its servers on each system, and its format."""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from toolpost.base.ids import JsonObject

ClientScope = Literal["project", "user"]


# What the MCP SDKs pass to a server that they start, in addition to the `env` of its entry.
_INHERITED: Final = frozenset(
    {
        *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"),
        *("APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PROCESSOR_ARCHITECTURE", "PROGRAMFILES"),
        *("SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE"),
    }
)


@dataclass(frozen=True, kw_only=True)
class KnownClient:
    """A client and its format of servers."""

    name: str
    title: str
    key: str
    """The key of the servers in its file."""
    has_types: bool
    """Whether each entry has a `type`."""
    scopes: tuple[ClientScope, ...]
    token_reference: str | None
    """Its syntax for TOOLPOST_TOKEN; None if it does not support HTTP servers."""
    passes_environment: bool = False
    """Whether its servers inherit the whole environment; most clients pass only what the MCP SDKs do."""

    def stdio_entry(self, command: str, args: list[str]) -> JsonObject:
        """Make the entry of a server that the client starts."""
        return ({"type": "stdio"} if self.has_types else {}) | {"command": command, "args": args}

    def may_set(self, variable: str, environment: Mapping[str, str] = os.environ) -> bool:
        """Whether a server that the client starts gets a variable, as far as this process can know."""
        return variable in _INHERITED or (self.passes_environment and variable in environment)

    def http_entry(self, url: str, *, has_token: bool) -> JsonObject:
        """Make the entry of a server that the client connects to; the token is a reference, never the value."""
        headers = {"headers": {"Authorization": f"Bearer {self.token_reference}"}} if has_token else {}
        return ({"type": "http"} if self.has_types else {}) | {"url": url} | headers


@dataclass(frozen=True, kw_only=True)
class ClientFile:
    """A file in which a client may keep servers; it need not exist."""

    client: KnownClient
    scope: ClientScope
    path: Path


CLIENTS: Final = {
    client.name: client
    for client in (
        KnownClient(
            name="claude-code",
            title="Claude Code",
            key="mcpServers",
            has_types=True,
            scopes=("project", "user"),
            token_reference="${TOOLPOST_TOKEN}",  # noqa: S106 (its name, not itself)
            passes_environment=True,
        ),
        KnownClient(
            name="claude-desktop",
            title="Claude Desktop",
            key="mcpServers",
            has_types=False,
            scopes=("user",),
            token_reference=None,
        ),
        KnownClient(
            name="cursor",
            title="Cursor",
            key="mcpServers",
            has_types=False,
            scopes=("project", "user"),
            token_reference="${env:TOOLPOST_TOKEN}",  # noqa: S106
        ),
        KnownClient(
            name="vscode",
            title="VS Code",
            key="servers",
            has_types=True,
            scopes=("project", "user"),
            token_reference="${env:TOOLPOST_TOKEN}",  # noqa: S106
        ),
    )
}


def list_client_files(
    folder: Path, *, platform: str = sys.platform, environment: Mapping[str, str] = os.environ
) -> list[ClientFile]:
    """List the files in which clients may keep servers, each once; those of the project come first."""
    found: dict[Path, ClientFile] = {}
    for place in _list_all_files(folder, platform, environment):
        # In the home folder, a project's file and the user's may be the same.
        found.setdefault(place.path, place)
    return list(found.values())


def client_file_of(client: KnownClient, scope: ClientScope, folder: Path) -> ClientFile:
    """Return the file for a client's new servers: the first that the client reads."""
    known = _list_all_files(folder, sys.platform, os.environ)
    return next(place for place in known if place.client == client and place.scope == scope)


def _list_all_files(folder: Path, platform: str, environment: Mapping[str, str]) -> list[ClientFile]:
    home = Path.home()
    projects = [
        ClientFile(client=CLIENTS[name], scope="project", path=folder / path)
        for name, path in (
            ("claude-code", ".mcp.json"),
            ("cursor", ".cursor/mcp.json"),
            ("vscode", ".vscode/mcp.json"),
            ("vscode", ".vscode/settings.json"),
        )
    ]
    users = [
        ClientFile(client=CLIENTS[name], scope="user", path=path)
        for name, path in _list_user_files(home, _settings_folder(home, platform, environment), environment)
    ]
    return projects + users


def _list_user_files(home: Path, applications: Path, environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    yield "claude-code", Path(environment.get("CLAUDE_CONFIG_DIR") or home) / ".claude.json"
    yield "claude-desktop", applications / "Claude" / "claude_desktop_config.json"
    yield "cursor", home / ".cursor" / "mcp.json"
    yield "vscode", applications / "Code" / "User" / "mcp.json"
    yield "vscode", applications / "Code" / "User" / "settings.json"


def _settings_folder(home: Path, platform: str, environment: Mapping[str, str]) -> Path:
    """Return the folder in which programs of a user keep their settings."""
    if platform == "darwin":
        return home / "Library" / "Application Support"
    if platform == "win32":
        return Path(environment.get("APPDATA") or home / "AppData" / "Roaming")
    return Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
