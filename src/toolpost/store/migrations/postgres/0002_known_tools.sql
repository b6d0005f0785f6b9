-- The tools of each server as they were last seen, so that lists work while it is down.
CREATE TABLE known_tools (
    server      TEXT COLLATE "C" PRIMARY KEY,
    seen_at     DOUBLE PRECISION NOT NULL,
    definitions TEXT COLLATE "C" NOT NULL
);
