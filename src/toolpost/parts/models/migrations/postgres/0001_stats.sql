-- What became of the attempts on each model, since its first. Latencies of successes are counted by bucket (stats.py).
CREATE TABLE models_stats (
    name TEXT PRIMARY KEY, attempts BIGINT NOT NULL, failures BIGINT NOT NULL, input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL, cost DOUBLE PRECISION NOT NULL, last_at DOUBLE PRECISION NOT NULL
);
CREATE TABLE models_latencies (
    name TEXT NOT NULL, bucket BIGINT NOT NULL, attempts BIGINT NOT NULL, PRIMARY KEY (name, bucket)
);
-- Batches that were added, so that none is added twice; forgotten after a day.
CREATE TABLE models_batches (id TEXT PRIMARY KEY, at DOUBLE PRECISION NOT NULL);
