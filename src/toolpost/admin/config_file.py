"""Changes of the servers in `toolpost.toml`: planned, shown, tried out, and only then written.

A plan is made of the file as it is now, and says what the whole file would be. It is applied in an order in which nothing
is half done: the new servers are started first, all or none; if one does not start, neither the gateway nor the file has
changed. Then the file is replaced, unless another program has changed it since: then the gateway goes back to what the file
says.
"""

import hashlib
import logging
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from toolpost.admin.conversion import Variables, convert_server
from toolpost.admin.files import read_text, write_atomically
from toolpost.admin.shown_toml import MASK, conceal_secrets
from toolpost.admin.specs import specs_of
from toolpost.admin.toml_text import (
    add_servers,
    non_default_values,
    parse_servers,
    remove_server,
    remove_server_key,
    render_server,
    set_server_key,
)
from toolpost.base import Json, JsonObject, event
from toolpost.contracts.errors import (
    BadConfiguration,
    InvalidRequest,
    NotFound,
    ToolpostError,
    UpstreamUnavailable,
    first_error,
)
from toolpost.providers.plugins import Plugins
from toolpost.providers.servers import Servers
from toolpost.settings import Config, load_config
from toolpost.settings.client_files import read_client_text
from toolpost.settings.loader import convert_settings, is_client_file
from toolpost.settings.secrets import redact_server, rewrite_secrets
from toolpost.settings.section import credential_users
from toolpost.upstreams.failures import RETRY_HINT

_log = logging.getLogger("toolpost.admin")

EDITABLE: Final = ("command", "args", "cwd", "url", "tags", "allow", "deny", "timeout_s", "contracts")
"""Settings of a server that `plan_settings` changes: others have secrets, or tables of their own."""
RUN_BY: Final = frozenset({"command", "args", "cwd", "url"})

PASTED: Final = "the pasted text"


@dataclass(frozen=True, kw_only=True)
class ConfigChange:
    """The text of the file before and after a change."""

    path: Path
    before: str | None
    """None if there is no file yet."""
    after: str
    servers: tuple[str, ...]
    """Those that are added, removed or changed."""
    action: str
    """The action on them: `add`, `remove` or `set KEY`."""
    notes: tuple[str, ...] = ()

    @property
    def base(self) -> str:
        """Identify the file that the change was planned on, so that it is applied to no other."""
        return hashlib.sha256((self.before or "").encode()).hexdigest()

    @property
    def decides_what_runs(self) -> bool:
        """Whether another command or address is used after it."""
        keys = self.action.removeprefix("set ").split(", ")
        return self.action == "add" or not RUN_BY.isdisjoint(keys)

    def conceal(self) -> tuple[str, str]:
        """Return the file as it is and as it would be, both without secrets."""
        return conceal_secrets(self.before or "", self.after)

    def to_json(self) -> JsonObject:
        """Return all but the texts."""
        return {
            "file": str(self.path),
            "isNew": self.before is None,
            "base": self.base,
            "servers": list(self.servers),
            "notes": list(self.notes),
        }


