# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL servers of our own for the stories: on loopback, in a directory that goes with them, with fsync. One for
all stories of a worker, from which each gets a database of its own (server.create_database), and as many more as a
story likes to kill, restart and promote (Server, its standby, Pooler)."""
import atexit
import contextlib
import functools
import itertools
import os
import pathlib
import pwd
import runpy
import shutil
import signal
import socket
import subprocess
import tempfile

import psycopg2

from .gateway import ROOT
from .places import free_port
from .waiting import HANG_S, eventually

MIGRATIONS = sorted((ROOT / "sql" / "postgres").glob("*.sql"))
TEMPLATE = "hapax_template"
_numbers = itertools.count(1)


@functools.cache
def migration(number):
    """The SQL of a migration, from 0 on, as the program carries it."""
    return runpy.run_path(str(ROOT / "tools" / "embed"))["read"](MIGRATIONS)[number][2].decode()


def program(name):
    """Debian keeps a server's programs apart from the others', by version."""
    places = sorted(pathlib.Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]))
    found = str(places[-1]) if places else shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"there is no {name}: install the Debian package postgresql")
    return found


def _unprivileged():
    """Neither PostgreSQL nor PgBouncer runs as root."""
    if os.getuid() != 0:
        return {}
    return {"user": "postgres", "group": "postgres", "extra_groups": []}


def _directory(prefix):
    path = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=os.environ.get("HAPAX_SERVERS_IN")))
    if os.getuid() == 0:
        owner = pwd.getpwnam("postgres")
        os.chown(path, owner.pw_uid, owner.pw_gid)
    return path


def _run(*words, given=b""):
    done = subprocess.run([str(word) for word in words], input=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=4 * HANG_S, check=False, **_unprivileged())  # it may copy a whole cluster
    assert done.returncode == 0, f"{words[0]} ended with {done.returncode}:\n{done.stdout.decode(errors='replace')}"


@functools.lru_cache(maxsize=None)
def _cluster():
    """A fresh cluster, which is made once and copied."""
    place = _directory("hapax-pg-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    _run(program("initdb"), "-D", place / "data", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "--auth=trust",
         "--no-sync")
    return place / "data"


def _children(pid):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            after_name = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(after_name[1]) == pid:
                found.append(int(entry.name))
    return found


def _state(pid):
    """What the kernel calls it: "T" for a process that stands still, "Z" for one that only waits for its parent; None
    for one that is gone."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return None


