CREATE TABLE console_definitions (
    tool TEXT COLLATE "C" NOT NULL, number BIGINT NOT NULL, seen_at DOUBLE PRECISION NOT NULL, digest TEXT COLLATE "C" NOT NULL,
    definition TEXT COLLATE "C" NOT NULL, PRIMARY KEY (tool, number)
);
