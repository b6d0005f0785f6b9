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
    outcome TEXT,
    -- How large the contents are while nobody has voted; each caller has a limit for all of them together.
    unvoted_bytes INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX approval_rounds_by_key ON approval_rounds (key, id);
CREATE INDEX approval_rounds_by_status ON approval_rounds (status, expires_at);
CREATE INDEX approval_rounds_by_caller ON approval_rounds (caller, kind, created_at);
CREATE INDEX approval_rounds_by_unvoted_bytes ON approval_rounds (caller, unvoted_bytes);

-- Two rows of one voter in one round are an equivocation, kept as evidence. `seq` is the order of the commits: peers continue after
-- the last number that they have, which times cannot promise. `cast_by` is the administrator who cast a vote for its voter at the
-- command line.
CREATE TABLE approval_votes (
    round INTEGER NOT NULL,
    voter TEXT NOT NULL,
    choice TEXT NOT NULL,
    signed_at TEXT NOT NULL,
    public_key TEXT NOT NULL,
    signature TEXT NOT NULL,
    at REAL NOT NULL,
    seq INTEGER NOT NULL DEFAULT 0,
    cast_by TEXT,
    PRIMARY KEY (round, voter, choice)
);
CREATE INDEX approval_votes_by_seq ON approval_votes (seq);

-- Received from peers.
CREATE TABLE approval_peer_events (
    peer TEXT NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    signature TEXT NOT NULL,
    received_at REAL NOT NULL,
    PRIMARY KEY (peer, id)
);
CREATE INDEX approval_peer_events_by_age ON approval_peer_events (peer, kind, received_at);

-- How far each peer and we have sent and received: an exchange that either side starts continues from there.
CREATE TABLE approval_peers (
    peer TEXT PRIMARY KEY,
    sent_round INTEGER NOT NULL,
    sent_vote INTEGER NOT NULL,
    got_round INTEGER NOT NULL,
    got_vote INTEGER NOT NULL,
    fork TEXT
);
