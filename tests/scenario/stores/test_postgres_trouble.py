# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL in trouble: what a gateway says when it can't start on it, and what its clients get when the server dies,
hangs, refuses or loses connections under it. Protected requests fail closed; everything else goes on; and when the
trouble is over, so are its consequences."""
import concurrent.futures
import contextlib
import os
import signal
import threading
import time

import psycopg2
import pytest

from harness import EXIT_STORE, answer, drop_after_effect, eventually, fresh_key, lasting
from harness.postgres import taken_by_a_stranger

IN_FLIGHT = "CONFLICT.idempotency.in_flight"
MISMATCH = "CONFLICT.idempotency.payload_mismatch"
UNAVAILABLE = "DEPENDENCY.unavailable"
DOWN = "store_unavailable"
CANT_CONNECT = "server_unreachable"
REFUSES = "server_refused"
REFUND = {"amount": 1000, "currency": "eur"}
PATIENT = """
    defaults:
      wait: 5m
    """


def is_unavailable(response):
    """503, and everything that a client needs to do the right thing."""
    problem = response.refuses(503, UNAVAILABLE)
    assert problem["retryable"] is True
    assert int(response.header("Retry-After")) >= 1
    return response


def served(node, key, body=None):
    """The answer, once the store is there again: as a client does it, with the same key."""

    def asked():
        response = node.post("/refunds", key=key, json=REFUND if body is None else body)
        if response.status == 503:
            is_unavailable(response)
            return None
        if response.header("Error-Code") == IN_FLIGHT:  # a claim that was given up is about to be taken back
            assert int(response.header("Retry-After")) >= 1
            return None
        return response

    return eventually(asked, "an answer after the trouble")


# At the start


@pytest.fixture
def refused(hapax, upstream):
    """Starts a gateway that must not start, and returns the one sentence that it says of it."""

    def start(url):
        run = hapax("serve", "--listen", "127.0.0.1:0", "--upstream", upstream.url, "--store", url)
        assert run.code == EXIT_STORE, run
        said = [line for line in run.stderr.splitlines() if line]
        assert len(said) == 1, run
        assert said[0].startswith("hapax: "), run
        return said[0]

    return start


def test_start_with_a_wrong_password(start_postgres, refused):
    server = start_postgres(auth="scram-sha-256", password="wonderful")
    database = server.create_database()
    said = refused(server.url(database.name, password="incorrect"))
    assert 'password authentication failed for user "postgres"' in said
    assert "incorrect" not in said


def test_start_without_the_database(postgres, refused):
    assert 'database "nowhere" does not exist' in refused(postgres.url("nowhere"))


def test_start_without_a_server(refused):
    said = refused("postgres://127.0.0.1:1/hapax")
    assert "127.0.0.1" in said and "Connection refused" in said


@pytest.mark.parametrize("url, why", [
    ("postgres://me:incorrect@127.0.0.1/hapax?nonsense=1", 'a parameter that libpq doesn\'t know: "nonsense"'),
    ("postgres://me:incorrect@[::1/hapax", "the store's URL can't be read"),
    ("postgres://me:incorrect@127.0.0.1:99999/hapax", 'invalid port number: "99999"'),
])
def test_start_with_a_url_that_means_nothing(refused, url, why):
    said = refused(url)
    assert why in said
    assert "incorrect" not in said


def test_start_without_the_schema(postgres, refused):
    database = postgres.create_database(schema=False)
    assert "hapax store migrate" in refused(database.url)
    database.drop()


def test_start_on_an_older_schema(database, refused):
    database.ask("UPDATE hapax.store SET version = 1")
    said = refused(database.url)
    assert "version 1" in said and "hapax store migrate" in said


def test_start_on_a_newer_schema(database, refused):
    database.ask("UPDATE hapax.store SET version = 99")
    said = refused(database.url)
    assert "version 99" in said and "use a newer hapax" in said


def test_start_on_a_standby(start_postgres, refused):
    primary = start_postgres()
    database = primary.create_database()
    standby = primary.standby()
    for attributes in ("", "?target_session_attrs=any"):
        said = refused(standby.url(database.name) + attributes)
        assert "standby" in said and "name the primary, or both" in said


@contextlib.contextmanager
def role(database, *grants):
    """A role of its own, with these grants; its URL."""
    name = f"role_{fresh_key()[:8]}"
    database.ask(f"CREATE ROLE {name} LOGIN")
    for grant in grants:
        database.ask(grant.format(role=name))
    try:
        yield name, database.server.url(database.name, name)
    finally:
        database.ask(f"DROP OWNED BY {name}")
        database.ask(f"DROP ROLE {name}")


AS_A_GATEWAY = "SELECT hapax.grant_to('{role}', 'gateway')"


def test_start_as_a_role_that_only_reads(database, refused):
    with role(database, AS_A_GATEWAY, "ALTER ROLE {role} SET default_transaction_read_only = on") as (_, url):
        assert "read-only" in refused(url)


@pytest.mark.parametrize("grants", [
    [],
    ["GRANT USAGE ON SCHEMA hapax TO {role}", "GRANT SELECT ON ALL TABLES IN SCHEMA hapax TO {role}"],
])
def test_start_as_a_role_without_rights(database, refused, grants):
    with role(database, *grants) as (_, url):
        said = refused(url)
    assert "permission denied" in said
    assert "hapax sql postgres" in said


def test_start_as_a_role_with_a_gateways_rights(database, start_node, upstream, key):
    with role(database, AS_A_GATEWAY) as (_, url):
        node = start_node(url)
        first = node.post("/refunds", key=key, json=REFUND)
        assert (first.status, first.idempotency) == (201, "stored")
        assert lasting(node.post("/refunds", key=key, json=REFUND)) == lasting(first)
        assert upstream.effects("/refunds") == 1
        node.terminate()
        assert node.wait_exit() == 0


# While it runs


def test_the_server_is_killed_and_comes_back(start_postgres, start_node, upstream, hapax):
    server = start_postgres()
    database = server.create_database()
    node = start_node(database.url)
    database.wait_checked(node)
    acknowledged = {key: node.post("/refunds", key=key, json=REFUND) for key in (fresh_key() for _ in range(20))}
    server.kill()
    key = fresh_key()
    for asked in (key, key, fresh_key(), next(iter(acknowledged))):
        is_unavailable(node.post("/refunds", key=asked, json=REFUND))
        assert node.get("/refunds/1").status == 200  # nothing to protect here
    assert upstream.effects("/refunds") == 20
    for event in (DOWN, CANT_CONNECT):
        lines = node.wait_events(event)
        assert len(lines) == 1, lines  # however many requests and connections found out
    assert "127.0.0.1" in lines[0]["reason"]
    assert "that the server runs" in lines[0]["hint"]
    for yes in ((), ("--yes",)):
        told = hapax("keys", "forget", "--state", "completed", "--why", "a drill", *yes, "--admin",
                     f"unix:{node.store}/admin.sock")
        assert told.code == EXIT_STORE and "can't be read" in told.stderr and not told.stdout, told
    server.start()
    first = served(node, key)
    assert (first.status, first.idempotency) == (201, "stored")
    for asked, before in acknowledged.items():
        again = served(node, asked)
        assert lasting(again) == lasting(before)
        assert again.idempotency == "replayed"
    assert upstream.effects("/refunds") == 21
    assert set(upstream.effects_by_key.values()) == {1}


def test_an_answer_is_held_while_the_store_is_away(start_postgres, start_node, upstream, key):
    server = start_postgres()
    database = server.create_database()
    node = start_node(database.url, PATIENT)
    with upstream.hold("/refunds") as held:
        first = node.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        server.kill()
    upstream.wait(lambda: upstream.requests[-1].answered_at, "the application's answer")
    server.start()
    assert (first.status, first.idempotency) == (201, "stored")
    assert database.ask("SELECT state, status FROM hapax.operations") == [(2, 201)]
    assert lasting(node.post("/refunds", key=key, json=REFUND)) == lasting(first)
    assert upstream.effects("/refunds") == 1


def test_an_answer_that_cannot_be_recorded_is_not_given(start_postgres, start_node, upstream, key):
    """The client's time ends before the store is back: it is told so, and never a 2xx that could be forgotten."""
    server = start_postgres()
    node = start_node(server.create_database().url)
    with upstream.hold("/refunds") as held:
        first = node.send("POST", "/refunds", key=key, json=REFUND, headers={"X-Request-Timeout": "2s"})
        held.wait_arrived()
        server.kill()
    assert first.status in (503, 504), first
    assert first.idempotency == "unknown"
    assert int(first.header("Retry-After")) >= 1
    server.start()
    again = served(node, key)  # its outcome is recorded all the same, as soon as it can be
    eventually(lambda: node.post("/refunds", key=key, json=REFUND).status == 201, "the outcome that was held")
    assert again.status in (201, 409), again
    assert upstream.effects("/refunds") == 1


