-- The record of every call. The columns are in the order in which they are hashed. Texts compare by their bytes,
-- as in SQLite.
CREATE TABLE audit (
    seq             BIGINT PRIMARY KEY,
    at_utc          TEXT COLLATE "C" NOT NULL,
    call_id         TEXT COLLATE "C" NOT NULL,
    trace_id        TEXT COLLATE "C" NOT NULL,
    caller          TEXT COLLATE "C" NOT NULL,
    tool            TEXT COLLATE "C" NOT NULL,
    source          TEXT COLLATE "C" NOT NULL,
    contract        TEXT COLLATE "C" NOT NULL,
    schema_version  BIGINT NOT NULL,
    tooling_version TEXT COLLATE "C" NOT NULL,
    arguments       TEXT COLLATE "C" NOT NULL,
    outcome         TEXT COLLATE "C" NOT NULL,
    code            TEXT COLLATE "C",
    -- Infinity is hashed as null, and could not be told from it.
    duration_ms     DOUBLE PRECISION NOT NULL CHECK (duration_ms BETWEEN 0 AND 1e15),
    result          TEXT COLLATE "C",
    previous        TEXT COLLATE "C" NOT NULL,
    hash            TEXT COLLATE "C" NOT NULL
);

-- An error message names the call; a search for it must not read all records.
CREATE INDEX audit_call_id ON audit (call_id);

-- The newest record, written with it: a tail that was cut off is missing here.
-- Half of each page stays free: the row is rewritten at every commit, and stays where it is.
CREATE TABLE audit_head (
    one  BIGINT PRIMARY KEY CHECK (one = 1),
    seq  BIGINT NOT NULL,
    hash TEXT COLLATE "C" NOT NULL
) WITH (fillfactor = 50);
INSERT INTO audit_head (one, seq, hash)
VALUES (1, 0, 'sha256:0000000000000000000000000000000000000000000000000000000000000000');

-- Runs of the oldest records that were removed: the chain continues where the last of them ends.
CREATE TABLE audit_segments (
    first_seq BIGINT PRIMARY KEY,
    last_seq  BIGINT NOT NULL CHECK (last_seq >= first_seq),
    previous  TEXT COLLATE "C" NOT NULL,
    hash      TEXT COLLATE "C" NOT NULL,
    digest    TEXT COLLATE "C" NOT NULL,
    sealed_at DOUBLE PRECISION NOT NULL
);

-- Only records of a segment may be removed. This protects from accidents; the chain is the proof.
CREATE FUNCTION audit_is_only_added_to() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit is only ever added to';
END
$$;
CREATE TRIGGER audit_is_never_emptied BEFORE TRUNCATE ON audit
FOR EACH STATEMENT EXECUTE FUNCTION audit_is_only_added_to();
CREATE FUNCTION audit_is_sealed_first() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND OLD.seq <= coalesce((SELECT max(last_seq) FROM audit_segments), 0) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the audit is only ever added to';
END
$$;
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE OR DELETE ON audit
FOR EACH ROW EXECUTE FUNCTION audit_is_sealed_first();

-- How far each destination has the audit. One gateway delivers at a time: it holds the row until `held_until`.
CREATE TABLE export_cursors (
    name       TEXT PRIMARY KEY,
    seq        BIGINT NOT NULL,
    hash       TEXT NOT NULL,
    holder     TEXT,
    held_until DOUBLE PRECISION NOT NULL
);

-- Arguments and results of calls that were selected for review; the audit itself has digests.
CREATE TABLE audit_contents (
    call_id    TEXT PRIMARY KEY,
    kept_at    DOUBLE PRECISION NOT NULL,
    epoch      TEXT NOT NULL,
    sample     DOUBLE PRECISION NOT NULL,
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
    server      TEXT COLLATE "C" NOT NULL,
    seen_at     DOUBLE PRECISION NOT NULL,
    definitions TEXT COLLATE "C" NOT NULL,
    build       TEXT COLLATE "C" NOT NULL DEFAULT '',
    description TEXT COLLATE "C" NOT NULL DEFAULT '',
    owner       TEXT COLLATE "C" NOT NULL DEFAULT '',
    offers      TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    PRIMARY KEY (server, owner)
);

