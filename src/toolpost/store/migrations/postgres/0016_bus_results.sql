-- Which tasks are waited for, so that only their ends are announced; a waiter that crashed is forgotten by `until`.
CREATE TABLE bus_watches (
    task   TEXT COLLATE "C" NOT NULL,
    waiter TEXT COLLATE "C" NOT NULL,
    until  DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (task, waiter)
);

-- Lists tasks that are over, newest first, and tells whose they are without reading them.
CREATE INDEX bus_archive_newest ON bus_archive (changed_at, id, submitted_by, ended_by, state);