def test_the_server_hangs_and_goes_on(start_postgres, start_node, upstream):
    server = start_postgres()
    node = start_node(server.create_database().url)
    before = fresh_key()
    acknowledged = node.post("/refunds", key=before, json=REFUND)
    keys = [fresh_key() for _ in range(4)]
    server.pause()
    try:
        waiting = [node.send("POST", "/refunds", key=key, json=REFUND) for key in (before, *keys)]
        assert node.get("/refunds/1").status == 200
        for pending in waiting:
            is_unavailable(pending)
        assert upstream.effects("/refunds") == 1
    finally:
        server.resume()
    assert lasting(served(node, before)) == lasting(acknowledged)
    for key in keys:  # nothing was sent under any of them
        first = served(node, key)
        assert (first.status, first.idempotency) == (201, "stored")
        assert lasting(node.post("/refunds", key=key, json=REFUND)) == lasting(first)
    assert upstream.effects("/refunds") == 5
    assert set(upstream.effects_by_key.values()) == {1}


SLOW_TAKE_OVER = """
    CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        WHILE NOT pg_try_advisory_xact_lock_shared(4711) LOOP PERFORM pg_sleep(0.01); END LOOP;
        RETURN NEW;
    END $$;
    CREATE TRIGGER dawdle BEFORE UPDATE ON hapax.operations FOR EACH ROW WHEN (OLD.state = 4 AND NEW.state = 1)
        EXECUTE FUNCTION dawdle()
    """


