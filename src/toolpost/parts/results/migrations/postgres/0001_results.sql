-- A result that was too large for an answer. `bytes` of it have the digest that the audit has; further content follows them.
CREATE TABLE results_kept (
    id          TEXT COLLATE "C" PRIMARY KEY,
    caller      TEXT COLLATE "C" NOT NULL,
    tool        TEXT COLLATE "C" NOT NULL,
    call_id     TEXT COLLATE "C" NOT NULL,
    digest      TEXT COLLATE "C" NOT NULL,
    bytes       BIGINT NOT NULL,
    total_bytes BIGINT NOT NULL,
    -- Where the texts and values are that are read most: JSON.
    places      TEXT COLLATE "C" NOT NULL,
    -- Whether all chunks are there: before that, nobody can read it.
    is_complete BIGINT NOT NULL,
    created_at  DOUBLE PRECISION NOT NULL,
    expires_at  DOUBLE PRECISION NOT NULL
);
CREATE INDEX results_kept_caller ON results_kept (caller, created_at);
CREATE INDEX results_kept_expires ON results_kept (expires_at);

CREATE TABLE results_chunks (
    result TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    data   BYTEA NOT NULL,
    PRIMARY KEY (result, number)
);
