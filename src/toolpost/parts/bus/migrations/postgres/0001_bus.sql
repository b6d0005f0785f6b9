-- Tasks that outlive a call, those that are not over.
CREATE TABLE bus_tasks (
    id           TEXT COLLATE "C" PRIMARY KEY,
    state        TEXT COLLATE "C" NOT NULL,
    priority     BIGINT NOT NULL,
    payload      TEXT COLLATE "C",
    dedupe_key   TEXT COLLATE "C",
    submitted_by TEXT COLLATE "C" NOT NULL,
    submitted_at DOUBLE PRECISION NOT NULL,
    rank         DOUBLE PRECISION NOT NULL,
    not_before   DOUBLE PRECISION NOT NULL,
    attempt      BIGINT NOT NULL,
    leases       BIGINT NOT NULL,
    worker       TEXT COLLATE "C",
    token        TEXT COLLATE "C",
    is_fetched   BIGINT NOT NULL,
    expires_at   DOUBLE PRECISION,
    reason       TEXT COLLATE "C",
    result       TEXT COLLATE "C",
    changed_at   DOUBLE PRECISION NOT NULL
);
CREATE INDEX bus_tasks_queued ON bus_tasks (rank, id) WHERE state = 'queued';
CREATE INDEX bus_tasks_waiting ON bus_tasks (id) WHERE state = 'waiting';
CREATE INDEX bus_tasks_held ON bus_tasks (worker) WHERE worker IS NOT NULL;
CREATE UNIQUE INDEX bus_tasks_dedupe ON bus_tasks (dedupe_key) WHERE dedupe_key IS NOT NULL;

-- Tasks that are over: apart, so that `bus_tasks` stays small. `ended_by` is the caller who ended one.
CREATE TABLE bus_archive (
    id           TEXT COLLATE "C" PRIMARY KEY,
    state        TEXT COLLATE "C" NOT NULL,
    priority     BIGINT NOT NULL,
    payload      TEXT COLLATE "C",
    dedupe_key   TEXT COLLATE "C",
    submitted_by TEXT COLLATE "C" NOT NULL,
    submitted_at DOUBLE PRECISION NOT NULL,
    rank         DOUBLE PRECISION NOT NULL,
    not_before   DOUBLE PRECISION NOT NULL,
    attempt      BIGINT NOT NULL,
    leases       BIGINT NOT NULL,
    worker       TEXT COLLATE "C",
    token        TEXT COLLATE "C",
    is_fetched   BIGINT NOT NULL,
    expires_at   DOUBLE PRECISION,
    reason       TEXT COLLATE "C",
    result       TEXT COLLATE "C",
    changed_at   DOUBLE PRECISION NOT NULL,
    ended_by     TEXT COLLATE "C"
);
CREATE INDEX bus_archive_state ON bus_archive (state, changed_at) WHERE state <> 'done';
-- Lists the newest, and whose they are, without reading the table.
CREATE INDEX bus_archive_newest ON bus_archive (changed_at, id, submitted_by, ended_by, state);

CREATE TABLE bus_needs (
    task  TEXT COLLATE "C" NOT NULL,
    needs TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (task, needs)
);
CREATE INDEX bus_needs_back ON bus_needs (needs);

CREATE TABLE bus_workers (
    name          TEXT COLLATE "C" PRIMARY KEY,
    owner         TEXT COLLATE "C" NOT NULL,
    registered_at DOUBLE PRECISION NOT NULL,
    seen_at       DOUBLE PRECISION NOT NULL,
    idle_since    DOUBLE PRECISION NOT NULL,
    task          TEXT COLLATE "C",
    poll          TEXT COLLATE "C",
    poll_until    DOUBLE PRECISION,
    resets        BIGINT NOT NULL,
    caller        TEXT COLLATE "C"
);
-- Finds free workers, by how long they have been free.
CREATE INDEX bus_workers_free ON bus_workers (idle_since, name) WHERE task IS NULL;

-- The history of each task.
CREATE TABLE bus_events (
    seq     BIGINT NOT NULL,
    task    TEXT COLLATE "C" NOT NULL,
    at      DOUBLE PRECISION NOT NULL,
    kind    TEXT COLLATE "C" NOT NULL,
    worker  TEXT COLLATE "C",
    attempt BIGINT NOT NULL,
    detail  TEXT COLLATE "C",
    PRIMARY KEY (task, seq)
);

-- Updates for the tracker that tasks come from, in their order, until it has taken them.
CREATE TABLE bus_outbox (
    seq        BIGINT PRIMARY KEY,
    task       TEXT COLLATE "C" NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL,
    detail     TEXT COLLATE "C",
    tries      BIGINT NOT NULL,
    not_before DOUBLE PRECISION NOT NULL
);
CREATE INDEX bus_outbox_task ON bus_outbox (task, seq);

-- Tasks that somebody waits for: only their ends are announced. A waiter that was killed is forgotten at `until`.
CREATE TABLE bus_watches (
    task   TEXT COLLATE "C" NOT NULL,
    waiter TEXT COLLATE "C" NOT NULL,
    until  DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (task, waiter)
);
