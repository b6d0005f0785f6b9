-- People who are signed in: hashes of the cookie and of its secret, who they are, and until when.
CREATE TABLE console_sessions (
    id           TEXT NOT NULL PRIMARY KEY,
    secret_hash  TEXT NOT NULL,
    subject      TEXT NOT NULL,
    name         TEXT NOT NULL,
    groups       TEXT NOT NULL,
    signed_in_at REAL NOT NULL,
    expires_at   REAL NOT NULL
);
CREATE INDEX console_sessions_expiry ON console_sessions (expires_at);
