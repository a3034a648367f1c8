# SPDX-License-Identifier: Apache-2.0
"""libhapax: programs that are built against the installed library only. Effects are counted where they happen: at a
bank, in a file, or in a table."""
import base64
import hashlib
import hmac
import json
import re
import signal
import socket
import sqlite3
import subprocess
import threading
import time

import pytest

from harness import HANG_S, Hooks, eventually, fresh_key, quick_retries, sanitized, unix_socket_path


class Bank:
    """A socket that charges. `hold` makes it charge and not answer."""

    def __init__(self, path):
        self.path = path
        self.charges = []
        self.answer = "ok ch_{}"
        self.hold = False
        self.held = []
        self.charged = threading.Semaphore(0)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(64)
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            line = connection.makefile().readline()
            self.charges.append(line.split()[1])
            if self.hold:
                self.held.append(connection)
            else:
                connection.sendall((self.answer.format(len(self.charges)) + "\n").encode())
                connection.close()
            self.charged.release()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()
        for connection in self.held:
            connection.close()


@pytest.fixture
def bank():
    made = Bank(unix_socket_path())
    yield made
    made.close()


@pytest.fixture
def store(tmp_path):
    return f"sqlite:{tmp_path}/shop.db"


def test_the_library_exports_its_header_and_needs_libc_sqlite_and_openssl(installed):
    header = next(installed.folder.rglob("hapax.h")).read_text(encoding="utf-8")
    declared = set(re.findall(r"^(?:int|void|const char \*) ?\*?(hapax_\w+)\(", header, re.M))
    listed = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", installed.library], check=True,
                            text=True, capture_output=True).stdout
    exported = {line.split()[2] for line in listed.splitlines()}
    assert exported - {"HAPAX_0.1"} == {f"{name}@@HAPAX_0.1" for name in declared} and len(declared) > 30
    archive = subprocess.run(["nm", "-g", "--defined-only", installed.library.with_suffix(".a")], check=True, text=True,
                             capture_output=True).stdout
    names = {line.split()[2] for line in archive.splitlines() if len(line.split()) == 3}
    assert names == declared or sanitized() and declared <= names
    needed = subprocess.run(["ldd", installed.library], check=True, text=True, capture_output=True).stdout
    libraries = {line.split()[0].rpartition("/")[2].partition(".so")[0] for line in needed.splitlines()}
    of_libc = {"linux-vdso", "ld-linux-x86-64", "libc", "libm"}
    assert sanitized() or libraries == {"libsqlite3", "libcrypto"} | of_libc, libraries


@pytest.mark.parametrize("flags", [(), ("-static-libgcc", "-Wl,-Bstatic", "-lhapax", "-Wl,-Bdynamic")])
def test_a_payment_is_charged_once(installed, bank, store, flags):
    program = installed.build("payment", *flags, packages=("hapax", "sqlite3", "libcrypto") if flags else ("hapax",))
    assert installed.well(program, store, bank.path, "order-1", "1999") == '{"charge": "ch_1"}\n'
    assert installed.well(program, store, bank.path, "order-1", "1999") == 'before: {"charge": "ch_1"}\n'
    code, _, errors = installed.run(program, store, bank.path, "order-1", "5")
    assert code == 75 and "HAPAX_MISMATCH" in errors
    bank.answer = "declined no money"
    for before in ("", "before: "):
        assert installed.run(program, store, bank.path, "order-2", "5")[:2] == (1, before + '{"error": "no money"}\n')
    assert bank.charges == ["order-1", "order-2"]


def test_ten_programs_with_one_key_charge_once(installed, bank, store):
    program = installed.build("payment")
    running = [installed.start(program, store, bank.path, "order-1", "1999") for _ in range(10)]
    said = [process.communicate(timeout=HANG_S)[0].removeprefix("before: ") for process in running]
    assert said == ['{"charge": "ch_1"}\n'] * 10 and bank.charges == ["order-1"]


def test_a_bank_that_cannot_be_reached_leaves_the_key_usable(installed, bank, store, tmp_path):
    program = installed.build("payment")
    code, _, _ = installed.run(program, store, tmp_path / "no-bank", "order-1", "1999")
    assert code == 1
    assert installed.well(program, store, bank.path, "order-1", "1999") == '{"charge": "ch_1"}\n'
    assert bank.charges == ["order-1"]


def test_a_payment_that_is_killed_is_unknown_and_never_charged_again(installed, bank, store):
    program = installed.build("payment")
    bank.hold = True
    process = installed.start(program, store, bank.path, "order-1", "1999", "500")
    assert bank.charged.acquire(timeout=HANG_S)
    process.kill()
    process.communicate(timeout=HANG_S)
    assert process.returncode == -signal.SIGKILL
    for _ in range(2):
        code, _, errors = installed.run(program, store, bank.path, "order-1", "1999", "500")
        assert code == 75 and "HAPAX_UNKNOWN" in errors
    assert bank.charges == ["order-1"]


