# SPDX-License-Identifier: Apache-2.0
"""What the inbox answers says what happened."""
from harness import Hooks, answer


def test_a_strict_source_tells_a_replay_from_a_contradiction(start_api, upstream):
    hooks = Hooks(start_api(f"""
        events: {{allow: [127.0.0.0/8]}}
        inbox: {{listen: "127.0.0.1:0"}}
        sources:
          - {{name: github, scheme: github, secret_env: GITHUB_SECRET, strict: true, deliver: "{upstream.url}/app"}}
    """, env=Hooks.SECRETS), upstream)
    assert hooks.github("d-1").status == 200
    other = hooks.github("d-1", b'{"a": 2}')
    assert (other.status, other.json()["error_code"]) == (409, "CONFLICT.event.payload_mismatch")
    assert "another payload" in other.json()["detail"]
    replay = hooks.github("d-2")
    assert (replay.status, replay.json()["error_code"]) == (409, "CONFLICT.event.payload_replayed")
    assert "d-1" in replay.json()["detail"] and "another id" in replay.json()["detail"]


def test_the_handlers_answer_has_its_content_type(hooks, upstream):
    upstream.on("/app/waits", answer(202, b"<ok/>", headers=[("Content-Type", "application/xml")]))
    told = hooks.standard("waits", "w-1")
    assert (told.status, told.body, told.header("Content-Type")) == (202, b"<ok/>", "application/xml")
