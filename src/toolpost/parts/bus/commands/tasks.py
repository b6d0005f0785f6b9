"""`toolpost bus submit`, `retry`, `cancel`, `reset`, `tasks` and `log`: a person's hand on the tasks."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from toolpost.base.caller import OPERATOR
from toolpost.base.ids import JsonObject, PluginName
from toolpost.cli.examples import examples
from toolpost.cli.gateway import run_async
from toolpost.cli.options import json_option
from toolpost.cli.show import print_json_line, print_table, table
from toolpost.cli.terminal import printable
from toolpost.contracts.contract import Terms, contract_of
from toolpost.contracts.errors import InvalidArguments
from toolpost.parts.bus.commands.server import project_option, resolve_project
from toolpost.parts.bus.commands.store import open_bus
from toolpost.parts.bus.definitions import BUS_TOOLS, LIST_LIMIT
from toolpost.parts.bus.plugin import parse_cursor, parse_states, render_page, render_submission
from toolpost.parts.bus.results import Position
from toolpost.parts.bus.status import Event
from toolpost.parts.bus.submission import Submission, SubmitResult
from toolpost.parts.bus.tasks import DEFAULT_PRIORITY, PRIORITIES, BusTask, State, TaskId, WorkerName


def _property(tool: str, name: str) -> JsonObject:
    """Return what a tool takes under this name: a person is held to what agents are held to."""
    found: JsonObject = next(one for one in BUS_TOOLS if one.name == tool).properties[name]
    return found


@click.command(
    epilog=examples(
        ("toolpost bus submit bd-42", "whoever is free gets it"),
        ("toolpost bus submit bd-43 --after bd-42 --priority 0", "the most urgent one, once bd-42 is done"),
        ("""toolpost bus submit bd-44 --payload '{"branch": "fix"}'""", "with something for the worker to know"),
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
@click.option("--payload", metavar="JSON", help="Whatever the worker needs to know.")
@click.option("--dedupe-key", metavar="KEY", help="While a task with this key is not over, it answers instead.")
@project_option
@json_option("Print what `submit_task` answers, on one line.")
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
    _check("submit_task", arguments)
    submission = Submission(
        task=TaskId(task),
        priority=priority,
        payload=_json_text(payload),
        needs=tuple(TaskId(one) for one in arguments["depends_on"]),
        dedupe_key=dedupe_key,
        by=OPERATOR.id,
    )
    _print_submission(run_async(_submit, resolve_project(project), submission), as_json=as_json)


@click.command(
    epilog=examples(
        ("toolpost bus retry bd-42", "also if it is done, blocked, dead or cancelled"),
        ("toolpost bus retry bd-42 --json", "for other programs"),
    )
)
@click.argument("task")
@project_option
@json_option("Print what `retry_task` answers, on one line.")
def retry(task: str, project: Path | None, *, as_json: bool) -> None:
    """Have a task done again, whatever became of it."""
    _print_submission(run_async(_retry, resolve_project(project), TaskId(task)), as_json=as_json)


@click.command(
    epilog=examples(
        ("toolpost bus cancel bd-42 --reason 'not needed any more'", "whoever has it"),
        ("toolpost bus cancel bd-42 --json", "for other programs"),
    )
)
@click.argument("task")
@click.option("--reason", default="cancelled by a person", show_default=True, help="Kept with the task.")
@project_option
@json_option("Print `{bead_id, status}` on one line.")
def cancel(task: str, reason: str, project: Path | None, *, as_json: bool) -> None:
    """Call a task off. A worker that has it learns of it when it says that it is done."""
    run_async(_cancel, resolve_project(project), TaskId(task), reason)
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
@json_option("Print what `reset_worker` answers, on one line.")
def reset(worker: str, project: Path | None, *, as_json: bool) -> None:
    """Make a worker idle: its task goes back to the queue, its poll is answered."""
    task = run_async(_reset, resolve_project(project), WorkerName(worker))
    if as_json:
        print_json_line({"success": True, "worker": worker, "previous_task": task})
    else:
        had = f"; `{task}` is queued again" if task is not None else ""
        click.echo(printable(f"`{worker}` is idle{had}"))


@click.command(
    epilog=examples(
        ("toolpost bus tasks --state finished", "what was done, or failed, last"),
        ("toolpost bus tasks --state blocked --json | jq -r .tasks[].reason", "why tasks failed"),
    )
)
@click.option("--state", type=click.Choice(_property("list_tasks", "state")["enum"]), help="Only these.")
@click.option(
    "--limit",
    type=click.IntRange(1, _property("list_tasks", "limit")["maximum"]),
    default=LIST_LIMIT,
    show_default=True,
    help="At most so many.",
)
@click.option("--cursor", help="Go on after a list that named this one.")
@project_option
@json_option("Print what `list_tasks` answers, on one line.")
def tasks(state: str | None, limit: int, cursor: str | None, project: Path | None, *, as_json: bool) -> None:
    """List tasks, those first whose state changed last."""
    after = parse_cursor(cursor) if cursor is not None else None
    page = run_async(_list, resolve_project(project), parse_states(state), limit, after)
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


@click.command(
    epilog=examples(
        ("toolpost bus log bd-42", "who had it, when, and what came of it"),
        ("toolpost bus log bd-42 --json", "for other programs"),
    )
)
@click.argument("task")
@project_option
@json_option("Print `{bead_id, state, …, events}` on one line.")
def log(task: str, project: Path | None, *, as_json: bool) -> None:
    """Tell the story of one task."""
    found, events = run_async(_history, resolve_project(project), TaskId(task))
    if as_json:
        print_json_line(_task(found) | {"events": [_event(one) for one in events]})
        return
    worker = f" with `{found.worker}`" if found.worker and found.state in ("offered", "running") else ""
    click.echo(printable(f"`{found.id}` is {found.state}{worker}, attempt {found.attempt}"))
    rows = [
        (_format_time(one.at), one.kind, one.worker or "", str(one.attempt or ""), (one.detail or "")[:500])
        for one in events
    ]
    print_table(table("time", "what", "worker", "attempt", "", rows=rows))
    if found.result is not None:
        click.echo(printable(f"result: {found.result}"))


async def _submit(project: Path, submission: Submission) -> SubmitResult:
    async with open_bus(project, make=True) as bus:
        return await bus.submit(submission)


async def _retry(project: Path, task: TaskId) -> SubmitResult:
    async with open_bus(project) as bus:
        return await bus.retry(task, by=OPERATOR)


async def _cancel(project: Path, task: TaskId, reason: str) -> BusTask:
    async with open_bus(project) as bus:
        return await bus.cancel(task, reason)


async def _reset(project: Path, name: WorkerName) -> TaskId | None:
    async with open_bus(project) as bus:
        return await bus.reset_worker(name, by=OPERATOR)


async def _list(project: Path, states: tuple[State, ...], limit: int, after: Position | None) -> JsonObject:
    async with open_bus(project) as bus:
        return render_page(await bus.list_tasks(states, by=OPERATOR, limit=limit, after=after), bus.wall)


async def _history(project: Path, task: TaskId) -> tuple[BusTask, list[Event]]:
    async with open_bus(project) as bus:
        return await bus.history(task)


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


def _check(tool: str, arguments: JsonObject) -> None:
    """Hold a person to the contract that agents are held to."""
    definition = next(one for one in BUS_TOOLS if one.name == tool)
    terms = Terms(name=tool, description=definition.description, input_schema=definition.input_schema)
    faults = contract_of(terms, plugin=PluginName("bus")).find_argument_issues(arguments)
    if faults:
        raise InvalidArguments(f"{faults[0].path}: {faults[0].message}.")


def _json_text(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return msgspec.json.encode(msgspec.json.decode(text)).decode()
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidArguments(
            f"--payload is not JSON: {error}.", hint="""text goes in quotes: --payload '"text"'"""
        ) from error


def _task(task: BusTask) -> dict[str, Any]:
    return {
        "bead_id": task.id,
        "state": task.state,
        "priority": task.priority,
        "attempt": task.attempt,
        "worker": task.worker,
        "submitted_at": _format_time(task.submitted_at),
        "payload": task.payload_json,
        "result": task.result_json,
        "reason": task.reason,
    }


def _event(one: Event) -> dict[str, Any]:
    return {
        "at": _format_time(one.at),
        "kind": one.kind,
        "worker": one.worker,
        "attempt": one.attempt,
        "detail": one.detail,
    }


def _format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
