-- People who are signed in: hashes of the cookie and of its secret, who they are, and until when.
CREATE TABLE console_sessions (
    id           TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    secret_hash  TEXT COLLATE "C" NOT NULL,
    subject      TEXT COLLATE "C" NOT NULL,
    name         TEXT COLLATE "C" NOT NULL,
    groups       TEXT COLLATE "C" NOT NULL,
    signed_in_at DOUBLE PRECISION NOT NULL,
    expires_at   DOUBLE PRECISION NOT NULL
);
CREATE INDEX console_sessions_expiry ON console_sessions (expires_at);
