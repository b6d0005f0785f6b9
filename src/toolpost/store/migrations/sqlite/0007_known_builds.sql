-- Which version the server gave itself when its tools were last seen: each of them is listed with it.
ALTER TABLE known_tools ADD COLUMN build TEXT NOT NULL DEFAULT '';
