# SPDX-License-Identifier: Apache-2.0
"""hapax.begin, complete, fail and release in an application's own transaction: the effect, a row in a table of the
application's, is there exactly when its mark is. What a gateway does is played here by single statements; with the
real one in front these stories go on in test_transactional_guide.py."""
import contextlib
import json
import os
import threading

import psycopg2
import psycopg2.extensions
import pytest

from harness import HANG_S, eventually

KEY = "8e03978e-40d5-43dd-bc93-6894a57f9324"
COMPLETED, FAILED, UNKNOWN = 2, 3, 4


class Application:
    """Its tables, its role without any other right, and its connections."""

    def __init__(self, database):
        self.database = database
        self.role = f"application_of_{database.name}"
        database.ask("CREATE TABLE effects (id serial PRIMARY KEY, what text)")
        database.ask(f"CREATE ROLE {self.role} LOGIN")
        database.ask(f"GRANT ALL ON effects, effects_id_seq TO {self.role}")
        database.ask("SELECT hapax.grant_to(%s)", self.role)

    @contextlib.contextmanager
    def transaction(self, url=None):
        """A cursor; committed at the end of the block, rolled back when it raises."""
        connection = psycopg2.connect(url or self.database.server.url(self.database.name, self.role))
        try:
            with connection, connection.cursor() as cursor:
                yield cursor
        finally:
            connection.close()

    def effects(self):
        return self.database.ask("SELECT count(*) FROM effects")[0][0]

    def drop(self):
        self.database.ask(f"DROP OWNED BY {self.role}")
        self.database.ask(f"DROP ROLE {self.role}")


@pytest.fixture
def application(database):
    made = Application(database)
    yield made
    made.drop()


def claim(database, state=1, lifetime=3600_000, tombstone=0):
    """As a gateway does; returns what it sends as Hapax-Operation."""
    op = os.urandom(16)
    epoch = database.ask(
        "INSERT INTO hapax.operations (op, epoch, claim_ticket, write_ticket, changed_at, due_at, lease_until,"
        " lifetime, tombstone, rule_version, state, from_state, attempt, route, head)"
        " SELECT %s, nextval('hapax.epochs'), 1, 1, hapax.now(), hapax.now() + 60000, hapax.now() + 60000, %s, %s, 0,"
        " %s, 0, 1, 'refunds', '' RETURNING epoch",
        op, lifetime, tombstone, state)[0][0]
    return f"{op.hex()}.{epoch}"


def row(database, operation, *columns):
    found = database.ask(f"SELECT {', '.join(columns)} FROM hapax.operations WHERE encode(op, 'hex') = %s",
                         operation.split(".")[0])
    return tuple(bytes(value) if isinstance(value, memoryview) else value for value in found[0]) if found else None


def refund(cursor, what="10.00"):
    cursor.execute("INSERT INTO effects (what) VALUES (%s)", (what,))


def complete(cursor, operation, status=201, headers=None, body=None):
    cursor.execute("SELECT hapax.complete(%s, %s, %s, %s::json)",
                   (operation, status, json.dumps(headers or {}), json.dumps(body or {"id": "rf_1"})))


def begin(cursor, key=KEY, payload='{"amount": 1000}', route="refunds", principal="user:7", **options):
    cursor.execute("SELECT verdict, operation, status, headers, body FROM hapax.begin(%s, %s, %s, %s::jsonb, %s)",
                   (route, principal, key, payload, json.dumps(options)))
    return cursor.fetchone()


@contextlib.contextmanager
def refused(code):
    with pytest.raises(psycopg2.Error) as raised:
        yield raised
    assert raised.value.pgcode == code, raised.value


def test_effect_and_mark_are_committed_together(application, database):
    operation = claim(database)
    with application.transaction() as cursor:
        refund(cursor)
        complete(cursor, operation, headers={"Location": "/refunds/rf_1"})
        assert row(database, operation, "state") == (1,)  # not before the effect is
        assert application.effects() == 0
    assert application.effects() == 1
    state, status, retained, body = row(database, operation, "state", "status", "retained", "body")
    assert (state, status, retained, json.loads(body)) == (COMPLETED, 201, True, {"id": "rf_1"})
    assert database.ask("SELECT count(*) FROM hapax.staged") == [(0,)]


