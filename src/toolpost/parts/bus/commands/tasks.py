"""`toolpost bus submit`, `retry`, `cancel`, `reset` and `tasks`: operations on tasks, as the operator of the store."""

import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import click
import msgspec

from toolpost import InvalidArguments
from toolpost.base import OPERATOR, JsonObject, PluginName, format_time
from toolpost.contracts import ToolDefinition, contract_of
from toolpost.parts.bus.commands.project import open_bus
from toolpost.parts.bus.commands.server import project_option, resolve_project
from toolpost.parts.bus.definitions import BUS_TOOLS, LIST_LIMIT
from toolpost.parts.bus.plugin import parse_cursor, parse_states, render_page, render_submission
from toolpost.parts.bus.service import Bus
from toolpost.parts.bus.submission import Submission, SubmitResult
from toolpost.parts.bus.tasks import DEFAULT_PRIORITY, PRIORITIES, TaskId, WorkerName
from toolpost.terminal import examples, json_option, print_json_line, print_table, printable, run_async, table

Result = TypeVar("Result")


def _property(tool: str, name: str) -> JsonObject:
    """Return the schema of a tool's argument, so that an option has the same limits."""
    schema: JsonObject = next(one for one in BUS_TOOLS if one.name == tool).properties[name]
    return schema


_STATES: Final = _property("list_tasks", "state")["enum"]


@click.command(
    epilog=examples(
        ("toolpost bus submit bd-42", "a free worker gets it"),
        ("toolpost bus submit bd-43 --after bd-42 --priority 0", "the most urgent one, once bd-42 is done"),
        ("""toolpost bus submit bd-44 --payload '{"branch": "fix"}'""", "with data for the worker"),
    )
)
@click.argument("task")
@click.option(
    "--priority",
    type=click.IntRange(PRIORITIES.start, PRIORITIES.stop - 1),
    default=DEFAULT_PRIORITY,
    show_default=True,
    help="0 is the most urgent.",
)
@click.option("--after", "needs", multiple=True, metavar="TASK", help="A task that must be done first; repeatable.")
@click.option("--payload", metavar="JSON", help="Data for the worker.")
@click.option("--dedupe-key", metavar="KEY", help="While a task with this key is not over, it answers instead.")
@project_option
@json_option("Print the answer of `submit_task` answers, on one line.")
def submit(
    task: str,
    priority: int,
    needs: tuple[str, ...],
    payload: str | None,
    dedupe_key: str | None,
    project: Path | None,
    *,
    as_json: bool,
) -> None:
    """Submit a task."""
    arguments: JsonObject = {"bead_id": task, "priority": priority, "depends_on": list(dict.fromkeys(needs))}
    arguments |= {"dedupe_key": dedupe_key} if dedupe_key is not None else {}
    _check_arguments("submit_task", arguments)
    submission = Submission(
        task=TaskId(task),
        priority=priority,
        payload=_normalize_json(payload),
        needs=tuple(TaskId(one) for one in arguments["depends_on"]),
        dedupe_key=dedupe_key,
        by=OPERATOR.id,
    )
    _print_submission(_run(project, lambda bus: bus.submit(submission), make=True), as_json=as_json)


@click.command(
    epilog=examples(
        ("toolpost bus retry bd-42", "also if it is done, dead or cancelled"),
        ("toolpost bus retry bd-42 --json", "for other programs"),
    )
)
@click.argument("task")
@project_option
@json_option("Print the answer of `retry_task` answers, on one line.")
def retry(task: str, project: Path | None, *, as_json: bool) -> None:
    """Queue a task again, in whatever state it is."""
    _print_submission(_run(project, lambda bus: bus.retry(TaskId(task), by=OPERATOR)), as_json=as_json)


@click.command(
    epilog=examples(
        ("toolpost bus cancel bd-42 --reason 'no longer needed'", "from any worker"),
        ("toolpost bus cancel bd-42 --json", "for other programs"),
    )
)
@click.argument("task")
@click.option("--reason", default="cancelled by a person", show_default=True, help="Stored with the task.")
@project_option
@json_option("Print `{bead_id, status}` on one line.")
def cancel(task: str, reason: str, project: Path | None, *, as_json: bool) -> None:
    """Cancel a task. A worker that runs it is not interrupted; its result is refused."""
    _run(project, lambda bus: bus.cancel(TaskId(task), reason))
    if as_json:
        print_json_line({"bead_id": task, "status": "cancelled"})
    else:
        click.echo(printable(f"`{task}` is cancelled"))


@click.command(
    epilog=examples(
        ("toolpost bus reset z.ai1", "its task goes back to the queue"),
        ("toolpost bus reset z.ai1 --json", "for other programs"),
    )
)
@click.argument("worker")
@project_option
@json_option("Print the answer of `reset_worker` answers, on one line.")
def reset(worker: str, project: Path | None, *, as_json: bool) -> None:
    """Make a worker idle.

    Its task goes back to the queue, and its poll is answered.
    """
    task = _run(project, lambda bus: bus.reset_worker(WorkerName(worker), by=OPERATOR))
    if as_json:
        print_json_line({"success": True, "worker": worker, "previous_task": task})
    else:
        queued = f"; `{task}` is queued again" if task is not None else ""
        click.echo(printable(f"`{worker}` is idle{queued}"))


