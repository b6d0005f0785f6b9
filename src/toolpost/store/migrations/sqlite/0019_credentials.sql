-- Credentials for servers, encrypted: `value` cannot be read without the key, which is kept elsewhere. An empty owner is shared.
CREATE TABLE credentials (
    server     TEXT NOT NULL,
    owner      TEXT NOT NULL,
    name       TEXT NOT NULL,
    changed_at REAL NOT NULL,
    value      BLOB NOT NULL,
    PRIMARY KEY (server, owner, name)
) WITHOUT ROWID;

-- Who is renewing a credential at this moment; one that was killed is forgotten by `until`.
CREATE TABLE credential_leases (
    server TEXT NOT NULL,
    owner  TEXT NOT NULL,
    name   TEXT NOT NULL,
    holder TEXT NOT NULL,
    until  REAL NOT NULL,
    PRIMARY KEY (server, owner, name)
) WITHOUT ROWID;

-- The tools that a server lists may depend on the credential with which it was asked; an empty owner is shared.
CREATE TABLE known_tools_by_owner (
    server      TEXT NOT NULL,
    seen_at     REAL NOT NULL,
    definitions TEXT NOT NULL,
    build       TEXT NOT NULL DEFAULT '',
    description TEXT NOT NULL DEFAULT '',
    owner       TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (server, owner)
);
INSERT INTO known_tools_by_owner (server, seen_at, definitions, build, description)
    SELECT server, seen_at, definitions, build, description FROM known_tools;
DROP TABLE known_tools;
ALTER TABLE known_tools_by_owner RENAME TO known_tools;
