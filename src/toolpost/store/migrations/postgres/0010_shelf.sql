-- What plugins keep for each caller: a value under a name.
CREATE TABLE shelf (
    plugin     TEXT COLLATE "C" NOT NULL,
    owner      TEXT COLLATE "C" NOT NULL,
    id         TEXT COLLATE "C" NOT NULL,
    changed_at DOUBLE PRECISION NOT NULL,
    value      TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (plugin, owner, id)
);
