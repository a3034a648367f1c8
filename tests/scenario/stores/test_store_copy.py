# SPDX-License-Identifier: Apache-2.0
"""hapax store copy: whatever was known of an operation is known in the copy. A gateway on it repeats no effect, an
unknown stays unknown, no epoch is drawn twice; and what is not whole is not taken for it."""
import contextlib
import functools
import itertools
import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess

import psycopg2
import pytest

from harness import (EXIT_CONFIG, EXIT_STORE, HANG_S, answer, binary, directory_hash, drop_after_effect, eventually,
                     fresh_key, hours_ahead, killed_at_change, killed_at_sync)

UNKNOWN = "CONFLICT.idempotency.outcome_unknown"


def unique(exchange):
    exchange.read_body()
    exchange.execute()
    exchange.answer(201, b"answer %s" % fresh_key().encode(), headers=[("Location", f"/refunds/{fresh_key()}")])


class Past:
    """What a gateway has done before its store is moved: answers by key, and the keys of each state."""

    def __init__(self, gateway, upstream, count=5):
        self.upstream = upstream
        upstream.on("/refunds", unique)
        upstream.on("/refused", answer(422, b"no"))
        upstream.on("/lost", drop_after_effect())
        self.answers = {}
        for path in ("/refunds", "/refused"):
            for _ in range(count):
                key = fresh_key()
                self.answers[path, key] = gateway.post(path, key=key, json={"of": key})
        self.lost = [fresh_key() for _ in range(count)]
        for key in self.lost:
            assert gateway.post("/lost", key=key, json={}).idempotency == "unknown"
        self.count = 3 * count
        self.effects = self.all_effects()

    def all_effects(self):
        return [self.upstream.effects(path) for path in ("/refunds", "/refused", "/lost")]

    def epochs(self):
        return [int(request.header("Hapax-Operation").rpartition(".")[2])
                for path in ("/refunds", "/refused", "/lost", "/new") for request in self.upstream.received(path)]

    def is_known_to(self, gateway):
        """Every request is repeated: nothing happens twice, and the answers are what they were."""
        for (path, key), first in self.answers.items():
            again = gateway.post(path, key=key, json={"of": key})
            assert (again.status, again.body, again.idempotency) == (first.status, first.body, "replayed")
            assert again.header("Location") == first.header("Location")
            gateway.post(path, key=key, json={"of": "another"}).refuses(
                409, "CONFLICT.idempotency.payload_mismatch")
        for key in self.lost:
            gateway.post("/lost", key=key, json={}).refuses(409, UNKNOWN)
        assert self.all_effects() == self.effects
        before = max(self.epochs())
        assert gateway.post("/new", key=fresh_key(), json={}).idempotency == "stored"
        assert max(self.epochs()) > before, "an epoch was drawn twice"


@pytest.fixture
def old(start_gateway):
    return start_gateway()


@pytest.fixture
def past(old, upstream):
    past = Past(old, upstream)
    old.terminate()
    assert old.wait_exit() == 0
    return past


@pytest.fixture
def past_of_few(old, upstream):
    """For stories that run a command many times."""
    past = Past(old, upstream, count=2)
    stop(old)
    return past


@pytest.fixture
def new(start_gateway, past):  # pylint: disable=unused-argument
    """Not started: its store is to be made."""
    return start_gateway(started=False)


def test_copy_knows_everything_and_repeats_nothing(past, old, new, hapax):
    result = hapax("store", "copy", old.store_url, new.store_url)
    assert result.code == 0, result
    assert f"{past.count} operations were copied." in result.stdout, result
    past.is_known_to(new.start())
    assert not new.events("store_restored")


@pytest.fixture(params=["sqlite", "postgres"])
def other_kind(request, tmp_path):
    """The name of a new store of another kind."""
    return f"sqlite:{tmp_path / 'store.db'}" if request.param == "sqlite" else request.getfixturevalue("database").url


