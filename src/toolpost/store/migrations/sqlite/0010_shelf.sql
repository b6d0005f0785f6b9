-- What plugins keep for each caller: a value under a name.
CREATE TABLE shelf (
    plugin     TEXT NOT NULL,
    owner      TEXT NOT NULL,
    id         TEXT NOT NULL,
    changed_at REAL NOT NULL,
    value      TEXT NOT NULL,
    PRIMARY KEY (plugin, owner, id)
);
