"""Work that outlives a call: tasks, the workers that do them, and leases between the two.

part         the bus as a part of a gateway; `settings`, `metrics`, `doctor` and `commands` are what it brings
plugin       its tools (`definitions` has each of them, for servers and clients alike)
service      everything that can be done, and what happens by itself
submission   a task comes in
dispatch     queued tasks meet free workers
polls        a worker comes for a task
waiters      the polls that wait in this process
completion   acknowledged, done, failed, taken away, given up
outbox       what the tracker that tasks come from is to be told (`beads` is one)
reports      what is going on, and the story of one task
results      what became of tasks, as each caller may read it
tasks        tasks and workers as values and as rows
client       the tools forwarded to a server of the bus, over a `link`

Each step is a script (`store/scripts.py`): one transaction, written once for SQLite and PostgreSQL.
"""