def test_a_rollback_takes_effect_and_mark_back(application, database):
    operation = claim(database)
    with contextlib.suppress(ZeroDivisionError), application.transaction() as cursor:
        refund(cursor)
        complete(cursor, operation)
        raise ZeroDivisionError
    assert application.effects() == 0
    assert row(database, operation, "state") == (1,)
    with application.transaction() as cursor:  # and the same epoch may still do it
        refund(cursor)
        complete(cursor, operation)
    assert application.effects() == 1


def test_an_application_that_dies_leaves_neither(application, database):
    operation = claim(database)
    with pytest.raises(psycopg2.Error), application.transaction() as cursor:
        refund(cursor)
        complete(cursor, operation)
        database.ask("SELECT pg_terminate_backend(%s)", cursor.connection.info.backend_pid)
        cursor.execute("SELECT 1")
    assert application.effects() == 0
    assert row(database, operation, "state") == (1,)


def test_a_transaction_of_an_old_epoch_fails_and_takes_its_effect_back(application, database):
    operation = claim(database)
    database.ask("UPDATE hapax.operations SET epoch = nextval('hapax.epochs')")
    with refused("HX001") as raised, application.transaction() as cursor:
        refund(cursor)
        complete(cursor, operation)
    assert "stale" in str(raised.value) and "Roll this transaction back" in raised.value.diag.message_hint
    assert application.effects() == 0
    assert row(database, operation, "state") == (1,)


def test_an_epoch_that_is_raised_while_the_transaction_waits_is_seen(application, database):
    operation = claim(database)
    with contextlib.closing(database.connect()) as gateway, gateway.cursor() as raising:
        raising.execute("UPDATE hapax.operations SET epoch = nextval('hapax.epochs')")
        failures = []

        def late():
            try:
                with application.transaction() as cursor:
                    refund(cursor)
                    complete(cursor, operation)
            except psycopg2.Error as error:
                failures.append(error.pgcode)

        thread = threading.Thread(target=late)
        thread.start()
        eventually(lambda: database.ask("SELECT 1 FROM pg_stat_activity WHERE datname = %s AND "
                                        "wait_event_type = 'Lock'", database.name), "the transaction waiting")
        gateway.commit()
        thread.join(timeout=HANG_S)
    assert failures == ["HX001"]
    assert application.effects() == 0


def test_completing_twice_is_refused_in_one_transaction_and_in_two(application, database):
    operation = claim(database)
    with refused("HX004"), application.transaction() as cursor:
        refund(cursor)
        complete(cursor, operation)
        complete(cursor, operation)
    assert application.effects() == 0
    with application.transaction() as cursor:
        refund(cursor)
        complete(cursor, operation)
    with refused("HX004"), application.transaction() as cursor:
        refund(cursor, "again")
        cursor.execute("SELECT hapax.fail(%s, 422)", (operation,))
    assert application.effects() == 1
    assert row(database, operation, "state") == (COMPLETED,)


def test_a_savepoint_takes_its_mark_along(application, database):
    operation = claim(database)
    with application.transaction() as cursor:
        cursor.execute("SAVEPOINT before")
        complete(cursor, operation, body={"id": "first"})
        cursor.execute("ROLLBACK TO before")
        refund(cursor)
        complete(cursor, operation, body={"id": "second"})
    assert json.loads(row(database, operation, "body")[0]) == {"id": "second"}


def test_an_operation_that_is_none_is_refused(application):
    for operation, code in (("0" * 32 + ".1", "HX002"), ("0" * 32, "HX003"), ("", "HX003"), (None, "HX003"),
                            ("0" * 32 + ".0", "HX003"), ("x" * 32 + ".1", "HX003"), ("0" * 32 + ".1 ", "HX003"),
                            ("0" * 32 + "." + "9" * 19, "HX003")):
        for call in ("hapax.complete(%s, 201)", "hapax.fail(%s, 422)", "hapax.release(%s)", "hapax.begin(%s)"):
            with refused(code), application.transaction() as cursor:
                refund(cursor)
                cursor.execute(f"SELECT {call}", (operation,))
    assert application.effects() == 0


