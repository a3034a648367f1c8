# SPDX-License-Identifier: Apache-2.0
"""A disk that fills up under load: new keys are refused before anything is sent, what is in flight is finished and
recorded, replays go on; when there is space again everything else does too, by itself, and nothing was lost. What
happened is counted at the upstream. The disk is a small file system in memory, which only root can mount."""
import os
import threading

import pytest

from harness import answer, eventually, fill, fresh_key

IN_FLIGHT = 40
FULL = "TRANSIENT.overloaded"


class Load:
    """Clients that send new keys without a pause, and keep what they were answered."""

    def __init__(self, gateway, clients=3):
        self.gateway = gateway
        self.over = threading.Event()
        self.answers = {}
        self.errors = []
        self.threads = [threading.Thread(target=self._send, daemon=True) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def _send(self):
        try:
            while not self.over.is_set():
                key = fresh_key()
                self.answers[key] = self.gateway.post("/orders", key=key, json={"key": key})
        except Exception as error:  # told by stop()
            self.errors.append(error)

    def count(self, status):
        return sum(1 for answer in list(self.answers.values()) if answer.status == status)

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join()
        assert not self.errors


@pytest.mark.slow
@pytest.mark.parametrize("how", ["drain", "kill"])
def test_disk_full_in_mid_load(start_gateway, upstream, small_disk, how):
    gateway = start_gateway(store=f"journal:{small_disk}/store", workers=2)
    known, refused = fresh_key(), fresh_key()
    first = gateway.post("/refunds", key=known, json={"amount": 1})
    assert (first.status, first.idempotency) == (201, "stored")
    load = Load(gateway)
    with upstream.hold("/slow") as hold:
        keys = [fresh_key() for _ in range(IN_FLIGHT)]
        flying = {key: gateway.send("POST", "/slow", key=key, json={}) for key in keys}
        hold.wait_arrived(IN_FLIGHT)
        eventually(lambda: load.count(201) > 50, "the load going through")
        fill(small_disk)
        eventually(lambda: load.count(503) > 50, "new keys being refused")

        # New keys: refused, and nothing is sent.
        gateway.post("/refunds", key=refused, json={"amount": 2}).refuses(503, FULL)
        assert upstream.effects_by_key[refused] == 0
        # Replays go on.
        again = gateway.post("/refunds", key=known, json={"amount": 1})
        assert (again.status, again.body, again.idempotency) == (201, first.body, "replayed")
    # What was in flight is finished, recorded and answered.
    for key, pending in flying.items():
        assert (pending.status, pending.idempotency) == (201, "stored")
        replay = gateway.post("/slow", key=key, json={})
        assert (replay.body, replay.idempotency) == (pending.body, "replayed")
    gateway.post("/refunds", key=refused, json={"amount": 2}).refuses(503, FULL)

    # Room again, service again: without a restart.
    os.unlink(small_disk / "ballast")
    before = load.count(201)
    eventually(lambda: load.count(201) > before + 50, "new keys going through again")
    load.stop()
    assert {answer.status for answer in load.answers.values()} == {201, 503}

    # Nothing was lost, nothing ran twice, and what was refused never ran.
    gateway.restart(how)
    for key, answer in load.answers.items():
        assert upstream.effects_by_key[key] == (1 if answer.status == 201 else 0)
    for key, pending in [*flying.items(), *[(k, a) for k, a in load.answers.items() if a.status == 201][::20]]:
        path, body = ("/slow", {}) if key in flying else ("/orders", {"key": key})
        replay = gateway.post(path, key=key, json=body)
        assert (replay.status, replay.body, replay.idempotency) == (pending.status, pending.body, "replayed")
    late = gateway.post("/refunds", key=refused, json={"amount": 2})
    assert (late.status, late.idempotency) == (201, "stored")
    assert upstream.effects_by_key[refused] == 1
    assert all(count == 1 for count in upstream.effects_by_key.values())


@pytest.mark.slow
def test_first_client_is_told_when_there_was_no_room_for_its_answer(start_gateway, upstream, small_disk):
    large = os.urandom(4 << 20).hex().encode()  # ten of them are more than the room that is kept for what is in flight
    upstream.on("/export", answer(201, large))
    gateway = start_gateway(store=f"journal:{small_disk}/store", workers=2)
    with upstream.hold("/export") as hold:
        keys = [fresh_key() for _ in range(10)]
        flying = {key: gateway.send("POST", "/export", key=key, json={}) for key in keys}
        hold.wait_arrived(len(flying))
        fill(small_disk)
    said = {key: (pending.status, pending.idempotency, pending.body == large) for key, pending in flying.items()}
    assert set(said.values()) <= {(201, "stored", True), (201, "not-retained", True)}
    assert (201, "not-retained", True) in said.values()
    for key, (_, status, _) in said.items():
        again = gateway.post("/export", key=key, json={})
        if status == "stored":
            assert (again.status, again.body == large, again.idempotency) == (201, True, "replayed")
        else:
            again.refuses(409, "CONFLICT.idempotency.response_not_retained")
        assert upstream.effects_by_key[key] == 1


@pytest.mark.slow
def test_restart_on_a_full_disk_keeps_every_promise(start_gateway, upstream, small_disk):
    gateway = start_gateway(store=f"journal:{small_disk}/store")
    known, orphan = fresh_key(), fresh_key()
    first = gateway.post("/refunds", key=known, json={})
    with upstream.hold("/slow") as hold:
        gateway.post_later("/slow", key=orphan, json={}).abandon()
        hold.wait_arrived()
        fill(small_disk)
        gateway.restart("kill")
    gateway.post("/slow", key=orphan, json={}).refuses(409, "CONFLICT.idempotency.outcome_unknown")
    again = gateway.post("/refunds", key=known, json={})
    assert (again.body, again.idempotency) == (first.body, "replayed")
    eventually(lambda: gateway.post("/refunds", key=fresh_key(), json={}).status == 503, "new keys being refused")
    os.unlink(small_disk / "ballast")
    eventually(lambda: gateway.post("/refunds", key=fresh_key(), json={}).status == 201, "new keys going through again")
    assert upstream.effects_by_key[orphan] == 1
