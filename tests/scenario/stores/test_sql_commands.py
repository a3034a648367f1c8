# SPDX-License-Identifier: Apache-2.0
"""`hapax sql postgres` prints the schema, `hapax store migrate` brings a database to it: once, whoever asks how often,
and never half."""
import concurrent.futures
import re
import subprocess

import pytest

from harness import EXIT_CONFIG, EXIT_STORE
from harness.gateway import ROOT
from harness.postgres import MIGRATIONS, migration, program, taken_by_a_stranger

NEWEST = len(MIGRATIONS)


@pytest.fixture
def empty(postgres):
    """A database without the schema."""
    made = postgres.create_database(schema=False)
    yield made
    made.drop()


def version(database):
    return database.ask("SELECT version FROM hapax.store")[0][0]



def test_what_is_printed_can_be_applied_as_it_is(hapax, empty):
    printed = hapax("sql", "postgres")
    assert printed.code == 0
    done = subprocess.run([program("psql"), "-1", "-q", "-v", "ON_ERROR_STOP=1", empty.url], input=printed.stdout,
                          text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert version(empty) == NEWEST
    with_rest = hapax("store", "migrate", "--store", empty.url)
    assert "applied" not in with_rest.stdout


def test_only_what_comes_after_a_version_is_printed(hapax):
    assert hapax("sql", "postgres", "--from", "0").stdout == hapax("sql", "postgres").stdout
    assert hapax("sql", "postgres", "--from", NEWEST).stdout == ""
    rest = hapax("sql", "postgres", "--from", "1").stdout
    rest, digests = re.subn(r"\nUPDATE hapax.store SET digest = '[0-9a-f]{16}';\n", "", rest)
    assert digests == NEWEST - 1
    assert rest == "\n".join(file.read_text(encoding="utf-8") for file in MIGRATIONS[1:])


def test_a_migration_that_is_out_of_line_is_not_built(tmp_path):
    """By tools/embed, which puts them into the program."""
    def embed(*names, text="UPDATE hapax.store SET version = 2;\n"):
        files = [MIGRATIONS[0]]
        for name in names:
            files.append(tmp_path / name)
            files[-1].write_text(text, encoding="utf-8")
        return subprocess.run([ROOT / "tools" / "embed", tmp_path / "out.c", "table", "header.h", *files],
                              capture_output=True, text=True, check=False)

    assert embed("0002_more.sql").returncode == 0
    assert '{2, "0002_more", text_2, "' in (tmp_path / "out.c").read_text(encoding="ascii")
    for wrong, why in ((["0003_more.sql"], "number 2 was expected"), (["more.sql"], "is named like"),
                       (["0002_a.sql", "0002_b.sql"], "number 3 was expected")):
        refused = embed(*wrong)
        assert refused.returncode == 1 and why in refused.stderr
    assert "does not set hapax.store's version to 2" in embed("0002_more.sql", text="SELECT 1;\n").stderr


def test_sql_of_something_else_is_refused(hapax):
    for words in (["sql"], ["sql", "mysql"], ["sql", "postgres", "--from", "x"],
                  ["sql", "postgres", "--from", str(NEWEST + 1)], ["sql", "postgres", "more"]):
        assert hapax(*words).code == EXIT_CONFIG


def test_an_empty_database_is_brought_up_to_date_once(hapax, empty):
    first = hapax("store", "migrate", "--store", empty.url)
    assert first.code == 0, first
    assert first.stdout.splitlines() == [f"applied {file.stem}" for file in MIGRATIONS] + [
        f"database {empty.name} has schema version {NEWEST}"]
    secret = empty.ask("SELECT secret FROM hapax.store")
    again = hapax("store", "migrate", "--store", empty.url)
    assert (again.code, again.stdout) == (0, f"database {empty.name} has schema version {NEWEST}\n")
    assert empty.ask("SELECT secret FROM hapax.store") == secret


def test_an_older_schema_gets_what_it_lacks(hapax, empty):
    empty.ask(migration(0))
    done = hapax("store", "migrate", "--store", empty.url)
    assert done.stdout.splitlines()[0] == f"applied {MIGRATIONS[1].stem}"
    assert version(empty) == NEWEST


def test_many_that_migrate_at_once_do_it_once(hapax, empty):
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        runs = list(pool.map(lambda _: hapax("store", "migrate", "--store", empty.url), range(6)))
    assert [run.code for run in runs] == [0] * 6, runs
    applied = sorted(line for run in runs for line in run.stdout.splitlines() if line.startswith("applied"))
    assert applied == [f"applied {file.stem}" for file in MIGRATIONS]


def test_nobody_without_rights_holds_a_migration_up(hapax, empty):
    """Any role that may connect can take any advisory lock."""
    empty.ask(migration(0))
    with taken_by_a_stranger(empty):
        done = hapax("store", "migrate", "--store", f"{empty.url}?options=-c%20lock_timeout%3D2s")
    assert done.code == 0, done
    assert version(empty) == NEWEST


def test_it_works_through_a_pooler_in_transaction_mode(hapax, empty, pooler):
    assert hapax("store", "migrate", "--store", pooler.url(empty.name)).code == 0
    assert version(empty) == NEWEST


def test_no_superuser_is_needed(hapax, postgres, empty):
    role = f"owner_of_{empty.name}"
    empty.ask(f"CREATE ROLE {role} LOGIN")
    url = postgres.url(empty.name, role)
    without = hapax("store", "migrate", "--store", url)
    assert without.code == EXIT_STORE
    assert "permission denied" in without.stderr and "may create one in this database" in without.stderr
    empty.ask(f"GRANT CREATE ON DATABASE {empty.name} TO {role}")
    done = hapax("store", "migrate", "--store", url)
    assert done.code == 0, done
    empty.ask(f"DROP OWNED BY {role}")
    empty.ask(f"DROP ROLE {role}")


def test_a_newer_schema_is_left_alone(hapax, database):
    database.ask("UPDATE hapax.store SET version = 99")
    done = hapax("store", "migrate", "--store", database.url)
    assert done.code == EXIT_STORE
    assert f"version 99, and this program knows up to {NEWEST}" in done.stderr
    assert version(database) == 99


@pytest.mark.parametrize("older", ["UPDATE hapax.store SET digest = '0123456789abcdef'",
                                   "ALTER TABLE hapax.store DROP COLUMN digest"])
def test_a_schema_of_another_edit_is_refused_by_name(hapax, database, older):
    """The same version, by a build whose migrations differ: nothing can say what its functions do."""
    database.ask(older)
    for command in (("store", "migrate"), ("serve", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0")):
        done = hapax(*command, "--store", database.url)
        assert done.code == EXIT_STORE, done
        assert "the schema hapax of this database was made by another build" in done.stderr
        assert "hapax store backup" in done.stderr and "hapax store restore" in done.stderr
    assert version(database) == NEWEST


def test_a_migration_that_fails_leaves_nothing_behind(hapax, empty):
    empty.ask("CREATE SCHEMA hapax")
    empty.ask("CREATE TABLE hapax.past (theirs integer)")
    done = hapax("store", "migrate", "--store", empty.url)
    assert done.code == EXIT_STORE and "applying 0001_operations: schema \"hapax\" already exists" in done.stderr
    assert empty.ask("SELECT count(*) FROM pg_class WHERE relnamespace = 'hapax'::regnamespace") == [(1,)]


def test_a_standby_and_a_read_only_server_are_refused(hapax, start_postgres):
    primary = start_postgres()
    standby = primary.standby(synchronous=False)
    done = hapax("store", "migrate", "--store", standby.url("postgres"))
    assert done.code == EXIT_STORE and "is a standby: migrate on the primary" in done.stderr
    primary.ask("ALTER DATABASE postgres SET default_transaction_read_only = on")
    done = hapax("store", "migrate", "--store", primary.url("postgres"))
    assert done.code == EXIT_STORE and "is read-only" in done.stderr


def test_a_database_in_another_encoding_is_refused(hapax, postgres):
    postgres.ask("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    done = hapax("store", "migrate", "--store", postgres.url("latin"))
    postgres.ask("DROP DATABASE latin")
    assert done.code == EXIT_STORE and "not in UTF-8" in done.stderr


def test_a_wrong_password_is_told_and_not_shown(hapax, start_postgres):
    server = start_postgres(auth="scram-sha-256", password="wonderful")
    done = hapax("store", "migrate", "--store", server.url("postgres", password="not-this-one"))
    assert done.code == EXIT_STORE and "password authentication failed" in done.stderr
    assert "not-this-one" not in done.stdout + done.stderr
    broken = hapax("store", "migrate", "--store", "postgres://postgres:not-this-one@[::1/postgres")
    assert broken.code == EXIT_STORE and "can't be read" in broken.stderr
    assert "not-this-one" not in broken.stdout + broken.stderr
    assert hapax("store", "migrate", "--store", server.url("postgres")).code == 0


def test_a_server_that_is_not_there_and_a_store_that_is_none(hapax):
    done = hapax("store", "migrate", "--store", "postgres://postgres@127.0.0.1:1/none")
    assert done.code == EXIT_STORE and "PostgreSQL can't be reached" in done.stderr
    for words in ([], ["--store", "journal:/nowhere"]):
        done = hapax("store", "migrate", *words)
        assert done.code == EXIT_CONFIG and "postgres://" in done.stderr