def test_an_unknown_operation_is_still_completed_by_its_own_epoch(application, database):
    operation = claim(database, state=UNKNOWN)
    with application.transaction() as cursor:
        refund(cursor)
        complete(cursor, operation)
    assert row(database, operation, "state", "from_state") == (COMPLETED, UNKNOWN)
    assert database.ask("SELECT (was).state FROM hapax.past") == [(UNKNOWN,)]


def test_a_refusal_is_kept_as_failed_and_a_release_gives_the_key_back(application, database):
    failed, released = claim(database), claim(database)
    with application.transaction() as cursor:
        cursor.execute("SELECT hapax.fail(%s, 422, NULL, %s::json)", (failed, '{"error":"too much"}'))
        cursor.execute("SELECT hapax.release(%s, 'the charge is locked')", (released,))
    assert row(database, failed, "state", "status", "reason") == (FAILED, 422, "answered 422")
    assert row(database, released, "state", "reason") == (0, "the charge is locked")
    with refused("HX001"), application.transaction() as cursor:
        refund(cursor)
        complete(cursor, released)
    assert application.effects() == 0


def test_a_lifetime_begins_at_the_commit(application, database):
    operation = claim(database, lifetime=5000, tombstone=9000)
    with application.transaction() as cursor:
        complete(cursor, operation)
        cursor.execute("SELECT pg_sleep(0.05)")
        cursor.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
        before_commit = cursor.fetchone()[0]
    changed, expires, tombstone, due = row(database, operation, "changed_at", "expires_at", "tombstone_until", "due_at")
    assert changed >= before_commit
    assert (expires - changed, tombstone - expires) == (5000, 9000)
    assert expires <= due < expires + 1000


def test_headers_are_kept_in_their_order(application, database):
    operations = [claim(database) for _ in range(3)]
    given = ['{"X-B": "1", "X-A": ["2", "3"], "Date": "Thu, 01 Jan 1970 00:00:00 GMT"}',
             '[["X-B", 1], ["X-A", "2"], ["X-A", " 3 "], ["Date", "Thu, 01 Jan 1970 00:00:00 GMT"]]']
    with application.transaction() as cursor:
        for operation, headers in zip(operations, given):
            cursor.execute("SELECT hapax.complete(%s, 200, %s, %s)", (operation, headers, psycopg2.Binary(b"\0\xff")))
        cursor.execute("SELECT hapax.complete(%s, 200, NULL, '{}'::jsonb)", (operations[2],))
    for operation in operations[:2]:
        assert row(database, operation, "headers", "body") == (
            b"X-B: 1\r\nX-A: 2\r\nX-A: 3\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n", b"\0\xff")
    lines = row(database, operations[2], "headers")[0].split(b"\r\n")
    assert lines[0] == b"Content-Type: application/json" and lines[1].startswith(b"Date: ")


BAD_HEADERS = (
    '{"Content-Length": "3"}', '{"transfer-encoding": "chunked"}', '{"Connection": "close"}', '{"Set-Cookie": "a=b"}',
    '{"Idempotency-Status": "stored"}', '{"Hapax-Outcome": "store"}', '{"A B": "c"}', '{"": "c"}',
    '{"A": "b\\r\\nC: d"}', '{"A": null}', '{"A": {"b": 1}}', '[["A"]]', '["A: b"]', '"A: b"', '{"A": [["b"]]}',
    '{"A": "b\\u0000"}', '[["A\\u0000", "b"]]', json.dumps({f"A-{number}": "b" for number in range(300)}),
    json.dumps({"A": ["b"] * 199}))


def test_headers_that_no_answer_may_have_are_refused(application, database):
    operation = claim(database)
    for headers in BAD_HEADERS:
        with refused("HX003"), application.transaction() as cursor:
            refund(cursor)
            cursor.execute("SELECT hapax.complete(%s, 201, %s)", (operation, headers))
    assert application.effects() == 0


