# SPDX-License-Identifier: Apache-2.0
"""The servers that other stories rely on: what they promise is tried here first."""
import contextlib

import psycopg2
import pytest

from harness.postgres import Server


def test_each_story_has_a_database_with_the_schema_and_nothing_in_it(database):
    assert database.ask("SELECT count(*) FROM hapax.operations") == [(0,)]
    assert len(database.ask("SELECT secret FROM hapax.store")[0][0]) == 32
    assert database.ask("SHOW fsync") == [("on",)]


def test_a_pooler_in_transaction_mode_keeps_no_session(database, pooler):
    with contextlib.closing(pooler.connect(database.name)) as one, contextlib.closing(
            pooler.connect(database.name)) as other:
        one.autocommit = other.autocommit = True
        seen = set()
        for connection in (one, other):
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                seen.add(cursor.fetchone()[0])
        assert len(seen) == 1  # one server connection served both


def test_what_was_committed_survives_a_kill(start_postgres):
    server = start_postgres()
    server.ask("CREATE TABLE kept (n integer)")
    server.ask("INSERT INTO kept VALUES (1)")
    server.restart("kill")
    assert server.ask("SELECT n FROM kept") == [(1,)]


def test_a_synchronous_standby_has_what_the_killed_primary_acknowledged(start_postgres):
    primary = start_postgres()
    primary.ask("CREATE TABLE kept (n integer)")
    standby = primary.standby()
    with pytest.raises(psycopg2.errors.ReadOnlySqlTransaction):
        standby.ask("INSERT INTO kept VALUES (0)")
    for n in range(50):
        primary.ask("INSERT INTO kept VALUES (%s)", n)
    primary.kill()
    standby.promote()
    assert standby.ask("SELECT count(*) FROM kept") == [(50,)]
    standby.ask("INSERT INTO kept VALUES (50)")


def test_a_password_is_asked_for_where_a_story_wants_it():
    server = Server(auth="scram-sha-256", password="wonderful")
    try:
        server.start()
        with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
            server.connect("postgres", password="another")
    finally:
        server.close()
