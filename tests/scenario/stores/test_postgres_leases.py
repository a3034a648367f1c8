# SPDX-License-Identifier: Apache-2.0
"""Leases on PostgreSQL: each is renewed for as long as its exchange lives, whatever is in the way of the others; and
who has lost one stops."""
import contextlib
import threading

import pytest

from harness import HANG_S, eventually

REFUND = {"amount": 1000, "currency": "eur"}
SHORT_LEASE = """
    defaults:
      lease: 1s
      wait: 5m
    """


def test_an_application_that_holds_its_row_keeps_no_other_lease_from_being_renewed(database, start_node, upstream):
    node = start_node(database.url, SHORT_LEASE)
    with upstream.hold("/held") as held, upstream.hold("/refunds") as other:
        first = node.send("POST", "/held", key="key-of-one-that-is-held", json=REFUND)
        held.wait_arrived()
        second = node.send("POST", "/refunds", key="key-of-the-other-one", json=REFUND)
        other.wait_arrived()
        (begun,), = database.ask("SELECT lease_until FROM hapax.operations WHERE route = 'POST /refunds'")
        with contextlib.closing(database.connect()) as application:
            operation = upstream.received("/held")[0].header("Hapax-Operation")
            application.cursor().execute("SELECT hapax.begin(%s)", (operation,))
            sql = "SELECT state FROM hapax.operations WHERE route = %s AND (state <> 1 OR lease_until > %s)"
            renewed = eventually(lambda: database.ask(sql, "POST /refunds", begun + 3000),
                                 "several renewals, or the lease's end")
        assert renewed == [(1,)]
    assert [(each.status, each.idempotency) for each in (first, second)] == [(201, "stored")] * 2
    assert upstream.effects() == 2


def test_a_renewal_that_failed_is_tried_again_before_the_lease_ends(database, start_node, upstream, key):
    node = start_node(database.url, """
    defaults:
      lease: 6s
      wait: 5m
    """)
    with upstream.hold("/refunds") as held:
        first = node.send("POST", "/refunds", key=key, json=REFUND)
        held.wait_arrived()
        (begun,), = database.ask("SELECT lease_until FROM hapax.operations")
        database.ask("CREATE SEQUENCE tries")
        database.ask("""
            DO $do$ DECLARE text text := pg_get_functiondef('hapax.renew_many'::regproc); BEGIN
            EXECUTE regexp_replace(text, 'BEGIN', 'BEGIN IF nextval(''tries'') < 4 THEN RAISE ''no''; END IF;');
            END $do$
            """)
        sql = "SELECT state FROM hapax.operations WHERE state <> 1 OR lease_until > %s"
        assert eventually(lambda: database.ask(sql, begun), "a renewal, or the lease's end") == [(1,)]
    assert (first.status, first.idempotency) == (201, "stored")
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("early", [b"", b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n"],
                         ids=["silence", "an early head"])
def test_a_node_that_lost_its_claim_sends_no_more_of_the_request(database, start_node, upstream, key, early):
    """Half of it was sent when another node was told that the operation never ran: the other half must not follow."""
    node = start_node(database.url, """
    defaults:
      lease: 4s
      body_max: 64MiB
    """)
    came, lost = [], threading.Event()

    def reads_late(exchange):
        exchange.send(early)
        lost.wait(HANG_S)
        with contextlib.suppress(Exception):
            came.append(exchange.discard_body())
            exchange.execute()

    upstream.on("/refunds", reads_late)
    node.send("POST", "/refunds", key=key, body=b"x" * (32 << 20))
    upstream.wait_requests(1)
    database.ask("UPDATE hapax.operations SET epoch = nextval('hapax.epochs'), claim_ticket = 0, state = 0")
    # A renewal that takes long is overtaken by the end of the lease, with which the request ends.
    eventually(lambda: node.events("lease_lost") or node.events("request"), "the loss noticed, or the lease over")
    lost.set()
    eventually(lambda: upstream.open_connections() == 0, "the request called off")
    assert (came, upstream.effects("/refunds")) == ([], 0)


def test_a_node_whose_renewals_fail_sends_no_more_when_its_lease_is_over(database, start_node, upstream, key):
    """A renewal that failed is none: from the end of the lease on the operation may be anybody's."""
    node = start_node(database.url, """
    defaults:
      lease: 4s
      body_max: 64MiB
      upstream_timeout: 10m
    """)
    came, over = [], threading.Event()

    def reads_late(exchange):
        over.wait(HANG_S)
        with contextlib.suppress(Exception):
            came.append(exchange.discard_body())
            exchange.execute()

    upstream.on("/refunds", reads_late)
    database.ask("CREATE SEQUENCE tries")
    database.ask("""
        DO $do$ DECLARE text text := pg_get_functiondef('hapax.renew_many'::regproc); BEGIN
        EXECUTE regexp_replace(text, 'BEGIN', 'BEGIN PERFORM nextval(''tries''); RAISE ''no'';');
        END $do$
        """)
    first = node.send("POST", "/refunds", key=key, body=b"x" * (32 << 20))
    upstream.wait_requests(1)
    assert first.status >= 500 or first.status == 409  # it was called off, perhaps when it was already unknown
    over.set()
    (tries,), = database.ask("SELECT last_value FROM tries")
    assert tries > 1  # nor was it given up after the first failure
    eventually(lambda: upstream.open_connections() == 0, "the end of the exchange")
    assert (came, upstream.effects("/refunds")) == ([], 0)