def test_every_header_line_of_an_answer_that_is_taken_is_given_back(start_node, application, database, upstream, key):
    """As many as an upstream's answer may have."""
    node = start_node(database.url, "defaults:\n  guarantee: transactional\n")
    headers = [["X-Many", str(number)] for number in range(198)]

    def run(exchange):
        exchange.read_body()
        exchange.upstream.record_effect(exchange.request)
        with application.transaction() as cursor:
            cursor.execute("SELECT hapax.complete(%s, 201, %s, '{}'::json)",
                           (exchange.request.header("Hapax-Operation"), json.dumps(headers)))
        exchange.answer(201, b"{}", [])

    upstream.on("/refunds", run)
    for status in ("stored", "replayed"):
        response = node.post("/refunds", key=key, json={})
        assert (response.status, response.idempotency) == (201, status)
        assert [value for name, value in response.headers if name == "X-Many"] == [value for _, value in headers]
    assert upstream.effects("/refunds") == 1


def test_an_answer_that_can_not_be_kept_is_refused(application, database):
    operation = claim(database)
    for call in ("complete(%s, 199)", "complete(%s, 307)", "complete(%s, 404)", "complete(%s, NULL)", "fail(%s, 201)",
                 "fail(%s, 401)", "fail(%s, 429)", "fail(%s, 600)", "complete(%s, 204, NULL, 'body')",
                 "complete(%s, 200, NULL, repeat('x', 16 << 20))", "complete(%s, 200, NULL, '', repeat('x', 300))"):
        with refused("HX003"), application.transaction() as cursor:
            refund(cursor)
            cursor.execute(f"SELECT hapax.{call}", (operation,))
    assert application.effects() == 0


def test_what_was_begun_can_not_be_overtaken(application, database):
    operation = claim(database)
    with application.transaction() as cursor:
        cursor.execute("SELECT verdict, operation FROM hapax.begin(%s)", (operation,))
        assert cursor.fetchone() == ("run", operation)
        assert database.ask("SELECT 1 FROM hapax.operations FOR UPDATE SKIP LOCKED") == []
        refund(cursor)
        complete(cursor, operation)
    with application.transaction() as cursor:
        cursor.execute("SELECT verdict, status, body FROM hapax.begin(%s)", (operation,))
        verdict, status, body = cursor.fetchone()
        assert (verdict, status, json.loads(bytes(body))) == ("replay", 201, {"id": "rf_1"})
    assert application.effects() == 1


@pytest.mark.parametrize("alone", [False, True])
def test_a_gateway_never_waits_for_an_application(application, database, alone):
    """Whose transaction is done but for its COMMIT, and takes its time. An insertion that would wait is given up."""
    operation = claim(database)
    with application.transaction() as cursor:
        if alone:
            operation = begin(cursor)[1]
        refund(cursor)
        complete(cursor, operation)
        with contextlib.closing(database.connect()) as gateway, gateway.cursor() as claiming:
            claiming.execute(f"SET lock_timeout = '{HANG_S} s'")
            claiming.execute("INSERT INTO hapax.operations (op, epoch, claim_ticket, write_ticket, changed_at,"
                             " rule_version, state, from_state, attempt, route, head) SELECT decode(%s, 'hex'),"
                             " nextval('hapax.epochs'), 2, 2, hapax.now(), 0, 1, 0, 1, 'refunds', ''"
                             " ON CONFLICT (op) DO NOTHING", (operation.split(".")[0],))
            assert claiming.rowcount == (1 if alone else 0)
            gateway.rollback()
    assert application.effects() == 1


def test_an_operation_of_the_applications_own_runs_once(application, database):
    with application.transaction() as cursor:
        verdict, operation, *_ = begin(cursor)
        assert verdict == "run"
        refund(cursor)
        complete(cursor, operation, headers={"Location": "/refunds/rf_1"})
    with application.transaction() as cursor:
        verdict, none, status, headers, body = begin(cursor, payload='{"amount": 1000.0}')
        assert (verdict, none, status, json.loads(bytes(body))) == ("replay", None, 201, {"id": "rf_1"})
        assert ["Location", "/refunds/rf_1"] in headers
        assert begin(cursor, payload='{"amount": 1001}')[0] == "mismatch"
        assert begin(cursor, principal="user:8")[0] == "run"
    assert application.effects() == 1
    assert database.ask("SELECT count(*) FROM hapax.operations") == [(2,)]  # user 8 has begun


