-- The administrator who cast a vote for its voter at the command line; NULL for a vote that its voter cast.
ALTER TABLE approval_votes ADD COLUMN cast_by TEXT;
