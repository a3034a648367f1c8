# SPDX-License-Identifier: Apache-2.0
"""hapax store backup and restore: a store comes back as it was at one moment. It repeats no effect that it knows of,
says what it can't know, and draws no epoch again, not even one that was drawn after the backup. A file that is not what
was written is refused, whatever is wrong with it."""
import contextlib
import functools
import itertools
import json
import os
import struct
import subprocess

import pytest

from harness import EXIT_CONFIG, EXIT_STORE, answer, directory_hash, fresh_key
from test_store_copy import (Past, each_half_made, make_target, old, past, past_of_few,  # noqa: F401, some are fixtures
                             refuses_to_start, starts, stop)

DISK = "64m"


@pytest.fixture
def backup(past, old, hapax, tmp_path):  # pylint: disable=unused-argument
    file = tmp_path / "backup"
    result = hapax("store", "backup", file, "--store", old.store_url)
    assert result.code == 0, result
    return file


@pytest.fixture
def new(start_gateway, backup):  # pylint: disable=unused-argument
    """Not started: its store is to be made."""
    return start_gateway(started=False)


def test_restored_store_knows_everything_and_repeats_nothing(past, backup, new, hapax):
    result = hapax("store", "restore", backup, new.store_url)
    assert result.code == 0, result
    assert f"{past.count} operations were restored" in result.stdout, result
    assert "What was acknowledged after that is not known" in result.stdout, result
    past.is_known_to(new.start())
    (restored,) = new.events("store_restored")
    assert (restored["generation"], restored["level"]) == (1, "warn")
    assert restored["backup_at"] in result.stdout
    shown = hapax("keys", "show", "0" * 32, "--store", new.store_url)
    assert shown.code == 0 and "hapax store restore" in shown.stdout, shown
    assert f"restored from a backup of {restored['backup_at']}" in shown.stdout, shown


@pytest.mark.parametrize("copied", [False, True], ids=["restored", "and copied"])
def test_every_kind_of_store_says_from_when_its_backup_is(past, backup, new, start_node, database, hapax, tmp_path,
                                                          copied):
    result = hapax("store", "restore", backup, new.store_url if copied else database.url)
    assert result.code == 0, result
    if copied:
        assert hapax("store", "copy", new.store_url, database.url).code == 0
    node = start_node(database.url)
    past.is_known_to(node)
    (restored,) = node.events("store_restored")
    assert restored["backup_at"] in result.stdout and restored["backup_at"] < restored["restored_at"]
    node.terminate()
    assert node.wait_exit() == 0
    assert hapax("store", "copy", database.url, f"sqlite:{tmp_path}/third").code == 0
    third = start_node(f"sqlite:{tmp_path}/third")
    assert third.events("store_restored")[0]["backup_at"] == restored["backup_at"]


def test_original_goes_on_as_it_was(past, old, backup):
    assert backup.exists()
    past.is_known_to(old.start())


def test_backup_is_for_its_owner_alone_and_nothing_is_left_beside(past, backup, old, hapax):
    assert backup.stat().st_mode & 0o777 == 0o600
    assert (old.store / "secret").read_bytes() in backup.read_bytes()
    assert sorted(path.name for path in backup.parent.iterdir()) == ["backup", "gateway-0"]
    said = hapax("store", "backup", backup, "--store", old.store_url, "--json")  # over the old one
    assert (said.code, said.stderr) == (0, ""), said
    result = json.loads(said.stdout)
    each = past.count // 3
    assert result["operations"] == past.count
    assert result["states"] == {"processing": 0, "completed": each, "failed": each, "unknown": each, "expired": 0}
    assert result["bytes"] == backup.stat().st_size
    assert result["last_epoch"] >= max(past.epochs())


