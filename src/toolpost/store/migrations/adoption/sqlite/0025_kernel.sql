-- The rest of what differs from `0001_kernel.sql`.
ALTER TABLE shelf RENAME TO key_values;

ALTER TABLE deferred_calls RENAME TO mcp_tasks;
DROP INDEX deferred_calls_working;
DROP INDEX deferred_calls_expiry;
DROP INDEX deferred_calls_caller;
CREATE INDEX mcp_tasks_working ON mcp_tasks (owned_until) WHERE status = 'working';
CREATE INDEX mcp_tasks_expiry ON mcp_tasks (expires_at);
CREATE INDEX mcp_tasks_caller ON mcp_tasks (caller);

-- A store that no gateway has opened does not have it.
CREATE TABLE IF NOT EXISTS part_migrations (part, number, name, digest, applied_at);

-- With the types of columns that other tables have.
ALTER TABLE part_migrations RENAME TO earlier_part_migrations;
CREATE TABLE part_migrations (
    part       TEXT NOT NULL,
    number     INTEGER NOT NULL,
    name       TEXT NOT NULL,
    digest     TEXT NOT NULL,
    applied_at REAL NOT NULL,
    PRIMARY KEY (part, number)
);
INSERT INTO part_migrations SELECT part, number, name, digest, applied_at FROM earlier_part_migrations;
DROP TABLE earlier_part_migrations;
