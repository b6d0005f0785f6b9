-- Conversations: the caller, the agent that answers, and the agent's name for the session that it last had for each.
CREATE TABLE threads (
    id              TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    caller          TEXT COLLATE "C" NOT NULL,
    title           TEXT COLLATE "C" NOT NULL,
    agent           TEXT COLLATE "C",
    model           TEXT COLLATE "C",
    created_at      DOUBLE PRECISION NOT NULL,
    changed_at      DOUBLE PRECISION NOT NULL,
    last_seq        BIGINT NOT NULL,
    session         TEXT COLLATE "C",
    session_profile TEXT COLLATE "C",
    session_told    BIGINT NOT NULL
);
CREATE INDEX threads_of_caller ON threads (caller, changed_at);

-- Their messages. Numbers count from 1 in each thread; details are a JSON object.
CREATE TABLE thread_messages (
    thread  TEXT COLLATE "C" NOT NULL,
    seq     BIGINT NOT NULL,
    turn    TEXT COLLATE "C" NOT NULL,
    role    TEXT COLLATE "C" NOT NULL,
    text    TEXT COLLATE "C" NOT NULL,
    at_utc  DOUBLE PRECISION NOT NULL,
    details TEXT COLLATE "C",
    PRIMARY KEY (thread, seq)
);
CREATE INDEX thread_messages_of_turn ON thread_messages (turn);

-- One row for each answer. `partial` is as much of it as had arrived at `alive_at`. Another process asks it to stop by
-- `stop_asked`: `turn`, or `thread` for all turns of the thread.
CREATE TABLE thread_turns (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    thread     TEXT COLLATE "C" NOT NULL,
    state      TEXT COLLATE "C" NOT NULL,
    trace_id   TEXT COLLATE "C" NOT NULL,
    runner     TEXT COLLATE "C" NOT NULL,
    started_at DOUBLE PRECISION NOT NULL,
    alive_at   DOUBLE PRECISION NOT NULL,
    ended_at   DOUBLE PRECISION,
    partial    TEXT COLLATE "C" NOT NULL,
    error      TEXT COLLATE "C",
    stop_asked TEXT COLLATE "C"
);
CREATE INDEX thread_turns_of_thread ON thread_turns (thread, started_at);
CREATE INDEX thread_turns_running ON thread_turns (state, alive_at);
