-- The bus: tasks that outlive a call, the workers that do them, and what became of each.
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
CREATE INDEX bus_tasks_queue ON bus_tasks (state, rank);
CREATE INDEX bus_tasks_expiry ON bus_tasks (expires_at) WHERE expires_at IS NOT NULL;
CREATE UNIQUE INDEX bus_tasks_dedupe ON bus_tasks (dedupe_key) WHERE dedupe_key IS NOT NULL;

-- Tasks that are over: apart, so that what is left to do stays small however much was done.
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
    changed_at   REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX bus_archive_state ON bus_archive (state, changed_at) WHERE state <> 'done';

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
    resets        INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE bus_events (
    seq     INTEGER PRIMARY KEY,
    task    TEXT NOT NULL,
    at      REAL NOT NULL,
    kind    TEXT NOT NULL,
    worker  TEXT,
    attempt INTEGER NOT NULL,
    detail  TEXT
);
CREATE INDEX bus_events_task ON bus_events (task, seq);

-- What is to be told to the tracker that tasks come from, in its order, until it has taken it.
CREATE TABLE bus_outbox (
    seq        INTEGER PRIMARY KEY,
    task       TEXT NOT NULL,
    kind       TEXT NOT NULL,
    detail     TEXT,
    tries      INTEGER NOT NULL,
    not_before REAL NOT NULL
);
CREATE INDEX bus_outbox_task ON bus_outbox (task, seq);
