# SPDX-License-Identifier: Apache-2.0
"""examples/express: a button that charges a card once. Tabs are processes that share a file as their localStorage; the
provider of cards counts what it was asked to charge."""
import json
import os
import subprocess

import pytest

from harness import Connection, answer, drop_after_effect, in_turn
from harness.node import FOLDER, compiled

pytestmark = pytest.mark.slow  # it has to be compiled
CHARGED = answer(201, b'{"id": "ch_1"}', [("Content-Type", "application/json")])


class Shop:
    def __init__(self, api, upstream, folder):
        self.folder, self.upstream, self.tabs = folder, upstream, []
        env = {**os.environ, "HAPAX_URL": f"http://{api.address}", "HAPAX_TOKEN": api.token("publish"),
               "CARDS_URL": upstream.url, "PORT": "0", "LEASE_MS": "1000"}
        self.server = subprocess.Popen(["node", compiled() / "examples" / "express" / "server.js"], env=env,
                                       stdout=subprocess.PIPE, text=True)
        self.url = self.server.stdout.readline().strip()

    def tab(self, *words):
        """Opens a tab; whatever is clicked first."""
        self.tabs.append(subprocess.Popen(
            ["node", FOLDER / "tab.mjs", self.url, compiled() / "examples" / "express" / "pay.js",
             self.folder / "storage"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        self.click(self.tabs[-1], *words)
        return self.tabs[-1]

    @staticmethod
    def click(tab, *words):
        tab.stdin.write(" ".join(words) + "\n")
        tab.stdin.flush()

    @staticmethod
    def says(tab, count=1):
        return [tab.stdout.readline().strip() for _ in range(count)]

    def post(self, key, amount=500):
        host, _, port = self.url.removeprefix("http://").partition(":")
        headers = [("Host", "shop"), ("Content-Type", "application/json")]
        headers += [("Idempotency-Key", key)] if key else []
        with Connection((host, int(port))) as connection:
            return connection.request("POST", "/api/payment", headers,
                                      json.dumps({"order": "17", "amount": amount}).encode()).response

    def charges(self):
        return self.upstream.effects("/charges")

    def close(self):
        for process in [*self.tabs, self.server]:
            process.kill()
            process.wait()


@pytest.fixture
def shop(start_api, upstream, tmp_path):
    upstream.on("/charges", CHARGED)
    started = Shop(start_api(store=f"sqlite:{tmp_path}/shop"), upstream, tmp_path)
    yield started
    started.close()


def test_a_double_click_is_one_payment(shop):
    tab = shop.tab("pay", "pay", "pay")
    assert shop.says(tab, 3) == ["paid: ch_1"] * 3
    assert shop.charges() == 1


def test_a_reload_while_it_is_being_paid_is_one_payment(shop, upstream):
    """The page is gone between its request and the answer; the new one goes on with what was written down."""
    with upstream.hold("/charges") as held:
        first = shop.tab("pay")
        held.wait_arrived()
        first.kill()
        first.wait()
        second = shop.tab("resume")
    assert shop.says(second) == ["resumed: 201"]
    shop.click(second, "pay")
    assert shop.says(second) == ["paid: ch_1"] and shop.charges() == 1


def test_a_second_tab_is_one_payment(shop, upstream):
    with upstream.hold("/charges") as held:
        first = shop.tab("pay")
        held.wait_arrived()
        second = shop.tab("pay")
    assert shop.says(first) + shop.says(second) == ["paid: ch_1"] * 2
    assert shop.charges() == 1


def test_what_the_provider_does_not_say_is_unknown_and_never_paid_twice(shop, upstream):
    upstream.on("/charges", drop_after_effect())
    tab = shop.tab("pay")
    assert shop.says(tab) == ["we don't know yet whether it was paid; click again to find out"]
    upstream.on("/charges", CHARGED)
    shop.click(tab, "pay")
    assert "we don't know" in shop.says(tab)[0] and shop.charges() == 1


def test_a_declined_card_can_be_followed_by_another_payment(shop, upstream):
    upstream.on("/charges", in_turn(answer(402, effect=False), CHARGED))
    tab = shop.tab("pay")
    assert shop.says(tab) == ["not paid: 402"]
    shop.click(tab, "pay")
    assert shop.says(tab) == ["paid: ch_1"] and shop.charges() == 1


def test_the_server_answers_as_the_document_has_it(shop, upstream):
    upstream.on("/charges", in_turn(CHARGED, answer(402, effect=False)))
    assert (shop.post("").status, shop.post("short").status) == (400, 400)
    first, again = shop.post("k" * 16), shop.post("k" * 16)
    assert (first.status, again.status, again.body) == (201, 201, first.body)
    assert first.header("Idempotent-Replayed") is None and again.header("Idempotent-Replayed") == "true"
    assert again.header("Original-Request-Time").endswith("Z")
    assert shop.post("k" * 16, amount=600).header("Error-Code") == "CONFLICT.idempotency.payload_mismatch"
    declined, before = shop.post("d" * 16), shop.post("d" * 16)
    assert (declined.status, before.status) == (402, 409)
    assert before.json()["originalTimestamp"] and before.json()["error"] == {"code": "card_declined"}
    assert shop.charges() == 1 and len(upstream.received("/charges")) == 2
