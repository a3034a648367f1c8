# SPDX-License-Identifier: Apache-2.0
"""Endpoints by configuration: they are there at the start, keep their state, and go when the file doesn't name them."""
import base64

import pytest

from harness import EXIT_CONFIG, answer, eventually, is_signed

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
ALLOW = "events:\n  allow: [127.0.0.0/8]\n"


def endpoints(upstream, *names, **members):
    lines = "".join(f", {name}: {value}" for name, value in members.items())
    return ALLOW + "  endpoints:\n" + "".join(
        f"    - {{name: {name}, url: '{upstream.url}/{name}', secret_file: {name}.key{lines}}}\n" for name in names)


@pytest.fixture
def start_configured(start_hooks, tmp_path):
    """A gateway with these lines as its configuration, and a secret in a file of each name."""
    def start(config, store, *names):
        folder = tmp_path / "keys"
        folder.mkdir(exist_ok=True)
        for name in names:
            (folder / f"{name}.key").write_text(SECRET + "\n")
            config = config.replace(f"{name}.key", str(folder / f"{name}.key"))
        return start_hooks(config, store=store)

    return start


def shown(hooks, name):
    return hooks.call("GET", f"/v1/endpoints/cfg_{name}").json()


def test_an_endpoint_of_the_configuration_gets_events_signed_with_its_secret(start_configured, upstream, store):
    config = endpoints(upstream, "billing", types="[refund.*]", filters="{/amount: 5}", headers="['X-Team: payments']",
                       concurrency=2, timeout="5s", ordered="true")
    hooks = start_configured(config, store, "billing")
    eventually(lambda: hooks.call("GET", "/v1/endpoints/cfg_billing").status == 200, "it is there")
    made = shown(hooks, "billing")
    assert (made["configured"], made["concurrency"], made["timeout"], made["ordered"]) == (True, 2, "5s", True)
    assert (made["types"], made["filters"]) == (["refund.*"], {"/amount": 5})
    hooks.publish(data={"amount": 6})
    event = hooks.publish(data={"amount": 5}).json()["id"]
    hooks.wait_state("cfg_billing", event, "delivered")
    (got,) = upstream.received("/billing")
    assert is_signed(got, SECRET) and got.header("X-Team") == "payments"


def test_the_api_can_only_disable_and_enable_it(start_configured, upstream, store, tmp_path):
    hooks = start_configured(endpoints(upstream, "billing", headers="['X-Key: hush-hush']"), store, "billing")
    eventually(lambda: hooks.call("GET", "/v1/endpoints/cfg_billing").status == 200, "it is there")
    for method, target, body in [("PATCH", "", {"rate": 5}), ("DELETE", "", None), ("POST", "/rotate", {})]:
        refused = hooks.call(method, f"/v1/endpoints/cfg_billing{target}", body)
        assert (refused.status, refused.json()["error_code"]) == (409, "ENDPOINT.configured"), refused
    assert hooks.call("POST", "/v1/endpoints/cfg_billing/disable", {"why": "moving"}).status == 200
    event = hooks.publish().json()["id"]
    hooks.restart("kill")
    assert shown(hooks, "billing")["disabled_reason"] == "moving"  # a restart changes nothing of that
    assert hooks.delivery("cfg_billing", event)["state"] == "pending"
    assert hooks.call("POST", "/v1/endpoints/cfg_billing/enable").status == 200
    hooks.wait_state("cfg_billing", event, "delivered")
    (got,) = upstream.received("/billing")
    assert is_signed(got, SECRET)
    if store.startswith(("journal", "sqlite")):
        hooks.gateway.kill()
        files = [path for path in tmp_path.glob("events*/**/*")] + [path for path in tmp_path.glob("events*")]
        kept = b"".join(path.read_bytes() for path in files if path.is_file())
        assert b"cfg_billing" in kept and SECRET[6:].encode() not in kept and b"hush-hush" not in kept


def test_one_that_the_file_names_no_more_goes_and_its_deliveries_are_cancelled(start_configured, upstream, tmp_path):
    store = f"sqlite:{tmp_path}/events"
    upstream.on("/old", answer(500))
    first = start_configured(endpoints(upstream, "old", "kept"), store, "old", "kept")
    eventually(lambda: first.call("GET", "/v1/endpoints/cfg_old").status == 200, "it is there")
    event = first.publish().json()["id"]
    first.wait_state("cfg_kept", event, "delivered")
    first.gateway.kill()
    second = start_configured(endpoints(upstream, "kept"), store, "kept")
    second.token = first.token
    second.wait_state("cfg_old", event, "cancelled")
    assert second.call("GET", "/v1/endpoints/cfg_old").status == 404
    assert second.publish().json()["recipients"] == 1


@pytest.mark.parametrize("line, what", [
    ("{url: 'https://a.example/', secret_env: A}", '7:7: "name" must be given'),
    ("{name: a, secret_env: A}", '7:7: "url" must begin'),
    ("{name: a, url: 'https://a.example/'}", 'no "secret_file" or "secret_env"'),
    ("{name: a, url: 'https://a.example/', secrets: [whsec_x]}", '7:53: "secrets" must not be in the file'),
    ("{name: a, url: 'https://a.example/', secret_env: A, rate: fast}", '7:65: "rate" must be'),
    ("{name: a, url: 'https://a.example/', secret_env: A, colour: red}", 'colour'),
    ("{name: a, url: 'https://a.example/', secret_env: A, types: ['a*b']}", '7:66: "types" must be'),
    ("[a]", "7:7: an endpoint is a map"),
])
def test_a_mistake_is_named_with_its_place(hapax, tmp_path, line, what):
    file = tmp_path / "hapax.yaml"
    file.write_text(f"upstream: http://127.0.0.1:1\napi:\n  listen: 127.0.0.1:0\nevents:\n  retention: 7d\n"
                    f"  endpoints:\n    - {line}\n")
    result = hapax("check", str(file))
    assert result.code == EXIT_CONFIG and what in result.stderr, result


def test_a_secret_that_is_too_short_is_refused_at_the_start(hapax, tmp_path):
    file = tmp_path / "hapax.yaml"
    file.write_text("upstream: http://127.0.0.1:1\nlisten: 127.0.0.1:0\nstore: 'memory:'\napi:\n  listen: 127.0.0.1:0\n"
                    "events:\n  endpoints:\n    - {name: a, url: 'https://a.example/', secret_file: a.key}\n")
    (tmp_path / "a.key").write_text("whsec_c2hvcnQ=\n")
    result = hapax("serve", "--config", str(file))
    assert result.code == EXIT_CONFIG and "endpoint a" in result.stderr and "16 random bytes" in result.stderr, result
