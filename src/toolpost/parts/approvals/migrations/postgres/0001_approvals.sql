-- Rounds of voting, on calls of tools and on free proposals.
CREATE TABLE approval_rounds (
    id BIGINT PRIMARY KEY,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    subject_digest TEXT NOT NULL,
    shown TEXT NOT NULL,
    caller TEXT NOT NULL,
    tool TEXT,
    rule TEXT,
    voters TEXT NOT NULL,
    needed BIGINT NOT NULL,
    status TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    decided_at DOUBLE PRECISION,
    recorded_as TEXT,
    call_id TEXT,
    owner TEXT,
    owned_until DOUBLE PRECISION,
    ended_at DOUBLE PRECISION,
    outcome TEXT
);
CREATE INDEX approval_rounds_by_key ON approval_rounds (key, id);
CREATE INDEX approval_rounds_by_status ON approval_rounds (status, expires_at);

-- Two rows of one voter in one round are an equivocation, kept as evidence.
CREATE TABLE approval_votes (
    round BIGINT NOT NULL,
    voter TEXT NOT NULL,
    choice TEXT NOT NULL,
    signed_at TEXT NOT NULL,
    public_key TEXT NOT NULL,
    signature TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (round, voter, choice)
);

-- What was received from peers, and how far each of them and we have read.
CREATE TABLE approval_peer_events (
    peer TEXT NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    signature TEXT NOT NULL,
    received_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (peer, id)
);
CREATE TABLE approval_peers (
    peer TEXT PRIMARY KEY,
    sent_round BIGINT NOT NULL,
    sent_vote_at DOUBLE PRECISION NOT NULL,
    fork TEXT
);
