-- Secrets that gateways of one store share; random, made by whoever needs one first.
CREATE TABLE keys (
    name    TEXT COLLATE "C" PRIMARY KEY,
    made_at DOUBLE PRECISION NOT NULL,
    secret  BYTEA NOT NULL
);
