-- The record of every call. The columns are in the order in which they are hashed.
CREATE TABLE audit (
    seq             INTEGER PRIMARY KEY,
    at_utc          TEXT NOT NULL,
    call_id         TEXT NOT NULL,
    trace_id        TEXT NOT NULL,
    caller          TEXT NOT NULL,
    tool            TEXT NOT NULL,
    source          TEXT NOT NULL,
    contract        TEXT NOT NULL,
    schema_version  INTEGER NOT NULL,
    tooling_version TEXT NOT NULL,
    arguments       TEXT NOT NULL,
    outcome         TEXT NOT NULL,
    code            TEXT,
    -- Infinity is hashed as null, and could not be told from it.
    duration_ms     REAL NOT NULL CHECK (duration_ms BETWEEN 0 AND 1e15),
    result          TEXT,
    previous        TEXT NOT NULL,
    hash            TEXT NOT NULL
);

-- An error message names the call; a search for it must not read all records.
CREATE INDEX audit_call_id ON audit (call_id);

-- The newest record, written with it: a tail that was cut off is missing here.
CREATE TABLE audit_head (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    seq  INTEGER NOT NULL,
    hash TEXT NOT NULL
);
INSERT INTO audit_head (one, seq, hash)
VALUES (1, 0, 'sha256:0000000000000000000000000000000000000000000000000000000000000000');

-- Runs of the oldest records that were removed: the chain continues where the last of them ends.
CREATE TABLE audit_segments (
    first_seq INTEGER PRIMARY KEY,
    last_seq  INTEGER NOT NULL CHECK (last_seq >= first_seq),
    previous  TEXT NOT NULL,
    hash      TEXT NOT NULL,
    digest    TEXT NOT NULL,
    sealed_at REAL NOT NULL
);

-- Only records of a segment may be removed. This protects from accidents; the chain is the proof.
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit is only ever added to');
END;
CREATE TRIGGER audit_is_never_deleted BEFORE DELETE ON audit
WHEN OLD.seq > coalesce((SELECT max(last_seq) FROM audit_segments), 0)
BEGIN
    SELECT RAISE(ABORT, 'the audit is only ever added to');
END;

-- How far each destination has the audit. One gateway delivers at a time: it holds the row until `held_until`.
CREATE TABLE export_cursors (
    name       TEXT PRIMARY KEY,
    seq        INTEGER NOT NULL,
    hash       TEXT NOT NULL,
    holder     TEXT,
    held_until REAL NOT NULL
);

-- Arguments and results of calls that were selected for review; the audit itself has digests.
CREATE TABLE audit_contents (
    call_id    TEXT PRIMARY KEY,
    kept_at    REAL NOT NULL,
    epoch      TEXT NOT NULL,
    sample     REAL NOT NULL,
    proof      TEXT NOT NULL,
    public_key TEXT NOT NULL,
    arguments  TEXT NOT NULL,
    result     TEXT
);
CREATE INDEX audit_contents_by_age ON audit_contents (kept_at);

-- The tools of each server as they were last listed, so that they are listed and found while it is down. What a server lists
-- may depend on the credential that it was asked with: `owner` is whose that was, empty for a shared one. `offers` is JSON: the
-- server's instructions, and the extensions that it declares.
CREATE TABLE known_tools (
    server      TEXT NOT NULL,
    seen_at     REAL NOT NULL,
    definitions TEXT NOT NULL,
    build       TEXT NOT NULL DEFAULT '',
    description TEXT NOT NULL DEFAULT '',
    owner       TEXT NOT NULL DEFAULT '',
    offers      TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (server, owner)
);

-- The tools of each server as they were first listed: their contracts where no lock names them. `seen_at` is when the server last
-- listed a tool: of a server that renames its tools again and again only the newest are stored.
CREATE TABLE pins (
    server     TEXT NOT NULL,
    tool       TEXT NOT NULL,
    pinned_at  REAL NOT NULL,
    definition TEXT NOT NULL,
    seen_at    REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (server, tool)
);

-- Verdicts about the definitions of a server, by digest, so that the next start need not judge them again.
CREATE TABLE verdicts (
    server TEXT NOT NULL,
    kind   TEXT NOT NULL,
    rules  TEXT NOT NULL,
    found  TEXT NOT NULL,
    PRIMARY KEY (server, kind)
);

-- The definitions that each session was sent: digests by the names of tools, as one JSON object.
CREATE TABLE seen_tools (
    caller  TEXT NOT NULL,
    session TEXT NOT NULL,
    used_at REAL NOT NULL,
    tools   TEXT NOT NULL,
    PRIMARY KEY (caller, session)
);
CREATE INDEX seen_tools_used_at ON seen_tools (used_at);
CREATE INDEX seen_tools_of_caller ON seen_tools (caller, used_at);

-- Credentials for servers, encrypted: `value` cannot be read without the key, which is stored elsewhere. An empty owner is shared.
CREATE TABLE credentials (
    server     TEXT NOT NULL,
    owner      TEXT NOT NULL,
    name       TEXT NOT NULL,
    changed_at REAL NOT NULL,
    value      BLOB NOT NULL,
    PRIMARY KEY (server, owner, name)
) WITHOUT ROWID;

-- The gateway that renews a credential at this moment; after `until` another may, because the first was killed.
CREATE TABLE credential_leases (
    server TEXT NOT NULL,
    owner  TEXT NOT NULL,
    name   TEXT NOT NULL,
    holder TEXT NOT NULL,
    until  REAL NOT NULL,
    PRIMARY KEY (server, owner, name)
) WITHOUT ROWID;

-- Random secrets that the gateways of one store share, made by the first gateway that needs one.
CREATE TABLE keys (
    name    TEXT PRIMARY KEY,
    made_at REAL NOT NULL,
    secret  BLOB NOT NULL
);

-- Small values of plugins for each caller, by name.
CREATE TABLE key_values (
    plugin     TEXT NOT NULL,
    owner      TEXT NOT NULL,
    id         TEXT NOT NULL,
    changed_at REAL NOT NULL,
    value      TEXT NOT NULL,
    PRIMARY KEY (plugin, owner, id)
);

-- Calls that outlive their requests (MCP tasks): the caller, the process that runs it and until when, and the outcome.
CREATE TABLE mcp_tasks (
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
CREATE INDEX mcp_tasks_working ON mcp_tasks (owned_until) WHERE status = 'working';
CREATE INDEX mcp_tasks_expiry ON mcp_tasks (expires_at);
CREATE INDEX mcp_tasks_caller ON mcp_tasks (caller);

-- The difference between the store's time and the wall clock, since a jump of the latter; one row.
CREATE TABLE store_clock (epoch TEXT NOT NULL, seconds REAL NOT NULL);
INSERT INTO store_clock (epoch, seconds) VALUES ('', 0);

-- Migrations of parts: their tables are their own.
CREATE TABLE part_migrations (
    part       TEXT NOT NULL,
    number     INTEGER NOT NULL,
    name       TEXT NOT NULL,
    digest     TEXT NOT NULL,
    applied_at REAL NOT NULL,
    PRIMARY KEY (part, number)
);
