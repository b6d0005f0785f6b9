"""`toolpost install` and `toolpost uninstall`: Toolpost in a client's configuration, and out of it again."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from toolpost.base.ids import Json, JsonObject
from toolpost.cli.clients.known import CLIENTS, Client, Scope, place_of
from toolpost.cli.clients.safe_files import back_up, backups_of, text_of, write_whole
from toolpost.cli.clients.takeover import Variables
from toolpost.cli.examples import examples
from toolpost.cli.failures import tell, warn
from toolpost.cli.options import config_option, json_option, own_url
from toolpost.cli.show import print_json_line
from toolpost.cli.terminal import printable
from toolpost.contracts.errors import BadConfiguration
from toolpost.settings import CONFIG_NAME, Config, load_config
from toolpost.settings.json_edit import NoObject, member_at, with_member, without_member
from toolpost.settings.jsonc import NotJson
from toolpost.settings.own_entry import OWN_NAME, is_toolpost
from toolpost.settings.servers import usable_name

Change = Literal["added", "updated", "removed", "none"]


@dataclass(frozen=True, kw_only=True)
class _Target:
    """The entry to set or remove, and the file it is in."""

    client: Client
    scope: Scope
    path: Path
    name: str
    text: str | None

    @property
    def member(self) -> tuple[str, str]:
        return self.client.key, self.name

    def snippet(self, entry: JsonObject) -> str:
        return json.dumps({self.client.key: {self.name: entry}}, indent=2, ensure_ascii=False)

    def present(self) -> Json | None:
        """Return the entry that is there; a file that cannot be read as JSON is refused."""
        try:
            return member_at(self.text or "", self.member)
        except NotJson as error:
            raise BadConfiguration(f"{self.path} is not JSON: {error}.") from error
        except NoObject as error:
            raise BadConfiguration(f"{self.path}: {error} is not an object.") from error


def _target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        (
            click.argument("client", type=click.Choice(list(CLIENTS))),
            click.option(
                "--project", "scope", flag_value="project", help="In this folder (default, where there is one)."
            ),
            click.option("--user", "scope", flag_value="user", help="For this user, in every folder."),
            click.option(
                "--name", default=OWN_NAME, show_default=True, callback=_checked_name, help="What it is called there."
            ),
        )
    ):
        command = option(command)
    return command


def _checked_name(context: click.Context, parameter: click.Parameter, name: str) -> str:
    if usable_name(name) != name:
        raise click.BadParameter(f"letters, digits, - and single _, as in `{usable_name(name)}`", context, parameter)
    return name


@click.command(
    epilog=examples(
        ("toolpost install claude-code", "into .mcp.json, here"),
        ("toolpost install claude-desktop", "into the user's configuration"),
        ("toolpost install cursor --user --http", "for a Toolpost that runs already"),
        ("toolpost install vscode --dry-run", "see what would be written"),
        ("toolpost uninstall claude-code", "take it out again"),
    )
)
@_target_options
@click.option("--stdio", "transport", flag_value="stdio", default=True, help="The client starts Toolpost (default).")
@click.option("--http", "transport", flag_value="http", help="The client connects to a Toolpost that runs already.")
@config_option
@click.option("--force", is_flag=True, help="Replace a server of that name that is not Toolpost.")
@click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing.")
@json_option("Print `{client, file, name, change, backup, entry, variables}` on one line.")
def install(
    client: str,
    scope: Scope | None,
    name: str,
    transport: str,
    config_path: Path | None,
    *,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write Toolpost into a client's configuration.

    The rest of the file stays as it is, comments too; a backup is made beside it. A second run changes nothing, and keeps
    the `env` of the entry. Variables that servers need and the client will not set are named.
    Ends with 3 if the file cannot be read, or holds another server of that name.
    """
    target = _target(CLIENTS[client], scope, name)
    entry = _http_entry(target.client, config_path) if transport == "http" else _stdio_entry(target.client, config_path)
    try:
        present = target.present()
    except BadConfiguration as error:
        raise BadConfiguration(error.message, hint=f"mend it, or put this into it:\n{target.snippet(entry)}") from error
    if present is not None and not force and not _is_ours(target, present, config_path):
        raise BadConfiguration(
            f"{target.path} has a server `{name}` that is not Toolpost.",
            hint="--name gives it another name, --force replaces the server",
        )
    if isinstance(present, dict) and isinstance(env := present.get("env"), dict) and "command" in entry:
        # Whoever wrote variables into the entry did so for the servers.
        entry |= {"env": env}
    change: Change = "none" if present == entry else "updated" if present is not None else "added"
    backup = None
    if change != "none" and not dry_run:
        backup = back_up(target.path) if target.text is not None else None
        write_whole(target.path, _edited(target, entry), before=target.text)
    config = load_config(config_path)
    unset = _variables_not_set(target.client, config, entry)
    if as_json:
        _print_facts(target, change, backup, entry=entry, variables=list(unset))
        return
    _tell_installed(target, change, backup, entry, dry_run=dry_run)
    if transport == "stdio" and "--config" not in entry["args"]:
        told = f"there is no {CONFIG_NAME} here, so no server is behind it: `toolpost import` writes one, then install again"
        tell("note", told, colour="cyan")
    for variable, places in unset.items():
        warn(
            f"{variable} will not be set by {target.client.title}, and {', '.join(places)} needs it: put it into `env` "
            f"of `{name}` in {target.path}; a server without its variables has no tools"
        )
    _tell_of_doubles(target, config)


