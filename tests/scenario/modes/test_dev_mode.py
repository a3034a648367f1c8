# SPDX-License-Identifier: Apache-2.0
"""--dev, for a laptop: short keys, errors that are not frozen under a key, logs for people, and a word of it in every
answer."""
import pytest

from harness import answer, drop_after_effect, in_turn, numbered


def says_dev(response):
    return any("dev" in f"{name} {value}".lower() for name, value in response.headers)


def test_short_keys_are_taken(start_gateway, upstream):
    gateway = start_gateway(flags=["--dev"])
    assert gateway.post("/refunds", key="a", json={}).idempotency == "stored"
    assert gateway.post("/refunds", key="a", json={}).idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("status", [500, 501, 502, 503, 504, 599])
def test_server_errors_are_released(start_gateway, upstream, key, status):
    gateway = start_gateway(flags=["--dev"])
    upstream.on("/refunds", in_turn(answer(status, "a bug", effect=False), numbered))
    assert gateway.post("/refunds", key=key, json={}).idempotency == "released"
    assert gateway.post("/refunds", key=key, json={}).idempotency == "stored"
    assert upstream.effects("/refunds") == 1


def test_an_answer_that_is_lost_stays_unknown(start_gateway, upstream, key):
    gateway = start_gateway(flags=["--dev"])
    upstream.on("/refunds", drop_after_effect())
    assert gateway.post("/refunds", key=key, json={}).idempotency == "unknown"
    assert gateway.post("/refunds", key=key, json={}).status == 409
    assert upstream.effects("/refunds") == 1


def test_every_answer_says_so(start_gateway, upstream, key):
    gateway = start_gateway(flags=["--dev"])
    answers = [gateway.post("/refunds", key=key, json={}), gateway.post("/refunds", key=key, json={}),
               gateway.get("/thing"), gateway.post("/refunds", key="", json={})]
    assert all(says_dev(response) for response in answers), answers
    assert upstream.effects("/refunds") == 1


def test_nothing_says_so_without_it(gateway, upstream, key):
    assert not says_dev(gateway.post("/refunds", key=key, json={}))
    assert upstream.effects("/refunds") == 1


def test_logs_are_for_people(start_gateway, upstream, key):
    gateway = start_gateway(flags=["--dev"])
    gateway.post("/refunds", key=key, json={})
    lines = gateway.shown_output().splitlines()[1:]
    assert lines and not any(line.startswith("{") for line in lines)
    assert upstream.effects("/refunds") == 1


def test_store_of_its_own_unless_one_is_named(hapax, upstream, tmp_path):
    for flags, name in ([], "state"), (["--dev"], "state-dev"):
        shown = hapax("check", "--upstream", upstream.url, "--json", *flags,
                      env={"STATE_DIRECTORY": str(tmp_path / "state")})
        assert f'journal:{tmp_path / name}"' in shown.stdout, shown
