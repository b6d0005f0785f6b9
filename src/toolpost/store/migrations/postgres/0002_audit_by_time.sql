-- Calls by time, with everything that figures about them are made of: an overview of the last hours reads this index alone. Entries
-- arrive nearly in its order, so that each is added at its end.
CREATE INDEX audit_by_time ON audit (at_utc, source, tool, outcome, code, duration_ms, caller, seq);