def test_result_for_programs_has_every_count(past, backup, new, old, hapax):
    said = hapax("store", "restore", backup, new.store_url, "--json")
    assert (said.code, said.stderr) == (0, ""), said
    result = json.loads(said.stdout)
    assert (result["restored"], result["made_unknown"], result["generation"]) == (past.count, 0, 1)
    assert result["source"] == old.store_url
    assert result["epochs_above"] >= max(past.epochs()) + (1 << 36)


def test_what_was_done_after_the_backup_runs_again_under_a_later_epoch(past, old, backup, new, upstream, hapax, key):
    upstream.on("/later", answer(201, b"later"))
    old.start()
    for _ in range(10):
        old.post("/later", key=fresh_key(), json={})
    assert old.post("/later", key=key, json={}).idempotency == "stored"
    old.terminate()
    assert old.wait_exit() == 0
    assert hapax("store", "restore", backup, new.store_url).code == 0
    new.start()
    assert new.post("/later", key=key, json={}).idempotency == "stored"  # as the restore said
    assert upstream.effects("/later") == 12
    epochs = [int(request.header("Hapax-Operation").rpartition(".")[2]) for request in upstream.received("/later")]
    assert epochs[-1] > max(epochs[:-1]) + (1 << 36)
    past.is_known_to(new)


def test_each_restore_is_a_generation(past, backup, new, start_gateway, hapax, tmp_path):
    assert hapax("store", "restore", backup, new.store_url).code == 0
    second, copied = start_gateway(started=False), start_gateway(started=False)
    said = json.loads(hapax("store", "backup", tmp_path / "second", "--store", new.store_url, "--json").stdout)
    assert (said["generation"], said["operations"]) == (1, past.count)
    result = hapax("store", "restore", tmp_path / "second", second.store_url)
    assert result.code == 0 and "is generation 2 of " in result.stdout, result
    assert hapax("store", "copy", second.store_url, copied.store_url).code == 0  # a copy is the same generation
    for gateway in (second, copied):
        past.is_known_to(gateway.start())
        assert gateway.events("store_restored")[0]["generation"] == 2


def test_restored_store_outlives_restarts_and_rules(past, backup, start_gateway, hapax):
    """What marks it belongs to no route, so it is in no rule's way."""
    new = start_gateway("routes:\n  - {name: refunds, match: POST /other}\n", started=False)
    assert hapax("store", "restore", backup, new.store_url).code == 0
    past.is_known_to(new.start())
    new.restart("kill")
    past.is_known_to(new.restart("drain"))


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1:]


