"""A durable task queue for agents: planners submit tasks, workers poll for them and hold each under a lease.

A task passes these states:

    submit_task -> waiting (for other tasks) -> queued -> offered (poll_task) -> running (ack_task) -> done
                                                  ^          |                     |                   blocked (task_failed)
                                                  +----------+---- lease expired --+                   dead, cancelled

Tasks in the first four states are rows of `bus_tasks`, those in the last four of `bus_archive`. Each step is a script
(`store/scripts.py`): one transaction, written once for SQLite and PostgreSQL.

part         the bus as a part of a gateway; `settings`, `doctor` and `commands` are what it brings
plugin       the tools; `definitions` has their contracts, shared by servers and clients
service      `Bus`: every operation, the long polls, and the periodic sweep
submission   stores a task and its dependencies
dispatch     offers queued tasks to free workers
workers      registers workers and answers their polls
waiters      the polls that wait in this process
leases       acknowledges, ends, retries, cancels and expires tasks
status       workers, queue and counts at one moment, and the history of a task
reports      tasks and their results, limited to what each caller may read
outbox       updates for the issue tracker that tasks come from (`beads` is one)
tasks        tasks and workers as values and as rows
client       forwards the tools to a bus server over a `connection`, and renews leases
api          `/api/bus`: the board, for the view of the console
errors       `StaleLease`
"""

from toolpost.parts import Command, Part

PART = Part(
    name="bus",
    summary="Tasks for agent workers, with leases.",
    opens="toolpost.parts.bus.part:open_bus",
    settings=("toolpost.parts.bus.settings:BUS",),
    migrations="toolpost.parts.bus.migrations",
    doctor="toolpost.parts.bus.doctor:BusDoctor",
    plugins=("bus",),
    commands={
        "bus": Command("toolpost.parts.bus.commands.group:bus", "Hand tasks to agents, and follow their progress.")
    },
)
