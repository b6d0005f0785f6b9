-- When the records of a finalized session were removed; its header, root, size and signature stay.
ALTER TABLE trail_sessions ADD COLUMN removed_at TEXT COLLATE "C";

CREATE OR REPLACE FUNCTION trail_is_only_added_to() RETURNS trigger LANGUAGE plpgsql AS
'BEGIN
    IF TG_OP = ''DELETE'' AND EXISTS (
        SELECT 1 FROM trail_sessions WHERE number = OLD.session AND seal IS NOT NULL AND removed_at IS NOT NULL
    ) THEN RETURN OLD; END IF; RAISE EXCEPTION ''the trail is only ever added to''; END';
