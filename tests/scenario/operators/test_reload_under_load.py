# SPDX-License-Identifier: Apache-2.0
"""A hundred reloads while eight clients ask, repeat and retry: among them routes that are renamed, added and changed,
rules that can't change because operations live under them, and files with mistakes. No request fails, none sees two
sets of rules, and nothing happens twice."""
import itertools
import random
import signal
import socket
import threading

import pytest

from harness import EXIT_CONFIG, Connection, basic, eventually, fresh_key, request_bytes

CLIENTS, RELOADS = 8, 100

# Two sets of rules, each of which says three things that belong together: where errors are documented, which keys
# /pairs refuses, and what becomes of a duplicate on /rejects.
PAIRS = {
    "https://one.example/": {"key": "{min: 60}", "on_duplicate": "reject", "lifetime": "24h"},
    "https://two.example/": {"key": "{min: 1, max: 20}", "on_duplicate": "reject", "lifetime": "48h"},
}
REFUSALS = {"https://one.example/": "60 to 255", "https://two.example/": "1 to 20"}


def config(docs, refunds="name: refunds", more="", top=""):
    """`refunds` and `more` are lines of the first route."""
    said = PAIRS[docs]
    return f"""\
error_docs: {docs}
{top}
routes:
  - {refunds}
    match: POST /refunds
    lifetime: {said["lifetime"]}
{more}
  - name: pairs
    match: POST /pairs
    key: {said["key"]}
  - name: rejects
    match: POST /rejects
    on_duplicate: {said["on_duplicate"]}
"""


ONE, TWO = PAIRS
RENAMED = "name: reimbursements\n    formerly: [refunds]"
TAKEN = [
    config(ONE),
    config(TWO),
    config(ONE, refunds=RENAMED),
    config(TWO, more="    wait: 5s\n    on_unknown: hold"),
    config(ONE, top="limits: {idle_timeout: 60s, waiters: 5000}"),
    config(TWO) + "  - {name: added, match: 'POST /added/{id}'}\n  - {name: other, match: POST /other}\n",
    config(TWO, refunds=RENAMED, top="defaults: {grace: 30s}"),
]
REFUSED = [
    config(ONE, refunds="name: reimbursements"),  # renamed, and it doesn't say so
    config(TWO, more="    principal: ['header:X-User']"),
    config(ONE, more="    fingerprint: {ignore: [/amount]}"),
    config(TWO, more="    scope: route"),
    config(ONE, more="    mode: pass\n    because: why not"),
    config(TWO, top="defaults: {principal: ['header:X-User']}"),
    config(ONE, more="    lifetme: 1h"),  # and mistakes
    config(TWO, top="workers: 99"),
    "routes: [",
    "",
]


class Client(threading.Thread):
    """Asks without end, remembers every answer, and stops at the first that should not have come."""

    def __init__(self, gateway, number, shared):
        super().__init__(daemon=True)
        self.gateway, self.shared = gateway, shared
        self.random = random.Random(number)
        self.user = basic(f"user-{number % 3}", "pw")
        self.mine = {"/refunds": {}, "/plain": {}}  # path: key: body
        self.asked = 0
        self.problem = None
        self.stop = threading.Event()

    def run(self):
        steps = [self.first, self.again, self.again, self.retry, self.race, self.pair, self.reject, self.unkeyed]
        try:
            self.connection = self.gateway.connect()
            while not self.stop.is_set():
                self.random.choice(steps)()
        except Exception as problem:  # pylint: disable=broad-except
            self.problem = problem

    def ask(self, method, path, key=None, body=None):
        fields = [("Authorization", self.user), ("Content-Type", "application/json")]
        fields += [("Idempotency-Key", key)] if key else []
        self.asked += 1
        self.connection.send(request_bytes(method, path, fields, body))
        answer = self.connection.receive(method)
        if answer.header("Connection") == "close":  # it was refused before its body was read
            self.connection = self.gateway.connect()
        return answer

    def first(self):
        path, key = self.random.choice(list(self.mine)), fresh_key()
        answer = self.ask("POST", path, key, {"amount": 1})
        assert (answer.status, answer.idempotency) == (201, "stored"), answer
        self.mine[path][key] = answer.body

    def again(self):
        path = self.random.choice(list(self.mine))
        if not self.mine[path]:
            return
        key = self.random.choice(list(self.mine[path]))
        answer = self.ask("POST", path, key, {"amount": 1})
        assert (answer.status, answer.idempotency, answer.body) == (201, "replayed", self.mine[path][key]), answer

    def retry(self):
        """Leaves without an answer, and comes again with the same key."""
        key = fresh_key()
        fields = [("Authorization", self.user), ("Content-Type", "application/json"), ("Idempotency-Key", key)]
        self.connection.send(request_bytes("POST", "/refunds", fields, {"amount": 1}))
        self.connection.close()
        self.connection = self.gateway.connect()
        answer = self.ask("POST", "/refunds", key, {"amount": 1})
        assert answer.status == 201 and answer.idempotency in ("stored", "replayed"), answer
        self.mine["/refunds"][key] = answer.body

    def race(self):
        """A key that several clients of one user come with at the same time."""
        key = self.shared.next_for(self.user)
        answer = self.ask("POST", "/refunds", key, {"amount": 2})
        assert answer.status == 201 and answer.idempotency in ("stored", "replayed"), answer
        self.shared.same(self.user, key, answer.body)

    def pair(self):
        """Refused by the key's length, which only one of the two sets of rules calls short."""
        problem = self.ask("POST", "/pairs", "k" * 40, {}).refuses(400, "VALIDATION.idempotency_key_invalid")
        docs = next(docs for docs in PAIRS if problem["type"].startswith(docs))
        assert REFUSALS[docs] in problem["detail"], problem

    def reject(self):
        key = fresh_key()[:20]
        assert self.ask("POST", "/rejects", key, {}).idempotency == "stored"
        self.shared.rejects.append(key)
        self.ask("POST", "/rejects", key, {}).refuses(409, "CONFLICT.idempotency.duplicate_rejected")

    def unkeyed(self):
        assert self.ask("GET", "/up").status == 200


