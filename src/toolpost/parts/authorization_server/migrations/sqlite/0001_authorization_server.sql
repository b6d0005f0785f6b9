-- Clients that registered themselves. `metadata` is the JSON of RFC 7591, without the secret.
CREATE TABLE login_clients (
    id          TEXT NOT NULL PRIMARY KEY,
    metadata    TEXT NOT NULL,
    secret_hash TEXT,
    used_at     REAL NOT NULL
);
CREATE INDEX login_clients_used ON login_clients (used_at);

-- Authorization requests that wait for a person. `browser`, `form` and `state` are hashes of what the browser has.
CREATE TABLE login_requests (
    id         TEXT NOT NULL PRIMARY KEY,
    browser    TEXT NOT NULL,
    client     TEXT NOT NULL,
    params     TEXT NOT NULL,
    identity   TEXT,
    form       TEXT,
    state      TEXT,
    attempts   INTEGER NOT NULL,
    expires_at REAL NOT NULL
);
CREATE INDEX login_requests_expires ON login_requests (expires_at);
CREATE INDEX login_requests_state ON login_requests (state);
-- A browser gets a new cookie once a person has logged in.
CREATE INDEX login_requests_browser ON login_requests (browser);

-- The permissions that people gave to clients: for which caller, when they were last used, and when they ended.
CREATE TABLE login_grants (
    id         TEXT NOT NULL PRIMARY KEY,
    client     TEXT NOT NULL,
    identity   TEXT NOT NULL,
    params     TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    revoked_at REAL,
    caller     TEXT NOT NULL DEFAULT '',
    used_at    REAL
);
CREATE INDEX login_grants_client ON login_grants (client);
CREATE INDEX login_grants_expires ON login_grants (expires_at);
CREATE INDEX login_grants_revoked ON login_grants (revoked_at);

-- Hashes of codes, access tokens and refresh tokens. `used_at` is set by what may be used once.
CREATE TABLE login_tokens (
    hash       TEXT NOT NULL PRIMARY KEY,
    kind       TEXT NOT NULL,
    login      TEXT NOT NULL,
    scopes     TEXT NOT NULL,
    expires_at REAL NOT NULL,
    used_at    REAL
);
CREATE INDEX login_tokens_expires ON login_tokens (expires_at);
CREATE INDEX login_tokens_login ON login_tokens (login);