class Server:
    """One PostgreSQL. Not started by itself: Server().start(). `auth` is what pg_hba.conf says of loopback: "trust", or
    "scram-sha-256" with `password` for the user postgres."""

    def __init__(self, settings=None, auth="trust", password=None, primary=None):
        self.directory = _directory("hapax-pg-")
        self.data = self.directory / "data"
        self.log = self.directory / "log"
        self.port = free_port()
        self.password = password
        self.process = None
        self.standbys = []
        if primary:
            self._copy(primary)
        else:
            self._create(auth)
        self.settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": self.directory,
                         "max_connections": 200, "max_wal_senders": 10, "wal_level": "replica",
                         "logging_collector": "off", "log_line_prefix": "%m [%p] %a ",
                         "dynamic_shared_memory_type": "mmap",  # in its directory, which goes with it
                         **(settings or {})}

    def _create(self, auth):
        _run("cp", "-a", _cluster(), self.data)
        if self.password:
            statement = f"ALTER ROLE postgres PASSWORD '{self.password}'\n"
            _run(program("postgres"), "--single", "-D", self.data, "postgres", given=statement.encode())
        rules = self.data / "pg_hba.conf"
        rules.write_text(f"local all all trust\nhost all all 127.0.0.1/32 {auth}\n"
                         f"host replication all 127.0.0.1/32 {auth}\n", encoding="utf-8")

    def _copy(self, primary):
        self.password = primary.password
        _run(program("pg_basebackup"), "-D", self.data, "-R", "-X", "stream", "-c", "fast", "--no-sync", "-d",
             f"{primary.url('postgres')}?application_name=standby_{self.port}")

    def _words(self):
        words = [program("postgres"), "-D", str(self.data), "-p", str(self.port)]
        for name, value in self.settings.items():
            words += ["-c", f"{name}={value}"]
        return words

    def start(self):
        """Returns when it answers; a standby too. After a kill -9 it recovers first."""
        assert self.process is None or self.process.poll() is not None, "the server is running"
        is_first = self.process is None
        while True:
            before = self.log.stat().st_size if self.log.exists() else 0
            self._launch()
            if eventually(self._answers_or_ended, "PostgreSQL's start") == "answers":
                return self
            said = self.log.read_bytes()[before:].decode(errors="replace")
            if "shared memory block" in said and "still in use" in said:
                continue  # a process that was killed is not gone yet
            lost_port = is_first and "could not bind" in said  # somebody else was quicker
            assert lost_port, f"PostgreSQL ended with {self.process.poll()}:\n{self.said()}"
            self.log.unlink()
            self.port = free_port()

    def _launch(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self._words(), stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, start_new_session=True, **_unprivileged())

    def _answers_or_ended(self):
        """By its own socket: on the port there may be somebody else."""
        with contextlib.suppress(psycopg2.OperationalError):
            with contextlib.closing(psycopg2.connect(host=str(self.directory), port=self.port, user="postgres",
                                                     dbname="postgres")):
                return "answers"
        return "ended" if self.process.poll() is not None else None

    def said(self):
        return self.log.read_text(encoding="utf-8", errors="replace")[-8000:]

    # Ends

    def kill(self):
        """kill -9 of all its processes at once: as if the machine had lost its power, but for the page cache. A backend
        that was forked while the others are killed would wait for their locks for ever, and keep a new server from
        starting: hence nobody forks any more."""
        self.process.send_signal(signal.SIGSTOP)
        eventually(lambda: _state(self.process.pid) in ("T", "Z", None), "a postmaster that stands still")
        processes = [self.process.pid, *_children(self.process.pid)]
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(timeout=HANG_S)
        for pid in processes[1:]:
            eventually(lambda pid=pid: _state(pid) in ("Z", None), "the end of PostgreSQL's processes")
        return self

    def stop(self):
        """As an operator does: connections are cut, everything is written."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=HANG_S)
        return self

    def restart(self, how="kill"):
        (self.kill if how == "kill" else self.stop)()
        return self.start()

    def _signal(self, number):
        for pid in (self.process.pid, *_children(self.process.pid)):
            with contextlib.suppress(ProcessLookupError):  # of its children some come and go
                os.kill(pid, number)

    def pause(self):
        """It hangs: connections stay, and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self):
        self._signal(signal.SIGCONT)

    def close(self):
        for standby in self.standbys:
            standby.close()
        if self.process and self.process.poll() is None:
            self.kill()
        self._free_memory()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _free_memory(self):
        """Frees the shared memory that a killed server leaves in the kernel, which has a few thousand segments."""
        with contextlib.suppress(OSError, IndexError, ValueError):  # it ended well, or never began
            _key, segment = (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()[6].split()
            subprocess.run(["ipcrm", "-m", segment], check=False, capture_output=True)

    # Replication

    def standby(self, synchronous=True, port=None):
        """A started standby. Synchronous: from now on no commit here is acknowledged before it is durable there too.
        `port`: of a server that is no more, say."""
        name = f"standby_{len(self.standbys) + 1}"
        copy = Server(primary=self, settings=self.settings)
        copy.port = port or copy.port
        conninfo = f"host=127.0.0.1 port={self.port} user=postgres application_name={name}"
        copy.settings = {**self.settings, "unix_socket_directories": copy.directory, "primary_conninfo":
                         conninfo + (f" password={self.password}" if self.password else "")}
        self.standbys.append(copy)
        copy.start()
        if synchronous:
            self.ask(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
            self.ask("SELECT pg_reload_conf()")
        state = "sync" if synchronous else "async"
        eventually(lambda: self.ask("SELECT 1 FROM pg_stat_replication WHERE application_name = %s AND sync_state = %s"
                                    " AND state = 'streaming'", name, state), "a standby that follows")
        return copy

    def promote(self):
        """This standby is the primary from now on."""
        self.ask("SELECT pg_promote()")
        eventually(lambda: self.ask("SELECT NOT pg_is_in_recovery()")[0][0], "the promotion")
        self.ask("ALTER SYSTEM RESET synchronous_standby_names")
        self.ask("SELECT pg_reload_conf()")
        return self

    # Databases

    def url(self, database, user="postgres", password=None):
        secret = password or (self.password if user == "postgres" else None)
        return f"postgres://{user}{':' + secret if secret else ''}@127.0.0.1:{self.port}/{database}"

    def connect(self, database, user="postgres", password=None):
        return psycopg2.connect(self.url(database, user, password), connect_timeout=int(HANG_S))

    def ask(self, sql, *values, database="postgres"):
        """Rows of one statement, committed by itself."""
        with contextlib.closing(self.connect(database)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(sql, values or None)
                return cursor.fetchall() if cursor.description else []

    def create_database(self, schema=True):
        """An empty database, or one with the whole schema of Hapax, which is copied from a template."""
        if schema and not self.ask("SELECT 1 FROM pg_database WHERE datname = %s", TEMPLATE):
            self.ask(f"CREATE DATABASE {TEMPLATE}")
            for number in range(len(MIGRATIONS)):
                self.ask(migration(number), database=TEMPLATE)
        name = f"story_{next(_numbers)}"
        self.ask(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE if schema else 'template0'}")
        return Database(self, name)


class Database:
    """One database of a server. `url` is what a gateway takes; through a pooler: pooler.url(database.name)."""

    def __init__(self, server, name):
        self.server, self.name, self.url = server, name, server.url(name)

    def connect(self, user="postgres", password=None):
        return self.server.connect(self.name, user, password)

    def ask(self, sql, *values):
        return self.server.ask(sql, *values, database=self.name)

    def wait_checked(self, node):
        """Returns once a gateway has all its connections, two for each worker and two for what runs beside them, and
        has found each of them usable: until then, one that is cut was never there, for its log. Its start has one of
        its own, which sends no parameters and may take a while to go."""
        used = ("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle'"
                " AND application_name = 'hapax' AND query ~ '[$]1|^LISTEN|hapax.counts'")
        eventually(lambda: self.ask(used) == [(2 * (node.workers + 1),)], "all connections of the gateway in use")
        node.wait_inside([])  # what they were answered was read

    def drop(self):
        self.server.ask(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")


class Pooler:
    """PgBouncer in front of a server, in transaction mode: nothing that belongs to a session survives a transaction."""

    def __init__(self, server, pool_size=20):
        self.server = server
        self.directory = _directory("hapax-pgb-")
        self.port = free_port()
        self.log = self.directory / "log"
        users = self.directory / "users"
        users.write_text(f'"postgres" "{server.password or ""}"\n', encoding="utf-8")
        self.config = self.directory / "pgbouncer.ini"
        self.config.write_text(f"""[databases]
* = host=127.0.0.1 port={server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = {"scram-sha-256" if server.password else "trust"}
auth_file = {users}
admin_users = postgres
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 1000
""", encoding="utf-8")
        self.process = None

    def start(self):
        command = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([command, str(self.config)], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, **_unprivileged())
        eventually(self._answers, "PgBouncer's start")
        return self

    def _answers(self):
        assert self.process.poll() is None, f"PgBouncer ended with {self.process.poll()}:\n{self.log.read_text()}"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def url(self, database, user="postgres"):
        secret = f":{self.server.password}" if self.server.password else ""
        return f"postgres://{user}{secret}@127.0.0.1:{self.port}/{database}"

    def connect(self, database, user="postgres"):
        return psycopg2.connect(self.url(database, user), connect_timeout=int(HANG_S))

    def kill(self):
        self.process.kill()
        self.process.wait(timeout=HANG_S)
        return self

    def close(self):
        if self.process and self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


@contextlib.contextmanager
def taken_by_a_stranger(database):
    """A role with no rights but to connect has every advisory lock whose number was ever written in the sources."""
    role = f"stranger_to_{database.name}"
    database.ask(f"CREATE ROLE {role} LOGIN")
    with contextlib.closing(database.connect(role)) as connection:
        connection.autocommit = True
        for number in (448563601784, 448311353720):
            connection.cursor().execute("SELECT pg_advisory_lock(%s)", [number])
        yield connection
    database.ask(f"DROP ROLE {role}")
