-- How large the contents of a round are that nobody has voted in; each caller has a limit for all of them together.
ALTER TABLE approval_rounds ADD COLUMN unvoted_bytes INTEGER NOT NULL DEFAULT 0;
CREATE INDEX approval_rounds_by_unvoted_bytes ON approval_rounds (caller, unvoted_bytes);