def test_a_subscription_works_through_a_daemon(installed, start_api, tmp_path):
    program = installed.build("subscription")
    api = start_api(store=f"journal:{tmp_path}/operations")
    effects = tmp_path / "subscriptions"
    socket_url = f"unix:{api.gateway.store}/admin.sock"
    token = {"SHOP_TOKEN": api.token("publish")}
    for url, env, key in ((socket_url, {}, "user-1"), (f"http://{api.address}", token, "user-2")):
        assert installed.well(program, url, key, "pro", "4242", effects, env=env) == '{"plan": "pro"}\n'
        assert installed.well(program, url, key, "pro", "4242", effects, env=env) == 'before: {"plan": "pro"}\n'
        code, _, errors = installed.run(program, url, key, "basic", "4242", effects, env=env)
        assert code == 3 and "HAPAX_MISMATCH" in errors
    for before in ("", "before: "):
        said = installed.run(program, socket_url, "user-3", "pro", "0000", effects)
        assert said[:2] == (1, before + '{"error": "card declined"}\n')
    assert effects.read_text(encoding="utf-8") == "user-1 pro\nuser-2 pro\n"
    code, _, errors = installed.run(program, f"http://{api.address}", "user-4", "pro", "4242", effects,
                                    env={"SHOP_TOKEN": "hapax_wrong"})
    assert code == 3 and "HAPAX_DENIED" in errors
    api.gateway.kill()
    code, _, errors = installed.run(program, socket_url, "user-5", "pro", "4242", effects)
    assert code == 3 and "HAPAX_UNAVAILABLE" in errors
    assert effects.read_text(encoding="utf-8") == "user-1 pro\nuser-2 pro\n"


class Shop:
    """A database of the application's own."""

    def __init__(self, file):
        self.file = file
        self.ask("CREATE TABLE stock (product TEXT PRIMARY KEY, available INTEGER, reserved INTEGER)")
        self.ask("INSERT INTO stock VALUES ('keyboard', 5, 0)")
        self.ask("CREATE TABLE refunds (key TEXT)")

    def ask(self, sql):
        database = sqlite3.connect(self.file, timeout=HANG_S)
        with database:
            rows = database.execute(sql).fetchall()
        database.close()
        return rows

    def stock(self):
        return self.ask("SELECT available, reserved FROM stock")[0]


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path / "own.db")


def test_a_reservation_and_its_mark_are_one_transaction(installed, shop):
    program = installed.build("reservation", packages=("hapax", "sqlite3"))
    held = installed.build("hold", "-shared", "-fPIC")
    for _ in range(3):  # killed between the effect and the commit
        process = installed.start(program, shop.file, "cart-1", "keyboard", "2", env={"LD_PRELOAD": str(held)})
        assert process.stdout.readline() == "held\n"
        process.kill()
        process.communicate(timeout=HANG_S)
        assert shop.stock() == (5, 0)
    assert installed.well(program, shop.file, "cart-1", "keyboard", "2") == '{"reserved": true, "remaining": 3}\n'
    again = installed.well(program, shop.file, "cart-1", "keyboard", "2")
    assert again == 'before: {"reserved": true, "remaining": 3}\n'
    for before in ("", "before: "):
        said = installed.run(program, shop.file, "cart-2", "keyboard", "9")
        assert said[:2] == (1, before + '{"reserved": false}\n')
    assert shop.stock() == (3, 2)


def test_a_failed_effect_is_undone(installed, shop):
    program = installed.build("undone", packages=("hapax", "sqlite3"))
    outside = "HAPAX_INVALID "
    assert installed.well(program, shop.file, "failed") == outside + "HAPAX_OK 3 0\n"
    assert installed.well(program, shop.file, "failed") == outside + "HAPAX_DONE 3 1\n"
    for _ in range(2):
        assert installed.well(program, shop.file, "absent") == outside + "HAPAX_OK 0 0\n"
    assert shop.stock() == (5, 0)


def test_an_event_of_a_transaction_is_delivered_by_a_daemon_on_the_same_file(installed, shop, start_api, upstream):
    program = installed.build("reservation", packages=("hapax", "sqlite3"))
    installed.well(program, shop.file, "cart-1", "keyboard", "1")
    api = start_api("events: {allow: [127.0.0.0/8]}", store=f"sqlite:{shop.file}")
    token = api.token("publish", "operate", "view", name="shop")
    made = api.call("POST", "/v1/endpoints", token, body={"url": upstream.url + "/hook", "types": ["stock.reserved"]})
    assert made.status == 201, made
    installed.well(program, shop.file, "cart-2", "keyboard", "1")
    installed.well(program, shop.file, "cart-2", "keyboard", "1")
    assert installed.run(program, shop.file, "cart-3", "keyboard", "9")[0] == 1  # nothing reserved, nothing published
    installed.well(program, shop.file, "cart-4", "keyboard", "1")
    eventually(lambda: upstream.effects("/hook") >= 2, "both events are delivered")
    page = api.call("GET", "/v1/events", token).json()
    ids = sorted(event["id"] for event in page["events"])
    assert ids == ["cart-1", "cart-2", "cart-4"] and upstream.effects("/hook") == 2
    assert shop.ask("SELECT count(*) FROM hapax_items WHERE queue = CAST('outbox' AS BLOB)") == [(0,)]


