-- The tools of each server as they were first seen: what they are held to where no lock names them.
CREATE TABLE pins (
    server     TEXT COLLATE "C" NOT NULL,
    tool       TEXT COLLATE "C" NOT NULL,
    pinned_at  DOUBLE PRECISION NOT NULL,
    definition TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (server, tool)
);
