# SPDX-License-Identifier: Apache-2.0
"""An application publishes in its own transaction, by hapax.publish: what it commits is delivered once, under its id,
and what it rolls back never is, whoever dies in between."""
import collections
import contextlib
import subprocess
import threading

import psycopg2
import pytest

from harness import EXIT_CONFIG, envelope, eventually
from harness.postgres import program

ALLOW = "events: {allow: [127.0.0.0/8]}\n"


@pytest.fixture
def shop(postgres, hapax):
    """The application's own database, which has the outbox and nothing else of Hapax."""
    made = postgres.create_database(schema=False)
    done = subprocess.run([program("psql"), "-1", "-q", "-v", "ON_ERROR_STOP=1", made.url], text=True, check=False,
                          input=hapax("sql", "outbox").stdout, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    yield made
    made.drop()


@pytest.fixture
def start_relay(start_hooks, tmp_path, shop):
    """A gateway with a journal, which relays the shop's outbox."""
    def start(url=shop.url, **options):
        config = f"{ALLOW}outbox:\n  - {{name: shop, database: {url}}}\n"
        return start_hooks(config, store=f"journal:{tmp_path}/events", **options)

    return start


@pytest.fixture
def relay(start_relay):
    return start_relay()


def publish(cursor, event, kind="order.created", data='{"a": 1}'):
    cursor.execute("SELECT hapax.publish(%s, %s, %s)", [kind, data, event])


def delivered(upstream, path="/hook"):
    return collections.Counter(request.header("webhook-id") for request in upstream.received() if request.path == path)


def wait_delivered(upstream, events):
    eventually(lambda: set(delivered(upstream)) >= set(events), f"the delivery of {len(events)} events")
    return delivered(upstream)


def untaken(database):
    """How many rows the relay has yet to record."""
    return database.ask("SELECT count(*) FROM hapax.outbox o, hapax.outbox_page(o.taken, pg_current_snapshot(),"
                        " '0', 0, 100000)")[0][0]


def wait_taken(database):
    eventually(lambda: untaken(database) == 0, "every row taken")


def test_what_is_committed_is_delivered_once_and_what_is_rolled_back_never(relay, upstream, shop):
    endpoint = relay.endpoint("/hook")["id"]
    with contextlib.closing(shop.connect()) as connection, connection.cursor() as cursor:
        publish(cursor, "undone")
        connection.rollback()
        cursor.execute("SELECT hapax.publish('refund.created', '{\"amount\": 5.0}', tenant => NULL, source => 'shop',"
                       " correlation_id => 'c-1')")
        event = cursor.fetchone()[0]
        assert event.startswith("evt_") and untaken(shop) == 0
        connection.commit()
    relay.wait_state(endpoint, event, "delivered")
    wait_taken(shop)
    request = upstream.received()[0]
    assert request.header("webhook-id") == request.key == event and request.header("X-Correlation-Id") == "c-1"
    assert envelope(request)["eventType"] == "refund.created" and envelope(request)["data"] == {"amount": 5.0}
    assert relay.call("GET", f"/v1/events/{event}").json()["source"] == "shop"
    assert relay.call("GET", "/v1/events/undone").status == 404
    assert delivered(upstream) == {event: 1}
    assert relay.gateway.counts("events")["outbox_relayed"] == 1


def test_an_outbox_in_the_database_of_the_store(start_hooks, upstream, database):
    hooks = start_hooks(f"{ALLOW}outbox: store\n", store=database.url)
    endpoint = hooks.endpoint("/hook")["id"]
    database.ask("SELECT hapax.publish('order.created', '{}', 'mine')")
    hooks.wait_state(endpoint, "mine", "delivered")
    assert delivered(upstream) == {"mine": 1}


def test_through_a_pooler_both_ways(start_relay, upstream, shop, pooler):
    relay = start_relay(pooler.url(shop.name))
    endpoint = relay.endpoint("/hook")["id"]
    with contextlib.closing(pooler.connect(shop.name)) as connection, connection.cursor() as cursor:
        for number in range(20):
            publish(cursor, f"p-{number}")
            connection.commit()
    relay.wait_state(endpoint, "p-19", "delivered")
    assert wait_delivered(upstream, [f"p-{number}" for number in range(20)]) == {f"p-{n}": 1 for n in range(20)}


def test_a_transaction_that_stays_open_delays_no_other_and_is_delivered_when_it_commits(relay, upstream, shop):
    relay.endpoint("/hook")
    with contextlib.closing(shop.connect()) as late, late.cursor() as cursor:
        publish(cursor, "late-1")
        for number in range(30):
            shop.ask("SELECT hapax.publish('order.created', '{}', %s)", f"early-{number}")
        early = {f"early-{number}": 1 for number in range(30)}
        assert wait_delivered(upstream, early) == early
        wait_taken(shop)
        publish(cursor, "late-2")
        late.commit()
    assert wait_delivered(upstream, ["late-1", "late-2"]) == {**early, "late-1": 1, "late-2": 1}


def test_a_late_commit_comes_later_in_its_stream_and_no_consumer_skips_it(relay, shop):
    token = relay.api.token("consume")

    def read():
        return relay.call("GET", "/v1/events?stream=orders&consumer=billing", token=token).json()

    def acknowledge(page):
        body = {"stream": "orders", "position": page["events"][-1]["position"], "generation": page["generation"]}
        assert relay.call("POST", "/v1/consumers/billing/ack", body, token).status == 200

    def publish_to_stream(cursor, event):
        cursor.execute("SELECT hapax.publish('order.created', '1', %s, stream => 'orders')", [event])

    with contextlib.closing(shop.connect()) as late, contextlib.closing(shop.connect()) as other:
        publish_to_stream(late.cursor(), "e-late")
        for number in range(3):
            publish_to_stream(other.cursor(), f"e-{number}")
            other.commit()
            eventually(lambda: read().get("events"), "it is in the stream")
            page = read()
            assert [(got["id"], got["position"]) for got in page["events"]] == [(f"e-{number}", number + 1)]
            acknowledge(page)
        late.commit()
        eventually(lambda: read().get("events"), "the late one is in the stream")
    assert [(got["id"], got["position"]) for got in read()["events"]] == [("e-late", 4)]


def test_a_gateway_that_is_killed_after_publishing_and_before_recording_it(relay, upstream, shop):
    """The rows are read again, and their events are known by their ids."""
    relay.endpoint("/hook")
    relay.gateway.log.wait_event("outbox_held")
    shop.ask("UPDATE hapax.outbox SET held_until = clock_timestamp() + interval '1 hour'")  # no renewal is due
    with contextlib.closing(shop.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT FROM hapax.outbox FOR UPDATE")
        shop.ask("SELECT hapax.publish('order.created', '{}', 'id-' || n) FROM generate_series(1, 5) n")
        events = {f"id-{number}": 1 for number in range(1, 6)}
        wait_delivered(upstream, events)
        for event in events:
            eventually(lambda event=event: relay.call("GET", f"/v1/events/{event}").status == 200, "the event")
        waiting = ("SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                   " AND application_name = 'hapax outbox'")
        (pid,), = eventually(lambda: shop.ask(waiting), "the statement that records them")
        relay.gateway.kill()
        shop.ask("SELECT pg_terminate_backend(%s)", pid)
        eventually(lambda: not shop.ask(waiting), "its end")
        connection.rollback()
    assert untaken(shop) == 5
    shop.ask("UPDATE hapax.outbox SET held_until = clock_timestamp()")
    relay.gateway.start()
    relay.gateway.log.wait_event("outbox_held")
    wait_taken(shop)
    shop.ask("SELECT hapax.publish('order.created', '{}', 'next')")
    wait_delivered(upstream, ["next"])
    assert delivered(upstream)["next"] == 1 and set(delivered(upstream)) == {*events, "next"}
    assert relay.gateway.counts("events")["outbox_relayed"] == 1
    assert shop.ask("SELECT count(*) FROM hapax.outbox_refused") == [(0,)]


@pytest.mark.slow
def test_two_gateways_share_an_outbox_and_one_is_killed(start_hooks, upstream, database):
    nodes = [start_hooks(f"{ALLOW}outbox: store\n", store=database.url)]
    nodes[0].endpoint("/hook", timeout="1s")
    nodes.append(start_hooks(f"{ALLOW}outbox: store\n", store=database.url))
    eventually(lambda: sum(len(node.gateway.events("outbox_held")) for node in nodes) == 1, "one relay at work")
    holder, other = nodes if nodes[0].gateway.events("outbox_held") else reversed(nodes)
    ended = threading.Event()
    events = []

    def write():
        with contextlib.closing(database.connect()) as connection, connection.cursor() as cursor:
            while not ended.is_set():
                events.append(f"n-{len(events)}")
                publish(cursor, events[-1])
                connection.commit()
                ended.wait(0.005)

    writer = threading.Thread(target=write)
    writer.start()
    eventually(lambda: len(delivered(upstream)) > 50, "deliveries by the first")
    assert database.ask("SELECT term FROM hapax.outbox")[0][0] < 5
    holder.gateway.kill()
    before = len(events)
    other.gateway.log.wait_event("outbox_held")
    eventually(lambda: set(delivered(upstream)) > set(events[:before + 1]), "deliveries by the second")
    ended.set()
    writer.join()
    wait_delivered(upstream, events)
    assert database.ask("SELECT count(*) FROM hapax.items WHERE key >= 'e/' AND key < 'e0'") == [(len(events),)]


def test_a_gateway_that_stops_hands_over_at_once(start_hooks, database):
    nodes = [start_hooks(f"{ALLOW}outbox: store\n", store=database.url) for _ in range(2)]
    eventually(lambda: any(node.gateway.events("outbox_held") for node in nodes), "one relay at work")
    holder, other = nodes if nodes[0].gateway.events("outbox_held") else reversed(nodes)
    database.ask("UPDATE hapax.outbox SET held_until = clock_timestamp() + interval '1 hour'")
    holder.gateway.terminate()
    assert holder.gateway.wait_exit() == 0
    other.gateway.log.wait_event("outbox_held")


@pytest.mark.slow
def test_rows_wait_for_a_store_that_is_away(start_hooks, upstream, start_postgres, shop):
    server = start_postgres()
    store = server.create_database()
    relay = start_hooks(f"{ALLOW}outbox:\n  - {{name: shop, database: {shop.url}}}\n", store=store.url)
    relay.endpoint("/hook")
    relay.gateway.log.wait_event("outbox_held")
    server.kill()
    shop.ask("SELECT hapax.publish('order.created', '{}', 'id-' || n) FROM generate_series(1, 3) n")
    relay.gateway.log.wait_event("server_unreachable")
    assert untaken(shop) == 3
    server.start()
    assert wait_delivered(upstream, ["id-1", "id-2", "id-3"]) == {"id-1": 1, "id-2": 1, "id-3": 1}
    wait_taken(shop)
    assert shop.ask("SELECT count(*) FROM hapax.outbox_refused") == [(0,)]


def test_tables_are_rotated_and_truncated_under_load_and_nothing_is_lost(relay, upstream, shop):
    relay.endpoint("/hook")
    written, ended = collections.deque(), threading.Event()

    def write(name):
        with contextlib.closing(shop.connect()) as connection, connection.cursor() as cursor:
            held = contextlib.ExitStack()
            for number in range(100):
                event = f"{name}-{number}"
                if number % 20 == 0:  # one that stays open while others come and go
                    held.close()
                    open_one = held.enter_context(contextlib.closing(shop.connect()))
                    publish(open_one.cursor(), f"{event}-held")
                    held.callback(open_one.commit)
                    written.append(f"{event}-held")
                publish(cursor, event)
                connection.commit()
                written.append(event)
                ended.wait(0.01)
            held.close()

    def age():
        """A table that is a minute old is left for the other one."""
        shop.ask("UPDATE hapax.outbox_rotation SET at = at - interval '2 minutes'")
        return shop.ask("SELECT xid FROM hapax.outbox_rotation")[0][0]

    writers = [threading.Thread(target=write, args=[f"w{number}"]) for number in range(3)]
    for writer in writers:
        writer.start()
    rotations = set()
    eventually(lambda: rotations.add(age()) or (not any(writer.is_alive() for writer in writers)
                                                and len(rotations) >= 3), "writers and rotations")
    for writer in writers:
        writer.join()
    assert wait_delivered(upstream, written) == {event: 1 for event in written}
    size = "SELECT pg_relation_size('hapax.outbox_0') + pg_relation_size('hapax.outbox_1')"
    eventually(lambda: age() and shop.ask(size) == [(0,)], "both tables empty")
    assert not relay.gateway.events("outbox_unreachable")


def test_publishing_never_waits_for_a_truncation(start_relay, upstream, shop):
    """Transactions whose snapshots are older than a rotation still insert into the table that was left. The first of
    them keeps it from being truncated, and the second doesn't wait for that."""
    shop.ask(f"ALTER DATABASE {shop.name} SET track_functions = 'all'")
    start_relay().endpoint("/hook")
    shop.ask("SELECT hapax.publish('order.created', '{}', 'first')")
    wait_delivered(upstream, ["first"])

    def tries():
        found = shop.ask("SELECT calls FROM pg_stat_user_functions WHERE funcname = 'outbox_rotate'")
        return found[0][0] if found else 0

    with contextlib.closing(shop.connect()) as one, contextlib.closing(shop.connect()) as two:
        for connection in (one, two):
            connection.set_session(isolation_level=psycopg2.extensions.ISOLATION_LEVEL_REPEATABLE_READ)
            connection.cursor().execute("SELECT count(*) FROM hapax.outbox_rotation")
        shop.ask("UPDATE hapax.outbox_rotation SET at = at - interval '2 minutes'")
        eventually(lambda: shop.ask("SELECT active FROM hapax.outbox_rotation") == [(1,)], "a rotation")
        publish(one.cursor(), "one")
        before = tries()
        eventually(lambda: tries() > before + 1, "the relay trying to truncate, and not waiting")
        two.cursor().execute("SET LOCAL lock_timeout = '1s'")
        publish(two.cursor(), "two")
        one.commit()
        two.commit()
    assert wait_delivered(upstream, ["first", "one", "two"]) == {"first": 1, "one": 1, "two": 1}
    eventually(lambda: shop.ask("SELECT pg_relation_size('hapax.outbox_0')") == [(0,)], "the truncation")


def test_a_table_is_truncated_only_when_all_is_taken_and_nobody_who_began_before_runs(shop):
    """The relay's own calls, one by one."""
    def turn(*page):
        *rows, (_, term, _, snapshot) = shop.ask(
            "SELECT * FROM hapax.outbox_next(7, 'mark', 60000, %s, %s, true, %s, %s, '{}', '{}', '{}', 10, 100000)",
            *(page or (0, None, None, 0)))
        return (term, snapshot, *rows[-1][:2]) if rows else None

    def rotate():
        return shop.ask("SELECT * FROM hapax.outbox_rotate(7, 1)")[0]

    nothing, rotated, truncated = (False, False), (True, False), (False, True)
    assert turn() is None and rotate() == nothing
    with contextlib.closing(shop.connect()) as connection:
        connection.cursor().execute("SELECT pg_current_xact_id()")  # it might still publish
        shop.ask("SELECT hapax.publish('t', '1', 'one')")
        assert rotate() == rotated and rotate() == nothing
        assert turn(*turn()) is None and rotate() == nothing
    assert rotate() == truncated
    with contextlib.closing(shop.connect()) as connection:
        connection.set_session(isolation_level=psycopg2.extensions.ISOLATION_LEVEL_REPEATABLE_READ)
        connection.cursor().execute("SELECT 1 FROM hapax.outbox_rotation")
        shop.ask("SELECT hapax.publish('t', '1', 'two')")
        assert turn(*turn()) is None and rotate() == rotated and rotate() == truncated
        publish(connection.cursor(), "late")  # into the table that was left
        assert rotate() == nothing
        connection.commit()
        assert rotate() == nothing
        assert turn(*turn()) is None and rotate() == truncated


def test_a_row_that_cant_be_published_is_set_aside_and_delays_no_other(relay, upstream, shop):
    endpoint = relay.endpoint("/hook")["id"]
    assert relay.publish(id="taken", kind="order.created", data={"other": 1}).status == 202
    relay.wait_state(endpoint, "taken", "delivered")
    with contextlib.closing(shop.connect()) as connection, connection.cursor() as cursor:
        publish(cursor, "before")
        cursor.execute("INSERT INTO hapax.outbox_0 (event) VALUES ('not JSON'), ('{\"type\": \"t\", \"data\": 1}')")
        publish(cursor, "taken")
        publish(cursor, "twice")
        publish(cursor, "twice")
        publish(cursor, "twice", data='{"a": 2}')
        publish(cursor, "large", data='{"a": "%s"}' % ("x" * (256 << 10)))
        publish(cursor, "after")
        connection.commit()
    wait_delivered(upstream, ["before", "twice", "after"])
    wait_taken(shop)
    assert delivered(upstream) == {"taken": 1, "before": 1, "twice": 1, "after": 1}
    refused = shop.ask("SELECT reason FROM hapax.outbox_refused ORDER BY seq")
    assert len(refused) == 5
    for (reason,), words in zip(refused, ("JSON", '"id" is missing', "taken", "twice", "payload_max")):
        assert words in reason
    assert [line["reason"] for line in relay.gateway.events("outbox_row_refused")]
    assert relay.gateway.counts("events")["outbox_refused"] == 5


def test_an_application_needs_one_right_and_mistakes_are_explained(relay, upstream, shop):
    relay.endpoint("/hook")
    role = f"app_of_{shop.name}"
    shop.ask(f"CREATE ROLE {role} LOGIN")
    with contextlib.closing(shop.connect(role)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            publish(cursor, "forbidden")
        shop.ask("SELECT hapax.grant_outbox(%s)", role)
        publish(cursor, "allowed")
        for table in ("outbox", "outbox_0", "outbox_refused"):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                cursor.execute(f"SELECT * FROM hapax.{table}")
        for arguments, why in (("NULL, '{}'", '"type" is missing'), ("'a b', '{}'", '"type" must have 1 to 128'),
                               ("'t', NULL", '"data" is missing'), ("'t', '1', 'a.b'", "no dot"),
                               ("'t', '1', tenant => 'a/b'", '"tenant" must have'),
                               ("'t', '1', deliver_at => 'infinity'", "within ten years"),
                               ("'t', to_jsonb(repeat('x', 5000000))", "4 MiB")):
            with pytest.raises(psycopg2.Error) as error:
                cursor.execute(f"SELECT hapax.publish({arguments})")
            assert error.value.pgcode == "HX003" and why in str(error.value)
    wait_delivered(upstream, ["allowed"])
    shop.ask(f"DROP OWNED BY {role}")
    shop.ask(f"DROP ROLE {role}")


def test_a_database_that_is_away_is_said_once_and_found_again(start_hooks, upstream, start_postgres, tmp_path, hapax):
    server = start_postgres()
    shop = server.create_database(schema=False)
    config = f"{ALLOW}outbox:\n  - {{name: shop, database: {shop.url}}}\n"
    relay = start_hooks(config, store=f"journal:{tmp_path}/events")
    assert "hapax sql outbox" in relay.gateway.log.wait_event("outbox_unusable")["reason"]
    shop.ask(hapax("sql", "outbox").stdout)
    relay.gateway.log.wait_event("outbox_usable")
    relay.endpoint("/hook")
    server.restart("kill")
    shop.ask("SELECT hapax.publish('order.created', '{}', 'after')")
    wait_delivered(upstream, ["after"])
    assert len(relay.gateway.events("outbox_unusable")) == 1


def test_gateways_with_different_stores_dont_share_an_outbox(start_hooks, relay, shop, tmp_path):
    relay.gateway.log.wait_event("outbox_held")
    config = f"{ALLOW}outbox:\n  - {{name: shop, database: {shop.url}}}\n"
    other = start_hooks(config, store=f"journal:{tmp_path}/others")
    assert "another store" in other.gateway.log.wait_event("outbox_unusable")["reason"]


def test_a_delivery_waits_for_its_time(relay, upstream, shop):
    endpoint = relay.endpoint("/hook")["id"]
    shop.ask("SELECT hapax.publish('t', '1', 'later', deliver_at => clock_timestamp() + interval '1 day')")
    shop.ask("SELECT hapax.publish('t', '1', 'now', deliver_at => clock_timestamp() - interval '1 day')")
    relay.wait_state(endpoint, "now", "delivered")
    wait_taken(shop)
    assert relay.call("GET", "/v1/events/later").status == 200
    assert delivered(upstream) == {"now": 1}


@pytest.mark.parametrize("outbox, where, why", [
    ("store", ":1:9", "the store is not in PostgreSQL"),
    ("[{name: a}]", ":1:10", 'no "database"'),
    ("[{database: postgres://x/y}]", ":1:10", 'no "name"'),
    ("[{name: a/b, database: postgres://x/y}]", ":1:17", "letters, digits"),
    ("[{name: a, database: journal:x}]", ":1:30", "postgres://"),
    ("[{name: a, database: postgres://x/y}, {name: a, database: postgres://x/z}]", ":1:54", "earlier outbox"),
    ("off", ":1:9", "a list of outboxes"),
])
def test_mistakes_in_the_configuration_are_located(hapax, tmp_path, outbox, where, why):
    file = tmp_path / "hapax.yaml"
    file.write_text(f"outbox: {outbox}\nupstream: http://127.0.0.1:1\nstore: memory\n", encoding="utf-8")
    checked = hapax("check", file)
    assert checked.code == EXIT_CONFIG and where in checked.stderr and why in checked.stderr


def test_a_password_is_not_shown_by_check(hapax, tmp_path):
    file = tmp_path / "hapax.yaml"
    file.write_text("outbox: [{name: shop, database: 'postgres://me:secret@db/shop'}]\nupstream: http://127.0.0.1:1\n"
                    "store: memory\n", encoding="utf-8")
    for checked in (hapax("check", file), hapax("check", "--json", file)):
        assert checked.code == 0 and "db/shop" in checked.stdout and "secret" not in checked.stdout


