# SPDX-License-Identifier: Apache-2.0
"""hapax store salvage: everything that can be read of a damaged journal becomes a new store; what is lost is said and
has to be accepted, and the old directory stays as it is."""
import json
import os
import signal

import pytest

from harness import EXIT_CONFIG, EXIT_STORE, answer, directory_hash, eventually, fresh_key, killed_at_change

LOST = "CONFLICT.idempotency.outcome_unknown"


@pytest.fixture
def keys():
    return [fresh_key() for _ in range(20)]


@pytest.fixture
def old(start_gateway, upstream, keys):
    """A gateway that has stopped; `bodies` has what it answered to each key."""
    gateway = start_gateway()
    upstream.on("/refunds", lambda exchange: (exchange.read_body(), exchange.execute(),
                                              exchange.answer(201, b"answer %s" % fresh_key().encode())))
    gateway.bodies = {key: gateway.post("/refunds", key=key, json={}).body for key in keys}
    gateway.terminate()
    assert gateway.wait_exit() == 0
    return gateway


@pytest.fixture
def new(start_gateway, old):  # pylint: disable=unused-argument
    return start_gateway(started=False)


def epochs(upstream):
    return [int(request.header("Hapax-Operation").rpartition(".")[2]) for request in upstream.received("/refunds")]


def log_of(gateway):
    return gateway.store / "00000001.seg"


def overwrite(path, at, data):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


def without_hints(gateway):
    for hint in gateway.store.glob("*.hint"):
        hint.unlink()


def replays(gateway, old, keys):
    """The keys whose answers are known."""
    known = []
    for key in keys:
        found = gateway.post("/refunds", key=key, json={})
        if found.idempotency == "replayed" and found.status == 201:
            assert found.body == old.bodies[key]
            known.append(key)
        else:
            found.refuses(409, LOST)
    return known


def test_cut_segment_gives_all_that_is_before_the_cut(old, new, keys, hapax, upstream):
    before_cut = keys[:13]
    os.truncate(log_of(old), log_of(old).read_bytes().index(old.bodies[keys[13]]))
    without_hints(old)
    before = directory_hash(old.store)

    result = hapax("store", "salvage", old.store, new.store_url)
    assert result.code == EXIT_STORE, result
    assert "00000001.seg is cut short" in result.stdout and "No record is lost" not in result.stdout, result
    assert "--accept-loss" in result.stderr, result
    refused = hapax(*new.command()[1:])
    assert refused.code == EXIT_STORE and "--accept-loss" in refused.stderr, refused

    result = hapax("store", "salvage", old.store, new.store_url, "--accept-loss")
    assert result.code == 0, result
    assert directory_hash(old.store) == before, "the damaged store was written to"
    new.start()
    assert new.events("store_salvaged")
    assert replays(new, old, keys[:14]) == before_cut  # that the 14th was sent is known, what came of it is not
    assert upstream.effects("/refunds") == 20
    highest = max(epochs(upstream))
    assert new.post("/refunds", key=keys[14], json={}).idempotency == "stored"  # as was said
    assert min(epochs(upstream)[20:]) > highest, "an epoch may have been drawn twice"


@pytest.mark.parametrize("place", [0, 10, 18])
def test_damaged_record_is_passed_over(old, new, keys, hapax, upstream, place):
    """The head of the frame of an outcome: of that operation only the claim is left."""
    log = log_of(old)
    at = log.read_bytes().index(old.bodies[keys[place]])
    overwrite(log, at - 160, b"\xff" * 64)
    without_hints(old)
    result = hapax("store", "salvage", f"journal:{old.store}", new.store_url, "--accept-loss", "--json")
    assert result.code == 0, result
    said = json.loads(result.stdout)
    assert (said["records_lost"], said["places_not_known"], said["whole"]) == (1, 0, True), result
    assert "00000001.seg: up to 1 records before byte" in result.stderr, result
    assert said["epochs_above"] > max(epochs(upstream)) + 2**36, "what is lost may have drawn the next ones"
    assert replays(new.start(), old, keys) == [key for key in keys if key != keys[place]]
    assert upstream.effects("/refunds") == 20


