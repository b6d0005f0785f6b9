-- Conversations: the caller, the agent that answers, and the agent's name for the session that it last had for each.
CREATE TABLE threads (
    id              TEXT NOT NULL PRIMARY KEY,
    caller          TEXT NOT NULL,
    title           TEXT NOT NULL,
    agent           TEXT,
    model           TEXT,
    created_at      REAL NOT NULL,
    changed_at      REAL NOT NULL,
    last_seq        INTEGER NOT NULL,
    session         TEXT,
    session_profile TEXT,
    session_told    INTEGER NOT NULL
);
CREATE INDEX threads_of_caller ON threads (caller, changed_at);

-- Their messages. Numbers count from 1 in each thread; details are a JSON object.
CREATE TABLE thread_messages (
    thread  TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    turn    TEXT NOT NULL,
    role    TEXT NOT NULL,
    text    TEXT NOT NULL,
    at_utc  REAL NOT NULL,
    details TEXT,
    PRIMARY KEY (thread, seq)
);
CREATE INDEX thread_messages_of_turn ON thread_messages (turn);

-- One row for each answer. `partial` is as much of it as had arrived at `alive_at`. Another process asks it to stop by
-- `stop_asked`: `turn`, or `thread` for all turns of the thread.
CREATE TABLE thread_turns (
    id         TEXT NOT NULL PRIMARY KEY,
    thread     TEXT NOT NULL,
    state      TEXT NOT NULL,
    trace_id   TEXT NOT NULL,
    runner     TEXT NOT NULL,
    started_at REAL NOT NULL,
    alive_at   REAL NOT NULL,
    ended_at   REAL,
    partial    TEXT NOT NULL,
    error      TEXT,
    stop_asked TEXT
);
CREATE INDEX thread_turns_of_thread ON thread_turns (thread, started_at);
CREATE INDEX thread_turns_running ON thread_turns (state, alive_at);
