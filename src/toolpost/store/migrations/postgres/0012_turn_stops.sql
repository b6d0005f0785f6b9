-- What somebody at another process has asked for: that a turn stops (`turn`), or all turns of its thread (`thread`).
ALTER TABLE thread_turns ADD COLUMN stop_asked TEXT COLLATE "C";
