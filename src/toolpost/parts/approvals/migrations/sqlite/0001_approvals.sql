-- Rounds of voting, on calls of tools and on free proposals.
CREATE TABLE approval_rounds (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    subject_digest TEXT NOT NULL,
    shown TEXT NOT NULL,
    caller TEXT NOT NULL,
    tool TEXT,
    rule TEXT,
    voters TEXT NOT NULL,
    needed INTEGER NOT NULL,
    status TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    decided_at REAL,
    recorded_as TEXT,
    call_id TEXT,
    owner TEXT,
    owned_until REAL,
    ended_at REAL,
    outcome TEXT
);
CREATE INDEX approval_rounds_by_key ON approval_rounds (key, id);
CREATE INDEX approval_rounds_by_status ON approval_rounds (status, expires_at);

-- Two rows of one voter in one round are an equivocation, kept as evidence.
CREATE TABLE approval_votes (
    round INTEGER NOT NULL,
    voter TEXT NOT NULL,
    choice TEXT NOT NULL,
    signed_at TEXT NOT NULL,
    public_key TEXT NOT NULL,
    signature TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (round, voter, choice)
);

-- What was received from peers, and how far each of them and we have read.
CREATE TABLE approval_peer_events (
    peer TEXT NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    signature TEXT NOT NULL,
    received_at REAL NOT NULL,
    PRIMARY KEY (peer, id)
);
CREATE TABLE approval_peers (
    peer TEXT PRIMARY KEY,
    sent_round BIGINT NOT NULL,
    sent_vote_at REAL NOT NULL,
    fork TEXT
);
