-- When the server has last listed a tool, or was known to: of a server that keeps renaming its tools only the last are kept.
ALTER TABLE pins ADD COLUMN seen_at REAL NOT NULL DEFAULT 0;
UPDATE pins SET seen_at = pinned_at;
