-- Runs of the oldest records that were removed: the chain continues where the last of them ends.
CREATE TABLE audit_segments (
    first_seq BIGINT PRIMARY KEY,
    last_seq  BIGINT NOT NULL CHECK (last_seq >= first_seq),
    previous  TEXT COLLATE "C" NOT NULL,
    hash      TEXT COLLATE "C" NOT NULL,
    digest    TEXT COLLATE "C" NOT NULL,
    sealed_at DOUBLE PRECISION NOT NULL
);

-- What is in a segment may be removed, nothing else.
CREATE FUNCTION audit_is_sealed_first() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND OLD.seq <= coalesce((SELECT max(last_seq) FROM audit_segments), 0) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the audit is only ever added to';
END
$$;
DROP TRIGGER audit_is_never_changed ON audit;
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE OR DELETE ON audit
FOR EACH ROW EXECUTE FUNCTION audit_is_sealed_first();