class Shared:
    """Keys that more than one client uses, and what each of them was answered."""

    def __init__(self):
        self.lock = threading.Lock()
        self.keys = {}
        self.answers = {}
        self.rejects = []

    def next_for(self, user):
        with self.lock:
            key, uses = self.keys.get(user, (None, 0))
            if uses == 0:
                key, uses = fresh_key(), 6
            self.keys[user] = key, uses - 1
            return key

    def same(self, user, key, body):
        with self.lock:
            assert self.answers.setdefault((user, key), body) == body


def well(clients):
    for client in clients:
        if client.problem:
            raise client.problem
    return True


def about(gateway):
    with Connection(str(gateway.store / "admin.sock"), socket.AF_UNIX) as connection:
        return connection.request("GET", "/v1/counts").json()


def put(gateway, text):
    new = gateway.config.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(gateway.config)


@pytest.mark.slow
def test_a_hundred_reloads_under_load(start_gateway, upstream, hapax):
    gateway = start_gateway(config=TAKEN[0], workers=2)
    shared = Shared()
    clients = [Client(gateway, number, shared) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    eventually(lambda: well(clients) and all(all(client.mine.values()) for client in clients),
               "operations to live under the rules")
    choose = random.Random(4)
    taken, refused = itertools.cycle(TAKEN), itertools.cycle(REFUSED)
    in_force = 1
    for number in range(RELOADS):
        is_right = choose.random() < 0.6
        put(gateway, next(taken) if is_right else next(refused))
        if choose.random() < 0.7:
            result = hapax("reload", "--store", gateway.store_url)
            assert result.code == (0 if is_right else EXIT_CONFIG), (number, result)
            in_force += is_right
        else:
            event = "configuration_reloaded" if is_right else "configuration_rejected"
            before = len(gateway.events(event))
            gateway.signal(signal.SIGHUP)
            gateway.wait_events(event, before + 1)
            in_force += is_right
        assert about(gateway)["generation"] == in_force
        asked = sum(client.asked for client in clients)
        eventually(lambda: well(clients) and sum(client.asked for client in clients) > asked + CLIENTS,
                   "requests between two reloads")
    for client in clients:
        client.stop.set()
    for client in clients:
        client.join()
    assert well(clients)
    eventually(lambda: about(gateway)["generations_in_use"] == 1, "every generation but the last being let go")
    keys = [sum(len(client.mine[path]) for client in clients) for path in ("/refunds", "/plain")]
    assert upstream.effects("/refunds") == keys[0] + len(shared.answers)
    assert upstream.effects("/plain") == keys[1]
    assert upstream.effects("/rejects") == len(shared.rejects)
    assert upstream.effects("/pairs") == 0
    print(f"{sum(client.asked for client in clients)} requests, {in_force} generations")
