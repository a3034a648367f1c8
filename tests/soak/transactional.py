#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Exactly once, end to end: the application of examples/refunds/postgres, the gateway in front of it, and the
PostgreSQL in which effects and marks are one transaction, each killed with -9 again and again while clients charge
money and retry with their keys until they are answered.

What must hold: for every key one charge, whether its client was answered or not yet; the answer that a client was given
once is the one that it is given ever after, and tells of that charge; and when all three are up again nothing is left
unknown or under way. Every operation charges an amount of its own, so that charges can be counted by key.
Exit code 0: everything held; 1: something did not."""
import argparse
import collections
import http.client
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scenario"))

from harness import Gateway, free_port, fresh_key  # noqa: E402
from harness.gateway import ROOT, environment  # noqa: E402
from harness.postgres import Server  # noqa: E402

CONFIG = """
access_log: off
defaults:
  guarantee: transactional
  lease: 2s
  wait: 1s
  upstream_timeout: 2s
  retry: {base: 20ms, cap: 200ms}
"""
HANG_S = 120
ANSWERED = ("stored", "replayed")


class Violation(Exception):
    """A promise that did not hold."""


class Application:
    def __init__(self, database):
        self.listen = f"127.0.0.1:{free_port()}"
        self.url = f"http://{self.listen}"
        self.words = [sys.executable, str(ROOT / "examples/refunds/postgres/app.py"), "--listen", self.listen,
                      "--database", database.url]
        self.process = None

    def start(self, *words):
        self.process = subprocess.Popen([*self.words, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        env=environment({"PYTHONDONTWRITEBYTECODE": "1"}))
        if not re.match(rb"refunds listens on ", self.process.stdout.readline()):
            raise Violation("the application did not start: the soak itself is broken")

    def kill(self):
        self.process.kill()
        self.process.wait()


class Operation:
    def __init__(self, number):
        self.key = fresh_key()
        self.amount = number
        self.answer = None
        self.tries = 0


class Soak:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.server = Server().start()
        self.database = self.server.create_database()
        self.application = Application(self.database)
        self.application.start("--create")
        self.directory = tempfile.TemporaryDirectory(prefix="hapax-soak-")
        self.gateway = Gateway(self.application.url, self.directory.name, config=CONFIG, workers=2,
                               store=self.database.url, listen=f"127.0.0.1:{free_port()}")
        self.gateway.start()
        self.lock = threading.Lock()
        self.operations = []
        self.stopping = False
        self.violations = []
        self.seen = collections.Counter()
        self.kills = collections.Counter()

    # Clients

    def next_operation(self):
        with self.lock:
            if self.stopping:
                return None
            self.operations.append(Operation(1000 + len(self.operations)))
            return self.operations[-1]

    def ask(self, operation):
        """One try: (status, Idempotency-Status, body), or None where nothing came."""
        host, port = self.gateway.listen.split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        try:
            connection.request("POST", "/charges", body=b'{"amount": %d}' % operation.amount,
                               headers={"Idempotency-Key": operation.key, "Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.headers.get("Idempotency-Status"), response.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def until_answered(self, operation, wanted=ANSWERED):
        began = time.monotonic()
        while True:
            operation.tries += 1
            answer = self.ask(operation)
            self.seen[answer[:2] if answer else "no answer"] += 1
            if answer and answer[0] == 201 and answer[1] in wanted:
                return answer[2]
            if answer and answer[1] in ANSWERED:
                raise Violation(f"{operation.key}: a good request was stored as {answer}")
            if self.stopping and time.monotonic() - began > HANG_S:
                raise Violation(f"{operation.key}: all are up, and there is no answer: {answer}")
            time.sleep(0.05)

    def client(self):
        try:
            while (operation := self.next_operation()) is not None:
                operation.answer = self.until_answered(operation)
        except Violation as violation:
            self.violations.append(violation)

    # Kills

    def kill_one(self):
        which = self.random.choice(("application", "gateway", "PostgreSQL"))
        self.kills[which] += 1
        if which == "PostgreSQL":
            self.server.restart()
        else:
            victim = self.application if which == "application" else self.gateway
            victim.kill()
            victim.start()

    # The reckoning

    def check(self):
        for operation in self.operations:
            again = self.until_answered(operation, ("replayed",))
            if again != operation.answer:
                raise Violation(f"{operation.key}: answered {operation.answer}, and now {again}")
        charges = dict(self.database.ask("SELECT amount, count(*) FROM charges WHERE number > 1 GROUP BY amount"))
        for operation in self.operations:
            count = charges.get(operation.amount, 0)
            if count != 1:
                raise Violation(f"{operation.key}: {count} charges, answered {operation.answer}")
        left = self.database.ask("SELECT count(*) FROM hapax.operations WHERE state IN (1, 4)")[0][0]
        if left:
            raise Violation(f"{left} operations are left unknown or under way")

    def run(self):
        clients = [threading.Thread(target=self.client, daemon=True) for _ in range(self.options.clients)]
        for thread in clients:
            thread.start()
        for number in range(self.options.kills):
            time.sleep(self.random.uniform(0, 2 * self.options.pause))
            self.kill_one()
            if self.violations:
                break
            ending = "\r" if sys.stdout.isatty() else "\n"
            if sys.stdout.isatty() or number % 50 == 49:
                print(f"{number + 1} kills, {len(self.operations)} operations", end=ending, flush=True)
        self.stopping = True
        for thread in clients:
            thread.join()
        if self.violations:
            raise self.violations[0]
        self.check()
        print(f"{sum(self.kills.values())} kills ({', '.join(f'{n} {k}' for k, n in sorted(self.kills.items()))}), "
              f"{len(self.operations)} keys, one effect each; {sum(o.tries for o in self.operations)} tries: "
              + ", ".join(f"{count} {what}" for what, count in sorted(self.seen.items(), key=str)))

    def close(self):
        self.stopping = True
        for ends in (self.gateway.kill, self.application.kill, self.server.close, self.directory.cleanup):
            try:
                ends()
            except (OSError, AssertionError):
                pass


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("--kills", type=int, default=300)
    options.add_argument("--clients", type=int, default=16)
    options.add_argument("--pause", type=float, default=0.5, help="seconds between two kills, on average")
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options.add_argument("--short", action="store_true", help="nine kills")
    given = options.parse_args()
    if given.short:
        given.kills = 9
    print(f"--seed {given.seed}")
    soak = Soak(given)
    try:
        soak.run()
    except Violation as violation:
        print(f"did not hold: {violation}", file=sys.stderr)
        return 1
    finally:
        soak.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
