-- SPDX-License-Identifier: Apache-2.0
-- Offers and matches of Yoked, in the database that Hapax has its schema in. Two offers of one pair mirror each other.
CREATE TABLE match_offers (
    id          text PRIMARY KEY,
    pair_id     text NOT NULL,
    user_id     text NOT NULL,
    status      text NOT NULL DEFAULT 'offered'
                CHECK (status IN ('offered', 'accepted', 'passed', 'not_now', 'matched')),
    accepted_at timestamptz
);
CREATE TABLE matches (id text PRIMARY KEY, pair_id text NOT NULL, users text[] NOT NULL);

INSERT INTO match_offers (id, pair_id, user_id) VALUES ('off_ada', 'pair_1', 'ada'), ('off_ben', 'pair_1', 'ben'),
                                                       ('off_cleo', 'pair_2', 'cleo'), ('off_dan', 'pair_2', 'dan');
