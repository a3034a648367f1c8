-- SPDX-License-Identifier: Apache-2.0
-- What Yoked keeps. Every table that a request adds to can be counted: one row is one effect. Nothing here is unique
-- but ids and what the contract itself upserts, so nothing but the gateway keeps a request from happening twice.

CREATE TABLE users (
    id TEXT PRIMARY KEY,
    phone TEXT NOT NULL UNIQUE,
    display_name TEXT,
    bio TEXT,
    updated_at TEXT NOT NULL
);

-- The contract's upsert: last write wins.
CREATE TABLE user_preferences (
    user_id TEXT NOT NULL REFERENCES users,
    preference TEXT NOT NULL,
    value TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (user_id, preference)
);

-- Signing in.
CREATE TABLE otp_requests (id TEXT PRIMARY KEY, phone TEXT NOT NULL, code TEXT NOT NULL, created_at TEXT NOT NULL);
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users,
    otp_request_id TEXT NOT NULL REFERENCES otp_requests,
    created_at TEXT NOT NULL,
    revoked_at TEXT
);
CREATE TABLE refresh_tokens (
    sha256 TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions,
    issued_at TEXT NOT NULL
);
CREATE TABLE token_refreshes (session_id TEXT NOT NULL REFERENCES sessions, at TEXT NOT NULL);
CREATE TABLE logouts (session_id TEXT NOT NULL REFERENCES sessions, at TEXT NOT NULL);

-- Profiles.
CREATE TABLE photos (
    id TEXT PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users,
    sha256 TEXT NOT NULL,
    content BLOB NOT NULL,
    created_at TEXT NOT NULL
);
CREATE TABLE photo_deletions (photo_id TEXT NOT NULL, user_id TEXT NOT NULL REFERENCES users, at TEXT NOT NULL);
CREATE TABLE compatibility_responses (
    user_id TEXT NOT NULL REFERENCES users,
    question TEXT NOT NULL,
    response TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (user_id, question)
);
-- Scoring a user against everyone else is dear: it should happen once for each time that responses are sent.
CREATE TABLE compatibility_runs (id TEXT PRIMARY KEY, user_id TEXT NOT NULL REFERENCES users, at TEXT NOT NULL);
CREATE TABLE verification_sessions (id TEXT PRIMARY KEY, user_id TEXT NOT NULL REFERENCES users, at TEXT NOT NULL);

-- Two offers of one pair mirror each other: each is one person's to decide.
CREATE TABLE match_offers (
    id TEXT PRIMARY KEY,
    pair_id TEXT NOT NULL,
    user_id TEXT NOT NULL REFERENCES users,
    counterpart_id TEXT NOT NULL REFERENCES users,
    status TEXT NOT NULL DEFAULT 'offered' CHECK (status IN ('offered', 'accepted', 'passed', 'not_now', 'matched')),
    decided_at TEXT,
    batch_date TEXT -- of the job that made it; NULL: none did
);
-- generate_daily_offers (jobs/): the row of each user, day and time zone.
CREATE TABLE matchmaking_jobs (
    batch_date TEXT NOT NULL,
    timezone TEXT NOT NULL,
    user_id TEXT NOT NULL REFERENCES users,
    job_type TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('running', 'completed')),
    attempt_count INTEGER NOT NULL DEFAULT 1,
    offers TEXT,
    idempotency_key TEXT NOT NULL,
    UNIQUE (batch_date, timezone, user_id, job_type)
);
CREATE TABLE offer_actions (
    offer_id TEXT NOT NULL REFERENCES match_offers,
    action TEXT NOT NULL,
    status TEXT NOT NULL,
    at TEXT NOT NULL
);
CREATE TABLE matches (
    id TEXT PRIMARY KEY,
    pair_id TEXT NOT NULL,
    user_a TEXT NOT NULL REFERENCES users,
    user_b TEXT NOT NULL REFERENCES users,
    status TEXT NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'closed')),
    closed_reason TEXT,
    closed_at TEXT
);
CREATE TABLE unmatches (match_id TEXT NOT NULL REFERENCES matches, user_id TEXT NOT NULL, at TEXT NOT NULL);
CREATE TABLE messages (
    id TEXT PRIMARY KEY,
    match_id TEXT NOT NULL REFERENCES matches,
    sender_id TEXT NOT NULL REFERENCES users,
    content TEXT NOT NULL,
    client_message_id TEXT NOT NULL,
    created_at TEXT NOT NULL
);
CREATE TABLE read_receipts (match_id TEXT NOT NULL, user_id TEXT NOT NULL, up_to TEXT NOT NULL, at TEXT NOT NULL);

-- Safety.
CREATE TABLE reports (
    id TEXT PRIMARY KEY,
    reporter_id TEXT NOT NULL REFERENCES users,
    subject_id TEXT NOT NULL,
    category TEXT NOT NULL,
    details TEXT,
    at TEXT NOT NULL
);
CREATE TABLE blocks (user_id TEXT NOT NULL REFERENCES users, subject_id TEXT NOT NULL, at TEXT NOT NULL);
CREATE TABLE appeals (
    id TEXT PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users,
    decision_id TEXT NOT NULL,
    statement TEXT NOT NULL,
    at TEXT NOT NULL
);

-- What a person notices: a text message, or a push on their phone. A duplicate is seen here first of all.
CREATE TABLE notifications (recipient TEXT NOT NULL, kind TEXT NOT NULL, at TEXT NOT NULL);

-- What became of a request, by the key that it was forwarded with and in the transaction of its effect. The application
-- looks here only when it is asked (GET /requests), never to find out whether it did something already.
CREATE TABLE requests (idempotency_key TEXT NOT NULL, user_id TEXT, answer TEXT NOT NULL, at TEXT NOT NULL);
CREATE INDEX requests_by_key ON requests (idempotency_key);
