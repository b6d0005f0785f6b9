-- Which tasks are waited for, so that only their ends are announced; a waiter that crashed is forgotten by `until`.
CREATE TABLE bus_watches (
    task   TEXT NOT NULL,
    waiter TEXT NOT NULL,
    until  REAL NOT NULL,
    PRIMARY KEY (task, waiter)
) WITHOUT ROWID;

-- Lists tasks that are over, newest first, and tells whose they are without reading them.
CREATE INDEX bus_archive_newest ON bus_archive (changed_at, id, submitted_by, ended_by, state);
