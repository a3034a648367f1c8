# SPDX-License-Identifier: Apache-2.0
"""examples/yoked/matches: a match and the event about it are one transaction, and the consumer of the contract
processes each event once. Effects are the rows of the application's and the consumer's databases."""
import base64
import contextlib
import re
import sqlite3
import subprocess
import sys
import threading

import pytest

from harness import HANG_S, Api, eventually, free_port
from harness.gateway import ROOT, environment

EXAMPLE = ROOT / "examples" / "yoked" / "matches"
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
WEEK_S = 7 * 24 * 3600


class Program:
    """A program of the example, which can die and come back at its address."""

    def __init__(self, name, *flags):
        self.listen = f"127.0.0.1:{free_port()}"
        self.url = f"http://{self.listen}"
        self.words = [sys.executable, "-B", str(EXAMPLE / name), "--listen", self.listen, *flags]
        self.output = []
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env=environment())
        first = self.process.stdout.readline()
        assert re.search("listens on", first), first + self.process.stdout.read()
        threading.Thread(target=self.output.extend, args=(self.process.stdout,), daemon=True).start()

    def kill(self):
        self.process.kill()
        self.process.wait(timeout=HANG_S)


@pytest.fixture
def app(database):
    made = Program("app.py", "--database", database.url, "--create")
    yield made
    made.kill()


@pytest.fixture
def consumer(tmp_path):
    (tmp_path / "secret").write_text(SECRET)
    made = Program("consumer.py", "--secret-file", str(tmp_path / "secret"), "--data", str(tmp_path))
    made.database = tmp_path / "consumer.db"
    yield made
    made.kill()


@pytest.fixture
def api(start_node, app, consumer, database):
    """The gateway of the example's own configuration, with the consumer as an endpoint."""
    config = (EXAMPLE / "hapax.yaml").read_text(encoding="utf-8")
    for old, new in (("http://127.0.0.1:3000", app.url), ("postgres:///yoked", database.url),
                     ("127.0.0.1:8081", "127.0.0.1:0")):
        assert config.count(old) == 1
        config = config.replace(old, new)
    made = Api(start_node(database.url, config, upstream=None))
    made.all = made.token("publish", "operate", "view")
    added = made.call("POST", "/v1/endpoints", made.all, body={"url": f"{consumer.url}/hooks", "types": ["match.*"],
                                                               "secrets": [SECRET]})
    assert added.status == 201, added
    made.endpoint = added.json()["id"]
    return made


def rows(consumer, sql, *values):
    with contextlib.closing(sqlite3.connect(consumer.database, timeout=HANG_S)) as connection, connection:
        return connection.execute(sql, values).fetchall()


def accept(gateway, offer, fault=None):
    """As a good client does: with the same key until the answer is final."""
    def final():
        answer = gateway.post(f"/matches/offers/{offer}/action", key=f"accept-of-{offer}-first",
                              json={"action": "accept"}, headers=[("Demo-Fault", fault)] if fault else [])
        return answer if answer.header("Idempotency-Status") in ("stored", "replayed") else None
    return eventually(final, "an answer that is final")


def wait_greeted(consumer, match):
    eventually(lambda: len(rows(consumer, "SELECT 1 FROM greetings WHERE match = ?", match)) >= 2,
               f"greetings of {match}")


def test_mutual_accept_publishes_match_created_once(api, consumer, database):
    first = accept(api.gateway, "off_ada")
    assert first.json() == {"offerId": "off_ada", "status": "accepted"}
    assert database.ask("SELECT count(*) FROM hapax.outbox_0") == [(0,)]
    matched = accept(api.gateway, "off_ben").json()
    assert matched["status"] == "matched"
    assert accept(api.gateway, "off_ben").json() == matched
    wait_greeted(consumer, matched["matchId"])
    assert rows(consumer, "SELECT recipient FROM greetings ORDER BY 1") == [("ada",), ("ben",)]
    assert rows(consumer, "SELECT event_id FROM processed") == [(f"{matched['matchId']}-created",)]
    assert database.ask("SELECT count(*) FROM matches") == [(1,)]


def test_match_that_is_taken_back_is_never_published(api, app, consumer, database):
    accept(api.gateway, "off_cleo")
    answer = api.gateway.post("/matches/offers/off_dan/action", key="accept-of-off_dan-first",
                              json={"action": "accept"}, headers=[("Demo-Fault", "fail-before-commit")])
    assert answer.status == 503, answer
    assert database.ask("SELECT count(*) FROM matches") == [(0,)]
    accept(api.gateway, "off_ada")
    later = accept(api.gateway, "off_ben").json()["matchId"]
    wait_greeted(consumer, later)  # what was published after it has come, and so would it have
    assert rows(consumer, "SELECT DISTINCT match FROM greetings") == [(later,)]


def test_application_that_dies_after_its_commit_has_published(api, app, consumer, database):
    accept(api.gateway, "off_cleo")
    gone = api.gateway.post("/matches/offers/off_dan/action", key="accept-of-off_dan-first", json={"action": "accept"},
                            headers=[("Demo-Fault", "die-after-commit")])
    app.process.wait(timeout=HANG_S)
    app.start()
    match = accept(api.gateway, "off_dan").json()["matchId"]
    wait_greeted(consumer, match)
    assert gone.status in (200, 502, 503), gone
    assert database.ask("SELECT id FROM matches") == [(match,)]
    assert rows(consumer, "SELECT count(*) FROM greetings") == [(2,)]


def test_consumer_ignores_a_duplicate_for_seven_days_and_answers_200(api, consumer):
    accept(api.gateway, "off_ada")
    match = accept(api.gateway, "off_ben").json()["matchId"]
    wait_greeted(consumer, match)
    delivery = f"/v1/deliveries/{api.endpoint}/{match}-created"

    def deliver_again():
        def tries():
            found = api.call("GET", delivery, api.all).json()
            return len(found["tries"]) if found["state"] == "delivered" else 0
        before = eventually(tries, "the delivery before")
        assert api.call("POST", f"{delivery}/redrive", api.all, body={}).status == 200
        eventually(lambda: tries() > before, "one more delivery")
        return api.call("GET", delivery, api.all).json()["tries"][-1]

    again = deliver_again()
    assert (again["status"], again["response"]) == (200, '{"result": "ignored"}')
    rows(consumer, "UPDATE processed SET at = at - ?", WEEK_S - 60)
    assert deliver_again()["response"] == '{"result": "ignored"}'
    assert rows(consumer, "SELECT count(*) FROM greetings") == [(2,)]
    rows(consumer, "UPDATE processed SET at = at - 61")
    assert deliver_again()["response"] == '{"result": "processed"}'
