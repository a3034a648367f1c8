# SPDX-License-Identifier: Apache-2.0
"""Several gateways of one machine on one SQLite file: the stories of test_postgres.py and
test_shared_rules_and_outages.py that are about any store which gateways share."""
import contextlib
import sqlite3
import types

import pytest

from harness import fresh_key, lasting
# The stories themselves, and what they stand on.
from test_postgres import *  # noqa: F401,F403
from test_shared_rules_and_outages import (  # noqa: F401
    test_a_callers_other_credential_learns_nothing_on_another_node,
    test_a_former_name_is_looked_up_on_every_node,
    test_a_key_begun_by_one_node_is_the_others_too,
    test_a_node_that_still_has_a_route_which_is_gone_refuses_it,
    test_a_node_with_older_rules_refuses_the_route_until_it_is_reloaded,
    test_what_is_only_watched_is_kept_on_a_shared_store_too,
    test_who_waits_for_another_nodes_release_is_told_to_come_back,
    test_windows_on_two_nodes_have_one_effect,
)


def test_a_locked_file_can_be_written_again_when_it_was_written(start_gateway, upstream, tmp_path, url, key):
    """Reads go on meanwhile: that they do says nothing of writing."""
    gateway = start_gateway(store=url)
    known = gateway.post("/refunds", key=key, json={})
    assert known.status == 201
    event = "sqlite_writable"
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db", timeout=60)) as somebody:
        somebody.execute("BEGIN IMMEDIATE")
        gateway.post("/refunds", key=fresh_key(), json={}).refuses(503, "DEPENDENCY.unavailable")
        assert gateway.wait_events("sqlite_write_failed")
        assert lasting(gateway.post("/refunds", key=key, json={})) == lasting(known)
        assert not gateway.events(event)
        somebody.rollback()
    assert gateway.post("/refunds", key=fresh_key(), json={}).status == 201
    assert len(gateway.wait_events(event)) == 1
    assert upstream.effects("/refunds") == 2


@pytest.fixture
def url(tmp_path):
    return f"sqlite:{tmp_path}/store.db"


@pytest.fixture
def database(tmp_path, url):
    """The tables have the same names, but for the schema, which SQLite has none of."""

    def ask(query):
        if "hapax.sweep(" in query:
            return []  # what is released is gone at once here
        with contextlib.closing(sqlite3.connect(tmp_path / "store.db", timeout=60)) as connection, connection:
            return connection.execute(query.replace("hapax.", "hapax_")).fetchall()

    return types.SimpleNamespace(url=url, ask=ask)
