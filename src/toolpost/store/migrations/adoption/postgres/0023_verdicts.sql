-- What was found out about the definitions of a server, by digest: at the next start nothing is found out again.
CREATE TABLE verdicts (
    server TEXT COLLATE "C" NOT NULL,
    kind   TEXT COLLATE "C" NOT NULL,
    rules  TEXT COLLATE "C" NOT NULL,
    found  TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (server, kind)
);
