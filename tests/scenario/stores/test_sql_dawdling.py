# SPDX-License-Identifier: Apache-2.0
"""An application whose transaction takes long, with the real gateway in front: it delays only requests for the same
operation, and what it commits in the end is what they get."""
import contextlib

from harness import fresh_key

ROUTES = """
    routes:
      - {name: refunds, match: POST /refunds, guarantee: transactional}
      - {name: charges, match: POST /charges}
"""
BODY = {"amount": 1000}


def test_only_the_operation_itself_waits_for_its_transaction(start_gateway, upstream, database, key):
    gateway = start_gateway(ROUTES, store=database.url)
    with contextlib.closing(database.connect()) as application, application.cursor() as cursor:
        with upstream.hold("/refunds") as hold:
            first = gateway.post_later("/refunds", key=key, json=BODY)
            hold.wait_arrived()
            operation = upstream.last().header("Hapax-Operation")
            cursor.execute("SELECT verdict FROM hapax.begin(%s)", (operation,))
            assert cursor.fetchone() == ("run",)
            cursor.execute("SELECT hapax.complete(%s, 201, NULL, %s::json)", (operation, '{"id":"rf_1"}'))
            second = gateway.post_later("/refunds", key=key, json=BODY)
            gateway.wait_inside([second])
            others = [gateway.post("/charges", key=fresh_key(), json=BODY).status for _ in range(20)]
            assert others == [201] * 20
            application.commit()
    assert (first.status, first.body, first.header("Idempotency-Status")) == (201, b'{"id":"rf_1"}', "stored")
    assert (second.status, second.body, second.header("Idempotency-Status")) == (201, b'{"id":"rf_1"}', "replayed")
    assert upstream.effects("/refunds") == 1
    assert upstream.effects("/charges") == 20


def test_what_a_transaction_gives_up_is_done_by_the_next_attempt(start_gateway, upstream, database, key):
    """It was begun under the first epoch, and rolled back when the gateway had long given that attempt up."""
    gateway = start_gateway(ROUTES.replace("transactional", "transactional, upstream_timeout: 1s"), store=database.url)
    with contextlib.closing(database.connect()) as application, application.cursor() as cursor:
        with upstream.hold("/refunds") as hold:
            pending = gateway.post_later("/refunds", key=key, json=BODY)
            hold.wait_arrived()
            old = upstream.last().header("Hapax-Operation")
            cursor.execute("SELECT verdict FROM hapax.begin(%s)", (old,))
            assert cursor.fetchone() == ("run",)  # the epoch can't be raised as long as this stands
            application.rollback()
            hold.wait_arrived(2)
            new = upstream.last().header("Hapax-Operation")
            assert new != old and new.split(".")[0] == old.split(".")[0]
            cursor.execute("SELECT hapax.complete(%s, 201, NULL, %s::json)", (new, '{"id":"rf_2"}'))
            application.commit()
    assert (pending.status, pending.body) == (201, b'{"id":"rf_2"}')
