-- Votes are numbered in the order of their commits: peers go on after the last number that they have, which times cannot promise.
ALTER TABLE approval_votes ADD COLUMN seq BIGINT NOT NULL DEFAULT 0;
UPDATE approval_votes SET seq = numbered.seq
FROM (SELECT round, voter, choice, row_number() OVER (ORDER BY at, round, voter, choice) AS seq FROM approval_votes) AS numbered
WHERE approval_votes.round = numbered.round AND approval_votes.voter = numbered.voter AND approval_votes.choice = numbered.choice;
CREATE INDEX approval_votes_by_seq ON approval_votes (seq);

-- What was sent and what was received: an exchange that either side starts goes on from there.
CREATE TABLE approval_peers_new (
    peer TEXT PRIMARY KEY,
    sent_round BIGINT NOT NULL,
    sent_vote BIGINT NOT NULL,
    got_round BIGINT NOT NULL,
    got_vote BIGINT NOT NULL,
    fork TEXT
);
INSERT INTO approval_peers_new SELECT peer, sent_round, 0, 0, 0, fork FROM approval_peers;
DROP TABLE approval_peers;
ALTER TABLE approval_peers_new RENAME TO approval_peers;
CREATE INDEX approval_peer_events_by_age ON approval_peer_events (peer, kind, received_at);
