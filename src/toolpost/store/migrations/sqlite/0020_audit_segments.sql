-- Runs of the oldest records that were removed: the chain continues where the last of them ends.
CREATE TABLE audit_segments (
    first_seq INTEGER PRIMARY KEY,
    last_seq  INTEGER NOT NULL CHECK (last_seq >= first_seq),
    previous  TEXT NOT NULL,
    hash      TEXT NOT NULL,
    digest    TEXT NOT NULL,
    sealed_at REAL NOT NULL
);

-- What is in a segment may be removed, nothing else.
DROP TRIGGER audit_is_never_deleted;
CREATE TRIGGER audit_is_never_deleted BEFORE DELETE ON audit
WHEN OLD.seq > coalesce((SELECT max(last_seq) FROM audit_segments), 0)
BEGIN
    SELECT RAISE(ABORT, 'the audit is only ever added to');
END;
