# SPDX-License-Identifier: Apache-2.0
"""A store that was restored or copied sends nothing until somebody has seen what it would send."""
import shutil

import pytest

from harness import answer, eventually, never_answer


def paused(hooks):
    return hooks.call("GET", "/v1/deliveries/paused").json()


def leave_work(hooks, upstream):
    """A delivery in flight when its gateway dies, and one that failed."""
    upstream.on("/stuck", never_answer)
    upstream.on("/failing", answer(503, headers=[("Retry-After", "1")]))
    stuck, failing = hooks.endpoint("/stuck", timeout="5s")["id"], hooks.endpoint("/failing")["id"]
    hooks.publish(id="e-1")
    hooks.wait_state(stuck, "e-1", "sending")
    eventually(lambda: hooks.delivery(failing, "e-1")["attempts"] >= 1, "an attempt")
    hooks.gateway.kill()
    upstream.on("/stuck", answer(200))
    upstream.on("/failing", answer(200))
    return stuck, failing


def restore(hapax, tmp_path, old, kind):
    """The store as its backup, a copy by the command, or a copy of its files; returns its URL."""
    target = tmp_path / "target"
    if kind == "files":
        shutil.copytree(tmp_path / "source", target)
    elif kind == "copy":
        assert hapax("store", "copy", old, f"journal:{target}").code == 0
    else:
        assert hapax("store", "backup", tmp_path / "file", "--store", old).code == 0
        if kind == "same place":
            shutil.rmtree(tmp_path / "source")
            target = tmp_path / "source"
        assert hapax("store", "restore", tmp_path / "file", f"journal:{target}").code == 0
    return f"journal:{target}"


@pytest.mark.parametrize("kind", ["backup", "same place", "copy", "files"])
def test_a_restored_store_sends_nothing_until_it_is_resumed(start_hooks, upstream, hapax, tmp_path, kind):
    old = start_hooks(store=f"journal:{tmp_path}/source")
    stuck, failing = leave_work(old, upstream)
    new = start_hooks(store=restore(hapax, tmp_path, old.gateway.store_url, kind))
    said = new.gateway.log.wait_event("events_paused")
    assert ("moved" if kind == "files" else "restored") in said["reason"] and "hapax events resume" in said["remedy"]
    before = len(upstream.received())
    assert new.publish(id="e-2").status == 202 and new.github("g-1").status == 200
    eventually(lambda: {row["endpoint"]: row["interrupted"] + row["due"] + row["later"]
                        for row in paused(new)["waiting"]} == {stuck: 2, failing: 2, "in_github": 1}, "all wait")
    assert next(row["interrupted"] for row in paused(new)["waiting"] if row["endpoint"] == stuck) == 1
    assert new.standard("waits", "w-1").status == 503
    new.restart("kill")
    assert paused(new)["paused"] and len(upstream.received()) == before
    shown = hapax("events", "resume", "--admin", f"unix:{new.gateway.store}/admin.sock")
    assert shown.code == 0 and stuck in shown.stdout and "--yes" in shown.stdout and paused(new)["paused"]
    assert "go on" in hapax("events", "resume", "--yes", "--admin", f"unix:{new.gateway.store}/admin.sock").stdout
    for event in ("e-1", "e-2"):
        for endpoint in (stuck, failing):
            new.wait_state(endpoint, event, "delivered")
    assert new.standard("waits", "w-1").status == 201 and not paused(new)["paused"]
    new.restart("kill")
    assert new.call("GET", "/v1/deliveries/paused").json()["paused"] is False


def test_the_same_store_goes_on_by_itself(start_hooks, upstream, store):
    hooks = start_hooks(store=store)
    stuck, failing = leave_work(hooks, upstream)
    hooks.gateway.start()
    hooks.api = type(hooks.api)(hooks.gateway)
    eventually(lambda: not paused(hooks)["paused"], "deliveries go on")
    hooks.wait_state(failing, "e-1", "delivered")
    hooks.wait_state(stuck, "e-1", "delivered")


def test_an_operator_pauses_and_resumes(start_hooks, upstream, store):
    hooks = start_hooks(store=store)
    endpoint = hooks.endpoint("/hook")["id"]
    hooks.publish(id="e-1")
    hooks.wait_state(endpoint, "e-1", "delivered")
    held = hooks.call("POST", "/v1/deliveries/pause", {"why": "a move"}).json()
    assert (held["paused"], held["reason"], held["by"]) == (True, "a move", "token shop")
    hooks.publish(id="e-2")
    eventually(lambda: [row["due"] for row in paused(hooks)["waiting"]] == [1], "one waits")
    assert len(upstream.received("/hook")) == 1
    assert hooks.call("GET", "/v1/counts").json()["events"]["events_paused"] == 1
    assert hooks.call("POST", "/v1/deliveries/resume").json()["paused"] is False
    hooks.wait_state(endpoint, "e-2", "delivered")
    assert len(upstream.received("/hook")) == 2
    bound = hooks.api.token("operate", "view", tenant="acme")
    assert hooks.call("POST", "/v1/deliveries/pause", {}, token=bound).status == 403