def test_damaged_answer_leaves_its_outcome(old, new, keys, hapax, upstream):
    """One bit of an answer: that it was executed is known, so it is never run again, and nobody has to accept that."""
    log = log_of(old)
    at = log.read_bytes().index(old.bodies[keys[3]])
    overwrite(log, at, bytes([old.bodies[keys[3]][0] ^ 0x40]))
    without_hints(old)
    result = hapax("store", "salvage", old.store, new.store_url)
    assert result.code == 0, result
    assert "1 of them without their responses" in result.stdout and "No record is lost" in result.stdout, result
    new.start()
    found = new.post("/refunds", key=keys[3], json={})
    found.refuses(409, "CONFLICT.idempotency.response_not_retained")
    others = [key for key in keys if key != keys[3]]
    assert replays(new, old, others) == others
    assert upstream.effects("/refunds") == 20


def test_released_key_with_a_loss_behind_it_does_not_run_again_unasked(start_gateway, new, hapax, upstream):
    """Its next run may be what is lost."""
    gateway = start_gateway()
    upstream.on("/flaky", answer(503, b"not now", effect=False))
    released, lost = fresh_key(), fresh_key()
    gateway.post("/flaky", key=released, json={})
    body = gateway.post("/refunds", key=lost, json={}).body
    gateway.post("/refunds", key=fresh_key(), json={})
    gateway.terminate()
    assert gateway.wait_exit() == 0
    log = log_of(gateway)
    overwrite(log, log.read_bytes().index(body) - 160, b"\xff" * 64)
    without_hints(gateway)
    assert hapax("store", "salvage", gateway.store, new.store_url, "--accept-loss").code == 0
    asked = len(upstream.received("/flaky"))
    new.start().post("/flaky", key=released, json={}).refuses(409, LOST)
    assert len(upstream.received("/flaky")) == asked


def test_missing_segment_is_said_to_be_lost(old, new, keys, hapax, upstream):
    old.start()
    eventually((old.store / "00000002.seg").exists, "the next segment")
    old.terminate()
    assert old.wait_exit() == 0
    log_of(old).unlink()
    before = directory_hash(old.store)
    refused = hapax(*old.command()[1:])
    assert refused.code == EXIT_STORE and "00000001.seg" in refused.stderr and "missing" in refused.stderr, refused
    assert "hapax store salvage" in refused.stderr, refused
    result = hapax("store", "salvage", old.store, new.store_url, "--accept-loss")
    assert result.code == 0, result
    assert "00000001.seg is missing" in result.stdout and "their keys run again" in result.stdout, result
    assert directory_hash(old.store) == before
    assert new.start().post("/refunds", key=keys[0], json={}).idempotency == "stored"
    assert upstream.effects("/refunds") == 21  # as was said


def test_salvage_that_is_killed_is_run_again(old, new, keys, hapax, upstream):
    killed = hapax("store", "salvage", old.store, new.store_url, env=killed_at_change(12))
    assert killed.code == -signal.SIGKILL, killed
    refused = hapax(*new.command()[1:])
    assert refused.code == EXIT_STORE and "has not ended" in refused.stderr, refused
    assert hapax("store", "salvage", old.store, new.store_url).code == 0
    assert replays(new.start(), old, keys) == keys
    assert upstream.effects("/refunds") == 20


def test_store_that_is_well_is_salvaged_whole(old, new, keys, hapax, upstream):
    result = hapax("store", "salvage", old.store, new.store_url)
    assert result.code == 0 and "No record is lost" in result.stdout, result
    assert replays(new.start(), old, keys) == keys
    assert not new.events("store_salvaged")
    assert upstream.effects("/refunds") == 20


def test_store_in_use_is_left_alone(start_gateway, hapax, key, tmp_path):
    gateway = start_gateway()
    gateway.post("/refunds", key=key, json={})
    result = hapax("store", "salvage", gateway.store, f"journal:{tmp_path / 'new'}")
    assert result.code == EXIT_STORE and str(gateway.store) in result.stderr, result
    assert not (tmp_path / "new").exists()
    assert gateway.post("/refunds", key=key, json={}).idempotency == "replayed"


def test_what_is_no_store_is_refused_and_left_as_it_is(hapax, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "beach.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    before = directory_hash(tmp_path)
    for place in ("photos", "nothing"):
        assert hapax("store", "salvage", tmp_path / place, f"journal:{tmp_path / 'new'}").code == EXIT_STORE
    assert directory_hash(tmp_path) == before


@pytest.mark.parametrize("words", [[], ["salvage"], ["salvage", "x"], ["repair", "x"], ["salvage", "x", "y", "z"],
                                   ["salvage", "x", "memory:"], ["copy", "journal:a", "journal:b", "--accept-loss"]],
                         ids=str)
def test_misuse_is_refused(hapax, words):
    result = hapax("store", *words)
    assert result.code == EXIT_CONFIG
    assert "Try `hapax help store`" in result.stderr, result
