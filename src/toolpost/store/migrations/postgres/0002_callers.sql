-- Callers that were made while a gateway runs: what they see, and the SHA-256 of the token of each.
CREATE TABLE callers (
    name       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    token_hash TEXT COLLATE "C" NOT NULL UNIQUE,
    tags       TEXT COLLATE "C",
    tools      TEXT COLLATE "C",
    mode       TEXT COLLATE "C" NOT NULL,
    made_at    DOUBLE PRECISION NOT NULL,
    made_by    TEXT COLLATE "C" NOT NULL
);