class ConfigFile:
    """The `toolpost.toml` of a running gateway."""

    def __init__(self, path: Path | None, config: Config, plugins: Plugins, servers: Servers) -> None:
        """Take the file that the gateway was opened with, or would be if it were there; None if a program gave the settings."""
        self._path = path
        self._config = config
        self._plugins = plugins
        self._servers = servers

    def plan_addition(self, text: str, *, keep_secrets: bool) -> ConfigChange:
        """Plan to add the servers of a client's JSON, such as `{"mcpServers": {"time": {"command": "uvx"}}}`."""
        path, before = self._read()
        folder = path.parent.absolute()
        try:
            found = read_client_text(text, folder / ".mcp.json", folder=folder)
        except BadConfiguration as error:
            # The name of the file is one that there is not.
            raise InvalidRequest(
                error.message.replace(str(folder / ".mcp.json"), PASTED), hint='paste {"mcpServers": {…}}'
            ) from error
        if not found.has_place or not found.servers:
            raise InvalidRequest(f"There are no servers in {PASTED}.", hint='paste {"mcpServers": {"NAME": {…}}}')
        present = parse_servers(before or "", path)
        variables = Variables()
        tables: dict[str, str] = {}
        for server in found.servers:
            if server.problem is not None:
                raise InvalidRequest(f"servers.{server.name}: {server.problem}.")
            if server.name in present:
                raise InvalidRequest(
                    f"There is a server `{server.name}` in {path.name} already.",
                    hint="remove it first, or use another name",
                )
            settings = convert_server(server, folder=folder, variables=variables, keep_secrets=keep_secrets)
            variables.count(server.name, settings)
            tables[server.name] = render_server(server.name, settings)
        after = add_servers(before or "", path, tables, may_show=False)
        notes = [*found.notes]
        for variable, users in variables.used_by.items():
            if variable in variables.origins or not variables.is_set(variable):
                state = "is set" if variables.is_set(variable) else "set it before Toolpost starts"
                notes.append(f"{variable}: {state}; used by {', '.join(users)}")
        if before is None:
            notes.append(
                f"{path.name} is created: from the next start on, the settings of this folder are read from it"
            )
        return ConfigChange(
            path=path, before=before, after=after, servers=tuple(tables), action="add", notes=tuple(notes)
        )

    def plan_removal(self, name: str) -> ConfigChange:
        """Plan to remove a server."""
        # The rest of the file is not checked: it may be this server that is wrong in it.
        path, before = self._read()
        _check_entry(before or "", path, name, "servers")
        after = remove_server(before or "", path, name)
        return ConfigChange(path=path, before=before, after=after, servers=(name,), action="remove")

    def plan_setting(self, name: str, key: str, value: Json) -> ConfigChange:
        """Plan to set one key of a server, or of an entry of a section whose tools are held to contracts as servers' are."""
        path, before = self._read()
        section = _find_section(before or "", path, name)
        _check_entry(before or "", path, name, section)
        after = set_server_key(before or "", path, name, key, value, section)
        return ConfigChange(path=path, before=before, after=after, servers=(name,), action=f"set {key}")

    def plan_settings(self, name: str, settings: Mapping[str, Json]) -> ConfigChange:
        """Plan to set some keys of a server; None takes one back. Raises `InvalidRequest` for a value that it cannot have."""
        path, before = self._read()
        _check_entry(before or "", path, name, "servers")
        after = before or ""
        for key, value in settings.items():
            if key not in EDITABLE:
                raise InvalidRequest(f"`{key[:64]}` is not changed from here.", hint=f"edit it in {path.name}")
            if MASK in str(value):
                raise InvalidRequest(
                    f"`{key}` has a secret, which is not shown here, and would be lost.", hint=f"edit it in {path.name}"
                )
            is_taken_back = value is None
            after = (
                remove_server_key(after, path, name, key)
                if is_taken_back
                else set_server_key(after, path, name, key, value)
            )
        try:
            _parse(after, path)
        except BadConfiguration as error:
            raise InvalidRequest(error.message, hint=error.hint) from error
        return ConfigChange(path=path, before=before, after=after, servers=(name,), action=f"set {', '.join(settings)}")

    async def apply(self, change: ConfigChange, *, base: str, caller: str) -> None:
        """Try the new servers out, then write the file; raises, with nothing changed, if one of both is not possible.

        `base` is that of the change that the caller was shown.
        """
        if change.base != base:
            raise InvalidRequest(
                f"{change.path.name} was changed since this was shown.", hint="look at the changes again"
            )
        config = _parse(change.after, change.path)
        # Before anything is started: a command that ends at once has run, and the file does not tell of it.
        facts: JsonObject = {"caller": caller, "action": change.action, "servers": list(change.servers)}
        if change.decides_what_runs:
            added = [redact_server(config.servers[name]) for name in change.servers if name in config.servers]
            facts["runs"] = [shlex.join([one.command, *one.args]) if one.command else one.url or "" for one in added]
        event(_log, logging.INFO, "change of servers asked for", **facts)
        try:
            await self._servers.apply(specs_of(config, self._plugins))
        except ExceptionGroup as group:
            # Several servers may fail to start at once.
            error = first_error(group)
            if isinstance(error, UpstreamUnavailable) and error.hint == RETRY_HINT:
                # No call will start a server that was not added.
                error.hint = "nothing was changed: go back and correct it"
            raise error from group
        try:
            write_atomically(change.path, change.after, before=change.before)
        except ToolpostError:
            text = read_text(change.path)
            current = _parse(text, change.path) if text is not None else self._config
            await self._servers.apply(specs_of(current, self._plugins))
            raise

    def show_server(self, name: str) -> dict[str, Any] | None:
        """Return the settings of a server in the file, without defaults and secrets; None if it is not there."""
        if self._path is None or not self._path.exists():
            return None
        settings = load_config(self._path).servers.get(name)
        if settings is None:
            return None
        shown = non_default_values(rewrite_secrets(settings, _mask, is_strict=True))
        return dict(msgspec.to_builtins(shown))

    def read_list(self, name: str, key: str) -> list[Json]:
        """Return a list among the settings of what `plan_setting` can change, as the file has it; empty if it is not there."""
        path, text = self._read()
        entry = parse_servers(text or "", path, _find_section(text or "", path, name)).get(name, {})
        return list(entry.get(key, ()))

    def _read(self) -> tuple[Path, str | None]:
        path = self._path
        if path is None:
            raise InvalidRequest(
                "This gateway was opened by a program, which decides about its servers.", hint="change it there"
            )
        if self._config.plugins.chosen:
            raise InvalidRequest(
                "This gateway serves chosen plugins only.", hint="start `toolpost serve` without `--only`"
            )
        text = read_text(path)
        if text is not None and is_client_file(path, text):
            raise InvalidRequest(
                f"{path} belongs to another program, and is not changed from here.",
                hint=f"`toolpost import --from {path}` makes a toolpost.toml of it",
            )
        return path, text


def _mask(_key: str, _name: str, _secret: str) -> str:
    return MASK


def _find_section(text: str, path: Path, name: str) -> str:
    user = credential_users(_parse(text, path)).get(name)
    return user.section if user is not None else "servers"


def _check_entry(text: str, path: Path, name: str, section: str) -> None:
    if name not in parse_servers(text, path, section):
        raise NotFound(f"There is no server `{name[:128]}` in {path.name}.", hint="reload the page")


def _parse(text: str, path: Path) -> Config:
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadConfiguration(f"{path} is not TOML: {error}.") from error
    return convert_settings(values, place=str(path))
