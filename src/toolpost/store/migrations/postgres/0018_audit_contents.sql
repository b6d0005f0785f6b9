-- Arguments and results of calls that were selected for review; the audit itself has digests.
CREATE TABLE audit_contents (
    call_id TEXT PRIMARY KEY,
    kept_at DOUBLE PRECISION NOT NULL,
    epoch TEXT NOT NULL,
    sample DOUBLE PRECISION NOT NULL,
    proof TEXT NOT NULL,
    public_key TEXT NOT NULL,
    arguments TEXT NOT NULL,
    result TEXT
);
CREATE INDEX audit_contents_by_age ON audit_contents (kept_at);
