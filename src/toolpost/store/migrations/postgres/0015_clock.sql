-- By how much the store's time differs from the wall clock's, since a jump of the latter; one row.
CREATE TABLE store_clock (epoch TEXT COLLATE "C" NOT NULL, seconds DOUBLE PRECISION NOT NULL);
INSERT INTO store_clock (epoch, seconds) VALUES ('', 0);
