-- When the records of a finalized session were removed; its header, root, size and signature stay.
ALTER TABLE trail_sessions ADD COLUMN removed_at TEXT;

DROP TRIGGER trail_records_are_never_deleted;
CREATE TRIGGER trail_records_are_never_deleted BEFORE DELETE ON trail_records
WHEN NOT EXISTS (SELECT 1 FROM trail_sessions WHERE number = OLD.session AND seal IS NOT NULL AND removed_at IS NOT NULL)
BEGIN
    SELECT RAISE(ABORT, 'the trail is only ever added to');
END;
