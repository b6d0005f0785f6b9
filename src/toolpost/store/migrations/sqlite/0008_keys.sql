-- Secrets that gateways of one store share; random, made by whoever needs one first.
CREATE TABLE keys (
    name    TEXT PRIMARY KEY,
    made_at REAL NOT NULL,
    secret  BLOB NOT NULL
);
