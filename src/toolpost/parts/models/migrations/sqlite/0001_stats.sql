-- What became of the attempts on each model, since its first. Latencies of successes are counted by bucket (stats.py).
CREATE TABLE models_stats (
    name TEXT PRIMARY KEY, attempts INTEGER NOT NULL, failures INTEGER NOT NULL, input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL, cost REAL NOT NULL, last_at REAL NOT NULL
);
CREATE TABLE models_latencies (
    name TEXT NOT NULL, bucket INTEGER NOT NULL, attempts INTEGER NOT NULL, PRIMARY KEY (name, bucket)
);
-- Batches that were added, so that none is added twice; forgotten after a day.
CREATE TABLE models_batches (id TEXT PRIMARY KEY, at REAL NOT NULL);