-- The tools of each server as they were first listed: their contracts where no lock names them. `seen_at` is when the server last
-- listed a tool: of a server that renames its tools again and again only the newest are stored.
CREATE TABLE pins (
    server     TEXT COLLATE "C" NOT NULL,
    tool       TEXT COLLATE "C" NOT NULL,
    pinned_at  DOUBLE PRECISION NOT NULL,
    definition TEXT COLLATE "C" NOT NULL,
    seen_at    DOUBLE PRECISION NOT NULL DEFAULT 0,
    PRIMARY KEY (server, tool)
);

-- Verdicts about the definitions of a server, by digest, so that the next start need not judge them again.
CREATE TABLE verdicts (
    server TEXT COLLATE "C" NOT NULL,
    kind   TEXT COLLATE "C" NOT NULL,
    rules  TEXT COLLATE "C" NOT NULL,
    found  TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (server, kind)
);

-- The definitions that each session was sent: digests by the names of tools, as one JSON object.
CREATE TABLE seen_tools (
    caller  TEXT COLLATE "C" NOT NULL,
    session TEXT COLLATE "C" NOT NULL,
    used_at DOUBLE PRECISION NOT NULL,
    tools   TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (caller, session)
);
CREATE INDEX seen_tools_used_at ON seen_tools (used_at);
CREATE INDEX seen_tools_of_caller ON seen_tools (caller, used_at);

-- Credentials for servers, encrypted: `value` cannot be read without the key, which is stored elsewhere. An empty owner is shared.
CREATE TABLE credentials (
    server     TEXT COLLATE "C" NOT NULL,
    owner      TEXT COLLATE "C" NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    changed_at DOUBLE PRECISION NOT NULL,
    value      BYTEA NOT NULL,
    PRIMARY KEY (server, owner, name)
);

-- The gateway that renews a credential at this moment; after `until` another may, because the first was killed.
CREATE TABLE credential_leases (
    server TEXT COLLATE "C" NOT NULL,
    owner  TEXT COLLATE "C" NOT NULL,
    name   TEXT COLLATE "C" NOT NULL,
    holder TEXT COLLATE "C" NOT NULL,
    until  DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (server, owner, name)
);

-- Random secrets that the gateways of one store share, made by the first gateway that needs one.
CREATE TABLE keys (
    name    TEXT COLLATE "C" PRIMARY KEY,
    made_at DOUBLE PRECISION NOT NULL,
    secret  BYTEA NOT NULL
);

-- Small values of plugins for each caller, by name.
CREATE TABLE key_values (
    plugin     TEXT COLLATE "C" NOT NULL,
    owner      TEXT COLLATE "C" NOT NULL,
    id         TEXT COLLATE "C" NOT NULL,
    changed_at DOUBLE PRECISION NOT NULL,
    value      TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (plugin, owner, id)
);

-- Calls that outlive their requests (MCP tasks): the caller, the process that runs it and until when, and the outcome.
CREATE TABLE mcp_tasks (
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
CREATE INDEX mcp_tasks_working ON mcp_tasks (owned_until) WHERE status = 'working';
CREATE INDEX mcp_tasks_expiry ON mcp_tasks (expires_at);
CREATE INDEX mcp_tasks_caller ON mcp_tasks (caller);

-- The difference between the store's time and the wall clock, since a jump of the latter; one row.
CREATE TABLE store_clock (epoch TEXT COLLATE "C" NOT NULL, seconds DOUBLE PRECISION NOT NULL);
INSERT INTO store_clock (epoch, seconds) VALUES ('', 0);

-- Migrations of parts: their tables are their own.
CREATE TABLE part_migrations (
    part       TEXT NOT NULL,
    number     BIGINT NOT NULL,
    name       TEXT NOT NULL,
    digest     TEXT NOT NULL,
    applied_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (part, number)
);
