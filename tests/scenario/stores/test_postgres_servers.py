# SPDX-License-Identifier: Apache-2.0
"""Which PostgreSQL a gateway uses, and what it has to be like: the hosts that libpq finds, the primary and never a
standby, a schema of the gateway's own version, settings under which nothing is forgotten unnoticed."""
import contextlib
import socket

import pytest

from harness import EXIT_STORE, eventually, free_port, fresh_key

UNAVAILABLE = "DEPENDENCY.unavailable"
MAY_FORGET = "store_not_durable"
REFUND = {"amount": 1000, "currency": "eur"}


def cut(database):
    database.server.ask("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s",
                        database.name)


def served(node, key):
    """The answer, once the store can be used."""

    def asked():
        response = node.post("/refunds", key=key, json=REFUND)
        return response if response.status != 503 else None

    return eventually(asked, "an answer after the trouble")


def test_a_host_of_the_service_file_that_hangs_is_passed_over(database, start_node, upstream, tmp_path, key):
    port = free_port()
    service = tmp_path / "services"
    service.write_text(f"[hapax]\nhost=127.0.0.1,127.0.0.1\nport={port},{database.server.port}\n"
                       f"dbname={database.name}\nuser=postgres\n", encoding="utf-8")
    node = start_node("postgres://?service=hapax", env={"PGSERVICEFILE": str(service)})
    assert node.post("/refunds", key=fresh_key(), json=REFUND).status == 201
    with socket.create_server(("127.0.0.1", port)):  # it takes connections, and says nothing
        cut(database)
        assert served(node, key).status == 201
    assert upstream.effects("/refunds") == 2


def test_a_standby_is_not_used_even_if_the_url_allows_it(start_postgres, start_node, upstream, key):
    primary = start_postgres()
    database = primary.create_database()
    standby = primary.standby(synchronous=False)
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    node = start_node(f"postgres://postgres@{hosts}/{database.name}?target_session_attrs=any")
    primary.kill()
    node.post("/refunds", key=key, json=REFUND).refuses(503, UNAVAILABLE)
    assert node.wait_events("server_unreachable")
    standby.promote()
    assert served(node, key).status == 201
    assert not [line for line in node.output if "read-only transaction" in line]  # nothing was asked of a standby
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("version, advice", [(1, "hapax store migrate"), (99, "use a newer hapax")])
def test_the_schema_is_another_one_after_a_reconnection(database, start_node, upstream, key, version, advice):
    node = start_node(database.url)
    database.wait_checked(node)
    (before,), = database.ask("SELECT version FROM hapax.store")
    database.ask("UPDATE hapax.store SET version = %s", version)
    cut(database)
    refused = node.post("/refunds", key=key, json=REFUND)
    refused.refuses(503, UNAVAILABLE)
    assert int(refused.header("Retry-After")) >= 1
    lines = node.wait_events("server_unusable")
    assert len(lines) == 1 and advice in lines[0]["reason"], lines
    assert node.get("/refunds/1").status == 200
    assert upstream.effects("/refunds") == 0
    database.ask("UPDATE hapax.store SET version = %s", before)
    assert (served(node, key).status, upstream.effects("/refunds")) == (201, 1)
    assert node.wait_events("server_usable")


def test_a_server_that_dies_under_a_new_connection_is_out_of_reach_not_unusable(start_postgres, start_node, upstream,
                                                                                key):
    """It takes connections, and dies before it has said what it is like."""
    server = start_postgres()
    database = server.create_database()
    node = start_node(database.url)
    database.wait_checked(node)
    with contextlib.closing(database.connect()) as holder:
        holder.cursor().execute("LOCK TABLE hapax.store")
        server.ask("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'hapax'")
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hapax' AND wait_event_type = 'Lock'"
        eventually(lambda: server.ask(waiting)[0][0] >= 4, "new connections that wait for an answer")
        server.kill()
    assert "that the server runs" in node.wait_events("server_unreachable")[0]["hint"]
    node.post("/refunds", key=key, json=REFUND).refuses(503, UNAVAILABLE)
    server.start()
    assert (served(node, key).status, upstream.effects("/refunds")) == (201, 1)
    assert node.wait_events("server_usable") and not node.events("server_unusable")


def test_a_server_that_comes_back_with_another_schema_is_said_to_have_one(database, start_node, upstream, key):
    """Why it can't be used is another matter than why it could not be reached, and asks for another remedy."""
    node = start_node(database.url)
    database.wait_checked(node)
    with contextlib.closing(database.connect()) as holder:
        holder.autocommit = True
        database.server.ask(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS false")
        holder.cursor().execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                                " WHERE datname = current_database() AND pid <> pg_backend_pid()")
        assert "not currently accepting connections" in node.wait_events("server_unreachable")[0]["reason"]
        holder.cursor().execute("UPDATE hapax.store SET version = version + 1")
        database.server.ask(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS true")
        assert "use a newer hapax" in node.wait_events("server_unusable")[0]["reason"]
        node.post("/refunds", key=key, json=REFUND).refuses(503, UNAVAILABLE)
        assert len(node.events("server_unreachable")) == len(node.events("server_unusable")) == 1
        holder.cursor().execute("UPDATE hapax.store SET version = version - 1")
    assert (served(node, key).status, upstream.effects("/refunds")) == (201, 1)
    assert node.wait_events("server_usable")


@pytest.mark.parametrize("commit, standby, why", [
    ("on", "", None),
    ("local", "", None),
    ("off", "", "synchronous_commit is off"),
    ("local", "elsewhere", "synchronous_commit does not wait"),
])
def test_a_store_that_may_forget_is_spoken_of(start_postgres, start_node, commit, standby, why):
    server = start_postgres(settings={"synchronous_commit": commit, "synchronous_standby_names": standby})
    node = start_node(server.create_database().url)
    said = node.events(MAY_FORGET)
    assert len(said) == (1 if why else 0) and all(why in line["reason"] for line in said), said


def test_only_what_a_standby_has_on_its_disk_is_not_forgotten(start_postgres, start_node):
    primary = start_postgres()
    database = primary.create_database()
    primary.standby()
    for commit, forgets in (("local", True), ("remote_write", True), ("on", False), ("remote_apply", False)):
        database.ask(f"ALTER DATABASE {database.name} SET synchronous_commit = {commit}")
        said = [line["reason"] for line in start_node(database.url).events(MAY_FORGET)]
        assert len(said) == forgets and all("until the standby has it on its disk" in why for why in said), commit


def test_a_store_that_comes_to_forget_is_spoken_of(database, start_node, key):
    node = start_node(database.url)
    database.wait_checked(node)
    assert not node.events(MAY_FORGET)
    database.ask(f"ALTER DATABASE {database.name} SET synchronous_commit = off")
    cut(database)
    assert served(node, key).status == 201
    assert [line["reason"] for line in node.wait_events(MAY_FORGET)] == ["synchronous_commit is off"]


def test_a_pooled_server_that_hides_its_warnings_is_refused(request, database, hapax, upstream):
    """Through a pooler nothing can be set for a session, and a cancelled wait for the standby would go unnoticed."""
    database.ask(f"ALTER DATABASE {database.name} SET client_min_messages = error")
    url = request.getfixturevalue("pooler").url(database.name)
    run = hapax("serve", "--listen", "127.0.0.1:0", "--upstream", upstream.url, "--store", url)
    assert run.code == EXIT_STORE and "SET client_min_messages" in run.stderr, run
