#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the gateway and of the receiver of its events, again and again, while events are published.

The gateway dies at a count of its syncs or of its sends to sockets, before or after one; the receiver at a count of its
requests, before or after it has answered. Publishers repeat under the same id what was not acknowledged. In the end the
gateway starts a day later, and everything must be there:

- every event that was accepted is delivered, under one id, and none is dead or pending;
- an attempt is sent once: none of its numbers is seen twice;
- an event is repeated only after a death of either side in one of the named windows, each of which must have been hit
  often enough.

Windows, by what publisher, receiver and gateway have seen:

  committed, unanswered    the publisher got no response, and its repetition finds the event
  leased, unsent           an attempt was interrupted, and the receiver never saw it
  sent, unanswered         an attempt was interrupted, and the receiver had not answered
  answered, unsettled      an attempt was interrupted, and the receiver had answered
  settled                  the last answer before the gateway died is in its store

Exit code 0: everything held; 1: something did not; 3: a window was missed.
"""
import argparse
import collections
import datetime
import http.client
import http.server
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "scenario"))
from harness.api import Api  # noqa: E402
from harness.faults import killed_by  # noqa: E402
from harness.gateway import Gateway, hours_ahead  # noqa: E402

WINDOWS = ("committed, unanswered", "leased, unsent", "sent, unanswered", "answered, unsettled", "settled")
COUNTERS = ("AT_SYNC", "AFTER_SYNC", "AT_SEND", "AFTER_SEND")
TIMEOUT_S = 2  # of an attempt
LEASE_S = TIMEOUT_S + 10
PUBLISHERS = 3
PAUSE_S = 0.02
ANSWER_S = 0.03  # the longest that the receiver takes
LIFE_MAX_S = 20
LATE_S = 60  # for everything to be delivered in the end


class Violation(Exception):
    """A promise that did not hold."""


def own_port():
    """Below those that the kernel gives to clients: one of these could dial itself while the receiver is dead."""
    while True:
        port = random.SystemRandom().randrange(12000, 32000)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue


def receive(port, log, die_at, die_when):
    """The receiver: writes down what it sees and answers, and dies at the request of that number."""
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    count = [0]

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def note(self, what):
            line = f"{what} {self.headers['webhook-id']} {self.headers['Hapax-Attempt']} {time.time():.6f}\n"
            os.write(out, line.encode())

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            count[0] += 1
            self.note("seen")
            if count[0] == die_at and die_when == "seen":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(random.random() * ANSWER_S)
            self.note("answers")  # before the first byte: who reads the answer finds it noted
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
            self.wfile.flush()
            if count[0] == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

        def log_message(self, *_):
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, *_):
            pass  # a gateway that was killed resets its connections

    Server(("127.0.0.1", port), Handler).serve_forever()


class Soak:
    def __init__(self, options, directory):
        self.options, self.directory = options, directory
        self.random = random.Random(options.seed)
        self.log = directory / "received"
        self.log.touch()
        self.api_port, self.port = own_port(), own_port()
        config = f"admin: {{listen: 'unix:{directory}/store/admin.sock'}}\nevents: {{allow: [127.0.0.0/8]}}\n"
        (directory / "store").mkdir()
        self.gateway = Gateway(None, directory, config=config + f"upstream: http://127.0.0.1:{self.port}\n",
                               store=f"journal:{directory}/journal", flags=["--api", f"127.0.0.1:{self.api_port}"])
        self.receiver = None
        self.deaths = []  # (side, from, until)
        self.accepted, self.found_before = set(), set()
        self.stopping = threading.Event()
        self.token = None

    def start_receiver(self, die_at=0, die_when="never"):
        command = [sys.executable, __file__, "--receiver", str(self.port), str(self.log), str(die_at), die_when]
        self.receiver = subprocess.Popen(command)
        deadline = time.monotonic() + LIFE_MAX_S
        while time.monotonic() < deadline:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1)
                connection.connect()
                connection.close()
                return
            except OSError:
                time.sleep(0.01)
        raise Violation("the receiver does not start")

    def start_gateway(self, env=None):
        """Its counter may end it while it starts; then once more, without."""
        try:
            self.gateway.start(env=env)
            Api(self.gateway)
        except (AssertionError, TypeError):
            self.gateway.process.wait()
            self.gateway.start()
            Api(self.gateway)

    def call(self, method, target, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.api_port, timeout=LIFE_MAX_S)
        try:
            fields = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            connection.request(method, target, json.dumps(body) if body is not None else None, fields)
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"{}")
        finally:
            connection.close()

    def publish(self, event):
        """Until it is acknowledged; whether it was there before says the repetition's status."""
        is_unanswered = False
        while True:
            try:
                status, said = self.call("POST", "/v1/events", {"id": event, "type": "t", "data": {"of": event}})
            except (OSError, http.client.HTTPException, ValueError):
                is_unanswered = True
                time.sleep(0.01)
                continue
            if status in (200, 202):
                self.accepted.add(event)
                if status == 200 and is_unanswered:
                    self.found_before.add(event)
                return
            if status != 503:
                raise Violation(f"{event} is answered {status}: {said}")
            time.sleep(0.01)

    def publish_on(self, number):
        count = 0
        while not self.stopping.is_set():
            self.publish(f"p{number}-{count}")
            count += 1
            time.sleep(PAUSE_S)

    def kill_gateway(self):
        """Lets the counter end it, or, when that takes too long, ends it."""
        counter = self.random.choice(COUNTERS)
        died = time.time()
        self.gateway.kill()
        self.start_gateway(killed_by(counter, self.random.randint(10, 150)))
        self.deaths.append(("gateway", died, time.time()))
        self.gateway.log.thread.join(LIFE_MAX_S)  # ends with the process, at once
        died = time.time()
        self.gateway.process.kill()
        self.gateway.process.wait()
        self.start_gateway()
        self.deaths.append(("gateway", died, time.time()))

    def kill_receiver(self):
        self.receiver.kill()
        self.receiver.wait()
        self.deaths.append(("receiver", time.time(), None))
        self.start_receiver(self.random.randint(1, 20), self.random.choice(("seen", "answered")))
        self.deaths[-1] = ("receiver", self.deaths[-1][1], time.time())
        try:
            self.receiver.wait(timeout=LIFE_MAX_S)
        except subprocess.TimeoutExpired:
            self.receiver.kill()
            self.receiver.wait()
        died = time.time()
        self.start_receiver()
        self.deaths.append(("receiver", died, time.time()))

    def sightings(self):
        seen, answered = collections.defaultdict(list), {}
        for line in self.log.read_text().splitlines():
            what, event, attempt, at = line.split()
            if what == "seen":
                seen[event].append(int(attempt))
            else:
                answered[event, int(attempt)] = float(at)
        return seen, answered

    def left(self, state):
        status, page = self.call("GET", f"/v1/deliveries?state={state}")
        if status != 200:
            raise Violation(f"the list of deliveries is answered {status}: {page}")
        return page["deliveries"]

    def finish(self):
        """A day later everything that waits is due, and both sides live."""
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        self.gateway.kill()
        self.gateway.start(env=hours_ahead(25))
        Api(self.gateway)
        deadline = time.monotonic() + LATE_S
        while self.left("pending") or self.left("sending"):
            if time.monotonic() > deadline:
                raise Violation(f"still waiting: {self.left('pending') + self.left('sending')}"[:500])
            time.sleep(0.2)
        if self.left("dead"):
            raise Violation(f"dead: {self.left('dead')}"[:500])

    def may_fail(self, at):
        """Whether either side was dead, or died, during an attempt that began then."""
        return any(at - 0.1 <= until + 0.1 and since - 0.1 <= at + LEASE_S for _, since, until in self.deaths)

    def check(self):
        seen, answered = self.sightings()
        windows = dict.fromkeys(WINDOWS, 0)
        windows["committed, unanswered"] = len(self.found_before)
        repeated = 0
        settled = {}
        for event in sorted(self.accepted):
            numbers = seen.get(event, [])
            if len(set(numbers)) != len(numbers):
                raise Violation(f"{event}: an attempt was sent twice: {numbers}")
            if not numbers:
                raise Violation(f"{event} was accepted and never delivered")
            repeated += len(numbers) - 1
            if numbers == [1]:
                settled[event] = 1
                continue
            delivery = self.call("GET", f"/v1/deliveries/{self.endpoint}/{event}")[1]
            tries = delivery["tries"]
            if delivery["state"] != "delivered" or tries[-1].get("status") != 200:
                raise Violation(f"{event} is {delivery}")
            settled[event] = len(tries)
            for number, one in enumerate(tries[:-1], 1):
                at = datetime.datetime.fromisoformat(one["at"].replace("Z", "+00:00")).timestamp()
                if one.get("status") or not self.may_fail(at):
                    raise Violation(f"{event} was repeated outside of the windows: {tries}")
                if one.get("error") == "interrupted":
                    died = min((since for side, since, _ in self.deaths if side == "gateway" and since > at - 0.1),
                               default=0)
                    is_answered = answered.get((event, number), died) < died
                    windows[WINDOWS[1 if number not in numbers else 3 if is_answered else 2]] += 1
        if set(seen) - self.accepted:
            raise Violation(f"sent and never accepted: {sorted(set(seen) - self.accepted)[:5]}")
        moments = sorted((at, key) for key, at in answered.items())
        for died in (since for side, since, _ in self.deaths if side == "gateway"):
            before = [key for at, key in moments if at <= died]
            if before and settled.get(before[-1][0]) == before[-1][1]:
                windows["settled"] += 1
        return windows, repeated

    def run(self):
        self.start_receiver()
        self.gateway.start()
        api = Api(self.gateway)
        self.token = api.token("publish", "operate", "view")
        made = self.call("POST", "/v1/endpoints", {"url": f"http://127.0.0.1:{self.port}/hook",
                                                   "timeout": f"{TIMEOUT_S}s"})
        self.endpoint = made[1]["id"]
        self.threads = [threading.Thread(target=self.publish_on, args=(n,), daemon=True) for n in range(PUBLISHERS)]
        for thread in self.threads:
            thread.start()
        kills = 0
        while kills < self.options.kills:
            if self.random.random() < 0.2:
                self.kill_receiver()
            else:
                self.kill_gateway()
            kills += 2
            if not self.options.json:
                print(f"\r{kills} kills, {len(self.accepted)} events", end="", flush=True)
        self.finish()
        windows, repeated = self.check()
        return {"kills": kills, "events": len(self.accepted), "repeated": repeated, "windows": windows, "failure": None,
                "of_the_receiver": sum(side == "receiver" for side, _, _ in self.deaths)}

    def end(self):
        for process in (self.gateway.process, self.receiver):
            if process and process.poll() is None:
                process.kill()
                process.wait()


def main():
    if sys.argv[1:2] == ["--receiver"]:
        receive(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5])
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="how often to kill either side (200)")
    parser.add_argument("--least", type=int, default=5, help="how often each window must be hit (5)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-events-") as directory:
        soak = Soak(options, pathlib.Path(directory))
        try:
            report = soak.run()
        except Violation as violation:
            report = {"failure": str(violation), "seed": options.seed}
        finally:
            soak.end()
    print(json.dumps({**report, "seed": options.seed}, indent=None if options.json else 2))
    if report["failure"]:
        return 1
    return 3 if min(report["windows"].values()) < options.least else 0


if __name__ == "__main__":
    sys.exit(main())
