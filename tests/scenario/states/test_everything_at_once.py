# SPDX-License-Identifier: Apache-2.0
"""An application that fails in every way it can, impatient clients, and a gateway that is killed in between: for each
guarantee its promise holds, key by key."""
import collections
import random
import threading

import pytest

from harness import (Connection, Deduplicating, Disconnected, answer, answer_raw, drop_after_effect, free_port,
                     fresh_key, numbered, quick_retries)

CLIENTS, KEYS, KILLS = 6, 20, 3
RELEASED = [answer(429, effect=False), answer(503, headers=[("Retry-After", "0")], effect=False),
            answer(408, effect=False), answer(403, effect=False)]
LOST = [drop_after_effect(), drop_after_effect(reset=True), answer(502), answer(504), answer_raw(b"garbage"),
        answer_raw(b"HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\n123")]


class Moody:
    """Does what it is asked half of the time; else it refuses, or does it and loses its answer."""

    def __init__(self, seed, deduplicates):
        self.random = random.Random(seed)
        self.earnest = Deduplicating() if deduplicates else numbered
        self.deduplicates = deduplicates
        self.lock = threading.Lock()

    def __call__(self, exchange):
        with self.lock:
            mood = self.random.random()
            refuse, lose = self.random.choice(RELEASED), self.random.choice(LOST)
            fault = self.random.choice(["close", "reset", 502, 503, 504, b"garbage"])
        if mood < 0.3:
            refuse(exchange)
        elif mood > 0.7 and self.deduplicates:
            with self.earnest._lock:
                self.earnest.faults.append(fault)
            self.earnest(exchange)
        elif mood > 0.7:
            lose(exchange)
        else:
            self.earnest(exchange)


class Clients:
    """Each has keys of its own and asks for every one until it knows its fate, as careful clients do."""

    def __init__(self, gateway, is_settled):
        self.gateway = gateway
        self.is_settled = is_settled
        self.answers = collections.defaultdict(set)
        self.failures = []
        self.done = 0
        self.changed = threading.Condition()
        self.threads = [threading.Thread(target=self.run, args=(seed,)) for seed in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def ask(self, key, chance):
        fields = [("Idempotency-Key", key)]
        if chance.random() < 0.2:
            fields.append(("X-Request-Timeout", f"{chance.randrange(1, 30)}ms"))
        with Connection(self.gateway.address) as connection:
            return connection.request("POST", "/refunds", fields, b"{}").response

    def run(self, seed):
        chance = random.Random(seed)
        try:
            for _ in range(KEYS):
                self.settle(fresh_key(), chance)
        except BaseException as failure:
            self.failures.append(failure)

    def settle(self, key, chance):
        while True:
            try:
                response = self.ask(key, chance)
            except (OSError, Disconnected):
                continue  # killed: it is started again
            if response.status == 201:
                self.answers[key].add(response.body)
            if self.is_settled(response):
                break
        with self.changed:
            self.done += 1
            self.changed.notify_all()

    def wait_done(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: self.done >= count or self.failures, timeout=120)

    def finish(self):
        for thread in self.threads:
            thread.join()
        assert not self.failures, self.failures[0]


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["none", "idempotent"])
def test_every_key_keeps_its_promise(start_gateway, start_upstream, guarantee):
    application = start_upstream()
    gateway = start_gateway(quick_retries(guarantee=guarantee, retry="{base: 1ms, cap: 5ms}"), workers=2,
                            upstream=application, listen=f"127.0.0.1:{free_port()}")
    deduplicates = guarantee == "idempotent"
    application.on("/refunds", Moody(17, deduplicates))
    clients = Clients(gateway, lambda response: response.status == 201 if deduplicates
                      else response.status == 201 or response.header("Idempotency-Status") == "unknown")
    for kill in range(KILLS):
        clients.wait_done(CLIENTS * KEYS * (kill + 1) // (KILLS + 1))
        gateway.restart("kill")
    clients.finish()
    effects = application.effects_by_key
    assert max(effects.values()) == 1, "something was done twice"
    for key, bodies in clients.answers.items():
        assert len(bodies) == 1, f"two answers for one operation: {bodies}"
        assert effects[key] == 1
        again = gateway.post("/refunds", key=key, body=b"{}")
        assert (again.status, {again.body}) == (201, bodies)
    if deduplicates:
        assert len(effects) == CLIENTS * KEYS
