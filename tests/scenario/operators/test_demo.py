# SPDX-License-Identifier: Apache-2.0
"""`hapax demo`: what it prints is typed into a shell, and does what it says."""
import json
import os
import re
import signal
import subprocess

import pytest

from harness import HANG_S, binary, eventually


class Demo:
    def __init__(self):
        self.process = subprocess.Popen([str(binary()), "demo"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        self.text = ""

    def wait_ready(self):
        self.read_until("Ctrl-C ends it.")
        self.gateway = re.search(r"gateway +(http://\S+) +\(process (\d+)\)", self.text)
        eventually(lambda: self.type(self.lines(7)[0]), "the gateway listening")

    def read_until(self, words):
        while words not in self.text:
            line = self.process.stdout.readline()
            assert line, f"the demo ended:\n{self.text}"
            self.text += line

    def lines(self, number):
        """What is printed below the heading of that number, to be typed."""
        block = re.search(rf"^{number}\. .*\n((?:  .*\n)+)", self.text, re.MULTILINE).group(1)
        return [line.strip() for line in block.splitlines()]

    def type(self, line):
        ended = subprocess.run(["/bin/sh", "-c", line], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                               timeout=HANG_S, check=False)
        return ended.stdout

    def store(self):
        return re.search(r"store +journal:(\S+)", self.text).group(1)

    def ledger(self):
        return json.loads(self.type(self.lines(7)[0]))

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(HANG_S) == 0


@pytest.fixture
def demo():
    running = Demo()
    try:
        running.wait_ready()
        yield running
    finally:
        running.stop()


def test_refund_is_made_once_and_a_changed_one_is_refused(demo):
    (send,), (change,) = demo.lines(1), demo.lines(2)
    first, second = demo.type(send), demo.type(send)
    assert "201 Created" in first and "Idempotency-Status: stored" in first
    assert "201 Created" in second and "Idempotency-Status: replayed" in second
    assert "payload_mismatch" in demo.type(change)
    assert (demo.ledger()["refunds"], demo.ledger()["balanced"]) == (1, True)


@pytest.mark.slow
def test_killed_gateway_comes_back_and_runs_nothing_twice(demo):
    slow, _, again = demo.lines(3)
    ask = f"curl -s --unix-socket {demo.store()}/admin.sock http://localhost/v1/counts"

    def attempts():
        return json.loads(demo.type(ask))["workers"]["attempts"]

    before = attempts()
    with subprocess.Popen(["/bin/sh", "-c", slow.rstrip("& ")], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL):
        eventually(lambda: attempts() > before, "the request sent to the application")
        os.kill(int(demo.gateway.group(2)), signal.SIGKILL)
    demo.read_until("started again on the same store")
    answer = eventually(lambda: demo.type(again), "the gateway answering again")
    assert "outcome_unknown" in answer
    assert eventually(lambda: demo.ledger()["refunds"] == 1, "the refund in the books")


def test_operator_settles_what_is_unknown(demo):
    (drop,) = demo.lines(4)
    assert "Idempotency-Status: unknown" in demo.type(drop)
    assert "outcome_unknown" in demo.type(drop)
    show, ask, resolve = demo.lines(5)
    assert "unknown" in demo.type(show)
    assert len(json.loads(demo.type(ask))["data"]) == 1
    assert "is completed" in demo.type(resolve)
    settled = demo.type(drop)
    assert "Idempotency-Status: replayed" in settled and '{"status":"succeeded"}' in settled
    assert demo.ledger()["refunds"] == 1


def test_the_playbooks_client_log(demo):
    """A time-out, then 502, then 201: one refund."""
    (send,) = demo.lines(6)
    answer = demo.type(send)
    assert "201 Created" in answer and "Idempotency-Status: stored" in answer
    history = json.loads(demo.type(demo.lines(5)[0].replace("list --state unknown", "show payout-ch_1-retried --json")))
    assert [version["attempt"] for version in history["history"]] == [1, 3]
    assert demo.ledger()["refunds"] == 1


def test_closed_terminal_leaves_nothing_behind(demo):
    store = demo.store()
    demo.process.send_signal(signal.SIGHUP)
    assert demo.process.wait(HANG_S) == 0
    assert not os.path.exists(store)
