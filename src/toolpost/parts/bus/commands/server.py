"""`toolpost bus status` and `stop`: the bus servers of projects on this machine."""

from pathlib import Path

import click

from toolpost.base import JsonObject
from toolpost.parts.bus.commands.project import ProjectServer, RunningServer, list_running_servers, project_of
from toolpost.terminal import ExitCode, examples, json_option, print_json_line, print_table, printable, run_async, table

project_option = click.option(
    "--project",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The project whose bus it is (default: the one around this folder).",
)


def resolve_project(project: Path | None) -> Path:
    """Return the project of the option `--project`, else the one around the current folder."""
    return project_of(Path.cwd()) if project is None else project.resolve()


def render_server(server: RunningServer) -> JsonObject:
    """Render a server as JSON, without its token."""
    return {"project": server.project, "url": server.url, "pid": server.pid, "version": server.version}


@click.command(
    epilog=examples(
        ("toolpost bus status", "whether the server of this project runs"),
        ("toolpost bus status --all", "every bus server of yours on this machine"),
        ("toolpost bus status --json", "for other programs"),
    )
)
@click.option("--all", "shows_all", is_flag=True, help="The servers of all projects that run on this machine.")
@project_option
@json_option(
    "Print `{project, running, url, pid, version}` on one line; with --all one `{project, url, pid, version}` a line."
)
def status(project: Path | None, *, shows_all: bool, as_json: bool) -> ExitCode:
    """Show whether the bus server of this project runs.

    The exit code is 1 if it does not; with --all it is 0, also if none runs.
    """
    if shows_all:
        if project is not None:
            raise click.UsageError("--all and --project cannot be combined")
        _print_all(as_json=as_json)
        return ExitCode.OK
    root = resolve_project(project)
    server = ProjectServer(root).find_running()
    if as_json:
        print_json_line(
            {"project": str(root), "running": server is not None}
            | (render_server(server) if server is not None else {})
        )
    elif server is None:
        click.echo(printable(f"no bus server runs for {root}; `toolpost bus connect` starts one"))
    else:
        click.echo(printable(f"the bus server of {root} is at {server.url} (process {server.pid})"))
    return ExitCode.OK if server is not None else ExitCode.FAILED


def _print_all(*, as_json: bool) -> None:
    found = list(list_running_servers())
    if as_json:
        for server in found:
            print_json_line(render_server(server))
    elif not found:
        click.echo("no bus server runs")
    else:
        rows = [(server.project, server.url, str(server.pid), server.version) for server in found]
        print_table(table("project", "address", "process", "version", rows=rows))


@click.command(
    epilog=examples(
        ("toolpost bus stop", "stop the server of this project; its tasks stay"),
        ("toolpost bus stop --json", "for other programs"),
    )
)
@project_option
@json_option("Print `{project, stopped, pid}` on one line.")
def stop(project: Path | None, *, as_json: bool) -> None:
    """Stop the bus server of this project.

    Its tasks stay in the store, and workers keep their leases. The next client starts another server.
    """
    root = resolve_project(project)
    server = run_async(ProjectServer(root).stop)
    if as_json:
        print_json_line(
            {"project": str(root), "stopped": server is not None} | ({"pid": server.pid} if server is not None else {})
        )
    elif server is None:
        click.echo(printable(f"no bus server runs for {root}"))
    else:
        click.echo(printable(f"the bus server of {root} has ended (process {server.pid})"))
