-- Calls that outlive their requests (MCP tasks): who asked, who runs them until when, and what became of each.
CREATE TABLE deferred_calls (
    id             TEXT COLLATE "C" PRIMARY KEY,
    caller         TEXT COLLATE "C" NOT NULL,
    transport      TEXT COLLATE "C" NOT NULL,
    tool           TEXT COLLATE "C" NOT NULL,
    arguments      TEXT COLLATE "C",
    meta           TEXT COLLATE "C",
    is_repeatable  BIGINT NOT NULL,
    status         TEXT COLLATE "C" NOT NULL,
    status_message TEXT COLLATE "C",
    result         TEXT COLLATE "C",
    error          TEXT COLLATE "C",
    is_cancelled   BIGINT NOT NULL,
    attempts       BIGINT NOT NULL,
    owner          TEXT COLLATE "C" NOT NULL,
    owned_until    DOUBLE PRECISION NOT NULL,
    created_at     DOUBLE PRECISION NOT NULL,
    updated_at     DOUBLE PRECISION NOT NULL,
    expires_at     DOUBLE PRECISION NOT NULL
);
CREATE INDEX deferred_calls_working ON deferred_calls (owned_until) WHERE status = 'working';
CREATE INDEX deferred_calls_expiry ON deferred_calls (expires_at);
CREATE INDEX deferred_calls_caller ON deferred_calls (caller);
