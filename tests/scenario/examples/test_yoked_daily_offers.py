# SPDX-License-Identifier: Apache-2.0
"""Yoked's scheduled job: generate_daily_offers, re-run and killed, makes one offer for each user and day."""
import collections
import contextlib
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import time

import pytest

from harness import HANG_S, binary, eventually, sanitized
from harness.gateway import environment
from harness.yoked import EXAMPLE

DATE, ZONE, USERS = "2026-02-19", "America/New_York", 4


class Offers:
    def __init__(self, folder):
        self.folder = folder
        with contextlib.closing(sqlite3.connect(folder / "yoked.db")) as db, db:
            db.executescript((EXAMPLE / "schema.sql").read_text())
            db.executemany("INSERT INTO users (id, phone, updated_at) VALUES (?, ?, '')",
                           [(f"user-{i}", f"+1555010000{i}") for i in range(USERS)])
        self.env = environment({"HAPAX": str(binary()), "HAPAX_STORE": f"sqlite:{folder}/run.sqlite"})

    def start(self, date=DATE):
        words = [EXAMPLE / "jobs" / "generate_daily_offers", "--data", self.folder, "--timezone", ZONE, "--date", date]
        return subprocess.Popen([str(word) for word in words], env=self.env, start_new_session=True,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def run(self, date=DATE):
        return self.start(date).wait(HANG_S)

    def ask(self, sql):
        with contextlib.closing(sqlite3.connect(self.folder / "yoked.db", timeout=30)) as db:
            return db.execute(sql).fetchall()

    def by_user(self, date=DATE):
        return collections.Counter(user for user, in self.ask(f"SELECT user_id FROM match_offers "
                                                              f"WHERE batch_date = '{date}'"))

    def end_leases(self):
        with contextlib.closing(sqlite3.connect(self.folder / "run.sqlite", timeout=30)) as db, db:
            db.execute("UPDATE hapax_operations SET lease_until = 1, due = 1 WHERE state = 1")


@pytest.fixture
def offers(tmp_path):
    return Offers(tmp_path)


def descendants(pid):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield int(child)
            yield from descendants(int(child))


def test_each_user_gets_one_offer_a_day_and_a_re_run_returns_the_same(offers):
    assert offers.run() == 0
    once = offers.ask("SELECT id, user_id, counterpart_id FROM match_offers ORDER BY id")
    assert offers.by_user() == {f"user-{i}": 1 for i in range(USERS)}
    assert offers.run() == offers.run() == 0
    assert offers.ask("SELECT id, user_id, counterpart_id FROM match_offers ORDER BY id") == once
    assert offers.ask("SELECT DISTINCT status, attempt_count FROM matchmaking_jobs") == [("completed", 1)]
    assert offers.run("2026-02-20") == 0 and set(offers.by_user("2026-02-20").values()) == {1}
    key, = offers.ask("SELECT idempotency_key FROM matchmaking_jobs WHERE user_id = 'user-1' ORDER BY batch_date")[0]
    assert key == f"{DATE}:{ZONE}:user-1:daily_offers"


@pytest.mark.slow
def test_after_twenty_re_runs_and_kills_there_is_one_offer_for_each_user_and_day(offers):
    if sanitized():
        pytest.skip("the process that checks for leaks would be killed, and waited for")
    killed = collections.Counter()
    began = time.monotonic()
    assert offers.run("2026-02-18") == 0
    span = time.monotonic() - began
    days = [f"2026-03-0{day}" for day in range(1, 6)]
    for number in range(20):
        job = offers.start(days[number // 4])
        eventually(lambda: job.poll() is not None or list(descendants(job.pid)), "the job at work")
        time.sleep(random.uniform(0, span))  # a random moment is the point
        alive = list(descendants(job.pid))
        victims = [job.pid, *alive] if number % 2 else alive[-1:]
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed[len(victims)] += 1
        job.wait(HANG_S)
        eventually(lambda: not any(pathlib.Path(f"/proc/{pid}/cmdline").exists() for pid in alive), "all have ended")
        with contextlib.suppress(sqlite3.OperationalError):
            offers.end_leases()
    for day in days:
        assert offers.run(day) == 0
        assert offers.by_user(day) == {f"user-{i}": 1 for i in range(USERS)}
    assert offers.ask("SELECT DISTINCT status FROM matchmaking_jobs") == [("completed",)]
    assert killed[0] < 20, killed
    print(dict(killed), offers.ask("SELECT attempt_count, count(*) FROM matchmaking_jobs GROUP BY 1"))