def test_what_was_to_be_sent_again_stays_unknown_when_its_claim_came_too_late(database, start_node, upstream, key):
    """The claim is committed when nobody waits for it any more: it is taken back, but not what happened before it."""
    node = start_node(database.url, """
    defaults:
      guarantee: idempotent
      retry: {attempts: 1}
    """)
    upstream.on("/refunds", drop_after_effect())
    assert node.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    database.ask(SLOW_TAKE_OVER)
    with contextlib.closing(database.connect()) as holder:
        holder.cursor().execute("SELECT pg_advisory_lock(4711)")
        is_unavailable(node.post("/refunds", key=key, json=REFUND))
    seen = "SELECT state, reason FROM hapax.operations"
    eventually(lambda: database.ask(seen) == [(4, "nothing was sent again")], "the claim given back")
    node.post("/refunds", key=key, json={"amount": 7}).refuses(409, MISMATCH)
    assert len(upstream.received("/refunds")) == 1
    upstream.on("/refunds", answer(201, "done", effect=False))  # it deduplicates
    assert (served(node, key).idempotency, len(upstream.received("/refunds"))) == ("stored", 2)
    assert upstream.effects("/refunds") == 1


def test_one_hung_connection_stops_no_request_on_the_others(database, start_node, upstream):
    node = start_node(database.url, PATIENT)
    assert node.post("/refunds", key=fresh_key(), json=REFUND).status == 201
    (hung,), = database.ask("SELECT pid FROM pg_stat_activity WHERE application_name = 'hapax'"
                            " AND datname = current_database() AND query LIKE '%settle_many%'")
    os.kill(hung, signal.SIGSTOP)
    try:
        sent = {}

        def another_way():
            key = fresh_key()
            sent[key] = node.send("POST", "/refunds", key=key, json=REFUND)
            return upstream.effects("/refunds") > 5

        eventually(another_way, "requests that go on beside the hung connection")
        assert node.get("/refunds/1").status == 200
        firsts = {key: pending.response for key, pending in sent.items()}  # those too that were on it
        assert {(first.status, first.idempotency) for first in firsts.values()} == {(201, "stored")}
    finally:
        os.kill(hung, signal.SIGCONT)
    for key, first in firsts.items():
        assert lasting(node.post("/refunds", key=key, json=REFUND)) == lasting(first)
    assert upstream.effects("/refunds") == 1 + len(sent)
    assert set(upstream.effects_by_key.values()) == {1}


