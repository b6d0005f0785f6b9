"""`toolpost import`: the servers of other clients, found, shown and written into `toolpost.toml`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import click

from toolpost.base.ids import JsonObject
from toolpost.base.nearest import nearest_name
from toolpost.cli.clients.known import CLIENTS, places
from toolpost.cli.clients.safe_files import back_up, text_of, write_whole
from toolpost.cli.clients.server_toml import server_table, servers_in, set_values, with_servers
from toolpost.cli.clients.takeover import Variables, taken_over
from toolpost.cli.examples import examples
from toolpost.cli.exits import ExitCode
from toolpost.cli.failures import tell, warn
from toolpost.cli.options import json_option
from toolpost.cli.show import print_json_line, print_table, table
from toolpost.cli.terminal import printable
from toolpost.contracts.errors import BadConfiguration, NotFound
from toolpost.settings import CONFIG_NAME, FoundServer, ServerSettings, read_client_file

Outcome = Literal["written", "replaced", "already there", "left out"]


@dataclass(frozen=True, kw_only=True)
class _Row:
    """What became of one server."""

    found: FoundServer
    where: str
    outcome: Outcome
    reason: str = ""
    settings: ServerSettings | None = None

    @property
    def transport(self) -> str:
        settings = self.found.settings
        return settings.transport or ("stdio" if settings.command is not None else "http or sse")


@dataclass
class _Import:
    """An import under way."""

    target: Path
    present: dict[str, Any]
    force: bool
    keep_secrets: bool
    rows: list[_Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    variables: Variables = field(default_factory=Variables)

    def take(self, found: FoundServer, where: str) -> None:
        """Decide what becomes of a server."""
        earlier = next((row for row in self.rows if row.found.name == found.name and row.outcome != "left out"), None)
        if earlier is not None:
            is_same = _key(earlier.found) == _key(found)
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
            settings = taken_over(
                found, folder=self.target.parent, variables=self.variables, keep_secrets=self.keep_secrets
            )
        except BadConfiguration as error:
            self.problems.append(error.message)
            self._add(found, where, "left out", error.message)
            return
        if found.name not in self.present:
            self._add(found, where, "written", settings=settings)
        elif self.present[found.name] == set_values(settings):
            self._add(found, where, "already there")
        else:
            self._add(found, where, "replaced", settings=settings)

    def _add(
        self, found: FoundServer, where: str, outcome: Outcome, reason: str = "", settings: ServerSettings | None = None
    ) -> None:
        self.rows.append(_Row(found=found, where=where, outcome=outcome, reason=reason, settings=settings))
        if settings is not None:
            self.variables.count(found.name, settings)

    def tables(self) -> dict[str, str]:
        """Write the servers that are new or replaced."""
        return {
            row.found.name: server_table(row.found.name, row.settings, f"from {row.where}")
            for row in self.rows
            if row.settings is not None
        }


@click.command(
    "import",
    epilog=examples(
        ("toolpost import --dry-run", "see what there is"),
        ("toolpost import", "write all of it into toolpost.toml"),
        ("toolpost import --from claude-desktop --from .mcp.json", "from these alone"),
        ("toolpost import --from cursor --force", "replace servers that are there already"),
    ),
)
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="FILE|CLIENT",
    help=f"A file, or one of {', '.join(CLIENTS)}; repeatable (default: all that are found).",
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
@click.option("--force", is_flag=True, help="Replace servers that are there already; a backup is made.")
@click.option("--keep-secrets", is_flag=True, help="Write secrets as they are, not as ${VARIABLE}.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and write nothing.")
@json_option("Print `{file, servers, variables, notes, problems}` on one line.")
def import_servers(
    sources: tuple[str, ...], target: Path, *, force: bool, keep_secrets: bool, dry_run: bool, as_json: bool
) -> ExitCode:
    """Take over the servers of Claude, Cursor and VS Code.

    Servers are added at the end of the file; the rest of it stays as it is. Secrets become references to variables, which
    are named so that you can set them. Ends with 0 if all is there, 2 if --from leads nowhere, 3 if a file or a server
    could not be used; the others are written all the same.
    """
    target = target.absolute()
    before = text_of(target)
    present = servers_in(before or "", target)
    work = _Import(target=target, present=present, force=force, keep_secrets=keep_secrets)
    looked_at = _wanted(sources)
    for path, where, is_asked_for in looked_at:
        _read(work, path, where, is_asked_for=is_asked_for)
    tables = work.tables()
    new = with_servers(before or "", target, tables, may_show=not keep_secrets) if tables else before
    if tables and not dry_run:
        _write(work, before, new or "")
    if as_json:
        print_json_line(_facts(work, is_written=bool(tables) and not dry_run))
    else:
        _tell(work, [path for path, _, _ in looked_at], tables, dry_run=dry_run)
    return ExitCode.SETUP if work.problems else ExitCode.OK


def _wanted(sources: Sequence[str]) -> list[tuple[Path, str, bool]]:
    """List the files to read, each with what to call it and whether it was asked for by name."""
    known = places(Path.cwd())
    if not sources:
        return [(place.path, f"{place.client.title}, {place.path}", False) for place in known if place.path.is_file()]
    wanted: list[tuple[Path, str, bool]] = []
    for source in sources:
        if source in CLIENTS:
            own = [place for place in known if place.client.name == source]
            there = [
                (place.path, f"{place.client.title}, {place.path}", False) for place in own if place.path.is_file()
            ]
            if not there:
                looked = ", ".join(str(place.path) for place in own)
                raise NotFound(f"There is no configuration of {CLIENTS[source].title}.", hint=f"looked for {looked}")
            wanted += there
        elif Path(source).expanduser().is_file():
            path = Path(source).expanduser().absolute()
            wanted.append((path, str(path), True))
        else:
            near = nearest_name(source, CLIENTS)
            hint = f"did you mean `{near}`?" if near else f"a file, or one of {', '.join(CLIENTS)}"
            raise NotFound(f"There is neither a file nor a client `{source}`.", hint=hint)
    return list(dict.fromkeys(wanted))


def _read(work: _Import, path: Path, where: str, *, is_asked_for: bool) -> None:
    try:
        servers = read_client_file(path, folder=Path.cwd())
    except BadConfiguration as error:
        work.problems.append(error.message.removesuffix("."))
        return
    if is_asked_for and not servers.has_place:
        work.problems.append(f"{path} holds no MCP servers")
    work.notes.extend(f"{path}: {note}" for note in servers.notes)
    for found in servers.servers:
        work.take(found, where)


def _write(work: _Import, before: str | None, new: str) -> None:
    if any(row.outcome == "replaced" for row in work.rows):
        work.notes.append(f"what {work.target} was before is in {back_up(work.target)}")
    is_secret = before is None and work.keep_secrets
    write_whole(work.target, new, before=before, mode=0o600 if is_secret else None)


def _key(found: FoundServer) -> tuple[str | None, tuple[str, ...], str | None]:
    return found.settings.command, tuple(found.settings.args), found.settings.url


def _facts(work: _Import, *, is_written: bool) -> JsonObject:
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


def _tell(work: _Import, looked_at: Iterable[Path], tables: dict[str, str], *, dry_run: bool) -> None:
    if work.rows:
        rows = [(row.found.name, row.transport, _outcome(row, dry_run=dry_run), row.where) for row in work.rows]
        print_table(table("SERVER", "TRANSPORT", "WHAT BECOMES OF IT", "FROM", rows=rows))
    for note in work.notes:
        tell("note", note, colour="cyan")
    _tell_variables(work.variables)
    for problem in work.problems:
        warn(problem)
    if not work.rows:
        files = ", ".join(map(str, looked_at)) or "the places that clients use"
        click.echo(printable(f"no servers were found in {files}"))
    elif not tables:
        click.echo(printable(f"nothing to write to {work.target}"))
    else:
        noun = "server" if len(tables) == 1 else "servers"
        click.echo(printable(f"{len(tables)} {noun} {'would be' if dry_run else 'were'} written to {work.target}"))


def _outcome(row: _Row, *, dry_run: bool) -> str:
    told = f"would be {row.outcome}" if dry_run and row.settings is not None else row.outcome
    off = "" if row.found.settings.enabled or row.settings is None else ", disabled"
    return f"{told}{off}: {row.reason}" if row.reason else told + off


def _tell_variables(variables: Variables) -> None:
    for name, users in variables.used_by.items():
        origin = variables.origins.get(name)
        if origin is None and variables.is_set(name):
            continue
        state = "is set already" if variables.is_set(name) else "set it before Toolpost starts"
        where = f"; its value is in {origin}" if origin else ""
        tell("note", f"{name}: {state}{where}; used by {', '.join(users)}", colour="cyan")
