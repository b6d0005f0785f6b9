-- A task's way through its states touches an index only where what the index is for begins or ends.
DROP INDEX bus_tasks_queue;
DROP INDEX bus_tasks_expiry;
CREATE INDEX bus_tasks_queued ON bus_tasks (rank, id) WHERE state = 'queued';
CREATE INDEX bus_tasks_waiting ON bus_tasks (id) WHERE state = 'waiting';
CREATE INDEX bus_tasks_held ON bus_tasks (worker) WHERE worker IS NOT NULL;

-- A line of history is found by its task.
ALTER TABLE bus_events DROP CONSTRAINT bus_events_pkey;
DROP INDEX bus_events_task;
ALTER TABLE bus_events ADD PRIMARY KEY (task, seq);
