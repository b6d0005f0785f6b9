-- Calls that outlive their requests (MCP tasks): who asked, who runs them until when, and what became of each.
CREATE TABLE deferred_calls (
    id             TEXT PRIMARY KEY,
    caller         TEXT NOT NULL,
    transport      TEXT NOT NULL,
    tool           TEXT NOT NULL,
    arguments      TEXT,
    meta           TEXT,
    is_repeatable  INTEGER NOT NULL,
    status         TEXT NOT NULL,
    status_message TEXT,
    result         TEXT,
    error          TEXT,
    is_cancelled   INTEGER NOT NULL,
    attempts       INTEGER NOT NULL,
    owner          TEXT NOT NULL,
    owned_until    REAL NOT NULL,
    created_at     REAL NOT NULL,
    updated_at     REAL NOT NULL,
    expires_at     REAL NOT NULL
);
CREATE INDEX deferred_calls_working ON deferred_calls (owned_until) WHERE status = 'working';
CREATE INDEX deferred_calls_expiry ON deferred_calls (expires_at);
CREATE INDEX deferred_calls_caller ON deferred_calls (caller);
