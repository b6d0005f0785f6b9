"""`toolpost install`: add Toolpost to a client's configuration, or remove it."""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from toolpost.admin.conversion import Variables
from toolpost.admin.files import back_up, backups_of, read_text, write_atomically
from toolpost.base.ids import Json, JsonObject
from toolpost.base.server_name import usable_name
from toolpost.cli.clients.known import CLIENTS, ClientScope, KnownClient, client_file_of
from toolpost.contracts.errors import BadConfiguration
from toolpost.settings import CONFIG_NAME, Config, load_config
from toolpost.settings.client_files import OWN_NAME, is_toolpost
from toolpost.settings.jsonc import NotAnObject, NotJson, get_member, remove_member, set_member
from toolpost.terminal import config_option, examples, json_option, print_json_line, printable, show_note, warn
from toolpost.terminal.running_gateway import gateway_url

EntryChange = Literal["added", "updated", "removed", "none"]


@dataclass(frozen=True, kw_only=True)
class _Target:
    """The entry to set or remove, and its file; `text` is None if the file does not exist."""

    client: KnownClient
    scope: ClientScope
    path: Path
    name: str
    text: str | None

    @property
    def member(self) -> tuple[str, str]:
        return self.client.key, self.name

    def snippet(self, entry: JsonObject) -> str:
        return json.dumps({self.client.key: {self.name: entry}}, indent=2, ensure_ascii=False)

    def present(self) -> Json | None:
        """Return the current entry, None if there is none; raises `BadConfiguration` for invalid JSON."""
        try:
            return get_member(self.text or "", self.member)
        except NotJson as error:
            raise BadConfiguration(f"{self.path} is not JSON: {error}.") from error
        except NotAnObject as error:
            raise BadConfiguration(f"{self.path}: {error} is not an object.") from error


def _check_name(context: click.Context, parameter: click.Parameter, name: str) -> str:
    if usable_name(name) != name:
        raise click.BadParameter(f"letters, digits, - and single _, as in `{usable_name(name)}`", context, parameter)
    return name


