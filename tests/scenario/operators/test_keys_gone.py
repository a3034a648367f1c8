# SPDX-License-Identifier: Apache-2.0
"""hapax keys show, of operations that were released or forgotten: their histories are found by their keys."""
import json
import textwrap

import pytest

from harness import EXIT_CONFIG, answer, fresh_key, in_turn, numbered
from test_keys_command import ME, REFUND, TWO_ROUTES


@pytest.mark.parametrize("kind", ["journal", "sqlite", "postgres", "memory"])
def test_an_operation_that_is_gone_is_shown_by_its_key(start_gateway, hapax, upstream, request, tmp_path, kind):
    store = {"journal": lambda: None, "sqlite": lambda: f"sqlite:{tmp_path}/keys.db", "memory": lambda: "memory:",
             "postgres": lambda: request.getfixturevalue("database").url}[kind]()
    gateway = start_gateway(f"admin: {{listen: unix:{tmp_path}/admin.sock}}\n" + textwrap.dedent(TWO_ROUTES),
                            store=store)

    def ask(*words):
        return hapax("keys", *words, "--admin", f"unix:{tmp_path}/admin.sock")

    def changes(*words):
        return json.loads(ask("show", *words, "--json").stdout)["history"]

    upstream.on("/refunds", in_turn(answer(401, effect=False), numbered))
    released, forgotten = fresh_key(), fresh_key()
    assert gateway.post("/refunds", key=released, json=REFUND).idempotency == "released"
    for path in "/refunds", "/orders":
        assert gateway.post(path, key=forgotten, json=REFUND).status == 201
        assert ask("forget", forgotten, "--why", "a test").code == 0
    assert [change["state"] for change in changes(released)] == ["processing", "absent"]
    several = ask("show", forgotten)
    assert several.code == EXIT_CONFIG and "several routes or callers have used this key" in several.stderr, several
    assert " refunds " in several.stdout and " orders " in several.stdout
    assert changes(forgotten, "--route", "orders")[-1]["reason"] == ME + "a test"
    assert ask("show", fresh_key()).code == EXIT_CONFIG
    assert ask("forget", released, "--why", "it is gone").code == EXIT_CONFIG
    assert gateway.post("/refunds", key=released, json=REFUND).status == 201
    assert [change["state"] for change in changes(released)] == ["processing", "absent", "processing", "completed"]
    assert (upstream.effects("/refunds"), upstream.effects("/orders")) == (2, 1)
