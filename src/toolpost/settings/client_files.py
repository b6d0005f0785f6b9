"""Reads the servers in the files of other MCP clients. Unknown content is noted, not refused, as the files are not ours.

mcpServers                    Claude Code (.mcp.json, ~/.claude.json), Claude Desktop, Cursor
projects[PATH].mcpServers     Claude Code, for one folder (~/.claude.json)
servers                       VS Code (.vscode/mcp.json)
mcp.servers                   VS Code (settings.json)
"""

import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.base.server_name import usable_name
from toolpost.contracts.errors import BadConfiguration
from toolpost.settings.jsonc import NotJson, read_jsonc
from toolpost.settings.servers import ServerSettings, Transport, check_server, misplaced_keys
from toolpost.settings.variables import expand_variables

_TRANSPORTS: Final[dict[str, Transport]] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamablehttp": "http",
    "streamable_http": "http",
    "sse": "sse",
}

_KNOWN: Final = frozenset(
    {"type", "transport", "command", "args", "env", "cwd", "url", "headers", "disabled", "envFile"}
)

_EMPTY: Final[dict[str, Any]] = {"args": [], "env": {}, "cwd": None, "headers": {}}
_LINE: Final = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)")
OWN_NAME: Final = "toolpost"
_OWN_PORT: Final = 8420
_HERE: Final = ("127.0.0.1", "localhost", "::1")


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


@dataclass(frozen=True, kw_only=True)
class ClientEntry:
    """A converted entry; `problem` says why it cannot be used."""

    settings: ServerSettings
    env_file: str | None = None
    notes: tuple[str, ...] = ()
    problem: str | None = None
    """None if it can be used."""


@dataclass(kw_only=True)
class _EntryReader:
    """Reads typed values of one entry, and collects notes and the first problem."""

    notes: list[str] = field(default_factory=list)
    problem: str | None = None

    def object(self, value: Json, key: str) -> JsonObject:
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
        self.problem = self.problem or f"`{key}` is not an object"
        return {}

    def list(self, value: Json, key: str) -> list[Json]:
        if value is None:
            return []
        if isinstance(value, list):
            return value
        self.problem = self.problem or f"`{key}` is not a list"
        return []

    def text(self, value: Json, key: str) -> str | None:
        if value is None or isinstance(value, str):
            return value
        self.problem = self.problem or f"`{key}` is not text"
        return None


def read_entry(entry: Json, *, falls_back: bool) -> ClientEntry:
    """Convert one entry; `falls_back` says that its client tries SSE where HTTP fails."""
    if not isinstance(entry, dict):
        return ClientEntry(settings=ServerSettings(), problem="it is not an object")
    reading = _EntryReader()
    settings = _read_settings(entry, reading, falls_back=falls_back)
    if unknown := sorted(set(entry) - _KNOWN):
        reading.notes.append(f"ignored: {', '.join(unknown)}")
    if extra := misplaced_keys(settings):
        reading.notes.append(f"ignored with {'a command' if settings.command else 'a url'}: {', '.join(extra)}")
        settings = msgspec.structs.replace(settings, **{key: _EMPTY[key] for key in extra})
    return ClientEntry(
        settings=settings,
        env_file=reading.text(entry.get("envFile"), "envFile") if settings.command else None,
        notes=tuple(reading.notes),
        problem=reading.problem or _find_problem(settings),
    )


def _read_settings(entry: JsonObject, reading: _EntryReader, *, falls_back: bool) -> ServerSettings:
    command, url = reading.text(entry.get("command"), "command"), reading.text(entry.get("url"), "url")
    transport = _read_transport(entry, reading)
    if command is not None and url is not None and transport is not None:
        reading.notes.append(f"has a command and a url; `type` is {transport}, so that the other one is ignored")
        command, url = (command, None) if transport == "stdio" else (None, url)
    if falls_back and transport == "http":
        # VS Code falls back to SSE for servers without streamable HTTP.
        transport = None
    return ServerSettings(
        command=command,
        url=url,
        args=[_to_text(word) for word in reading.list(entry.get("args"), "args")],
        env=_to_texts(reading.object(entry.get("env"), "env")),
        cwd=reading.text(entry.get("cwd"), "cwd"),
        headers=_to_texts(reading.object(entry.get("headers"), "headers")),
        transport=None if transport == "stdio" and command is not None else transport,
        enabled=entry.get("disabled") is not True,
    )


def _read_transport(entry: JsonObject, reading: _EntryReader) -> Transport | None:
    given = entry.get("type", entry.get("transport"))
    if given is None:
        return None
    known = _TRANSPORTS.get(given.lower()) if isinstance(given, str) else None
    if known is None:
        reading.problem = reading.problem or "`type` must be stdio, http, streamable-http or sse"
    return known


def _to_texts(values: JsonObject) -> dict[str, str]:
    return {name: _to_text(value) for name, value in values.items() if value is not None}


def _to_text(value: Json) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _find_problem(settings: ServerSettings) -> str | None:
    """Return what `check_server` finds wrong with the settings, without the name; None if nothing."""
    try:
        check_server("x", settings)
        msgspec.json.encode(settings)
    except BadConfiguration as error:
        return error.message.removeprefix("servers.x").lstrip(" .").removesuffix(".")
    except UnicodeEncodeError:
        return "it contains text that is not valid Unicode"
    return None


def read_env_file(path: Path, place: str) -> dict[str, str]:
    """Read the variables of a file; errors name `place`, the setting that refers to it."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadConfiguration(f"{place}: cannot read {path}: {reason}.") from error
    found = [_LINE.fullmatch(line.strip()) for line in lines]
    return {line[1]: _parse_value(line[2]) for line in found if line}


def _parse_value(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        inner = text[1:-1]
        return inner.replace("\\n", "\n") if text[0] == '"' else inner
    return re.split(r"\s#", text, maxsplit=1)[0].strip()


def is_toolpost(name: str, entry: Json) -> bool:
    """Whether an entry of a client's file is a Toolpost on this machine."""
    if not isinstance(entry, dict):
        return False
    args, url = entry.get("args"), entry.get("url")
    words = [entry.get("command"), *(args if isinstance(args, list) else [])]
    if _starts_toolpost([word for word in words if isinstance(word, str)]):
        return True
    return isinstance(url, str) and _is_own_url(url, is_named=name == OWN_NAME)


def _starts_toolpost(words: Sequence[str]) -> bool:
    """Whether a command contains `toolpost serve`, by path or through `uvx` and similar runners."""
    return any(_is_own_program(word) and after == "serve" for word, after in itertools.pairwise(words))


def _is_own_program(word: str) -> bool:
    name = PureWindowsPath(PurePosixPath(word).name).name.lower().removesuffix(".exe")
    # Also `toolpost==1.2`, `toolpost@latest` and `toolpost[postgres]`.
    return name.split("@")[0].split("=")[0].split("[")[0] == OWN_NAME


def _is_own_url(url: str, *, is_named: bool) -> bool:
    try:
        parts = urlsplit(url)
        is_ours = is_named or parts.port == _OWN_PORT
    except ValueError:
        return False
    return is_ours and parts.hostname in _HERE and parts.path == "/mcp"
