-- The tools of each server as they were last seen, so that lists work while it is down.
CREATE TABLE known_tools (
    server      TEXT PRIMARY KEY,
    seen_at     REAL NOT NULL,
    definitions TEXT NOT NULL
);