def test_copy_to_another_kind_and_back_is_the_same(past, old, new, other_kind, hapax):
    there = hapax("store", "copy", old.store_url, other_kind)
    assert there.code == 0, there
    again = hapax("store", "copy", old.store_url, other_kind)
    assert again.code == EXIT_STORE and "is not empty, and nothing in it was changed" in again.stderr, again
    back = hapax("store", "copy", other_kind, new.store_url, "--json")
    assert back.code == 0, back
    assert json.loads(back.stdout)["copied"] == past.count
    past.is_known_to(new.start())


def test_backup_of_another_kind_is_restored_into_a_journal_and_back(past, old, new, other_kind, hapax, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    assert hapax("store", "backup", first, "--store", old.store_url).code == 0
    restored = hapax("store", "restore", first, other_kind)
    assert restored.code == 0, restored
    assert hapax("store", "restore", first, other_kind).code == EXIT_STORE
    assert hapax("store", "backup", second, "--store", other_kind).code == 0
    restored = hapax("store", "restore", second, new.store_url)
    assert restored.code == 0 and "is generation 2 of " in restored.stdout, restored
    past.is_known_to(new.start())


def test_original_goes_on_as_it_was(past, old, new, hapax):
    assert hapax("store", "copy", old.store_url, new.store_url).code == 0
    past.is_known_to(old.start())


def test_result_for_programs_has_every_count(past, old, new, hapax):
    said = hapax("store", "copy", old.store_url, new.store_url, "--json")
    assert (said.code, said.stderr) == (0, ""), said
    result = json.loads(said.stdout)
    each = past.count // 3
    assert result["whole"] is True
    assert (result["copied"], result["ended"], result["made_unknown"]) == (past.count, 0, 0)
    assert result["states"] == {"completed": {"from": each, "to": each}, "failed": {"from": each, "to": each},
                                "unknown": {"from": each, "to": each}, "expired": {"from": 0, "to": 0}}
    assert result["epochs_above"] >= max(past.epochs())


def test_second_copy_into_the_same_target_is_refused_and_changes_nothing(past, old, new, hapax):
    assert hapax("store", "copy", old.store_url, new.store_url).code == 0
    before = directory_hash(new.store)
    again = hapax("store", "copy", old.store_url, new.store_url)
    assert again.code == EXIT_STORE, again
    assert "is not empty" in again.stderr and "Give a new store" in again.stderr, again
    assert directory_hash(new.store) == before
    past.is_known_to(new.start())


def test_copy_that_was_used_is_left_as_it_is(past, old, new, hapax):
    """What was resolved, run again or first run there is still what it was."""
    assert hapax("store", "copy", old.store_url, new.store_url).code == 0
    new.start()
    resolved, released, first = past.lost[0], past.lost[1], fresh_key()
    said = hapax("keys", "resolve", resolved, "--completed", "--body", '{"seen": true}', "--why", "in the ledger",
                 "--store", new.store_url)
    assert said.code == 0, said
    assert hapax("keys", "resolve", released, "--release", "--why", "not in the ledger",
                 "--store", new.store_url).code == 0
    assert new.post("/lost", key=released, json={}).idempotency == "unknown"  # once more, and lost once more
    assert new.post("/new", key=first, json={}).idempotency == "stored"
    stop(new)
    before = directory_hash(new.store)
    again = hapax("store", "copy", old.store_url, new.store_url)
    assert again.code == EXIT_STORE and "is not empty" in again.stderr, again
    assert directory_hash(new.store) == before
    new.start()
    answered = new.post("/lost", key=resolved, json={})
    assert (answered.json(), answered.idempotency) == ({"seen": True}, "replayed")
    new.post("/lost", key=released, json={}).refuses(409, UNKNOWN)
    assert new.post("/new", key=first, json={}).idempotency == "replayed"
    assert past.upstream.effects("/lost") == past.effects[2] + 1


def test_copies_made_one_after_the_other_draw_other_epochs(past, old, postgres, hapax):
    """Also where a store's own epochs don't follow the clock: what one copy has drawn the next must not."""
    assert past.count > 0
    first, *copies = [postgres.create_database() for _ in range(3)]
    assert hapax("store", "copy", old.store_url, first.url).code == 0
    above = [json.loads(hapax("store", "copy", first.url, copy.url, "--json").stdout)["epochs_above"]
             for copy in copies]
    assert above[1] > above[0], "the same epochs again"
    for database in (first, *copies):
        database.drop()


def refuses_to_start(gateway):
    """What a gateway says that does not start."""
    ended = subprocess.run(gateway.command(), capture_output=True, timeout=HANG_S, check=False)
    assert ended.returncode == EXIT_STORE, ended
    return ended.stderr.decode()


def starts(gateway):
    """False: it refuses, because its store is not whole."""
    try:
        gateway.start()
    except AssertionError as refusal:
        assert "has not ended" in str(refusal), refusal
        gateway.expected_exits.add(EXIT_STORE)
        return False
    return True


def stop(gateway):
    gateway.terminate()
    assert gateway.wait_exit() == 0


def path_of(gateway):
    return pathlib.Path(gateway.store_url.partition(":")[2])


def is_begun(gateway):
    """Whether anything was written at all. Where nothing was, any start makes a new store."""
    path = path_of(gateway)
    return any(path.iterdir()) if path.is_dir() else any(path.parent.glob(path.name + "*"))


def is_made(gateway):
    path = path_of(gateway)
    return (path / "FORMAT" if gateway.store_url.startswith("journal:") else path).exists()


def make_journal(start_gateway):
    gateway = start_gateway(started=False)
    gateway.store.mkdir()  # as a service manager does it
    return gateway


def make_sqlite(start_node, folder):
    return start_node(f"sqlite:{folder / fresh_key()}.db", started=False)


@pytest.fixture(params=["journal", "sqlite"])
def make_target(request, start_gateway, start_node, tmp_path):
    """Gateways that are not started: their stores are to be made."""
    return lambda: make_journal(start_gateway) if request.param == "journal" else make_sqlite(start_node, tmp_path)


def each_half_made(act, syncs, make_target, past):
    """Gateways that refuse the store which `act` was filling for them when it was killed, at one sync after the other,
    until one of them has it whole. How a store is made before it is filled has a story of its own."""
    for number in syncs:
        new = make_target()
        killed = act(new.store_url, env=killed_at_sync(number))
        assert killed.code == -signal.SIGKILL, killed
        if not is_made(new):
            continue
        if starts(new):  # it was whole, but didn't live to say so
            past.is_known_to(new)
            return
        yield new


def test_copy_killed_at_any_sync_is_not_taken_for_whole_and_is_run_again(past_of_few, old, make_target, hapax):
    copy = functools.partial(hapax, "store", "copy", old.store_url)
    half_made = list(each_half_made(copy, itertools.count(1), make_target, past_of_few))
    assert len(half_made) >= 2, "it was never killed in the middle"
    for new in half_made:
        again = copy(new.store_url)
        assert again.code == 0 and f"{past_of_few.count} operations were copied." in again.stdout, again
    past_of_few.is_known_to(half_made[len(half_made) // 2].start())


def test_run_again_that_is_killed_at_any_sync_is_not_taken_for_whole_either(past_of_few, old, make_target, hapax):
    """Emptying what the run before has left is cut short, too, and filling it once more."""
    copy = functools.partial(hapax, "store", "copy", old.store_url)
    *_, new = each_half_made(copy, itertools.count(10), make_target, past_of_few)  # all is there, but for the end
    refused = 0
    while copy(new.store_url, env=killed_at_sync(refused + 1)).code == -signal.SIGKILL and not starts(new):
        refused += 1
    assert refused >= 4, "it was never killed in the middle"
    past_of_few.is_known_to(new if new.is_running() else new.start())


def test_half_a_copy_of_what_has_changed_since_becomes_a_copy_of_what_is(past, old, make_target, hapax):
    """Between the copy that was killed and the next an operation ran once more, another one was resolved, a third is
    new: nothing of what the first run brought is left."""
    copy = functools.partial(hapax, "store", "copy", old.store_url)
    *_, new = each_half_made(copy, itertools.count(10), make_target, past)  # all is there, but for the end
    old.start()
    again, resolved, first = past.lost[0], past.lost.pop(), fresh_key()
    for key, words in ((again, ["--release"]), (resolved, ["--completed", "--body", "{}"])):
        assert hapax("keys", "resolve", key, *words, "--why", "so be it", "--store", old.store_url).code == 0
    assert old.post("/lost", key=again, json={}).idempotency == "unknown"
    assert old.post("/new", key=first, json={}).idempotency == "stored"
    stop(old)
    result = copy(new.store_url)
    assert result.code == 0 and f"{past.count + 1} operations were copied." in result.stdout, result
    new.start()
    past.effects = past.all_effects()
    past.is_known_to(new)
    assert new.post("/lost", key=resolved, json={}).idempotency == "replayed"
    assert new.post("/new", key=first, json={}).idempotency == "replayed"
    assert past.all_effects() == past.effects


@pytest.mark.parametrize("restores", [False, True], ids=["copy", "restore"])
def test_nothing_is_written_before_what_says_that_it_is_not_whole(past_of_few, old, make_target, hapax, tmp_path,
                                                                   restores):
    """From the very first file on no gateway starts on it as if it were a new store: its keys would all run again."""
    words = ["copy", old.store_url]
    if restores:
        words = ["restore", tmp_path / "file"]
        assert hapax("store", "backup", tmp_path / "file", "--store", old.store_url).code == 0
    refused = 0
    step = 2 if restores else 1  # both make the target by the same calls
    for number in itertools.count(1, step):
        new = make_target()
        killed = hapax("store", *words, new.store_url, env=killed_at_change(number))
        assert killed.code == -signal.SIGKILL, killed
        if not is_begun(new):
            continue
        assert not starts(new), f"a gateway took what change {number} had not made for a new store"
        refused += 1
        if is_made(new):  # and says that it is unfinished, or it would not have been refused
            break
    assert refused >= 5, "it was never killed in the making"
    new = make_target()
    first = number - step * (refused - 1)
    assert hapax("store", *words, new.store_url, env=killed_at_change(first)).code == -signal.SIGKILL
    again = hapax("store", *words, new.store_url)
    assert again.code == 0, again
    past_of_few.is_known_to(new.start())


def test_copy_into_postgres_is_unfinished_from_its_first_word(past, old, database, start_node, hapax):
    """Nothing else has come before it is killed: a lock that somebody holds keeps it from going on."""
    secret = "SELECT secret FROM hapax.store"
    before = database.ask(secret)
    with contextlib.closing(psycopg2.connect(database.url)) as somebody:
        somebody.cursor().execute("LOCK TABLE hapax.rules IN ROW SHARE MODE")
        copying = subprocess.Popen([binary(), "store", "copy", old.store_url, database.url])
        eventually(lambda: database.ask(secret) != before, "the copy has begun")
        copying.kill()
        copying.wait()
    new = start_node(database.url, started=False)
    assert not starts(new)
    # as if it had brought something before it was killed
    with contextlib.closing(psycopg2.connect(database.url)) as somebody, somebody:
        somebody.cursor().execute("""
            CREATE TEMPORARY TABLE brought AS SELECT * FROM hapax.operations;
            UPDATE brought SET op = decode(repeat('ab', 16), 'hex');
            INSERT INTO hapax.operations SELECT * FROM brought""")
    result = hapax("store", "copy", old.store_url, database.url)
    assert result.code == 0 and f"{past.count} operations were copied." in result.stdout, result
    past.is_known_to(new.start())


@pytest.mark.parametrize("restores", [False, True], ids=["copy", "restore"])
def test_store_that_a_gateway_uses_is_not_filled(past, old, other_kind, start_node, hapax, tmp_path, key, restores):
    """Though nothing is under way, and nothing was done yet: the gateway knows keys by a secret of its own."""
    assert hapax("store", "backup", tmp_path / "file", "--store", old.store_url).code == 0
    running = start_node(other_kind)
    words = ["restore", tmp_path / "file"] if restores else ["copy", old.store_url]
    result = hapax("store", *words, other_kind)
    assert result.code == EXIT_STORE, result
    assert "a gateway has been started on" in result.stderr or "another secret" in result.stderr, result
    assert running.post("/new", key=key, json={}).idempotency == "stored"
    stop(running)
    assert hapax("store", *words, other_kind).code == EXIT_STORE
    assert running.start().post("/new", key=key, json={}).idempotency == "replayed"
    assert past.upstream.effects("/new") == 1


def test_copy_that_a_gateway_uses_is_not_copied_into_again(past, old, other_kind, start_node, hapax):
    assert hapax("store", "copy", old.store_url, other_kind).code == 0
    running = start_node(other_kind)
    result = hapax("store", "copy", old.store_url, other_kind)
    assert result.code == EXIT_STORE and "a gateway has been started on" in result.stderr, result
    past.is_known_to(running.restart("drain"))


def test_what_can_not_be_read_is_not_copied_as_if_it_were_unknown(past, old, new, hapax, tmp_path):
    log = old.store / "00000001.seg"
    whole = log.read_bytes()
    at = whole.index(next(iter(past.answers.values())).body)
    log.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1:])
    for words in (["copy", old.store_url, new.store_url], ["backup", tmp_path / "file", "--store", old.store_url]):
        result = hapax("store", *words)
        assert result.code == EXIT_STORE, result
        assert "can't be read" in result.stderr and "hapax store salvage" in result.stderr, result
    assert "not whole" in refuses_to_start(new)
    assert not (tmp_path / "file").exists()
    shutil.rmtree(new.store)
    assert hapax("store", "salvage", old.store, new.store_url).code == 0
    new.start()
    for number, ((path, key), first) in enumerate(past.answers.items()):
        again = new.post(path, key=key, json={"of": key})
        if number == 0:
            again.refuses(409, "CONFLICT.idempotency.response_not_retained")
        else:
            assert (again.body, again.idempotency) == (first.body, "replayed")
    assert past.all_effects() == past.effects


def test_large_answers_come_along(old, upstream, start_gateway, hapax):
    bodies = {fresh_key(): os.urandom(size) for size in (0, 1, 100_000, 1 << 20, 7 << 20, 7 << 20)}
    for key, body in bodies.items():
        upstream.on(f"/{key}", answer(200, body))
        assert old.post(f"/{key}", key=key, json={}).body == body
    old.terminate()
    assert old.wait_exit() == 0
    new = start_gateway(started=False)
    result = hapax("store", "copy", old.store_url, new.store_url)
    assert result.code == 0, result
    new.start()
    for key, body in bodies.items():
        again = new.post(f"/{key}", key=key, json={})
        assert again.body == body and again.idempotency == "replayed"
        assert upstream.effects(f"/{key}") == 1


def test_tombstones_come_along_and_what_is_over_does_not(start_gateway, upstream, hapax):
    config = """
        routes:
          - {name: kept, match: POST /kept, lifetime: 150s, tombstone: 30d}
          - {name: gone, match: POST /gone, lifetime: 150s}
    """
    old = start_gateway(config)
    keys = {path: fresh_key() for path in ("/kept", "/gone")}
    for path, key in keys.items():
        assert old.post(path, key=key, json={}).idempotency == "stored"
    old.terminate()
    assert old.wait_exit() == 0
    new = start_gateway(config, started=False)
    later = hours_ahead(1)
    result = hapax("store", "copy", old.store_url, new.store_url, "--json", env=later)
    assert result.code == 0, result
    assert json.loads(result.stdout)["states"]["expired"] == {"from": 1, "to": 1}
    new.start(env=later)
    new.post("/kept", key=keys["/kept"], json={}).refuses(409, "CONFLICT.idempotency.expired")
    assert new.post("/gone", key=keys["/gone"], json={}).idempotency == "stored"
    assert (upstream.effects("/kept"), upstream.effects("/gone")) == (1, 2)


def test_store_in_use_is_refused_and_serves_on(old, start_gateway, upstream, hapax, key):
    old.post("/refunds", key=key, json={})
    new = start_gateway(started=False)
    result = hapax("store", "copy", old.store_url, new.store_url)
    assert result.code == EXIT_STORE, result
    assert "is in use" in result.stderr and "snapshot" in result.stderr, result
    assert not new.store.exists()
    into = hapax("store", "copy", old.store_url, old.store_url + "/../store")
    assert into.code == EXIT_CONFIG and "the same store" in into.stderr, into
    assert old.post("/refunds", key=key, json={}).idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


def test_target_in_use_is_refused(past, old, start_gateway, hapax):
    running = start_gateway()
    result = hapax("store", "copy", old.store_url, running.store_url)
    assert result.code == EXIT_STORE and "in use" in result.stderr, result
    past.is_known_to(old.start())


def test_store_with_another_secret_is_refused_and_left_as_it_is(past, old, start_gateway, hapax, key):
    other = start_gateway()
    other.post("/elsewhere", key=key, json={})
    other.terminate()
    assert other.wait_exit() == 0
    before = directory_hash(other.store)
    result = hapax("store", "copy", old.store_url, other.store_url)
    assert result.code == EXIT_STORE and "another secret" in result.stderr, result
    assert directory_hash(other.store) == before
    past.is_known_to(old.start())


def test_what_is_no_store_is_refused_and_nothing_is_made(hapax, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "beach.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    before = directory_hash(tmp_path)
    for place in ("photos", "nothing"):
        result = hapax("store", "copy", f"journal:{tmp_path / place}", f"journal:{tmp_path / 'new'}")
        assert result.code == EXIT_STORE and "there is no store" in result.stderr, result
    assert directory_hash(tmp_path) == before


@pytest.mark.parametrize("words, said", [
    (["copy"], "copy needs two stores"),
    (["copy", "journal:a"], "copy needs two stores"),
    (["copy", "journal:a", "journal:a"], "the same store"),
    (["copy", "postgres://me:s3cret@h/db", "postgres://me:s3cret@h/db"], "store: postgres://me:***@h/db and postgres"),
    (["copy", "journal:a", "journal:b", "c"], 'unexpected argument "c"'),
    (["copy", "memory:", "journal:b"], "memory: is gone"),
    (["copy", "journal:a", "memory:"], "memory: is gone"),
    (["copy", "a", "journal:b"], "must be"),
    (["copy", "journal:a", "journal:b", "--store", "journal:c"], "--store is not a flag of copy"),
    (["salvage", "a", "journal:b", "--live"], "--live is not a flag of salvage"),
    (["restore", "a", "journal:b", "--live"], "--live is not a flag of restore"),
], ids=str)
def test_misuse_is_refused(hapax, tmp_path, words, said):
    result = hapax("store", *words, cwd=tmp_path)
    assert result.code == EXIT_CONFIG and said in result.stderr, result
    assert "Try `hapax help store`" in result.stderr
    assert not list(tmp_path.iterdir())


def test_terminal_gets_a_bar_and_a_pipe_does_not(past, old, new, hapax):
    ours, theirs = pty.openpty()
    process = subprocess.Popen([binary(), "store", "copy", old.store_url, new.store_url], stdout=subprocess.DEVNULL,
                               stderr=theirs)
    os.close(theirs)
    assert process.wait(timeout=HANG_S) == 0
    shown = b""
    with open(ours, "rb", buffering=0) as screen:
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := screen.read(4096):
                shown += piece
    assert b"copying [" in shown and b" of %d" % past.count in shown, shown
    assert shown.endswith(b"\r\x1b[K"), "the bar is left behind"
    shutil.rmtree(new.store)
    assert hapax("store", "copy", old.store_url, new.store_url).stderr == ""
