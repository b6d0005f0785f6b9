-- A store that an earlier version exported from has the table already.
-- How far each destination has the audit. One gateway delivers at a time: it holds the row until `held_until`.
CREATE TABLE IF NOT EXISTS export_cursors (
    name       TEXT PRIMARY KEY,
    seq        BIGINT NOT NULL,
    hash       TEXT NOT NULL,
    holder     TEXT,
    held_until DOUBLE PRECISION NOT NULL
);