def test_ten_at_once_are_one_effect_and_ten_answers(application):
    answers, start = [], threading.Barrier(10)

    def one():
        start.wait()
        with application.transaction() as cursor:
            verdict, operation, _, _, body = begin(cursor)
            if verdict == "run":
                refund(cursor)
                complete(cursor, operation)
            answers.append((verdict, bytes(body or b'{"id": "rf_1"}')))

    threads = [threading.Thread(target=one) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=HANG_S)
    assert sorted(answers) == [("replay", b'{"id": "rf_1"}')] * 9 + [("run", b'{"id": "rf_1"}')]
    assert application.effects() == 1


def test_who_does_not_wait_is_told_that_it_is_in_flight(application):
    with application.transaction() as first, application.transaction() as second:
        assert begin(first)[0] == "run"
        assert begin(second, wait=False)[0] == "in_flight"
        assert begin(second, key=KEY + "-other", wait=False)[0] == "run"


def test_what_is_begun_and_committed_is_in_flight_and_then_unknown(application, database):
    """For effects outside of the database: begun in one transaction, done, and completed in another."""
    with application.transaction() as cursor:
        _, operation, *_ = begin(cursor, lease="1 s")
    with application.transaction() as cursor:
        assert begin(cursor)[0] == "in_flight"
    database.ask("SELECT hapax.sweep(hapax.now() + 2000, 10)")
    with application.transaction() as cursor:
        assert begin(cursor)[0] == "unknown"
        complete(cursor, operation)
    with application.transaction() as cursor:
        assert begin(cursor)[0] == "replay"


def test_a_gateway_that_came_first_wins_at_the_commit(application, database):
    with refused("HX001"), application.transaction() as cursor:
        _, operation, *_ = begin(cursor)
        refund(cursor)
        complete(cursor, operation)
        database.ask("INSERT INTO hapax.operations (op, epoch, claim_ticket, write_ticket, changed_at, rule_version,"
                     " state, from_state, attempt, route, head) SELECT decode(%s, 'hex'), nextval('hapax.epochs'), 1,"
                     " 1, hapax.now(), 0, 1, 0, 1, 'refunds', ''", operation.split(".")[0])
    assert application.effects() == 0
    assert row(database, operation, "state", "claim_ticket") == (1, 1)


def test_a_released_key_is_begun_again(application, database):
    with application.transaction() as cursor:
        _, first, *_ = begin(cursor)
    with application.transaction() as cursor:
        cursor.execute("SELECT hapax.release(%s)", (first,))
    with application.transaction() as cursor:
        verdict, second, *_ = begin(cursor)
        assert verdict == "run" and int(second.split(".")[1]) > int(first.split(".")[1])
        refund(cursor)
        complete(cursor, second)
    assert application.effects() == 1
    assert row(database, second, "state") == (COMPLETED,)
    assert database.ask("SELECT (was).state FROM hapax.past") == [(0,)]


def test_what_is_released_in_the_transaction_that_began_it_was_never_there(application, database):
    with application.transaction() as cursor:
        _, operation, *_ = begin(cursor)
        cursor.execute("SELECT hapax.release(%s)", (operation,))
        verdict, again, *_ = begin(cursor)
        assert verdict == "run" and again != operation
        refund(cursor)
        complete(cursor, again)
        assert begin(cursor)[0] == "replay"
    assert application.effects() == 1
    assert database.ask("SELECT state FROM hapax.operations") == [(COMPLETED,)]


def test_an_expired_operation_runs_again_and_a_tombstone_says_no(application, database):
    for key, options, later in ((KEY, {}, "run"), (KEY + "-2", {"tombstone": "1 day"}, "expired")):
        with application.transaction() as cursor:
            complete(cursor, begin(cursor, key=key, lifetime="1 hour", **options)[1])
        database.ask("UPDATE hapax.operations SET expires_at = hapax.now() - 5000 WHERE expires_at > hapax.now()")
        with application.transaction() as cursor:
            assert begin(cursor, key=key)[0] == later


def test_who_shares_a_key_over_a_whole_route_does_not_see_the_answer_of_another(application):
    with application.transaction() as cursor:
        complete(cursor, begin(cursor, scope="route")[1])
        assert begin(cursor, scope="route")[0] == "replay"
    with application.transaction() as cursor:
        assert begin(cursor, scope="route", principal="user:8")[0] == "other_caller"
        assert begin(cursor, principal="user:8")[0] == "run"


