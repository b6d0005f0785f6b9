-- The record of every call. The columns stand in the order in which they are hashed.
CREATE TABLE audit (
    seq             INTEGER PRIMARY KEY,
    at_utc          TEXT NOT NULL,
    call_id         TEXT NOT NULL,
    trace_id        TEXT NOT NULL,
    caller          TEXT NOT NULL,
    tool            TEXT NOT NULL,
    source          TEXT NOT NULL,
    contract        TEXT NOT NULL,
    schema_version  INTEGER NOT NULL,
    tooling_version TEXT NOT NULL,
    arguments       TEXT NOT NULL,
    outcome         TEXT NOT NULL,
    code            TEXT,
    -- Infinity is hashed as null and would hide behind it.
    duration_ms     REAL NOT NULL CHECK (duration_ms BETWEEN 0 AND 1e15),
    result          TEXT,
    previous        TEXT NOT NULL,
    hash            TEXT NOT NULL
);

-- An error message names the call; looking it up must not read the whole record.
CREATE INDEX audit_call_id ON audit (call_id);

-- The newest record, written with it: a tail that was cut off is missed here.
CREATE TABLE audit_head (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    seq  INTEGER NOT NULL,
    hash TEXT NOT NULL
);
INSERT INTO audit_head (one, seq, hash)
VALUES (1, 0, 'sha256:0000000000000000000000000000000000000000000000000000000000000000');

-- A speed bump against accidents. The chain is the proof.
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit is only ever added to');
END;
CREATE TRIGGER audit_is_never_deleted BEFORE DELETE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit is only ever added to');
END;
