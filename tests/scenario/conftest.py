# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the stories: an upstream, a gateway in front of it, and a factory for gateways that need more."""
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import textwrap
import time
import zlib

import pytest

from harness import Api, Gateway, Run, Upstream, fresh_key
from harness.postgres import Pooler, Server
from harness.yoked import on_stage

VARIANTS = os.environ.get("HAPAX_VARIANTS")  # the commit, if one variant of each story is to be run

# `./dev quick` runs stories that take less than a second and need no database, and begins none after so many seconds.
# How long a story takes is measured whenever it runs, and the shortest time counts: a busy machine makes no story slow.
# A story that was never measured is taken for fast, unless it is marked as slow.
QUICK_S = float(os.environ.get("HAPAX_QUICK_S", "0"))
QUICK_STORY_S = 1.0
DATABASES = {"postgres", "start_postgres", "yoked"}
BUILD = pathlib.Path(os.environ.get("HAPAX_BUILD", "build"))
SECONDS = BUILD / "stories.json"
_began = []
_took = {}


def measured():
    try:
        return json.loads(SECONDS.read_text())
    except (OSError, ValueError):
        return {}


def pytest_runtest_logreport(report):
    if report.when == "call" and report.passed:
        _took[report.nodeid] = report.duration


def pytest_sessionfinish(session):
    if hasattr(session.config, "workerinput") or not _took or not BUILD.is_dir():
        return  # where stories are shared out, the process that hears of them all writes
    known = measured()
    known.update({name: round(min(seconds, known.get(name, seconds)), 2) for name, seconds in _took.items()})
    new = SECONDS.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(known, indent=0, sort_keys=True))
    new.replace(SECONDS)


def leave_slow_ones_out(items):
    known = measured()
    slow = {item for item in items if item.get_closest_marker("slow") or known.get(item.nodeid, 0) > QUICK_STORY_S}
    wide = {item for item in items if DATABASES & set(item.fixturenames) or "harness_postgres" in item.nodeid} - slow
    items[:] = [item for item in items if item not in slow | wide]
    (BUILD / "left-out.txt").write_text(f"  {len(slow)} scenarios that take more than {QUICK_STORY_S:.0f} s, and "
                                        f"{len(wide)} that need PostgreSQL\n")


def leave_variants_out(items):
    """Under a sanitizer one variant of each story is enough: it looks for bad memory accesses and races in the code
    that they run through, which is nearly the same for all. Each commit chooses others."""
    stories = {}
    for item in items:
        stories.setdefault((item.path, item.originalname), []).append(item)
    items[:] = [story[zlib.crc32(f"{VARIANTS} {name}".encode()) % len(story)] for (_, name), story in stories.items()]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    if QUICK_S:
        _began.append(time.monotonic())
        if _began[-1] - _began[0] > QUICK_S:
            pytest.skip("quick: out of time")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes seconds rather than milliseconds; part of the suite all the same")


def pytest_collection_modifyitems(items):
    """Where several processes share the stories out they do so in this order: slow ones come early, with others between
    them, so that none is left to the end and no process gets them all."""
    if QUICK_S:
        leave_slow_ones_out(items)
    if VARIANTS:
        leave_variants_out(items)
    slow = [item for item in items if item.get_closest_marker("slow")]
    items[:] = [item for item in items if item not in set(slow)]
    apart = 1 + len(items) // (2 * len(slow) + 1)
    for number, item in enumerate(slow):
        items.insert(number * apart, item)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    setattr(item, f"report_{report.when}", report)
    if report.failed:
        for number, gateway in enumerate(getattr(item, "gateways", ())):
            report.sections.append((f"gateway {number}", gateway.shown_output()))


