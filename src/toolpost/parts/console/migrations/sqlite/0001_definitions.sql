CREATE TABLE console_definitions (
    tool TEXT NOT NULL, number INTEGER NOT NULL, seen_at REAL NOT NULL, digest TEXT NOT NULL, definition TEXT NOT NULL,
    PRIMARY KEY (tool, number)
);
