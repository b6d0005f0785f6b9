-- A result that was too large for an answer. `bytes` of it have the digest that the audit has; further content follows them.
CREATE TABLE results_kept (
    id          TEXT PRIMARY KEY,
    caller      TEXT NOT NULL,
    tool        TEXT NOT NULL,
    call_id     TEXT NOT NULL,
    digest      TEXT NOT NULL,
    bytes       INTEGER NOT NULL,
    total_bytes INTEGER NOT NULL,
    -- Where the texts and values are that are read most: JSON.
    places      TEXT NOT NULL,
    -- Whether all chunks are there: before that, nobody can read it.
    is_complete INTEGER NOT NULL,
    created_at  REAL NOT NULL,
    expires_at  REAL NOT NULL
);
CREATE INDEX results_kept_caller ON results_kept (caller, created_at);
CREATE INDEX results_kept_expires ON results_kept (expires_at);

CREATE TABLE results_chunks (
    result TEXT NOT NULL,
    number INTEGER NOT NULL,
    data   BLOB NOT NULL,
    PRIMARY KEY (result, number)
);
