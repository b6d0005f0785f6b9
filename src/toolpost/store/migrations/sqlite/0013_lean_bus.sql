-- A task's way through its states touches an index only where what the index is for begins or ends.
DROP INDEX bus_tasks_queue;
DROP INDEX bus_tasks_expiry;
CREATE INDEX bus_tasks_queued ON bus_tasks (state, rank, id) WHERE state = 'queued';
CREATE INDEX bus_tasks_waiting ON bus_tasks (state) WHERE state = 'waiting';
CREATE INDEX bus_tasks_held ON bus_tasks (worker) WHERE worker IS NOT NULL;

-- A line of history lies with the others of its task, and nowhere else.
CREATE TABLE bus_lines (
    task    TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    at      REAL NOT NULL,
    kind    TEXT NOT NULL,
    worker  TEXT,
    attempt INTEGER NOT NULL,
    detail  TEXT,
    PRIMARY KEY (task, seq)
) WITHOUT ROWID;
INSERT INTO bus_lines SELECT task, seq, at, kind, worker, attempt, detail FROM bus_events ORDER BY task, seq;
DROP TABLE bus_events;
ALTER TABLE bus_lines RENAME TO bus_events;
