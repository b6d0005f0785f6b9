-- Whose a worker is, and who ended a task. `owner` is the caller, a space, and a key that is one word.
ALTER TABLE bus_workers ADD COLUMN caller TEXT;
UPDATE bus_workers SET caller = rtrim(rtrim(owner, replace(owner, ' ', '')));
ALTER TABLE bus_archive ADD COLUMN ended_by TEXT;