@pytest.mark.parametrize("take, give", [
    ("REVOKE EXECUTE ON FUNCTION hapax.claim_many FROM {role}", "GRANT EXECUTE ON FUNCTION hapax.claim_many TO {role}"),
    ("REVOKE INSERT ON hapax.operations FROM {role}", "GRANT INSERT ON hapax.operations TO {role}"),
    ("REVOKE USAGE ON SCHEMA hapax FROM {role}", "GRANT USAGE ON SCHEMA hapax TO {role}"),
])
def test_a_statement_that_is_refused(database, start_node, upstream, take, give):
    with role(database, AS_A_GATEWAY) as (name, url):
        node = start_node(url)
        key, later = fresh_key(), fresh_key()
        first = node.post("/refunds", key=key, json=REFUND)
        database.ask(take.format(role=name))
        together = [node.send("POST", "/refunds", key=fresh_key(), json=REFUND) for _ in range(10)]
        for pending in together:
            is_unavailable(pending)
        is_unavailable(node.post("/refunds", key=later, json=REFUND))
        assert node.get("/refunds/1").status == 200
        lines = node.wait_events(REFUSES)
        assert len(lines) == 1, lines
        assert "permission denied" in lines[0]["reason"]
        assert "hapax sql postgres" in lines[0]["hint"]
        assert upstream.effects("/refunds") == 1
        database.ask(give.format(role=name))
        assert (served(node, later).status, upstream.effects("/refunds")) == (201, 2)
        assert lasting(node.post("/refunds", key=key, json=REFUND)) == lasting(first)
        node.terminate()
        assert node.wait_exit() == 0


def test_the_schema_is_gone_while_it_runs(postgres, start_node, upstream, key):
    database = postgres.create_database()
    node = start_node(database.url)
    database.wait_checked(node)
    database.ask("ALTER SCHEMA hapax RENAME TO mislaid")
    is_unavailable(node.post("/refunds", key=key, json=REFUND))
    assert "hapax store migrate" in node.wait_events(REFUSES)[0]["hint"]
    assert upstream.effects("/refunds") == 0
    database.ask("ALTER SCHEMA mislaid RENAME TO hapax")
    assert (served(node, key).status, upstream.effects("/refunds")) == (201, 1)
    node.terminate()
    assert node.wait_exit() == 0
    database.drop()


def test_the_password_is_changed_while_it_runs(start_postgres, start_node, upstream, key):
    server = start_postgres(auth="scram-sha-256", password="wonderful")
    database = server.create_database()
    node = start_node(database.url)
    database.wait_checked(node)
    server.ask("ALTER ROLE postgres PASSWORD 'marvellous'")
    old, server.password = server.password, "marvellous"
    cut(server)
    is_unavailable(node.post("/refunds", key=key, json=REFUND))
    line = node.wait_events(CANT_CONNECT)[0]
    assert "password authentication failed" in line["reason"]
    assert "password" in line["hint"]
    assert not [line for line in node.output[1:] if old in line]  # the first is the command as the story gave it
    server.ask(f"ALTER ROLE postgres PASSWORD '{old}'")
    server.password = old
    assert (served(node, key).status, upstream.effects("/refunds")) == (201, 1)


# Connections that break


