"""Work that outlives a call: tasks, the workers that do them, and leases between the two.

bus          everything that can be done, and what happens by itself
submitting   a task comes in
dispatching  queued tasks meet free workers
polling      a worker comes for a task
waiting      the polls that wait in this process
finishing    acknowledged, done, failed, taken away, given up
outbox       what the tracker that tasks come from is to be told
looking      what is going on, and the story of one task
results      what became of tasks, as each caller may read it
tasks        tasks and workers as values and as rows

Each step is a script (`store/scripts.py`): one transaction, written once for SQLite and PostgreSQL.
"""
