-- Clients that registered themselves. `metadata` is the JSON of RFC 7591, without the secret.
CREATE TABLE login_clients (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    metadata    TEXT COLLATE "C" NOT NULL,
    secret_hash TEXT COLLATE "C",
    used_at     DOUBLE PRECISION NOT NULL
);
CREATE INDEX login_clients_used ON login_clients (used_at);

-- Authorization requests that wait for a person. `browser`, `form` and `state` are hashes of what the browser has.
CREATE TABLE login_requests (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    browser    TEXT COLLATE "C" NOT NULL,
    client     TEXT COLLATE "C" NOT NULL,
    params     TEXT COLLATE "C" NOT NULL,
    identity   TEXT COLLATE "C",
    form       TEXT COLLATE "C",
    state      TEXT COLLATE "C",
    attempts   BIGINT NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL
);
CREATE INDEX login_requests_expires ON login_requests (expires_at);
CREATE INDEX login_requests_state ON login_requests (state);
-- A browser gets a new cookie once a person has logged in.
CREATE INDEX login_requests_browser ON login_requests (browser);

-- The permissions that people gave to clients: for which caller, when they were last used, and when they ended.
CREATE TABLE login_grants (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    client     TEXT COLLATE "C" NOT NULL,
    identity   TEXT COLLATE "C" NOT NULL,
    params     TEXT COLLATE "C" NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    revoked_at DOUBLE PRECISION,
    caller     TEXT COLLATE "C" NOT NULL DEFAULT '',
    used_at    DOUBLE PRECISION
);
CREATE INDEX login_grants_client ON login_grants (client);
CREATE INDEX login_grants_expires ON login_grants (expires_at);
CREATE INDEX login_grants_revoked ON login_grants (revoked_at);

-- Hashes of codes, access tokens and refresh tokens. `used_at` is set by what may be used once.
CREATE TABLE login_tokens (
    hash       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    kind       TEXT COLLATE "C" NOT NULL,
    login      TEXT COLLATE "C" NOT NULL,
    scopes     TEXT COLLATE "C" NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    used_at    DOUBLE PRECISION
);
CREATE INDEX login_tokens_expires ON login_tokens (expires_at);
CREATE INDEX login_tokens_login ON login_tokens (login);
