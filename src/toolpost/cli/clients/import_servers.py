"""`toolpost import`: find the MCP servers of other clients and add them to `toolpost.toml`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import click

from toolpost.admin.conversion import Variables, convert_server
from toolpost.admin.toml_file import TomlFile
from toolpost.admin.toml_text import non_default_values, render_server
from toolpost.base.ids import JsonObject
from toolpost.cli.clients.known import CLIENTS, list_client_files
from toolpost.contracts.errors import BadConfiguration, NotFound
from toolpost.settings import CONFIG_NAME, ServerSettings
from toolpost.settings.client_files import FoundServer, read_client_file
from toolpost.terminal import (
    ExitCode,
    examples,
    json_option,
    print_json_line,
    print_table,
    printable,
    show_note,
    table,
    warn,
)
from toolpost.terminal.failures import suggest
from toolpost.terminal.group import ImporterGroup

ImportOutcome = Literal["written", "replaced", "already there", "left out"]


@dataclass(frozen=True, kw_only=True)
class _ImportedServer:
    """A server that was found, and what happened to it."""

    found: FoundServer
    where: str
    outcome: ImportOutcome
    reason: str = ""
    settings: ServerSettings | None = None

    @property
    def transport(self) -> str:
        settings = self.found.settings
        return settings.transport or ("stdio" if settings.command is not None else "http or sse")


@dataclass
class _Import:
    """The state of one import: what was found so far, and what is to be written."""

    target: Path
    present: dict[str, Any]
    force: bool
    keep_secrets: bool
    rows: list[_ImportedServer] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    variables: Variables = field(default_factory=Variables)

    def take(self, found: FoundServer, where: str) -> None:
        """Decide what happens to a server, in the order in which files are read."""
        earlier = next((row for row in self.rows if row.found.name == found.name and row.outcome != "left out"), None)
        if earlier is not None:
            is_same = _identity_of(earlier.found) == _identity_of(found)
            reason = "the same" if is_same else "another one of this name"
            self._add(found, where, "left out", f"{reason} is in {earlier.where}")
        elif found.problem is not None:
            self.problems.append(f"{found.path}: servers.{found.name}: {found.problem}")
            self._add(found, where, "left out", found.problem)
        elif found.name in self.present and not self.force:
            self._add(found, where, "already there")
        else:
            self._write(found, where)

    def _write(self, found: FoundServer, where: str) -> None:
        try:
            settings = convert_server(
                found, folder=self.target.parent, variables=self.variables, keep_secrets=self.keep_secrets
            )
        except BadConfiguration as error:
            self.problems.append(error.message)
            self._add(found, where, "left out", error.message)
            return
        if found.name not in self.present:
            self._add(found, where, "written", settings=settings)
        elif self.present[found.name] == non_default_values(settings):
            self._add(found, where, "already there")
        else:
            self._add(found, where, "replaced", settings=settings)

    def _add(
        self,
        found: FoundServer,
        where: str,
        outcome: ImportOutcome,
        reason: str = "",
        settings: ServerSettings | None = None,
    ) -> None:
        self.rows.append(_ImportedServer(found=found, where=where, outcome=outcome, reason=reason, settings=settings))
        if settings is not None:
            self.variables.count(found.name, settings)

    def tables(self) -> dict[str, str]:
        """Render the servers that are new or replaced, by name."""
        return {
            row.found.name: render_server(row.found.name, row.settings, f"from {row.where}")
            for row in self.rows
            if row.settings is not None
        }


@click.group(
    "import",
    cls=ImporterGroup,
    commands={},
    invoke_without_command=True,
    subcommand_metavar="[COMMAND]…",
    epilog=examples(
        ("toolpost import --dry-run", "show the import"),
        ("toolpost import", "add all servers to toolpost.toml"),
        ("toolpost import --from claude-desktop --from .mcp.json", "only from these"),
        ("toolpost import --from cursor --force", "replace servers that exist already"),
        ("toolpost import openapi https://example.com/openapi.json", "an API instead"),
    ),
)
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="FILE|CLIENT",
    help=f"A file, or one of {', '.join(CLIENTS)}; repeatable (default: every client file that exists).",
)
@click.option(
    "--write",
    "target",
    metavar="FILE",
    type=click.Path(path_type=Path),
    default=CONFIG_NAME,
    show_default=True,
    help="The file to add them to.",
)
@click.option("--force", is_flag=True, help="Replace servers that exist already; a backup is made.")
@click.option("--keep-secrets", is_flag=True, help="Write secrets in plain text, not as ${VARIABLE}.")
@click.option("--dry-run", is_flag=True, help="Show the changes, write nothing.")
@json_option("Print `{file, servers, variables, notes, problems}` on one line.")
@click.pass_context
def import_servers(
    ctx: click.Context,
    sources: tuple[str, ...],
    target: Path,
    *,
    force: bool,
    keep_secrets: bool,
    dry_run: bool,
    as_json: bool,
) -> ExitCode:
    """Import MCP servers from Claude, Cursor or VS Code, or an API.

    Servers are added at the end of the file; the rest of it is not changed. Secrets become references to environment
    variables, which are listed so that you can set them. Exit code 0: all servers are imported. 2: --from is neither a file
    nor a client. 3: a file or a server could not be used; the others are written.
    """
    if ctx.invoked_subcommand is not None:
        return ExitCode.OK
    target = target.absolute()
    file = TomlFile(target)
    work = _Import(target=target, present=file.read_section(), force=force, keep_secrets=keep_secrets)
    looked_at = _select_files(sources)
    for path, where, is_explicit in looked_at:
        _read_file(work, path, where, is_explicit=is_explicit)
    tables = work.tables()
    if tables:
        new = file.add_tables(tables, may_show=not keep_secrets)
        if not dry_run:
            _write(work, file, new)
    if as_json:
        print_json_line(_to_json(work, is_written=bool(tables) and not dry_run))
    else:
        _print_report(work, [path for path, _, _ in looked_at], tables, dry_run=dry_run)
    return ExitCode.SETUP if work.problems else ExitCode.OK


def _select_files(sources: Sequence[str]) -> list[tuple[Path, str, bool]]:
    """Return the files to read as (path, label, whether it was named with --from)."""
    known = list_client_files(Path.cwd())
    if not sources:
        return [(place.path, f"{place.client.title}, {place.path}", False) for place in known if place.path.is_file()]
    selected: list[tuple[Path, str, bool]] = []
    for source in sources:
        if source in CLIENTS:
            own = [place for place in known if place.client.name == source]
            there = [
                (place.path, f"{place.client.title}, {place.path}", False) for place in own if place.path.is_file()
            ]
            if not there:
                looked = ", ".join(str(place.path) for place in own)
                raise NotFound(f"No configuration of {CLIENTS[source].title} was found.", hint=f"looked for {looked}")
            selected += there
        elif Path(source).expanduser().is_file():
            path = Path(source).expanduser().absolute()
            selected.append((path, str(path), True))
        else:
            hint = suggest(source, CLIENTS, f"name a file, or one of {', '.join(CLIENTS)}")
            raise NotFound(f"`{source}` is neither a file nor a known client.", hint=hint)
    return list(dict.fromkeys(selected))


def _read_file(work: _Import, path: Path, where: str, *, is_explicit: bool) -> None:
    try:
        servers = read_client_file(path, folder=Path.cwd())
    except BadConfiguration as error:
        work.problems.append(error.message.removesuffix("."))
        return
    if is_explicit and not servers.has_place:
        work.problems.append(f"{path} contains no MCP servers")
    work.notes.extend(f"{path}: {note}" for note in servers.notes)
    for found in servers.servers:
        work.take(found, where)


def _write(work: _Import, file: TomlFile, new: str) -> None:
    if any(row.outcome == "replaced" for row in work.rows):
        work.notes.append(f"backup of {work.target}: {file.back_up()}")
    is_secret = file.text is None and work.keep_secrets
    file.replace(new, mode=0o600 if is_secret else None)


def _identity_of(found: FoundServer) -> tuple[str | None, tuple[str, ...], str | None]:
    return found.settings.command, tuple(found.settings.args), found.settings.url


def _to_json(work: _Import, *, is_written: bool) -> JsonObject:
    return {
        "file": str(work.target),
        "written": is_written,
        "servers": [
            {
                "name": row.found.name,
                "theirName": row.found.their_name,
                "from": str(row.found.path),
                "transport": row.transport,
                "enabled": row.found.settings.enabled,
                "outcome": row.outcome,
                **({"reason": row.reason} if row.reason else {}),
            }
            for row in work.rows
        ],
        "variables": [
            {"name": name, "isSet": work.variables.is_set(name), "usedBy": users}
            for name, users in work.variables.used_by.items()
        ],
        "notes": work.notes,
        "problems": work.problems,
    }


def _print_report(work: _Import, looked_at: Iterable[Path], tables: dict[str, str], *, dry_run: bool) -> None:
    if work.rows:
        rows = [(row.found.name, row.transport, _format_outcome(row, dry_run=dry_run), row.where) for row in work.rows]
        print_table(table("SERVER", "TRANSPORT", "RESULT", "FROM", rows=rows))
    for note in work.notes:
        show_note(note)
    _print_variables(work.variables)
    for problem in work.problems:
        warn(problem)
    if not work.rows:
        files = ", ".join(map(str, looked_at)) or "the files that Claude, Cursor and VS Code use"
        click.echo(printable(f"no MCP servers found in {files}"))
    elif not tables:
        click.echo(printable(f"nothing to write to {work.target}"))
    else:
        noun = "server" if len(tables) == 1 else "servers"
        click.echo(printable(f"{len(tables)} {noun} {'would be' if dry_run else 'were'} written to {work.target}"))


def _format_outcome(row: _ImportedServer, *, dry_run: bool) -> str:
    outcome = f"would be {row.outcome}" if dry_run and row.settings is not None else row.outcome
    off = "" if row.found.settings.enabled or row.settings is None else ", disabled"
    return f"{outcome}{off}: {row.reason}" if row.reason else outcome + off


def _print_variables(variables: Variables) -> None:
    for name, users in variables.used_by.items():
        origin = variables.origins.get(name)
        if origin is None and variables.is_set(name):
            continue
        state = "is set already" if variables.is_set(name) else "set it before Toolpost starts"
        where = f"; its value is in {origin}" if origin else ""
        show_note(f"{name}: {state}{where}; used by {', '.join(users)}")
