-- Callers that were made while a gateway runs: what they see, and the SHA-256 of the token of each.
CREATE TABLE callers (
    name       TEXT NOT NULL PRIMARY KEY,
    token_hash TEXT NOT NULL UNIQUE,
    tags       TEXT,
    tools      TEXT,
    mode       TEXT NOT NULL,
    made_at    REAL NOT NULL,
    made_by    TEXT NOT NULL
);
