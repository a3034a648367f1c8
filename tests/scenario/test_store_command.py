# SPDX-License-Identifier: Apache-2.0
"""hapax store repair: a damaged store is opened again, with everything but what was damaged; nothing is deleted."""
import pytest

from harness import EXIT_CONFIG, EXIT_STORE, directory_hash, fresh_key


def damage(store, answer):
    """Flips one bit of a stored answer; returns the file that it is in."""
    log = next(path for path in sorted(store.rglob("*")) if path.is_file() and answer in path.read_bytes())
    before = log.read_bytes()
    at = before.index(answer)
    log.write_bytes(before[:at] + bytes([before[at] ^ 0x40]) + before[at + 1:])
    for hint in store.rglob("*hint*"):
        hint.unlink()
    return log


@pytest.mark.parametrize("place", [0, 10, 18])
def test_repaired_store_has_everything_but_what_was_damaged(start_gateway, hapax, upstream, place):
    gateway = start_gateway()
    keys = [fresh_key() for _ in range(20)]
    upstream.on("/refunds", lambda exchange: (exchange.read_body(), exchange.execute(),
                                              exchange.answer(201, b"answer %s" % fresh_key().encode())))
    bodies = {key: gateway.post("/refunds", key=key, json={}).body for key in keys}
    gateway.terminate()
    assert gateway.wait_exit() == 0
    log = damage(gateway.store, bodies[keys[place]])
    damaged = log.read_bytes()

    result = hapax("store", "repair", gateway.store)
    assert result.code == 0, result
    assert log.name in result.stdout, result
    kept = [path.read_bytes() for path in (gateway.store / "damaged").rglob("*") if path.is_file()]
    assert damaged in kept, "the damaged bytes are not there any more"

    gateway.start()
    for number, key in enumerate(keys):
        answer = gateway.post("/refunds", key=key, json={})
        if number == place:  # that it was sent is known, what came of it is not
            answer.refuses(409, "CONFLICT.idempotency.outcome_unknown")
        else:
            assert (answer.idempotency, answer.body) == ("replayed", bodies[key])
    assert upstream.effects("/refunds") == 20


def test_repair_says_that_a_missing_segment_is_lost(start_gateway, hapax, upstream, key):
    gateway = start_gateway()
    gateway.post("/refunds", key=key, json={})
    gateway.terminate()
    assert gateway.wait_exit() == 0
    (gateway.store / "00000001.seg").unlink()
    before = directory_hash(gateway.store)
    refused = hapax(*gateway.command()[1:])
    assert refused.code == EXIT_STORE and "00000001.seg" in refused.stderr and "missing" in refused.stderr, refused
    assert directory_hash(gateway.store) == before

    result = hapax("store", "repair", gateway.store)
    assert result.code == 0, result
    assert "00000001.seg is missing" in result.stdout and "those keys may run again" in result.stdout, result
    assert "no record is lost" not in result.stdout, result
    gateway.start()
    assert gateway.post("/refunds", key=key, json={}).idempotency == "stored"
    assert upstream.effects("/refunds") == 2  # as was said


def test_store_that_is_well_needs_no_repair(start_gateway, hapax, upstream, key):
    gateway = start_gateway()
    stored = gateway.post("/refunds", key=key, json={})
    gateway.terminate()
    assert gateway.wait_exit() == 0
    result = hapax("store", "repair", f"journal:{gateway.store}")
    assert result.code == 0, result
    gateway.start()
    assert gateway.post("/refunds", key=key, json={}).body == stored.body
    assert upstream.effects("/refunds") == 1


def test_store_in_use_is_left_alone(start_gateway, hapax, key):
    gateway = start_gateway()
    gateway.post("/refunds", key=key, json={})
    result = hapax("store", "repair", gateway.store)
    assert result.code == EXIT_STORE, result
    assert str(gateway.store) in result.stderr
    assert gateway.post("/refunds", key=key, json={}).idempotency == "replayed"


def test_what_is_no_store_is_refused_and_left_as_it_is(hapax, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "beach.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    before = directory_hash(tmp_path)
    assert hapax("store", "repair", tmp_path / "photos").code == EXIT_STORE
    assert hapax("store", "repair", tmp_path / "nothing").code == EXIT_STORE
    assert directory_hash(tmp_path) == before


@pytest.mark.parametrize("words", [[], ["repair"], ["repair", "journal:"], ["repare", "x"], ["repair", "x", "y"]],
                         ids=str)
def test_misuse_is_refused(hapax, words):
    result = hapax("store", *words)
    assert result.code == EXIT_CONFIG
    assert "Try `hapax help store`" in result.stderr, result
