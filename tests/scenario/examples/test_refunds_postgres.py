# SPDX-License-Identifier: Apache-2.0
"""examples/refunds/postgres with its own configuration: the money moves once, whoever dies in between. Effects are the
rows of its ledger."""
import re
import subprocess
import sys
import threading

import pytest

from harness import HANG_S, Connection, eventually, free_port, request_bytes
from harness.gateway import ROOT, environment

EXAMPLE = ROOT / "examples" / "refunds" / "postgres"


class App:
    """The example's application, which can die and come back."""

    def __init__(self, database):
        self.listen = f"127.0.0.1:{free_port()}"
        self.url = f"http://{self.listen}"
        self.words = [sys.executable, str(EXAMPLE / "app.py"), "--listen", self.listen, "--database", database.url,
                      "--create"]
        self.process = None
        self.output = []

    def start(self):
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        env=environment({"PYTHONDONTWRITEBYTECODE": "1"}))
        first = self.process.stdout.readline().decode()
        assert re.fullmatch(r"refunds listens on \S+\n", first), first + self.process.stdout.read().decode()
        threading.Thread(target=lambda stream: self.output.extend(stream), args=(self.process.stdout,),
                         daemon=True).start()
        return self

    def kill(self):
        self.process.kill()
        self.process.wait(timeout=HANG_S)
        return self


@pytest.fixture
def app(database):
    made = App(database).start()
    yield made
    made.kill()


@pytest.fixture
def gateway(start_gateway, app, database):
    config = (EXAMPLE / "hapax.yaml").read_text(encoding="utf-8")
    for old, new in (("http://127.0.0.1:3000", app.url), ("postgres:///refunds", database.url)):
        assert config.count(old) == 1
        config = config.replace(old, new)
    return start_gateway(config, upstream=None, store=database.url)


def test_bodies_that_nobody_asked_for_are_read(app, database):
    """Directly, without a gateway that would end the connection: what is left of one would be the next request."""
    host, _, port = app.listen.partition(":")
    hidden = request_bytes("POST", "/charges", {"Content-Type": "application/json"}, {"amount": 100})
    before = database.ask("SELECT count(*) FROM charges")
    with Connection((host, int(port))) as client:
        for path, status in (("/ledger", 200), ("/nothing", 404), ("/ledger", 200)):
            assert client.request("GET", path, body=hidden).status == status
    assert database.ask("SELECT count(*) FROM charges") == before


def refund(gateway, key, amount=1000, charge="ch_1"):
    return gateway.post("/refunds", key=key, json={"charge_id": charge, "amount": amount})


def persist(gateway, key, **what):
    """As a good client does: the same key until the answer is final."""
    def final():
        answer = refund(gateway, key, **what)
        return answer if answer.header("Idempotency-Status") in ("stored", "replayed") else None
    return eventually(final, "an answer that is final")


def test_a_refund_is_made_once_and_refused_once(gateway, database, key):
    first, again = refund(gateway, key), refund(gateway, key)
    assert (first.status, again.status, again.body) == (201, 201, first.body)
    assert first.header("Location") == again.header("Location") == "/refunds/rf_1"
    assert [answer.status for answer in (refund(gateway, key + "-2", 99999), refund(gateway, key + "-3", charge="ch_9"),
                                         refund(gateway, key + "-2", 99999), refund(gateway, key, 2000))] == [
                                             422, 404, 422, 409]
    charge = gateway.post("/charges", key=key, json={"amount": 700, "currency": "EUR"})
    assert (charge.status, charge.json()["id"]) == (201, "ch_2")
    ledger = gateway.get("/ledger").json()
    assert ledger["balanced"] and len(ledger["entries"]) == 6
    assert gateway.get("/refunds").json()["data"] == [{"id": "rf_1", "charge_id": "ch_1", "amount": 1000}]
    assert sorted(database.ask("SELECT route, state FROM hapax.operations")) == [
        ("charges", 2), ("refunds", 2), ("refunds", 3), ("refunds", 3)]


@pytest.mark.slow
def test_whoever_dies_the_money_moves_once(gateway, app, database, key):
    """Sixty refunds of a cent by six clients; after every few of them the application dies, or every connection to the
    database is cut, the gateway's too."""
    answers, answered = {}, threading.Semaphore(0)

    def client(number):
        for turn in range(10):
            one = f"{key}-{number}-{turn}"
            answers[one] = persist(gateway, one, amount=1)
            answered.release()

    clients = [threading.Thread(target=client, args=(number,)) for number in range(6)]
    for thread in clients:
        thread.start()
    for turn in range(15):
        for _ in range(3):
            assert answered.acquire(timeout=HANG_S)
        if turn % 2 == 0:
            app.kill().start()
        else:
            database.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
                         " AND pid <> pg_backend_pid()", database.name)
    for thread in clients:
        thread.join()
    assert len(answers) == 60 and {answer.status for answer in answers.values()} == {201}
    assert len({answer.body for answer in answers.values()}) == 60
    for one, answer in answers.items():
        assert persist(gateway, one, amount=1).body == answer.body
    assert database.ask("SELECT count(*), sum(amount) FROM refunds") == [(60, 60)]
    assert database.ask("SELECT refunded FROM charges WHERE number = 1") == [(60,)]
    assert database.ask("SELECT DISTINCT state FROM hapax.operations") == [(2,)]
