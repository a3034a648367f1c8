# SPDX-License-Identifier: Apache-2.0
"""The inbox under a path of the gateway's own listeners: its requests go to it, all others to the application."""
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import EXIT_CONFIG, Hooks, answer, eventually, never_answer

SOURCES = """
sources:
  - {name: github, scheme: github, secret_env: GITHUB_SECRET, body_max: 64KiB, deliver: "%(app)s/app/github"}
  - {name: waits, scheme: standard, secret_env: STANDARD_SECRET, ack: processed, timeout: 2s,
     deliver: "%(app)s/app/waits"}
"""


class PathHooks(Hooks):
    """The same, with the inbox where the gateway listens."""
    def find_inbox(self):
        self.inbox = self.gateway.address

    def send(self, source, body, headers):
        with self.gateway.connect() as connection:
            return connection.request("POST", f"/hooks/in/{source}", headers, body).response


@pytest.fixture
def hooks(start_api, upstream, tmp_path):
    config = "events: {allow: [127.0.0.0/8]}\ninbox: {path: /hooks/in}\nworkers: 2\n" + SOURCES % {"app": upstream.url}
    return PathHooks(start_api(config, env=Hooks.SECRETS, store=f"journal:{tmp_path}/events"), upstream)


def test_webhooks_come_by_the_gateways_listener_and_the_rest_is_proxied(hooks, upstream):
    assert hooks.github("d-1").header("Idempotency-Status") == "stored"
    again = hooks.github("d-1")
    assert (again.status, again.header("Idempotency-Status")) == (200, "replayed")
    hooks.wait_state("in_github", "d-1", "delivered")
    assert hooks.github("d-2", secret="wrong").status == 401
    upstream.on("/app/waits", answer(202, b"<ok/>", headers=[("Content-Type", "application/xml")]))
    told = hooks.standard("waits", "w-1")
    assert (told.status, told.body, told.header("Content-Type")) == (202, b"<ok/>", "application/xml")
    with hooks.gateway.connect() as connection:
        assert connection.request("POST", "/hooks/in/nobody", body=b"{}").response.status == 404
        assert connection.request("GET", "/hooks/in/github").response.status == 405
        big = connection.request("POST", "/hooks/in/github", body=b"x" * 100_000).response
        assert big.status == 413
    for path in ("/hooks/in", "/hooks/inside/github", "/orders"):
        with hooks.gateway.connect() as connection:
            assert connection.request("POST", path, body=b"{}").response.status == 201
    assert [request.path for request in upstream.received()] == [
        "/app/github", "/app/waits", "/hooks/in", "/hooks/inside/github", "/orders"]


def test_many_at_once_are_each_stored_and_delivered_once(hooks, upstream):
    upstream.on("/app/github", answer(200))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: hooks.github(f"d-{number % 60}", b'{"n": %d}' % (number % 60)),
                                range(240)))
    assert {told.status for told in answers} == {200}
    assert sum(told.header("Idempotency-Status") == "stored" for told in answers) == 60
    eventually(lambda: len(upstream.received("/app/github")) == 60, "each was delivered")


def test_a_drain_lets_a_webhook_end_and_one_that_hangs_up_is_nothing(hooks, upstream):
    upstream.on("/app/waits", never_answer)
    with hooks.gateway.connect() as connection:
        connection.send(b"POST /hooks/in/github HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(hooks.standard, "waits", "w-1")
        upstream.wait_requests(1)
        hooks.gateway.terminate()
        assert waiting.result().status == 504  # the drain lets it end
    assert hooks.gateway.wait_exit() == 0


@pytest.mark.parametrize("config, said", [
    ("inbox: {path: hooks}", "must be a path such as /inbox"),
    ("inbox: {path: /hooks/}", "must be a path such as /inbox"),
    ("inbox: {path: /%69n}", "must be a path such as /inbox"),
    ("inbox: {path: /hooks}\nroutes: [{name: r, match: POST /hooks/github}]", "under the path of the inbox"),
    ("api: {listen: '127.0.0.1:7001'}\ninbox: {listen: '127.0.0.1:7001'}", "another listener has that address"),
])
def test_a_path_that_can_not_be_is_refused(hapax, tmp_path, config, said):
    file = tmp_path / "hapax.yaml"
    file.write_text(f"upstream: http://127.0.0.1:9\n{config}\n" + SOURCES % {"app": "http://127.0.0.1:9"})
    result = hapax("check", file)
    assert result.code == EXIT_CONFIG and re.search(re.escape(said), result.stderr), result
