-- How many proposals a caller has opened within a day is counted with each new one.
CREATE INDEX approval_rounds_by_caller ON approval_rounds (caller, kind, created_at);
