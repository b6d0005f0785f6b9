-- What the server said of itself when its tools were last seen: they are found by its words too, while it is down as well.
ALTER TABLE known_tools ADD COLUMN description TEXT NOT NULL DEFAULT '';
