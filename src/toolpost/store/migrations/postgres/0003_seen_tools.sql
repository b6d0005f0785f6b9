-- What each session has been sent: the digests of definitions by the names of tools, as one JSON object.
CREATE TABLE seen_tools (
    caller  TEXT COLLATE "C" NOT NULL,
    session TEXT COLLATE "C" NOT NULL,
    used_at DOUBLE PRECISION NOT NULL,
    tools   TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (caller, session)
);
CREATE INDEX seen_tools_used_at ON seen_tools (used_at);
CREATE INDEX seen_tools_of_caller ON seen_tools (caller, used_at);
