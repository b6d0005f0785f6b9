-- The rest of what differs from `0001_kernel.sql`.
ALTER TABLE shelf RENAME TO key_values;
ALTER INDEX shelf_pkey RENAME TO key_values_pkey;

ALTER TABLE deferred_calls RENAME TO mcp_tasks;
ALTER INDEX deferred_calls_pkey RENAME TO mcp_tasks_pkey;
ALTER INDEX deferred_calls_working RENAME TO mcp_tasks_working;
ALTER INDEX deferred_calls_expiry RENAME TO mcp_tasks_expiry;
ALTER INDEX deferred_calls_caller RENAME TO mcp_tasks_caller;

-- Of a table that was made under another name.
ALTER INDEX IF EXISTS approval_peers_new_pkey RENAME TO approval_peers_pkey;

-- A store that no gateway has opened does not have it.
CREATE TABLE IF NOT EXISTS part_migrations (
    part       TEXT NOT NULL,
    number     BIGINT NOT NULL,
    name       TEXT NOT NULL,
    digest     TEXT NOT NULL,
    applied_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (part, number)
);
