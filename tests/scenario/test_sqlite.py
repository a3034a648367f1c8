# SPDX-License-Identifier: Apache-2.0
"""Several gateways of one machine on one SQLite file: the stories of test_postgres.py and
test_shared_rules_and_outages.py that are about any store which gateways share."""
import contextlib
import sqlite3
import types

import pytest

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