def cut(server):
    """Every connection of every gateway, now. Returns how many there were."""
    with contextlib.closing(server.connect("postgres")) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                           " WHERE application_name = 'hapax'")
            return cursor.fetchone()[0]


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
def test_connections_that_are_cut_again_and_again_duplicate_and_lose_nothing(request, postgres, database, start_node,
                                                                             upstream, pooled):
    url = request.getfixturevalue("pooler").url(database.name) if pooled else database.url
    nodes = [start_node(url, PATIENT, workers=2), start_node(url, PATIENT)]
    over = threading.Event()
    answers = {}

    def client(number):
        while not over.is_set():
            key = fresh_key()
            answers[key] = served(nodes[number % 2], key)

    with concurrent.futures.ThreadPoolExecutor() as threads:
        clients = [threads.submit(client, number) for number in range(8)]
        try:
            terminated = 0
            for _ in range(40):
                goal = upstream.effects() + 3
                upstream.wait(lambda goal=goal: len(upstream.effect_log) >= goal, "the load going on")
                terminated += cut_of(database)
        finally:
            over.set()
        for each in clients:
            each.result()
    assert terminated >= 40
    for key, first in answers.items():
        assert first.status == 201, first
        assert upstream.effects_by_key[key] == 1
        for node in nodes:
            again = served(node, key)  # its connections may just be coming back
            assert (lasting(again), again.idempotency) == (lasting(first), "replayed")
    assert upstream.effects() == len(answers)
    assert database.ask("SELECT count(*) FROM hapax.operations WHERE state IN (1, 4)") == [(0,)]


def cut_of(database):
    """The connections to one database, whoever has them; a pooler's too."""
    return database.server.ask("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s",
                               database.name)[0][0]


def test_a_commit_that_did_not_reach_the_standby_is_not_durable(start_postgres, start_node, upstream, key):
    """Cancelled while it waits for its standby, a commit is there and yet not safe: PostgreSQL only warns of that."""
    primary = start_postgres()
    database = primary.create_database()
    standby = primary.standby()
    primary.ask("ALTER ROLE postgres SET client_min_messages = error")  # which would hide the warning
    node = start_node(database.url, PATIENT)
    standby.pause()
    try:
        first = node.send("POST", "/refunds", key=key, json=REFUND)
        cancel = ("SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity"
                  " WHERE wait_event = 'SyncRep' AND application_name = 'hapax'")
        for _ in range(3):  # whenever it tries again
            eventually(lambda: primary.ask(cancel)[0][0], "a commit that waits for the standby")

        def warned():  # of one that the gateway had not given up before
            primary.ask(cancel)
            return node.events("server_notice")

        eventually(warned, "a warning")
        assert upstream.effects("/refunds") == 0  # the claim isn't safe, so nothing was sent
    finally:
        standby.resume()
    if first.status != 201:  # it was tried for so long that the client was told
        is_unavailable(first)
        first = served(node, key)
    assert (first.status, first.idempotency) == (201, "stored")
    assert upstream.effects("/refunds") == 1


def test_a_standby_that_hangs_is_passed_over(start_postgres, start_node, upstream, key):
    primary = start_postgres()
    database = primary.create_database()
    standby = primary.standby(synchronous=False)
    hosts = f"127.0.0.1:{standby.port},127.0.0.1:{primary.port}"
    node = start_node(f"postgres://postgres@{hosts}/{database.name}?target_session_attrs=read-write")
    standby.pause()
    try:
        cut_of(database)
        assert served(node, key).status == 201
    finally:
        standby.resume()
    assert upstream.effects("/refunds") == 1


def test_the_primary_dies_and_the_standby_takes_over(start_postgres, start_node, upstream, key):
    primary = start_postgres()
    database = primary.create_database()
    standby = primary.standby()
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    node = start_node(f"postgres://postgres@{hosts}/{database.name}?target_session_attrs=read-write", PATIENT)
    before = fresh_key()
    acknowledged = node.post("/refunds", key=before, json=REFUND)
    with upstream.hold("/refunds") as held:
        first = node.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        primary.kill()
    is_unavailable(node.post("/refunds", key=fresh_key(), json=REFUND))
    standby.promote()
    assert (first.status, first.idempotency) == (201, "stored")  # held until it could be recorded
    assert lasting(served(node, before)) == lasting(acknowledged)
    assert lasting(node.post("/refunds", key=key, json=REFUND)) == lasting(first)
    assert upstream.effects("/refunds") == 2


def test_the_pooler_dies_and_comes_back(request, database, start_node, upstream, key):
    pooler = request.getfixturevalue("pooler")
    node = start_node(pooler.url(database.name))
    before = fresh_key()
    acknowledged = node.post("/refunds", key=before, json=REFUND)
    pooler.kill()
    try:
        is_unavailable(node.post("/refunds", key=key, json=REFUND))
        assert node.get("/refunds/1").status == 200
        assert node.wait_events(CANT_CONNECT)
    finally:
        pooler.start()
    assert served(node, key).status == 201
    assert lasting(node.post("/refunds", key=before, json=REFUND)) == lasting(acknowledged)
    assert upstream.effects("/refunds") == 2


