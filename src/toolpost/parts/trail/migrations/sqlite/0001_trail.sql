-- A session of records. `header` and `seal` are the JSON that is hashed and signed.
CREATE TABLE trail_sessions (
    number     INTEGER PRIMARY KEY,
    owner      TEXT NOT NULL,
    id         TEXT NOT NULL,
    -- What its successors share with it: the id of the first one.
    name       TEXT NOT NULL,
    task_id    TEXT,
    header     TEXT NOT NULL,
    intent     BLOB NOT NULL,
    salt       TEXT NOT NULL,
    size       INTEGER NOT NULL,
    head       TEXT NOT NULL,
    -- The complete subtrees at the right edge of its Merkle tree: what the next record needs.
    peaks      BLOB NOT NULL,
    changed_at REAL NOT NULL,
    seal       TEXT,
    signature  TEXT,
    public_key TEXT,
    -- When the records of a finalized session were removed; this row stays.
    removed_at TEXT,
    UNIQUE (owner, id)
);
CREATE INDEX trail_sessions_name ON trail_sessions (owner, name, number);
CREATE INDEX trail_sessions_changed ON trail_sessions (changed_at);

-- `body` is the JSON that is hashed; the other columns are for finding it.
CREATE TABLE trail_records (
    session INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    type    TEXT,
    task_id TEXT,
    call_id TEXT,
    -- What it is told by when it is written a second time.
    once    TEXT NOT NULL,
    body    TEXT NOT NULL,
    hash    TEXT NOT NULL,
    content BLOB,
    salt    TEXT,
    PRIMARY KEY (session, seq)
);
CREATE UNIQUE INDEX trail_records_once ON trail_records (session, once);
CREATE INDEX trail_records_hash ON trail_records (hash);
CREATE INDEX trail_records_call ON trail_records (call_id) WHERE call_id IS NOT NULL;
CREATE INDEX trail_records_task ON trail_records (task_id, type) WHERE task_id IS NOT NULL;

-- Complete subtrees of the Merkle trees, above the leaves.
CREATE TABLE trail_nodes (
    session INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    hash    BLOB NOT NULL,
    PRIMARY KEY (session, number)
) WITHOUT ROWID;

-- A speed bump against accidents. The chain is the proof.
CREATE TRIGGER trail_records_are_never_changed BEFORE UPDATE ON trail_records
BEGIN
    SELECT RAISE(ABORT, 'the trail is only ever added to');
END;
CREATE TRIGGER trail_records_are_never_deleted BEFORE DELETE ON trail_records
WHEN NOT EXISTS (SELECT 1 FROM trail_sessions WHERE number = OLD.session AND seal IS NOT NULL AND removed_at IS NOT NULL)
BEGIN
    SELECT RAISE(ABORT, 'the trail is only ever added to');
END;