@click.command(
    epilog=examples(
        ("toolpost install claude-code", "into .mcp.json, here"),
        ("toolpost install claude-desktop", "into the user's configuration"),
        ("toolpost install cursor --user --http", "connect to a running Toolpost"),
        ("toolpost install vscode --dry-run", "show the changes"),
        ("toolpost install --remove claude-code", "remove it again"),
    )
)
@click.argument("client", type=click.Choice(list(CLIENTS)))
@click.option("--project", "scope", flag_value="project", help="In this folder (default, if the client supports it).")
@click.option("--user", "scope", flag_value="user", help="For this user, in every folder.")
@click.option("--name", default=OWN_NAME, show_default=True, callback=_check_name, help="Name of the entry.")
@click.option("--remove", is_flag=True, help="Remove the entry instead.")
@click.option("--stdio", "transport", flag_value="stdio", default=True, help="The client starts Toolpost (default).")
@click.option("--http", "transport", flag_value="http", help="The client connects to a running Toolpost.")
@config_option
@click.option("--force", is_flag=True, help="Replace or remove a server of that name that is not Toolpost.")
@click.option("--dry-run", is_flag=True, help="Show the changes, write nothing.")
@json_option(
    "Print `{client, file, name, change, backup, entry, variables}` on one line; with --remove without the last two."
)
def install(
    client: str,
    scope: ClientScope | None,
    name: str,
    transport: str,
    config_path: Path | None,
    *,
    remove: bool,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Add Toolpost to the configuration of an MCP client, or remove it.

    The rest of the file is not changed, comments included; a backup is made beside it. A second run changes nothing, and
    keeps the `env` of the entry. Environment variables that servers need and the client will not set are listed.
    --remove removes Toolpost's own entry alone; a file that has not changed since is restored byte for byte.
    Exit code 3: the file cannot be read, or has another server of that name.
    """
    target = _find_target(CLIENTS[client], scope, name)
    if remove:
        _remove(target, config_path, force=force, dry_run=dry_run, as_json=as_json)
        return
    entry = (
        _make_http_entry(target.client, config_path)
        if transport == "http"
        else _make_stdio_entry(target.client, config_path)
    )
    try:
        present = target.present()
    except BadConfiguration as error:
        raise BadConfiguration(
            error.message, hint=f"correct it, or add this to it:\n{target.snippet(entry)}"
        ) from error
    if present is not None and not force and not _is_ours(target, present, config_path):
        raise BadConfiguration(
            f"{target.path} has a server `{name}` that is not Toolpost.",
            hint="choose another name with --name, or replace the server with --force",
        )
    if isinstance(present, dict) and isinstance(env := present.get("env"), dict) and "command" in entry:
        # Variables in an existing entry were added for the servers.
        entry |= {"env": env}
    change: EntryChange = "none" if present == entry else "updated" if present is not None else "added"
    backup = None
    if change != "none" and not dry_run:
        backup = back_up(target.path) if target.text is not None else None
        write_atomically(target.path, _render_edited(target, entry), before=target.text)
    config = load_config(config_path)
    unset = _find_unset_variables(target.client, config, entry)
    if as_json:
        _print_json(target, change, backup, entry=entry, variables=list(unset))
        return
    _print_installed(target, change, backup, entry, dry_run=dry_run)
    if transport == "stdio" and "--config" not in entry["args"]:
        note = f"there is no {CONFIG_NAME} here, so that it has no servers: run `toolpost import`, then install again"
        show_note(note)
    for variable, places in unset.items():
        warn(
            f"{variable} is not set by {target.client.title}, and {', '.join(places)} needs it: add it to `env` "
            f"of `{name}` in {target.path}; a server without its variables does not start"
        )
    _note_duplicates(target, config)


def _remove(target: _Target, config_path: Path | None, *, force: bool, dry_run: bool, as_json: bool) -> None:
    present = target.present()
    change: EntryChange = "none" if present is None else "removed"
    backup = None
    if present is not None:
        if not force and not _is_ours(target, present, config_path):
            raise BadConfiguration(
                f"{target.path} has a server `{target.name}` that is not Toolpost.", hint="remove it with --force"
            )
        if not dry_run:
            backup = _remove_entry(target, present)
    if as_json:
        _print_json(target, change, backup)
    else:
        _print_removed(target, change, backup, dry_run=dry_run)


def _find_target(client: KnownClient, scope: ClientScope | None, name: str) -> _Target:
    scope = scope or client.scopes[0]
    if scope not in client.scopes:
        raise click.UsageError(f"--project is not supported: {client.title} has one configuration per user")
    # A symbolic link, as in a dotfiles repository, is followed rather than replaced.
    path = client_file_of(client, scope, Path.cwd()).path.resolve()
    return _Target(client=client, scope=scope, path=path, name=name, text=read_text(path))


def _make_stdio_entry(client: KnownClient, config_path: Path | None) -> JsonObject:
    args = ["serve", "--stdio"]
    path = (config_path or Path(CONFIG_NAME)).absolute()
    if config_path is not None or path.exists():
        load_config(path)
        args += ["--config", str(path)]
    return client.stdio_entry(_find_own_program(), args)


def _find_own_program() -> str:
    """Return the absolute path of this program: clients start it in another folder and with another PATH."""
    sibling = Path(sys.executable).with_name("toolpost.exe" if sys.platform == "win32" else "toolpost")
    if sibling.exists():
        return str(sibling)
    found = shutil.which("toolpost") or sys.argv[0]
    return str(Path(found).absolute())


def _make_http_entry(client: KnownClient, config_path: Path | None) -> JsonObject:
    if client.token_reference is None:
        raise click.UsageError(f"--http is not supported: {client.title} only starts local servers from its file")
    config = load_config(config_path)
    return client.http_entry(
        _own_mcp_url(config), has_token=config.token() is not None or any(c.has_token for c in config.callers.values())
    )


def _own_mcp_url(config: Config) -> str:
    from toolpost.endpoints.http.paths import MCP_PATH

    return f"{gateway_url(config)}{MCP_PATH}"


def _is_ours(target: _Target, entry: Json, config_path: Path | None) -> bool:
    if is_toolpost(target.name, entry):
        return True
    if not isinstance(entry, dict) or "url" not in entry:
        return False
    try:
        return bool(entry["url"] == _own_mcp_url(load_config(config_path)))
    except BadConfiguration:
        return False


def _render_edited(target: _Target, entry: JsonObject) -> str:
    new = set_member(target.text or "", target.member, entry)
    if get_member(new, target.member) != entry:
        raise BadConfiguration(
            f"{target.path} cannot be changed safely.", hint=f"add this to it by hand:\n{target.snippet(entry)}"
        )
    return new


def _remove_entry(target: _Target, present: Json) -> Path | None:
    """Remove the entry; returns the backup, None if none was needed."""
    assert target.text is not None
    for copy in backups_of(target.path):
        before = read_text(copy)
        # The backup plus our entry is the file as it is now: restore the backup.
        if before is not None and _is_original(before, target, present):
            write_atomically(target.path, before, before=target.text)
            return None
    if target.text == set_member("", target.member, present):
        # `install` created the file, and nothing else was added.
        target.path.unlink()
        return None
    backup = back_up(target.path)
    write_atomically(target.path, remove_member(target.text, target.member), before=target.text)
    return backup


def _is_original(before: str, target: _Target, present: Json) -> bool:
    try:
        return get_member(before, target.member) is None and set_member(before, target.member, present) == target.text
    except (NotJson, NotAnObject):
        return False


def _print_json(target: _Target, change: EntryChange, backup: Path | None, **more: Json) -> None:
    facts = {
        "client": target.client.name,
        "file": str(target.path),
        "name": target.name,
        "change": change,
        "backup": str(backup) if backup else None,
    }
    print_json_line(facts | more)


def _print_installed(
    target: _Target, change: EntryChange, backup: Path | None, entry: JsonObject, *, dry_run: bool
) -> None:
    if change == "none":
        click.echo(printable(f"`{target.name}` is already in {target.path}: nothing changed"))
        return
    if dry_run:
        click.echo(printable(f"would be added to {target.path}:\n{target.snippet(entry)}"))
        return
    click.echo(printable(f"added `{target.name}` to {target.path}"))
    if backup:
        click.echo(printable(f"backup: {backup}"))
    click.echo(printable(f"restart {target.client.title}, or reload its MCP servers"))
    if target.scope == "project" and "command" in entry:
        show_note("the entry has a path on this machine: do not commit the file for others")
    if "headers" in entry:
        needed = f"{target.client.title} needs TOOLPOST_TOKEN in its environment: the token itself was not written"
        show_note(needed)


def _find_unset_variables(client: KnownClient, config: Config, entry: JsonObject) -> dict[str, list[str]]:
    """Return the variables that servers use and the client will not set, with the settings that use them."""
    if "command" not in entry:
        return {}
    variables = Variables()
    for server, settings in config.servers.items():
        if settings.enabled:
            variables.count(server, settings)
    given = entry.get("env") or {}
    return {
        name: places for name, places in variables.used_by.items() if name not in given and not client.may_set(name)
    }


def _note_duplicates(target: _Target, config: Config) -> None:
    """Point out servers that both Toolpost and the client itself start: their tools would be listed twice."""
    others = get_member(target.text or "", (target.client.key,))
    served = config.servers
    if doubles := sorted(name for name in others or () if name in served) if isinstance(others, dict) else []:
        listed = ", ".join(f"`{name}`" for name in doubles)
        show_note(
            f"the file also has {listed}, which Toolpost serves: remove them there, or their tools are listed twice"
        )


def _print_removed(target: _Target, change: EntryChange, backup: Path | None, *, dry_run: bool) -> None:
    if change == "none":
        click.echo(printable(f"there is no `{target.name}` in {target.path}: nothing changed"))
        return
    click.echo(printable(f"{'would remove' if dry_run else 'removed'} `{target.name}` from {target.path}"))
    if backup:
        click.echo(printable(f"backup: {backup}"))