@click.command(
    epilog=examples(
        ("toolpost bus tasks --state finished", "the tasks that ended last"),
        ("toolpost bus tasks bd-42", "which workers had it, when, and how it ended"),
        ("toolpost bus tasks --state blocked --json | jq -r .tasks[].reason", "why tasks failed"),
    )
)
@click.argument("task", required=False, metavar="[ID]")
@click.option(
    "--state", type=click.Choice(_STATES), metavar="STATE", help=f"Only tasks in this state: {', '.join(_STATES)}."
)
@click.option(
    "--limit",
    type=click.IntRange(1, _property("list_tasks", "limit")["maximum"]),
    help=f"The most tasks to list (default: {LIST_LIMIT}).",
)
@click.option("--cursor", help="The cursor that the previous page printed.")
@project_option
@json_option("Print the answer of `list_tasks` answers on one line; with ID `{bead_id, state, …, events}`.")
def tasks(
    task: str | None,
    state: str | None,
    limit: int | None,
    cursor: str | None,
    project: Path | None,
    *,
    as_json: bool,
) -> None:
    """List tasks, or show the history of one.

    The latest change of state is first.
    """
    if task is not None:
        if (state, limit, cursor) != (None, None, None):
            raise click.UsageError("--state, --limit and --cursor are for the list, without ID")
        _print_history(project, TaskId(task), as_json=as_json)
        return
    after = parse_cursor(cursor) if cursor is not None else None

    async def list_page(bus: Bus) -> JsonObject:
        page = await bus.list_tasks(parse_states(state), by=OPERATOR, limit=limit or LIST_LIMIT, after=after)
        return render_page(page, bus.wall)

    page = _run(project, list_page)
    if as_json:
        print_json_line(page)
        return
    rows = [
        (one["changed_at"], one["state"], one["bead_id"], one["worker"] or "", one.get("reason", "")[:500])
        for one in page["tasks"]
    ]
    print_table(table("since", "state", "task", "worker", "", rows=rows))
    if "next_cursor" in page:
        click.echo(f"there are more: --cursor {page['next_cursor']}")


def _print_history(project: Path | None, task: TaskId, *, as_json: bool) -> None:
    found, events = _run(project, lambda bus: bus.history(task))
    if as_json:
        shown = [dataclasses.asdict(one) | {"at": format_time(one.at)} for one in events]
        print_json_line(
            {
                "bead_id": found.id,
                "state": found.state,
                "priority": found.priority,
                "attempt": found.attempt,
                "worker": found.worker,
                "submitted_at": format_time(found.submitted_at),
                "payload": found.payload_json,
                "result": found.result_json,
                "reason": found.reason,
                "events": shown,
            }
        )
        return
    worker = f" with `{found.worker}`" if found.worker and found.state in ("offered", "running") else ""
    click.echo(printable(f"`{found.id}` is {found.state}{worker}, attempt {found.attempt}"))
    rows = [
        (format_time(one.at), one.kind, one.worker or "", str(one.attempt or ""), (one.detail or "")[:500])
        for one in events
    ]
    print_table(table("time", "what", "worker", "attempt", "", rows=rows))
    if found.result is not None:
        click.echo(printable(f"result: {found.result}"))


def _run(project: Path | None, operate: Callable[[Bus], Awaitable[Result]], *, make: bool = False) -> Result:
    """Run an operation on the bus of a project; with `make`, its store is created if it does not exist."""

    async def run() -> Result:
        async with open_bus(resolve_project(project), make=make) as bus:
            return await operate(bus)

    return run_async(run)


def _print_submission(submitted: SubmitResult, *, as_json: bool) -> None:
    if as_json:
        print_json_line(render_submission(submitted))
        return
    if submitted.worker is not None:
        text = f"`{submitted.task}` goes to `{submitted.worker}`"
    elif submitted.waits_for:
        text = f"`{submitted.task}` waits for {', '.join(f'`{one}`' for one in submitted.waits_for)}"
    else:
        text = f"`{submitted.task}` is number {submitted.position} in the queue"
    click.echo(printable(text + (" (it was submitted before)" if submitted.is_duplicate else "")))


def _check_arguments(tool: str, arguments: JsonObject) -> None:
    """Raise `InvalidArguments` for what the tool would refuse from an agent."""
    definition = next(one for one in BUS_TOOLS if one.name == tool)
    terms = ToolDefinition(name=tool, description=definition.description, input_schema=definition.input_schema)
    if issues := contract_of(terms, plugin=PluginName("bus")).find_argument_issues(arguments):
        raise InvalidArguments(f"{issues[0].path}: {issues[0].message}.")


def _normalize_json(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return msgspec.json.encode(msgspec.json.decode(text)).decode()
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidArguments(
            f"--payload is not JSON: {error}.", hint="""text goes in quotes: --payload '"text"'"""
        ) from error
