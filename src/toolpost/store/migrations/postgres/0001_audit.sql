-- The record of every call. The columns stand in the order in which they are hashed. Texts compare by their bytes,
-- as in SQLite.
CREATE TABLE audit (
    seq             BIGINT PRIMARY KEY,
    at_utc          TEXT COLLATE "C" NOT NULL,
    call_id         TEXT COLLATE "C" NOT NULL,
    trace_id        TEXT COLLATE "C" NOT NULL,
    caller          TEXT COLLATE "C" NOT NULL,
    tool            TEXT COLLATE "C" NOT NULL,
    source          TEXT COLLATE "C" NOT NULL,
    contract        TEXT COLLATE "C" NOT NULL,
    schema_version  BIGINT NOT NULL,
    tooling_version TEXT COLLATE "C" NOT NULL,
    arguments       TEXT COLLATE "C" NOT NULL,
    outcome         TEXT COLLATE "C" NOT NULL,
    code            TEXT COLLATE "C",
    -- Infinity is hashed as null and would hide behind it.
    duration_ms     DOUBLE PRECISION NOT NULL CHECK (duration_ms BETWEEN 0 AND 1e15),
    result          TEXT COLLATE "C",
    previous        TEXT COLLATE "C" NOT NULL,
    hash            TEXT COLLATE "C" NOT NULL
);

-- An error message names the call; looking it up must not read the whole record.
CREATE INDEX audit_call_id ON audit (call_id);

-- The newest record, written with it: a tail that was cut off is missed here.
-- Half of each page stays free: the row is rewritten at every commit, and stays where it is.
CREATE TABLE audit_head (
    one  BIGINT PRIMARY KEY CHECK (one = 1),
    seq  BIGINT NOT NULL,
    hash TEXT COLLATE "C" NOT NULL
) WITH (fillfactor = 50);
INSERT INTO audit_head (one, seq, hash)
VALUES (1, 0, 'sha256:0000000000000000000000000000000000000000000000000000000000000000');

-- A speed bump against accidents. The chain is the proof.
CREATE FUNCTION audit_is_only_added_to() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit is only ever added to';
END
$$;
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE OR DELETE ON audit
FOR EACH ROW EXECUTE FUNCTION audit_is_only_added_to();
CREATE TRIGGER audit_is_never_emptied BEFORE TRUNCATE ON audit
FOR EACH STATEMENT EXECUTE FUNCTION audit_is_only_added_to();