def test_gateways_end_though_their_database_is_gone(database, start_node, upstream):
    nodes = [start_node(database.url, PATIENT) for _ in range(2)]
    for _ in range(3):
        key = fresh_key()
        with upstream.hold("/refunds") as held:
            answers = [nodes[0].post_later("/refunds", key=key, json=REFUND)]
            held.wait_arrived()
            answers.append(nodes[1].post_later("/refunds", key=key, json=REFUND))
            nodes[1].wait_waiting(1)
        assert [answer.status for answer in answers] == [201, 201]
    database.drop()  # with rounds on their way; that each gateway ends when it is told to is seen at the story's end
    assert upstream.effects("/refunds") == 3


def test_duplicates_on_two_nodes_never_cost_a_connection(database, start_node, upstream, record_property):
    """A node looks at what another one settles. A look that nobody wants any more when its turn comes sends nothing,
    so nothing answers it: the round would end with its time-out, 5 s later, and with the connection."""
    nodes = [start_node(database.url, PATIENT), start_node(database.url, PATIENT)]
    for node in nodes:
        node.post("/refunds", key=fresh_key(), json=REFUND)
    backends = "SELECT array_agg(pid ORDER BY pid) FROM pg_stat_activity WHERE datname = current_database() " \
               "AND pid <> pg_backend_pid()"
    before = database.ask(backends)
    slowest = 0
    for _ in range(200):
        began = time.monotonic()
        together = [[node.send("POST", "/refunds", key=key, json=REFUND) for node in nodes]
                    for key in (fresh_key() for _ in range(15))]
        for one, other in together:
            assert lasting(one) == lasting(other)
            assert sorted((one.idempotency, other.idempotency)) == ["replayed", "stored"]
        slowest = max(slowest, time.monotonic() - began)
    record_property("slowest_s", f"{slowest:.3f}")
    assert database.ask(backends) == before, f"a connection was given up; the slowest took {slowest:.1f} s"
    assert set(upstream.effects_by_key.values()) == {1}


def test_a_role_without_rights_holds_nobody_up(database, start_node, upstream, key):
    """Any role that may connect can take any advisory lock. What claims and changes of rules wait for needs rights
    on the schema."""
    node = start_node(database.url)
    with taken_by_a_stranger(database) as stranger:
        for mode in ("ACCESS SHARE", "ROW SHARE", "EXCLUSIVE"):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                stranger.cursor().execute(f"BEGIN; LOCK TABLE hapax.rules IN {mode} MODE")
            stranger.cursor().execute("ROLLBACK")
        assert node.post("/refunds", key=key, json=REFUND).status == 201
        late = start_node(database.url)  # its rules are enforced
        assert late.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


def test_what_a_gateway_writes_takes_no_lock_that_is_anybodys(database, start_node, upstream, key):
    """Seen from inside the transactions of a claim, an outcome and a change of rules."""
    database.ask("""
        CREATE TABLE public.seen (by text, locks bigint);
        CREATE FUNCTION public.look() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO public.seen
            SELECT TG_TABLE_NAME || ' ' || TG_OP, count(*) FROM pg_locks
             WHERE pid = pg_backend_pid() AND locktype = 'advisory';
            RETURN NULL;
        END $$;
        CREATE TRIGGER look AFTER INSERT OR UPDATE ON hapax.operations FOR EACH STATEMENT EXECUTE FUNCTION look();
        CREATE TRIGGER look AFTER INSERT OR UPDATE ON hapax.rules FOR EACH STATEMENT EXECUTE FUNCTION look()
        """)
    node = start_node(database.url)
    assert node.post("/refunds", key=key, json=REFUND).status == 201
    seen = dict(database.ask("SELECT by, max(locks) FROM public.seen GROUP BY by"))
    assert {"operations INSERT", "operations UPDATE", "rules INSERT"} <= set(seen), seen
    assert set(seen.values()) == {0}, seen
    assert upstream.effects("/refunds") == 1