def test_rules_that_are_being_changed_hold_a_new_operation_up(application, database):
    database.ask("INSERT INTO hapax.rules VALUES ('refunds', -7)")
    with refused("HX005"), application.transaction() as cursor:
        operation = begin(cursor)[1]
        refund(cursor)
        complete(cursor, operation)
        database.ask("UPDATE hapax.rules SET rule_version = -8")
    assert application.effects() == 0
    with application.transaction() as cursor:
        complete(cursor, begin(cursor)[1])
    assert database.ask("SELECT rule_version FROM hapax.operations") == [(-8,)]


def test_an_option_that_is_wrong_is_refused(application):
    for options in ({"lifetme": "1 h"}, {"scope": "all"}, {"lifetime": "0"}, {"credential": ["basic", "alice"]},
                    {"lease": "-1 s"}, {"lifetime": "a day"}, {"lifetime": 60}, {"lifetime": "200 years"},
                    {"lease": "99999999999999 years"}, {"tombstone": []}, {"wait": "perhaps"}, {"wait": 1},
                    {"scope": ["both"]}, {"method": {"POST": 1}}, {"credential": "alice"},
                    {"credential": {"basic": 1}}):
        with refused("HX003"), application.transaction() as cursor:
            refund(cursor)
            begin(cursor, **options)
    for options in ('[]', '"scope"', '1', 'null', None, '{"credential": ["basic", null]}', '{"credential": ["a", 1]}',
                    '{"credential": []}'):
        with refused("HX003"), application.transaction() as cursor:
            refund(cursor)
            cursor.execute("SELECT hapax.begin('refunds', NULL, %s, '{}'::jsonb, %s)", (KEY, options))
    assert application.effects() == 0


def test_an_option_that_is_null_is_as_if_left_out(application):
    names = ("scope", "credential", "lifetime", "tombstone", "lease", "wait", "method", "path", "query", "media_type",
             "content_encoding")
    with application.transaction() as cursor:
        verdict, operation = begin(cursor, **dict.fromkeys(names))[:2]
        assert verdict == "run"
        assert begin(cursor)[:2] == ("run", operation)  # the same operation


def test_a_release_needs_no_reason(application, database):
    operation = claim(database)
    with application.transaction() as cursor:
        cursor.execute("SELECT hapax.release(%s, NULL)", (operation,))
    assert row(database, operation, "state", "reason") == (0, "")


@pytest.mark.parametrize("setting", ["off", "local", "remote_write", "on", "remote_apply"])
def test_a_mark_is_durable_whatever_the_session_has_set(application, database, setting):
    """On the standby's disk too, where there is one."""
    operation = claim(database)
    with application.transaction() as cursor:
        cursor.execute(f"SET synchronous_commit = {setting}")
        complete(cursor, operation)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # what is done at COMMIT is done now
        cursor.execute("SHOW synchronous_commit")
        assert cursor.fetchone() == ("remote_apply" if setting == "remote_apply" else "on",)
    with application.transaction() as cursor:
        cursor.execute(f"SET synchronous_commit = {setting}")
        cursor.execute("SELECT verdict FROM hapax.begin(%s)", (operation,))
        assert cursor.fetchone() == ("replay",)  # what is told must not be forgotten either
        cursor.execute("SHOW synchronous_commit")
        assert cursor.fetchone() == ("remote_apply" if setting == "remote_apply" else "on",)


def test_through_a_pooler_in_transaction_mode(application, database, pooler):
    for number in range(20):
        operation = claim(database)
        with application.transaction(pooler.url(database.name)) as cursor:
            cursor.execute("SELECT verdict FROM hapax.begin(%s)", (operation,))
            assert cursor.fetchone() == ("run",)
            refund(cursor, str(number))
            complete(cursor, operation)
    assert application.effects() == 20
    assert database.ask("SELECT DISTINCT state FROM hapax.operations") == [(COMPLETED,)]


