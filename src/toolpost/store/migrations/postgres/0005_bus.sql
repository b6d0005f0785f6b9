-- The bus: tasks that outlive a call, the workers that do them, and what became of each.
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
CREATE INDEX bus_tasks_queue ON bus_tasks (state, rank);
CREATE INDEX bus_tasks_expiry ON bus_tasks (expires_at) WHERE expires_at IS NOT NULL;
CREATE UNIQUE INDEX bus_tasks_dedupe ON bus_tasks (dedupe_key) WHERE dedupe_key IS NOT NULL;

-- Tasks that are over: apart, so that what is left to do stays small however much was done.
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
    changed_at   DOUBLE PRECISION NOT NULL
);
CREATE INDEX bus_archive_state ON bus_archive (state, changed_at) WHERE state <> 'done';

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
    resets        BIGINT NOT NULL
);

CREATE TABLE bus_events (
    seq     BIGINT PRIMARY KEY,
    task    TEXT COLLATE "C" NOT NULL,
    at      DOUBLE PRECISION NOT NULL,
    kind    TEXT COLLATE "C" NOT NULL,
    worker  TEXT COLLATE "C",
    attempt BIGINT NOT NULL,
    detail  TEXT COLLATE "C"
);
CREATE INDEX bus_events_task ON bus_events (task, seq);

-- What is to be told to the tracker that tasks come from, in its order, until it has taken it.
CREATE TABLE bus_outbox (
    seq        BIGINT PRIMARY KEY,
    task       TEXT COLLATE "C" NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL,
    detail     TEXT COLLATE "C",
    tries      BIGINT NOT NULL,
    not_before DOUBLE PRECISION NOT NULL
);
CREATE INDEX bus_outbox_task ON bus_outbox (task, seq);
