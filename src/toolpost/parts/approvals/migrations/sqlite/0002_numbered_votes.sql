-- Votes are numbered in the order of their commits: peers go on after the last number that they have, which times cannot promise.
ALTER TABLE approval_votes ADD COLUMN seq INTEGER NOT NULL DEFAULT 0;
UPDATE approval_votes SET seq = rowid;
CREATE INDEX approval_votes_by_seq ON approval_votes (seq);

-- What was sent and what was received: an exchange that either side starts goes on from there.
CREATE TABLE approval_peers_new (
    peer TEXT PRIMARY KEY,
    sent_round INTEGER NOT NULL,
    sent_vote INTEGER NOT NULL,
    got_round INTEGER NOT NULL,
    got_vote INTEGER NOT NULL,
    fork TEXT
);
INSERT INTO approval_peers_new SELECT peer, sent_round, 0, 0, 0, fork FROM approval_peers;
DROP TABLE approval_peers;
ALTER TABLE approval_peers_new RENAME TO approval_peers;
CREATE INDEX approval_peer_events_by_age ON approval_peer_events (peer, kind, received_at);