def test_an_application_can_call_the_functions_and_nothing_else(application, database):
    callable_ones = database.ask("SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'hapax'::regnamespace"
                                 " AND has_function_privilege(%s, oid, 'EXECUTE') ORDER BY 1", application.role)
    assert callable_ones == [("begin",), ("complete",), ("fail",), ("release",)]
    for sql in ("SELECT secret FROM hapax.store", "SELECT * FROM hapax.operations", "SELECT * FROM hapax.staged",
                "SELECT hapax.mac_keys()", "SELECT hapax.settle('x', 2::smallint, 201, '', '', '', '')",
                "SELECT nextval('hapax.epochs')", "SELECT hapax.read_many('{}')",
                "SELECT hapax.grant_to('postgres', 'gateway')",
                "INSERT INTO hapax.staged (op, is_new, o) VALUES ('', false, NULL)"):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege), application.transaction() as cursor:
            cursor.execute(sql)


def test_a_role_without_rights_can_not_even_call_them(application, database):
    operation = claim(database)
    database.ask(f"REVOKE USAGE ON SCHEMA hapax FROM {application.role}")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege), application.transaction() as cursor:
        complete(cursor, operation)


def test_a_function_of_the_applications_own_is_never_called_in_its_place(application, database):
    """The functions run with their owner's rights: what somebody puts into a search path must not run with them."""
    operation = claim(database)
    database.ask(f"CREATE SCHEMA trap AUTHORIZATION {application.role}")
    with application.transaction() as cursor:
        for name in ("convert_to(text, name)", "sha256(bytea)", "set_config(text, text, boolean)", "now()"):
            cursor.execute(f"CREATE FUNCTION trap.{name} RETURNS bytea LANGUAGE plpgsql AS"
                           " $$ BEGIN RAISE EXCEPTION 'called as %', current_user; END $$")
        cursor.execute("CREATE FUNCTION trap.trapped(text, text) RETURNS boolean LANGUAGE plpgsql AS"
                       " $$ BEGIN RAISE EXCEPTION 'called as %', current_user; END $$")
        cursor.execute("CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.trapped)")
        cursor.execute("SET search_path = trap, pg_catalog")
        with pytest.raises(psycopg2.errors.RaiseException, match="called as application"):  # the trap works
            cursor.execute("SAVEPOINT before")
            cursor.execute("SELECT convert_to('x', 'UTF8')")
        cursor.execute("ROLLBACK TO before")
        complete(cursor, operation)
        complete(cursor, begin(cursor)[1])
        cursor.execute("SET synchronous_commit = off")
    assert database.ask("SELECT DISTINCT state FROM hapax.operations") == [(COMPLETED,)]
    database.ask("DROP SCHEMA trap CASCADE")


def test_whatever_runs_with_its_owners_rights_has_a_search_path_of_its_own(database):
    guarded = dict(database.ask("""
        SELECT oid::regprocedure::text, 'search_path=hapax, pg_temp' = ANY (coalesce(proconfig, '{}'))
          FROM pg_proc WHERE pronamespace = 'hapax'::regnamespace AND prosecdef"""))
    assert {name.partition("(")[0] for name in guarded} >= {"hapax.begin", "hapax.complete", "hapax.release"}, guarded
    assert [name for name, is_guarded in guarded.items() if not is_guarded] == []


def name_standby(server, name):
    server.ask(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    server.ask("SELECT pg_reload_conf()")
    eventually(lambda: server.ask("SHOW synchronous_standby_names") == [(name,)], "the setting in force")


def test_what_begin_says_of_an_outcome_waits_for_the_standby_that_may_not_have_it(start_postgres):
    """It was committed when no standby was named, which stands for a wait that was cut short: a caller that acts on it
    must not be ahead of what a failover leaves."""
    server = start_postgres()
    database = server.create_database()
    begin = "SELECT (hapax.begin('refunds', 'ada', 'key-of-her-refund', 'x'::text)).*"
    with contextlib.closing(database.connect()) as connection, connection, connection.cursor() as cursor:
        cursor.execute(begin)
        operation = cursor.fetchone()[1]
        cursor.execute("SELECT hapax.complete(%s, 200, NULL, 'done'::text)", (operation,))
    name_standby(server, "elsewhere")
    with contextlib.closing(database.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")
        connection.commit()
        cursor.execute(begin)
        assert cursor.fetchone()[0] == "replay"
        committing = threading.Thread(target=connection.commit)
        committing.start()
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid = %s"
        eventually(lambda: server.ask(waits, connection.info.backend_pid), "a COMMIT that waits for the standby")
        name_standby(server, "")
        committing.join(HANG_S)
        assert not committing.is_alive()