DAMAGE = {
    "empty": (lambda data: b"", "is not a backup of hapax"),
    "something else": (lambda data: b"\xff\xd8\xff\xe0" * 1000, "is not a backup of hapax"),
    "not finished": (lambda data: bytes(512) + data[512:], "was not finished"),
    "cut in its header": (lambda data: data[:300], "is not a backup of hapax"),
    "cut after its header": (lambda data: data[:512], "is cut short"),
    "cut in the middle": (lambda data: data[:len(data) // 2], "is cut short"),
    "cut before its last byte": (lambda data: data[:-1], "is cut short"),
    "longer": (lambda data: data + b"\0", "it is longer than was written"),
    "newer": (lambda data: data[:8] + struct.pack("<I", 3) + data[12:], "from a newer hapax"),
    "a flipped bit in the secret": (lambda data: flipped(data, 60), "is damaged at byte 0"),
    "a flipped bit in a record": (lambda data: flipped(data, 800), "is damaged at byte 512"),
    "a flipped bit in an answer": (lambda data: flipped(data, data.index(b"answer ")), "is damaged at byte"),
    "a flipped bit at its end": (lambda data: flipped(data, len(data) - 1), "its end can't be read"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_no_whole_backup_is_refused_and_nothing_is_made(backup, new, hapax, damage):
    change, said = DAMAGE[damage]
    backup.write_bytes(change(backup.read_bytes()))
    result = hapax("store", "restore", backup, new.store_url)
    assert result.code == EXIT_STORE, result
    assert said in result.stderr and "Nothing was restored" in result.stderr and str(backup) in result.stderr, result
    assert not new.store.exists()


def test_records_that_change_places_are_seen(backup, new, hapax):
    """Each of them is whole, and so is the header: only the digest tells."""
    data = backup.read_bytes()
    first = 8 + struct.unpack_from("<I", data, 512)[0]
    second = 8 + struct.unpack_from("<I", data, 512 + first)[0]
    middle, end = 512 + first, 512 + first + second
    backup.write_bytes(data[:512] + data[middle:end] + data[512:middle] + data[end:])
    result = hapax("store", "restore", backup, new.store_url)
    assert result.code == EXIT_STORE and "digest" in result.stderr, result
    assert not new.store.exists()


def test_store_that_is_not_empty_is_left_as_it_is(past, old, backup, start_gateway, hapax, key):
    other = start_gateway()
    other.post("/elsewhere", key=key, json={})
    for gateway, said in ((other, "in use"), (other, "another secret"), (old, "is not empty")):
        if gateway.is_running() and said != "in use":
            gateway.terminate()
            assert gateway.wait_exit() == 0
        result = hapax("store", "restore", backup, gateway.store_url)
        assert result.code == EXIT_STORE and said in result.stderr, result
    assert other.start().post("/elsewhere", key=key, json={}).idempotency == "replayed"
    past.is_known_to(old.start())


def test_empty_directory_gets_the_store(past, backup, new, hapax):
    new.store.mkdir(mode=0o750)
    assert hapax("store", "restore", backup, new.store_url).code == 0
    assert new.store.stat().st_mode & 0o777 == 0o750
    past.is_known_to(new.start())


def test_restore_killed_at_a_sync_is_not_taken_for_whole_and_is_run_again(past_of_few, old, make_target, hapax,
                                                                          tmp_path):
    assert hapax("store", "backup", tmp_path / "few", "--store", old.store_url).code == 0
    restore = functools.partial(hapax, "store", "restore", tmp_path / "few")
    refused = 0
    for new in each_half_made(restore, itertools.count(5), make_target, past_of_few):
        refused += 1
        again = restore(new.store_url)
        assert again.code == 0 and f"{past_of_few.count} operations were restored." in again.stdout, again
        if refused == 2:
            past_of_few.is_known_to(new.start())
    assert refused >= 2, "it was never killed in the middle"


def test_half_a_copy_is_not_restored_into(past, old, backup, make_target, hapax):
    copy = functools.partial(hapax, "store", "copy", old.store_url)
    new = next(each_half_made(copy, itertools.count(10), make_target, past))
    result = hapax("store", "restore", backup, new.store_url)
    assert result.code == EXIT_STORE, result
    assert "the beginning of a copy that has not ended. Remove it" in result.stderr, result
    assert not starts(new)


def test_running_gateway_has_its_store_to_itself(start_gateway, upstream, hapax, tmp_path, key):
    gateway = start_gateway()
    gateway.post("/refunds", key=key, json={})
    result = hapax("store", "backup", tmp_path / "backup", "--store", gateway.store_url)
    assert result.code == EXIT_STORE and "Stop the gateway" in result.stderr and "snapshot" in result.stderr, result
    assert not list(tmp_path.glob("backup*"))
    assert gateway.post("/refunds", key=key, json={}).idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


def test_snapshot_of_a_running_store_can_be_backed_up(start_gateway, upstream, hapax, tmp_path):
    """As a file system's snapshot would have it: the gateway is stopped for the moment in which it is copied."""
    gateway = start_gateway()
    past = Past(gateway, upstream)
    with upstream.hold("/held") as held:
        pending = gateway.send("POST", "/held", key="key-of-what-is-held", json={})
        held.wait_arrived()
        gateway.pause()
        subprocess.run(["cp", "-r", gateway.store, tmp_path / "snapshot"], check=False)
        gateway.resume()
    assert pending.response.idempotency == "stored"
    assert hapax("store", "backup", tmp_path / "file", "--store", f"journal:{tmp_path / 'snapshot'}").code == 0
    gateway.kill()
    restored = start_gateway(started=False)
    assert hapax("store", "restore", tmp_path / "file", restored.store_url).code == 0
    past.is_known_to(restored.start())
    restored.post("/held", key="key-of-what-is-held", json={}).refuses(409, "CONFLICT.idempotency.outcome_unknown")
    assert upstream.effects("/held") == 1


def test_backup_without_room_leaves_the_one_before(past, old, backup, hapax, disk):
    before = backup.read_bytes()
    file = disk / "backup"
    file.write_bytes(before)
    with open(disk / "ballast", "wb", buffering=0) as ballast, contextlib.suppress(OSError):
        for block in (1 << 20, 4096):
            with contextlib.suppress(OSError):
                while True:
                    ballast.write(bytes(block))
    result = hapax("store", "backup", file, "--store", old.store_url)
    assert result.code == EXIT_STORE and "No space left" in result.stderr, result
    assert "Nothing was backed up" in result.stderr
    assert file.read_bytes() == before
    assert sorted(path.name for path in disk.iterdir()) == ["backup", "ballast"]
    past.is_known_to(old.start())


@pytest.fixture
def disk(mount):
    return mount(DISK)


def test_restore_without_room_is_not_taken_for_whole(start_gateway, upstream, hapax, tmp_path, disk):
    body = os.urandom(7 << 20)
    upstream.on("/large", answer(200, body))
    old = start_gateway()
    for _ in range(11):
        assert old.post("/large", key=fresh_key(), json={}).body == body
    old.terminate()
    assert old.wait_exit() == 0
    assert hapax("store", "backup", tmp_path / "file", "--store", old.store_url).code == 0
    new = start_gateway(started=False, store=f"journal:{disk / 'store'}")
    result = hapax("store", "restore", tmp_path / "file", new.store_url)
    assert result.code == EXIT_STORE and "it is full" in result.stderr, result
    assert "not whole" in result.stderr and "not whole" in refuses_to_start(new)


@pytest.mark.parametrize("words, said", [
    (["backup"], "backup needs a FILE"),
    (["backup", "a", "b"], 'unexpected argument "b"'),
    (["backup", "-"], "needs the name of a file"),
    (["backup", "a", "--store", "memory:"], "memory: is gone"),
    (["backup", "a", "--store", "somewhere"], "must be"),
    (["restore", "a"], "restore needs a FILE and a store"),
    (["restore", "a", "somewhere"], "must be"),
    (["restore", "a", "memory:"], "memory: is gone"),
], ids=str)
def test_misuse_is_refused(hapax, tmp_path, words, said):
    result = hapax("store", *words, cwd=tmp_path)
    assert result.code == EXIT_CONFIG and said in result.stderr, result
    assert "Try `hapax help store`" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words, said", [
    (["backup", "file", "--store", "journal:nowhere"], "there is no store at journal:nowhere"),
    (["restore", "nothing", "journal:store"], "can't read nothing"),
    (["restore", ".", "journal:store"], "is not a file"),
], ids=str)
def test_what_is_not_there_is_refused_and_nothing_is_made(hapax, tmp_path, words, said):
    before = directory_hash(tmp_path)
    result = hapax("store", *words, cwd=tmp_path)
    assert result.code == EXIT_STORE and said in result.stderr, result
    assert directory_hash(tmp_path) == before


def test_place_that_can_not_be_written_is_named(backup, old, hapax, tmp_path):
    for file in (tmp_path / "nowhere" / "file", tmp_path):
        result = hapax("store", "backup", file, "--store", old.store_url)
        assert result.code == EXIT_STORE and str(file) in result.stderr, result
    assert backup.exists()
