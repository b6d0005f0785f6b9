-- Tasks that outlive a call, those that are not over.
CREATE TABLE bus_tasks (
    id           TEXT PRIMARY KEY,
    state        TEXT NOT NULL,
    priority     INTEGER NOT NULL,
    payload      TEXT,
    dedupe_key   TEXT,
    submitted_by TEXT NOT NULL,
    submitted_at REAL NOT NULL,
    rank         REAL NOT NULL,
    not_before   REAL NOT NULL,
    attempt      INTEGER NOT NULL,
    leases       INTEGER NOT NULL,
    worker       TEXT,
    token        TEXT,
    is_fetched   INTEGER NOT NULL,
    expires_at   REAL,
    reason       TEXT,
    result       TEXT,
    changed_at   REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX bus_tasks_queued ON bus_tasks (state, rank, id) WHERE state = 'queued';
CREATE INDEX bus_tasks_waiting ON bus_tasks (state) WHERE state = 'waiting';
CREATE INDEX bus_tasks_held ON bus_tasks (worker) WHERE worker IS NOT NULL;
CREATE UNIQUE INDEX bus_tasks_dedupe ON bus_tasks (dedupe_key) WHERE dedupe_key IS NOT NULL;

-- Tasks that are over: apart, so that `bus_tasks` stays small. `ended_by` is the caller who ended one.
CREATE TABLE bus_archive (
    id           TEXT PRIMARY KEY,
    state        TEXT NOT NULL,
    priority     INTEGER NOT NULL,
    payload      TEXT,
    dedupe_key   TEXT,
    submitted_by TEXT NOT NULL,
    submitted_at REAL NOT NULL,
    rank         REAL NOT NULL,
    not_before   REAL NOT NULL,
    attempt      INTEGER NOT NULL,
    leases       INTEGER NOT NULL,
    worker       TEXT,
    token        TEXT,
    is_fetched   INTEGER NOT NULL,
    expires_at   REAL,
    reason       TEXT,
    result       TEXT,
    changed_at   REAL NOT NULL,
    ended_by     TEXT
) WITHOUT ROWID;
CREATE INDEX bus_archive_state ON bus_archive (state, changed_at) WHERE state <> 'done';
-- Lists the newest, and whose they are, without reading the table.
CREATE INDEX bus_archive_newest ON bus_archive (changed_at, id, submitted_by, ended_by, state);

CREATE TABLE bus_needs (
    task  TEXT NOT NULL,
    needs TEXT NOT NULL,
    PRIMARY KEY (task, needs)
) WITHOUT ROWID;
CREATE INDEX bus_needs_back ON bus_needs (needs);

CREATE TABLE bus_workers (
    name          TEXT PRIMARY KEY,
    owner         TEXT NOT NULL,
    registered_at REAL NOT NULL,
    seen_at       REAL NOT NULL,
    idle_since    REAL NOT NULL,
    task          TEXT,
    poll          TEXT,
    poll_until    REAL,
    resets        INTEGER NOT NULL,
    caller        TEXT
) WITHOUT ROWID;
-- Finds free workers, by how long they have been free.
CREATE INDEX bus_workers_free ON bus_workers (idle_since, name) WHERE task IS NULL;

-- The history of each task.
CREATE TABLE bus_events (
    task    TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    at      REAL NOT NULL,
    kind    TEXT NOT NULL,
    worker  TEXT,
    attempt INTEGER NOT NULL,
    detail  TEXT,
    PRIMARY KEY (task, seq)
) WITHOUT ROWID;

-- Updates for the tracker that tasks come from, in their order, until it has taken them.
CREATE TABLE bus_outbox (
    seq        INTEGER PRIMARY KEY,
    task       TEXT NOT NULL,
    kind       TEXT NOT NULL,
    detail     TEXT,
    tries      INTEGER NOT NULL,
    not_before REAL NOT NULL
);
CREATE INDEX bus_outbox_task ON bus_outbox (task, seq);

-- Tasks that somebody waits for: only their ends are announced. A waiter that was killed is forgotten at `until`.
CREATE TABLE bus_watches (
    task   TEXT NOT NULL,
    waiter TEXT NOT NULL,
    until  REAL NOT NULL,
    PRIMARY KEY (task, waiter)
) WITHOUT ROWID;