def test_a_transactional_route_finds_the_mark_in_the_applications_database(installed, shop, start_node, upstream):
    program = installed.build("mark", packages=("hapax", "sqlite3"))
    prepare = installed.build("reservation", packages=("hapax", "sqlite3"))
    installed.well(prepare, shop.file, "cart-1", "keyboard", "1")  # makes the tables

    def commit_and_say_nothing(exchange):
        exchange.read_body()
        installed.well(program, shop.file, exchange.request.header("Hapax-Operation"), exchange.request.key)
        exchange.close()

    upstream.on("/refunds", commit_and_say_nothing)
    gateway = start_node(f"sqlite:{shop.file}", quick_retries(guarantee="transactional"))
    key = fresh_key()
    answers = [gateway.post("/refunds", key=key, json={"amount": 5}) for _ in range(2)]
    assert [(answer.status, answer.body) for answer in answers] == [(201, b'{"refund":"by its mark"}')] * 2
    assert shop.ask("SELECT count(*) FROM refunds") == [(1,)]


def test_a_webhook_is_handled_once(installed, store, tmp_path):
    program = installed.build("webhook")
    effects = tmp_path / "handled"
    body = '{"amount": 5}'
    stamp = str(int(time.time()))
    secret = Hooks.SECRETS["STANDARD_SECRET"]
    key = base64.b64decode(secret.removeprefix("whsec_"))
    made = base64.b64encode(hmac.new(key, f"msg_1.{stamp}.{body}".encode(), hashlib.sha256).digest()).decode()
    head = f"webhook-id: msg_1\r\nwebhook-timestamp: {stamp}\r\nwebhook-signature: v1,{made}\r\n\r\n"
    said = [installed.run(program, store, secret, effects, given=head + body)[1] for _ in range(3)]
    assert said == ["200 handled\n", "200 handled before\n", "200 handled before\n"]
    assert installed.run(program, store, secret, effects, given=head + body + " ")[1].startswith("401 ")
    assert effects.read_text(encoding="utf-8") == "msg_1\n"


def test_every_call_does_what_the_header_says(installed, store, tmp_path):
    assert installed.well(installed.build("calls"), store, tmp_path / "intents") == ""


def test_every_call_does_the_same_over_a_daemon(installed, start_api, tmp_path):
    api = start_api(store=f"journal:{tmp_path}/operations")
    url = f"unix:{api.gateway.store}/admin.sock"
    assert installed.well(installed.build("calls"), url, tmp_path / "intents") == ""


def test_a_damaged_record_is_unknown_and_logged(installed, bank, store):
    installed.well(installed.build("payment"), store, bank.path, "order-1", "1999")
    with sqlite3.connect(store.removeprefix("sqlite:")) as database:
        database.execute("UPDATE hapax_operations SET head = x'00'")
    database.close()
    lines = installed.well(installed.build("damaged"), store, "order-1").splitlines()
    logged = [json.loads(line) for line in lines[:-1]]
    assert [(line["event"], line["level"]) for line in logged] == [("record_unreadable", "error")]
    assert lines[-1].startswith("HAPAX_UNKNOWN: the operation may have been executed")


def test_a_program_that_forks(installed, store):
    assert installed.well(installed.build("forks"), store) == ""


def test_eight_threads_on_one_handle(installed, store):
    assert installed.well(installed.build("threads"), store, "30") == "30\n"


def test_no_memory_is_a_value(installed, store):
    if sanitized():
        pytest.skip("a sanitizer needs more memory than is left here")
    assert installed.well(installed.build("memory"), store).startswith("HAPAX_NO_MEMORY: ")


@pytest.mark.slow
def test_the_same_under_valgrind(installed, memcheck, bank, store, shop, tmp_path):
    assert memcheck(installed.build("payment"), store, bank.path, "order-1", "1999") == '{"charge": "ch_1"}\n'
    memcheck(installed.build("reservation", packages=("hapax", "sqlite3")), shop.file, "cart-1", "keyboard", "1")
    assert memcheck(installed.build("calls"), store, tmp_path / "intents") == ""
    assert memcheck(installed.build("forks"), store) == ""
    assert memcheck(installed.build("threads"), store, "4") == "4\n"
