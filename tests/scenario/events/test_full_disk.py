# SPDX-License-Identifier: Apache-2.0
"""A full disk: nothing more is accepted, and what was accepted is still delivered and recorded."""
import pytest

from harness import eventually

LARGE = "x" * 200_000


@pytest.mark.slow
@pytest.mark.parametrize("kind, size", [("journal", "170m"), ("sqlite", "24m")])
def test_a_full_disk_refuses_events_and_keeps_its_promises(start_hooks, upstream, mount, kind, size):
    hooks = start_hooks("store_max: 1GiB\nevents: {allow: [127.0.0.0/8]}" if kind == "journal" else
                        "events: {allow: [127.0.0.0/8]}", store=f"{kind}:{mount(size)}/events")
    endpoint = hooks.endpoint("/hook", timeout="60s")["id"]
    accepted = []
    with upstream.hold("/hook") as held:
        while (answer := hooks.publish(data=LARGE)).status == 202:
            accepted.append(answer.json()["id"])
        assert (answer.status, answer.json()["error_code"]) == (503, "TRANSIENT.overloaded")
        assert int(answer.header("Retry-After")) > 0
        held.wait_arrived()
        webhook = hooks.github("d-1", b'{"a": "%s"}' % LARGE.encode())
        assert (webhook.status, webhook.json()["error_code"]) == (503, "TRANSIENT.overloaded")
        assert int(webhook.header("Retry-After")) > 0
        held.release()
    eventually(lambda: {hooks.delivery(endpoint, event)["state"] for event in accepted} == {"delivered"},
               f"the delivery of {len(accepted)} events on a full disk")
    assert upstream.effects("/hook") == len(accepted)
    assert upstream.received("/app/github") == []
