"""Reads the servers in the files of other MCP clients. Unknown content is noted, not refused, as the files are not ours.

mcpServers                    Claude Code (.mcp.json, ~/.claude.json), Claude Desktop, Cursor
projects[PATH].mcpServers     Claude Code, for one folder (~/.claude.json)
servers                       VS Code (.vscode/mcp.json)
mcp.servers                   VS Code (settings.json)
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.base.server_name import usable_name
from toolpost.contracts.errors import BadConfiguration
from toolpost.settings.client_entry import read_entry
from toolpost.settings.env_files import read_env_file
from toolpost.settings.jsonc import NotJson, read_jsonc
from toolpost.settings.own_entry import is_toolpost
from toolpost.settings.servers import ServerSettings
from toolpost.settings.variables import expand_variables


@dataclass(frozen=True, kw_only=True)
class FoundServer:
    """A server in a client's file."""

    name: str
    """Its name in `toolpost.toml`."""
    their_name: str
    """Its name in the client's file."""
    settings: ServerSettings
    env_file: str | None = None
    """A file with more variables, read when the server is used."""
    project: Path
    path: Path
    problem: str | None = None
    """Why it cannot be used."""

    def complete_settings(self) -> ServerSettings:
        """Return the settings with the env file's variables; raises `BadConfiguration` for a problem, unless disabled."""
        if not self.settings.enabled:
            return self.settings
        if self.problem is not None:
            raise BadConfiguration(f"{self.path}: servers.{self.name}: {self.problem}.")
        env = {name: value.replace("${", "$${") for name, value in self.env_file_values().items()}
        return msgspec.structs.replace(self.settings, env=env | self.settings.env)

    def env_file_values(self) -> dict[str, str]:
        """Read the env file; `{}` if there is none."""
        if self.env_file is None:
            return {}
        place = f"{self.path}: servers.{self.name}.envFile"
        named = expand_variables(self.env_file, environment=os.environ, project=self.project, place=place)
        return read_env_file(self.project / Path(named).expanduser(), place)


@dataclass(frozen=True, kw_only=True)
class ClientServers:
    """The servers of a client's file."""

    path: Path
    project: Path
    """The folder that relative paths in it start from."""
    servers: tuple[FoundServer, ...]
    has_place: bool
    """Whether the file has a section for servers at all."""
    notes: tuple[str, ...] = ()


def read_client_file(path: Path, *, folder: Path) -> ClientServers:
    """Read a client's file; `folder` selects among the projects that it may list."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadConfiguration(f"{path} is not UTF-8.") from error
    except OSError as error:
        raise BadConfiguration(f"Cannot read {path}: {error.strerror}.") from error
    return read_client_text(text, path, folder=folder)


def read_client_text(text: str, path: Path, *, folder: Path) -> ClientServers:
    try:
        value = read_jsonc(text) if text.strip("\ufeff \t\r\n") else {}
    except NotJson as error:
        raise BadConfiguration(f"{path} is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise BadConfiguration(f"{path} is not an MCP client's configuration: it is not a JSON object.")
    project = project_of(path, folder)
    places = list(_find_sections(value, folder))
    # A project's servers override those for all projects.
    entries: dict[str, Json] = {}
    for name, place in places:
        if not isinstance(place, dict):
            raise BadConfiguration(f"{path}: `{name}` is not an object.")
        entries |= place
    is_vscode = any(name in ("servers", "mcp.servers") for name, _ in places)
    return _read_entries(entries, path, project, has_place=bool(places), falls_back=is_vscode)


def project_of(path: Path, folder: Path) -> Path:
    """Return the folder that a file configures: its own project, else the one that Toolpost runs in."""
    path = path.absolute()
    home = Path.home()
    if path.name == ".mcp.json":
        return path.parent
    if path.parent.name in (".cursor", ".vscode") and path.parent.parent != home:
        return path.parent.parent
    return folder.absolute()


def _find_sections(value: JsonObject, folder: Path) -> Iterator[tuple[str, Json]]:
    if "mcpServers" in value:
        yield "mcpServers", value["mcpServers"]
    if isinstance(projects := value.get("projects"), dict):
        # A folder inside a project belongs to it: the nearest listed one counts.
        known = {
            Path(name): project_values for name, project_values in projects.items() if isinstance(project_values, dict)
        }
        nearest = next((known[place] for place in (folder, *folder.parents) if place in known), {})
        if "mcpServers" in nearest:
            yield "projects.mcpServers", nearest["mcpServers"]
    if "servers" in value:
        yield "servers", value["servers"]
    mcp = value.get("mcp")
    if isinstance(mcp, dict) and "servers" in mcp:
        yield "mcp.servers", mcp["servers"]


def _read_entries(
    entries: Mapping[str, Json], path: Path, project: Path, *, has_place: bool, falls_back: bool
) -> ClientServers:
    servers: list[FoundServer] = []
    notes: list[str] = []
    taken: set[str] = set()
    # Valid names come first, so that a converted one does not take theirs.
    for their_name in sorted(entries, key=lambda name: usable_name(name) != name):
        if is_toolpost(their_name, entries[their_name]):
            notes.append(f"`{their_name}` is Toolpost itself: skipped")
            continue
        name = _free_name(usable_name(their_name), taken)
        taken.add(name)
        if name != their_name:
            rule = "names are letters, digits, `-` and single `_`"
            notes.append(f"servers.{name}: `{their_name}` was renamed to `{name}`: {rule}")
        entry = read_entry(entries[their_name], falls_back=falls_back)
        notes.extend(f"servers.{name}: {note}" for note in entry.notes)
        servers.append(
            FoundServer(
                name=name,
                their_name=their_name,
                settings=entry.settings,
                env_file=entry.env_file,
                project=project,
                path=path,
                problem=entry.problem,
            )
        )
    order = {name: number for number, name in enumerate(entries)}
    servers.sort(key=lambda server: order[server.their_name])
    return ClientServers(path=path, project=project, servers=tuple(servers), has_place=has_place, notes=tuple(notes))


def _free_name(name: str, taken: set[str]) -> str:
    number, free = 2, name
    while free in taken:
        free = f"{name}-{number}"
        number += 1
    return free
