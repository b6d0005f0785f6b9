-- What was found out about the definitions of a server, by digest: at the next start nothing is found out again.
CREATE TABLE verdicts (
    server TEXT NOT NULL,
    kind   TEXT NOT NULL,
    rules  TEXT NOT NULL,
    found  TEXT NOT NULL,
    PRIMARY KEY (server, kind)
);
