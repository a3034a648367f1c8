# SPDX-License-Identifier: Apache-2.0
"""The lines of docs/guide/transactional.md, as they stand there: its SQL, its configuration, and its applications in
Python and in Node, behind a gateway, with applications that die before and after their COMMIT. Effects are rows."""
import pathlib
import re
import socket
import subprocess
import sys
import textwrap

import pytest

from harness import HANG_S, eventually
from harness.gateway import ROOT, environment

GUIDE = (ROOT / "docs" / "guide" / "transactional.md").read_text(encoding="utf-8")
FOLDER = ROOT / "tests" / "transactional"


def lines_of(language):
    """The guide's blocks in that language, without the indentation of a list."""
    return [textwrap.dedent(block) for block in re.findall(rf"^ *```{language}\n(.*?)^ *```$", GUIDE, re.M | re.S)]


def program_of(language):
    found = lines_of(language)
    assert len(found) == 1, f"{len(found)} blocks of {language} in the guide"
    return found[0]


class Application:
    """The guide's function behind HTTP. The socket is the story's, as under a service manager: while the application
    starts again connections wait for it, however long the machine takes to start an interpreter."""

    def __init__(self, language, directory, url):
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        code = pathlib.Path(directory) / f"guide.{language}"
        code.write_text(program_of(language), encoding="utf-8")
        start = [sys.executable, FOLDER / "serve.py"] if language == "python" else ["node", FOLDER / "serve.js"]
        self.command = [str(word) for word in (*start, self.socket.fileno(), url, code)]
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env=environment(), pass_fds=[self.socket.fileno()])
        assert self.process.stdout.readline() == b"listening\n", self.process.stderr.read()
        return self

    def kill(self):
        self.process.kill()
        self.wait_dead()

    def wait_dead(self):
        self.process.communicate(timeout=HANG_S)

    def close(self):
        if self.process and self.process.poll() is None:
            self.kill()
        self.socket.close()


class Shop:
    """A database prepared as the guide says, the application on it, and the gateway in front."""

    def __init__(self, database, language, directory, start_gateway, **options):
        self.database = database
        self.roles = {name: f"{name}_{database.name}" for name in ("shop", "gate")}
        for role in self.roles.values():
            database.ask(f"CREATE ROLE {role} LOGIN")
        for statement in lines_of("sql")[0].strip().split(";\n"):
            database.ask(re.sub(r"\b(shop|gate)\b", lambda found: self.roles[found[1]], statement))
        server = database.server
        self.application = Application(language, directory, server.url(database.name, self.roles["shop"])).start()
        config = program_of("yaml").replace("http://127.0.0.1:3000", self.application.url)
        config = config.replace("postgres://gate@db.example/shop", server.url(database.name, self.roles["gate"]))
        more = "".join(f"    {name}: {value}\n" for name, value in options.items())
        self.gateway = start_gateway(config + more, upstream=None, store=server.url(database.name, self.roles["gate"]))

    def refund(self, key, **what):
        return self.gateway.send("POST", "/refunds", key=key, json={"charge": "ch_1", "amount": 1000}, **what)

    def persist(self, key):
        """As a good client does: the same key until there is an answer that is final."""
        def answered():
            response = self.refund(key).response
            return response if response.status == 201 else None
        return eventually(answered, "an answer that is final")

    def effects(self):
        return self.database.ask("SELECT count(*) FROM refunds")[0][0]

    def states(self):
        return [state for state, in self.database.ask("SELECT state FROM hapax.operations")]

    def held(self):
        """A connection that keeps every transaction of the application from doing its work until it is closed."""
        connection = self.database.connect()
        connection.cursor().execute("LOCK TABLE refunds IN EXCLUSIVE MODE")
        return connection

    def is_working(self):
        """How many transactions of the application are under way."""
        return len(self.database.ask("SELECT 1 FROM pg_stat_activity WHERE usename = %s AND xact_start IS NOT NULL",
                                     self.roles["shop"]))

    def wait_working(self, count=1):
        eventually(lambda: self.is_working() >= count, "a transaction of the application's")

    def close(self):
        self.application.close()
        self.database.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = ANY (%s)",
                          list(self.roles.values()))
        for role in self.roles.values():
            self.database.ask(f"DROP OWNED BY {role}")
            self.database.ask(f"DROP ROLE {role}")


@pytest.fixture(params=["python", "javascript"])
def language(request):
    if request.param == "javascript" and not (FOLDER / "node_modules" / "pg").exists():
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=FOLDER, check=True)
    return request.param


@pytest.fixture
def open_shop(database, language, tmp_path, start_gateway):
    shops = []

    def opened(**options):
        shops.append(Shop(database, language, tmp_path, start_gateway, **options))
        return shops[-1]

    yield opened
    for shop in shops:
        shop.gateway.finish()
        shop.close()


def test_a_repetition_gets_the_answer_of_the_mark(open_shop, key):
    shop = open_shop()
    first = shop.refund(key).response
    assert (first.status, first.json()) == (201, {"id": 1, "amount": 1000})
    assert first.header("Idempotency-Status") == "stored"
    again = shop.refund(key).response
    assert (again.status, again.body, again.header("Idempotency-Status")) == (201, first.body, "replayed")
    assert shop.effects() == 1


def test_an_application_that_dies_after_its_commit_has_answered(open_shop, key):
    shop = open_shop()
    pending = shop.refund(key, headers=[("Die", "after-commit")])
    shop.application.wait_dead()
    first = pending.response
    assert (first.status, first.json()) == (201, {"id": 1, "amount": 1000})  # nobody has sent it: the mark has it
    shop.application.start()
    assert shop.refund(key).response.body == first.body
    assert shop.effects() == 1


def test_an_application_that_dies_before_its_commit_has_done_nothing(open_shop, key):
    shop = open_shop()
    lock = shop.held()
    pending = shop.refund(key)
    shop.wait_working()
    shop.application.kill()
    shop.application.start()
    lock.close()
    assert pending.response.status == 201  # under another epoch
    assert shop.effects() == 1
    assert shop.states() == [2]


def test_a_transaction_that_comes_too_late_takes_its_effect_back(open_shop, key):
    shop = open_shop(upstream_timeout="1s")
    lock = shop.held()
    pending = shop.refund(key)
    shop.wait_working(2)  # the first attempt was given up, and still has not ended
    lock.close()
    assert pending.status in (201, 503, 504)
    assert shop.persist(key).status == 201
    assert shop.effects() == 1
    eventually(lambda: not shop.is_working(), "the end of the late ones")
    assert (shop.effects(), shop.states()) == (1, [2])


def test_connections_that_are_cut_meanwhile_lose_nothing(open_shop, key, database):
    shop = open_shop()
    keys = [f"{key}-{number}" for number in range(8)]
    pendings = [shop.refund(one) for one in keys]
    database.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = ANY (%s)",
                 list(shop.roles.values()))
    for pending in pendings:
        assert pending.status in (201, 503, 504)
    bodies = {shop.persist(one).body for one in keys}
    assert (shop.effects(), len(bodies)) == (8, 8)
    assert shop.states() == [2] * 8
