-- The instructions of the server and the extensions that it declares, as JSON: clients are told of them while it is down as well.
ALTER TABLE known_tools ADD COLUMN offers TEXT COLLATE "C" NOT NULL DEFAULT '{}';