@click.command(
    epilog=examples(
        ("toolpost uninstall claude-code", "out of .mcp.json, here"),
        ("toolpost uninstall cursor --user", "out of the user's configuration"),
        ("toolpost uninstall vscode --dry-run", "see what would be removed"),
    )
)
@_target_options
@click.option("--force", is_flag=True, help="Remove a server of that name that is not Toolpost.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@json_option("Print `{client, file, name, change, backup}` on one line.")
def uninstall(client: str, scope: Scope | None, name: str, *, force: bool, dry_run: bool, as_json: bool) -> None:
    """Take Toolpost out of a client's configuration.

    Exactly its own entry goes. A file that has not changed since `install` is again what it was, byte for byte.
    """
    target = _target(CLIENTS[client], scope, name)
    present = target.present()
    change: Change = "none" if present is None else "removed"
    backup = None
    if present is not None:
        if not force and not _is_ours(target, present, None):
            raise BadConfiguration(
                f"{target.path} has a server `{name}` that is not Toolpost.", hint="--force removes it all the same"
            )
        if not dry_run:
            backup = _take_out(target, present)
    if as_json:
        _print_facts(target, change, backup)
    else:
        _tell_removed(target, change, backup, dry_run=dry_run)


def _target(client: Client, scope: Scope | None, name: str) -> _Target:
    scope = scope or client.scopes[0]
    if scope not in client.scopes:
        raise click.UsageError(f"--project is not for {client.title}, which has one configuration for all")
    # Where the file is a link, as among dotfiles, what it leads to is changed.
    path = place_of(client, scope, Path.cwd()).path.resolve()
    return _Target(client=client, scope=scope, path=path, name=name, text=text_of(path))


def _stdio_entry(client: Client, config_path: Path | None) -> JsonObject:
    args = ["serve", "--stdio"]
    path = (config_path or Path(CONFIG_NAME)).absolute()
    if config_path is not None or path.exists():
        load_config(path)
        args += ["--config", str(path)]
    return client.stdio_entry(_own_program(), args)


def _own_program() -> str:
    """Return the absolute path of this program: clients start it in folders of their own, with another PATH."""
    beside = Path(sys.executable).with_name("toolpost.exe" if sys.platform == "win32" else "toolpost")
    if beside.exists():
        return str(beside)
    found = shutil.which("toolpost") or sys.argv[0]
    return str(Path(found).absolute())


def _http_entry(client: Client, config_path: Path | None) -> JsonObject:
    if client.token_reference is None:
        raise click.UsageError(f"--http is not for {client.title}, which starts the servers in its file itself")
    config = load_config(config_path)
    return client.http_entry(
        _url(config), has_token=config.token() is not None or any(c.has_token for c in config.callers.values())
    )


def _url(config: Config) -> str:
    from toolpost.endpoints.http.paths import MCP_PATH

    return f"{own_url(config)}{MCP_PATH}"


def _is_ours(target: _Target, entry: Json, config_path: Path | None) -> bool:
    if is_toolpost(target.name, entry):
        return True
    if not isinstance(entry, dict) or "url" not in entry:
        return False
    try:
        return bool(entry["url"] == _url(load_config(config_path)))
    except BadConfiguration:
        return False


def _edited(target: _Target, entry: JsonObject) -> str:
    new = with_member(target.text or "", target.member, entry)
    if member_at(new, target.member) != entry:
        raise BadConfiguration(
            f"{target.path} cannot be changed safely.", hint=f"put this into it:\n{target.snippet(entry)}"
        )
    return new


def _take_out(target: _Target, present: Json) -> Path | None:
    """Remove the entry; return the backup, if one was needed."""
    assert target.text is not None
    for copy in backups_of(target.path):
        before = text_of(copy)
        # Nothing but our entry came since this copy was made: so it is what the file was.
        if before is not None and _can_become(before, target, present):
            write_whole(target.path, before, before=target.text)
            return None
    if target.text == with_member("", target.member, present):
        # We made the file, and nobody has put anything else into it.
        target.path.unlink()
        return None
    backup = back_up(target.path)
    write_whole(target.path, without_member(target.text, target.member), before=target.text)
    return backup


def _can_become(before: str, target: _Target, present: Json) -> bool:
    try:
        return member_at(before, target.member) is None and with_member(before, target.member, present) == target.text
    except (NotJson, NoObject):
        return False


def _print_facts(target: _Target, change: Change, backup: Path | None, **more: Json) -> None:
    facts = {
        "client": target.client.name,
        "file": str(target.path),
        "name": target.name,
        "change": change,
        "backup": str(backup) if backup else None,
    }
    print_json_line(facts | more)


def _tell_installed(target: _Target, change: Change, backup: Path | None, entry: JsonObject, *, dry_run: bool) -> None:
    if change == "none":
        click.echo(printable(f"`{target.name}` is in {target.path} already: nothing changed"))
        return
    if dry_run:
        click.echo(printable(f"would be put into {target.path}:\n{target.snippet(entry)}"))
        return
    click.echo(printable(f"`{target.name}` is in {target.path} now"))
    if backup:
        click.echo(printable(f"what it was before is in {backup}"))
    click.echo(printable(f"restart {target.client.title}, or let it reload its servers"))
    if target.scope == "project" and "command" in entry:
        tell("note", "the entry names a program on this machine: think before you commit the file", colour="cyan")
    if "headers" in entry:
        needed = f"{target.client.title} needs TOOLPOST_TOKEN in its environment: the token itself was not written"
        tell("note", needed, colour="cyan")


def _variables_not_set(client: Client, config: Config, entry: JsonObject) -> dict[str, list[str]]:
    """Find the variables that servers refer to and that Toolpost will not have when the client starts it."""
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


def _tell_of_doubles(target: _Target, config: Config) -> None:
    """Say which of the servers behind Toolpost the client starts by itself too: it would see their tools twice."""
    others = member_at(target.text or "", (target.client.key,))
    served = config.servers
    if doubles := sorted(name for name in others or () if name in served) if isinstance(others, dict) else []:
        listed = ", ".join(f"`{name}`" for name in doubles)
        tell(
            "note",
            f"the file has {listed} too, which Toolpost serves: take out what is not to be seen twice",
            colour="cyan",
        )


def _tell_removed(target: _Target, change: Change, backup: Path | None, *, dry_run: bool) -> None:
    if change == "none":
        click.echo(printable(f"there is no `{target.name}` in {target.path}: nothing changed"))
        return
    click.echo(printable(f"`{target.name}` {'would be taken' if dry_run else 'is'} out of {target.path}"))
    if backup:
        click.echo(printable(f"what it was before is in {backup}"))
