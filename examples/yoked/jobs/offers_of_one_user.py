#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daily offers of one user, as `generate_daily_offers` has them made: the job's row and the offers in one
transaction. The row is the contract's own upsert: once it is completed, a further call changes nothing."""
import argparse
import os
import sqlite3
import uuid

JOB = "daily_offers"


def new_id(prefix):
    return f"{prefix}_{uuid.uuid4().hex[:16]}"


def begin_job(db, job):
    """False: the job is completed. The row counts how often it was begun."""
    begun = db.execute("INSERT INTO matchmaking_jobs (batch_date, timezone, user_id, job_type, status, idempotency_key)"
                       " VALUES (:date, :timezone, :user, :type, 'running', :key)"
                       " ON CONFLICT (batch_date, timezone, user_id, job_type) DO"
                       " UPDATE SET status = 'running', attempt_count = matchmaking_jobs.attempt_count + 1"
                       " WHERE matchmaking_jobs.status != 'completed'", job)
    db.commit()
    return begun.rowcount > 0


def offer_someone(db, job):
    """An offer to this user and its mirror to somebody else who has none for the day. Nobody is left: none."""
    mine = db.execute("SELECT id FROM match_offers WHERE user_id = :user AND batch_date = :date", job).fetchone()
    other = db.execute("SELECT id FROM users WHERE id != :user AND id NOT IN"
                       " (SELECT user_id FROM match_offers WHERE batch_date = :date) ORDER BY id", job).fetchone()
    if mine or not other:
        return mine[0] if mine else None
    offer, pair = new_id("off"), new_id("pair")
    for made, user, counterpart in ((offer, job["user"], other[0]), (new_id("off"), other[0], job["user"])):
        db.execute("INSERT INTO match_offers (id, pair_id, user_id, counterpart_id, batch_date) VALUES (?, ?, ?, ?, ?)",
                   (made, pair, user, counterpart, job["date"]))
    return offer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="examples/yoked/data")
    for name in ("date", "timezone", "user"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    job = {"date": given.date, "timezone": given.timezone, "user": given.user, "type": JOB,
           "key": f"{given.date}:{given.timezone}:{given.user}:{JOB}"}
    db = sqlite3.connect(os.path.join(given.data, "yoked.db"), timeout=60, isolation_level="IMMEDIATE")
    if begin_job(db, job):
        with db:
            db.execute("BEGIN IMMEDIATE")
            offer = offer_someone(db, job)
            db.execute("UPDATE matchmaking_jobs SET status = 'completed', offers = :offer WHERE batch_date = :date"
                       " AND timezone = :timezone AND user_id = :user AND job_type = :type", {**job, "offer": offer})
    print(*db.execute("SELECT offers FROM matchmaking_jobs WHERE idempotency_key = :key", job).fetchone())


if __name__ == "__main__":
    main()
