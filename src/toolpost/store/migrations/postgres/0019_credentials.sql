-- Credentials for servers, encrypted: `value` cannot be read without the key, which is kept elsewhere. An empty owner is shared.
CREATE TABLE credentials (
    server     TEXT COLLATE "C" NOT NULL,
    owner      TEXT COLLATE "C" NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    changed_at DOUBLE PRECISION NOT NULL,
    value      BYTEA NOT NULL,
    PRIMARY KEY (server, owner, name)
);

-- Who is renewing a credential at this moment; one that was killed is forgotten by `until`.
CREATE TABLE credential_leases (
    server TEXT COLLATE "C" NOT NULL,
    owner  TEXT COLLATE "C" NOT NULL,
    name   TEXT COLLATE "C" NOT NULL,
    holder TEXT COLLATE "C" NOT NULL,
    until  DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (server, owner, name)
);

-- The tools that a server lists may depend on the credential with which it was asked; an empty owner is shared.
ALTER TABLE known_tools ADD COLUMN owner TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE known_tools DROP CONSTRAINT known_tools_pkey;
ALTER TABLE known_tools ADD PRIMARY KEY (server, owner);
