-- Who is free, and for how long: found without looking at those who are not.
CREATE INDEX bus_workers_free ON bus_workers (idle_since, name) WHERE task IS NULL;