@pytest.fixture
def tmp_path():
    """Short, whoever runs this and in however many processes: the path of a socket may have 107 bytes only, and every
    store has one in it."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="hapax-", dir=os.environ.get("HAPAX_STORES_IN")))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def start_upstream(request):
    """start_upstream(host=..., unix=..., listening=...): one more application server."""
    request.node.upstreams = []

    def start(**options):
        request.node.upstreams.append(Upstream(**options))
        return request.node.upstreams[-1]

    yield start
    for server in request.node.upstreams:
        server.close()
    errors = [error for server in request.node.upstreams for error in server.errors]
    assert not errors, "\n".join(errors)


@pytest.fixture
def upstream(start_upstream):
    return start_upstream()


@pytest.fixture
def start_gateway(request, tmp_path, upstream):
    """start_gateway(config=..., workers=..., flags=..., upstream=...): a running gateway with a store of its own."""
    for store in ("database", "start_postgres", "pooler", "store"):
        if store in request.fixturenames:
            request.getfixturevalue(store)  # before the gateways, and so there until they have ended
    request.node.gateways = []
    numbers = itertools.count()

    def start(config=None, upstream=upstream, started=True, directory=None, **options):
        if directory is None:
            directory = tmp_path / f"gateway-{next(numbers)}"
        directory.mkdir(exist_ok=True)
        gateway = Gateway(upstream, directory, config=config, **options)
        request.node.gateways.append(gateway)
        return gateway.start() if started else gateway

    yield start
    for server in request.node.upstreams:
        server.close()  # before the gateways, so that none of them drains for a request which is never answered
    failures = []
    for gateway in request.node.gateways:
        try:
            gateway.finish()
        except AssertionError as failure:
            failures.append(str(failure))
    assert not failures, "\n".join(failures)


@pytest.fixture
def start_node(tmp_path, start_gateway):
    """start_node(url, config, ...): a running gateway on a store that others use, too."""
    numbers = itertools.count()

    def start(url, config=None, **options):
        directory = tmp_path / f"node-{next(numbers)}"
        (directory / "store").mkdir(parents=True)  # where a journal would have its socket
        admin = f"admin:\n  listen: unix:{directory}/store/admin.sock\n"
        return start_gateway(admin + textwrap.dedent(config or ""), store=url, directory=directory, **options)

    return start


@pytest.fixture
def start_api(start_node):
    """start_api(config, ...): the API of a running gateway, on a store of its own unless `store` says which."""
    def start(config="", listen="127.0.0.1:0", store="memory:", **options):
        return Api(start_node(store, textwrap.dedent(config), flags=["--api", listen], **options))

    return start


@pytest.fixture
def api(start_api):
    return start_api()


@pytest.fixture
def gateway(start_gateway):
    return start_gateway()


@pytest.fixture
def mount(tmp_path):
    """mount("64m"): a folder on a file system of its own, of that size."""
    mounted = []

    def mount_one(size):
        folder = tmp_path / "disk"
        folder.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "hapax-test", str(folder)],
                              capture_output=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"can't mount a small file system: {done.stderr.decode().strip()}")
        mounted.append(folder)
        return folder

    yield mount_one
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def small_disk(mount):
    return mount("128m")


@pytest.fixture
def key():
    return fresh_key()


@pytest.fixture
def hapax():
    """Runs a command of the binary to its end: hapax("check", file).code"""
    return lambda *words, **options: Run(words, **options)


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL that all stories of this worker share; those that kill one start their own."""
    server = Server().start()
    yield server
    server.close()


@pytest.fixture
def start_postgres():
    """start_postgres(settings=..., auth=..., password=...): one more server, to kill, pause or promote its standby."""
    servers = []

    def start(**options):
        servers.append(Server(**options))
        return servers[-1].start()

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def database(postgres):
    """A database of this story's own, with the schema."""
    made = postgres.create_database()
    yield made
    made.drop()


@pytest.fixture(scope="session")
def pooler(postgres):
    """PgBouncer in front of `postgres`, in transaction mode: pooler.url(database.name)"""
    started = Pooler(postgres).start()
    yield started
    started.close()


@pytest.fixture
def yoked(request, tmp_path):
    """The Yoked example: its application, the gateway before it, and people who have signed in."""
    yield from on_stage(request, tmp_path)


@pytest.fixture
def ada(yoked):
    return yoked.sign_in()


@pytest.fixture
def ben(yoked):
    return yoked.sign_in()
