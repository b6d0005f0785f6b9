"""MCP tasks: calls that outlive their requests.

part             tasks as a part of a gateway; `settings` has its section
endpoint         the methods `tasks/*` and the handles of tasks, as JSON-RPC results
runner           starts tasks, runs them to their end, finds and cancels them
orphans          tasks whose process ended: run again or failed
results          the outcome of a task, from the answer of its call
records          a task as a value and as a row, and every transaction on it
owners           which process runs a task, and whether it still exists

A task passes the same gateway as any other call; only its answer is stored instead of sent. The table is called `deferred_calls`.
"""

from toolpost.parts import Part

PART = Part(
    name="tasks",
    summary="MCP tasks: calls that outlive their requests.",
    opens="toolpost.parts.tasks.part:open_tasks",
    settings=("toolpost.parts.tasks.settings:TASKS",),
)
