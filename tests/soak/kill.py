#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9, again and again: the gateway dies under load and starts on the same store, while clients retry with their
keys until they are answered and the application behind it lives on and counts.

What must hold, whenever the gateway dies: not one key has two effects; not one answer that a client was given later
differs or is gone; what is unknown stays unknown. Every operation that a kill cut off is put into one of four phases,
from three witnesses (the application's log, what the client saw, and what the gateway says after its restart):

  claimed and unsent         the gateway says unknown, and the application never received it
  sent and unanswered        unknown; received, and not yet answered when the gateway died
  answered and not durable   unknown; the application had answered before the gateway was killed
  durable and unreplied      the client had no answer, and its retry replays a stored one

What had no durable claim yet simply runs at the retry ("not yet claimed"). An answer that was being written while the
signal was sent can't be told apart ("at that very moment"). The soak ends when it has killed often enough and hit each
phase often enough, or fails at its bounds. Exit code 0: everything held; 1: something did not; 3: a phase was missed.
"""
import argparse
import asyncio
import collections
import contextlib
import hashlib
import json
import os
import pathlib
import random
import shutil
import socket
import sys
import tempfile
import time
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import kill_upstream  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PHASES = ("claimed and unsent", "sent and unanswered", "answered and not durable", "durable and unreplied")
UNSENT, UNANSWERED, UNDURABLE, UNREPLIED = PHASES
VOLATILE = {"age", "date", "x-correlation-id", "idempotency-status", "idempotent-replayed", "original-request-time",
            "idempotency-expires", "connection", "keep-alive", "traceparent"}
UNKNOWN = "CONFLICT.idempotency.outcome_unknown"
HANG_S = 60
RECHECKED_EACH_TIME = 20


class Violation(Exception):
    """A promise that did not hold."""


class Answer:
    """A whole answer from the gateway, and a digest of what must never change about it."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    def header(self, name):
        return next((value for field, value in self.headers if field.lower() == name), None)

    @property
    def kind(self):
        return self.header("idempotency-status")

    @property
    def error_code(self):
        return self.header("error-code")

    def digest(self):
        lasting = [pair for pair in self.headers if pair[0].lower() not in VOLATILE]
        return hashlib.sha256(repr((self.status, lasting, self.body)).encode()).hexdigest()

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:200]!r}"


class Operation:
    """One key, from its first request to its answer."""

    def __init__(self, delay_us=0, size=0, dawdling=False):
        self.key = str(uuid.uuid4())
        self.delay_us = delay_us
        self.size = size
        self.dawdling = dawdling
        self.hit_by = None

    def request(self):
        body = b'{"operation":"%s","amount":1000,"currency":"eur"}' % self.key.encode()
        return (f"POST /refunds HTTP/1.1\r\nHost: soak\r\nIdempotency-Key: {self.key}\r\nSoak-Delay-Us: {self.delay_us}"
                f"\r\nSoak-Size: {self.size}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                ).encode() + body


class Link:
    """A connection to the gateway that survives nothing."""

    def __init__(self):
        self.reader = self.writer = None

    async def exchange(self, address, operation):
        if self.writer is None:
            sock = socket.socket()
            if operation.dawdling:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(sock, address)
            except OSError:
                sock.close()
                raise
            limit = 4096 if operation.dawdling else 1 << 20
            self.reader, self.writer = await asyncio.open_connection(sock=sock, limit=limit)
        self.writer.write(operation.request())
        if operation.dawdling:
            await asyncio.sleep(0.05)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split(" ")[1])
        headers = [tuple(line.split(": ", 1)) for line in head[1:] if line]
        answer = Answer(status, headers, b"")
        answer.body = await self.reader.readexactly(int(answer.header("content-length") or 0))
        if (answer.header("connection") or "").lower() == "close":
            self.drop()
        return answer

    def drop(self):
        if self.writer is not None:
            self.writer.transport.abort()
        self.reader = self.writer = None


class Upstream:
    """The driving end of the application process."""

    def __init__(self):
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            try:
                kill_upstream.run(theirs)
            finally:
                os._exit(0)
        theirs.close()
        self.sock = ours
        self.lock = asyncio.Lock()
        self.port = None

    async def open(self):
        self.reader, self.writer = await asyncio.open_unix_connection(sock=self.sock, limit=1 << 28)
        self.port = json.loads(await self.reader.readline())["port"]

    async def do(self, what, **order):
        async with self.lock:
            self.writer.write(json.dumps({"do": what, **order}).encode() + b"\n")
            line = await asyncio.wait_for(self.reader.readline(), HANG_S)
            if not line:
                raise Violation("the application process died: the soak itself is broken")
            return json.loads(line)

    def close(self):
        self.sock.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


class Soak:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="hapax-soak-", dir=options.dir))
        self.upstream = Upstream()
        self.process = None
        self.address = None
        self.generation = 0
        self.running = asyncio.Event()
        self.stopping = False
        self.acknowledged = {}
        self.unknown = set()
        self.cut_off = {}
        self.to_classify = {}
        self.answered = 0
        self.in_flight = 0
        self.kills = 0
        self.phases = collections.Counter({phase: 0 for phase in PHASES})
        self.others = collections.Counter()
        self.by_moment = collections.defaultdict(collections.Counter)
        self.moment = "random"
        self.rechecked = 0
        self.began = time.monotonic()
        self.last_line = 0

    # the gateway

    async def spawn(self):
        config = self.directory / "hapax.yaml"
        config.write_text("access_log: off\n", encoding="ascii")
        log = open(self.directory / "gateway.log", "ab")
        self.log_from = log.tell()
        self.generation += 1
        self.process = await asyncio.create_subprocess_exec(
            str(self.options.hapax), "serve", "--config", str(config), "--listen", "127.0.0.1:0",
            "--upstream", f"http://127.0.0.1:{self.upstream.port}", "--store", f"journal:{self.directory}/store",
            "--workers", str(self.options.workers), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL, stderr=log)
        log.close()

    def log_text(self):
        with open(self.directory / "gateway.log", "rb") as log:
            log.seek(self.log_from)
            return log.read().decode("utf-8", "replace")

    async def await_listening(self):
        deadline = time.monotonic() + HANG_S
        while time.monotonic() < deadline:
            for line in self.log_text().splitlines():
                if '"listening"' in line and line.endswith("}"):
                    host, _, port = json.loads(line)["address"].rpartition(":")
                    self.address = (host, int(port))
                    return
            if self.process.returncode is not None:
                raise Violation(f"the gateway did not start again: exit {self.process.returncode}\n{self.log_text()}")
            await asyncio.sleep(0.002)
        raise Violation(f"the gateway did not listen within {HANG_S} s\n{self.log_text()}")

    async def reap(self):
        code = await asyncio.wait_for(self.process.wait(), HANG_S)
        self.running.clear()
        if code != -9:
            raise Violation(f"the gateway ended by itself with {code}\n{self.log_text()[-4000:]}")

    # the clients

    def next_operation(self, number):
        chance = self.random.random()
        if self.moment == "slow reader" and number % 8 == 0:
            return Operation(size=1 << 20, dawdling=True)
        if chance < 0.5:
            return Operation()
        if chance < 0.9:
            return Operation(delay_us=self.random.randrange(200, 5000))
        return Operation(delay_us=self.random.randrange(5000, 40000), size=self.random.randrange(0, 20000))

    async def client(self, number):
        link = Link()
        while not self.stopping:
            await self.settle(link, self.next_operation(number))
            if self.options.pace_us:
                await asyncio.sleep(self.options.pace_us / 1e6)
        link.drop()

    async def settle(self, link, operation):
        """Sends with the same key until there is an answer, however often the gateway dies."""
        while not self.stopping:
            await self.running.wait()
            generation = self.generation
            self.in_flight += 1
            try:
                answer = await asyncio.wait_for(link.exchange(self.address, operation), HANG_S)
            except (OSError, asyncio.IncompleteReadError, ValueError):
                link.drop()
                self.lost(operation, generation)
                await asyncio.sleep(0.001)
                continue
            except asyncio.TimeoutError:
                raise Violation(f"no answer within {HANG_S} s for {operation.key}") from None
            finally:
                self.in_flight -= 1
            if operation.dawdling:
                link.drop()
            if self.accept(operation, answer):
                return
            await asyncio.sleep(0.01)

    def lost(self, operation, generation):
        if operation.hit_by is None:
            operation.hit_by = generation
            self.cut_off[operation.key] = operation

    def accept(self, operation, answer):
        """True when this answer is the operation's last. Anything that contradicts the contract ends the soak."""
        hit = self.cut_off.pop(operation.key, None)
        if answer.status == 201 and answer.kind in ("stored", "replayed"):
            if hit and answer.kind == "replayed":
                self.count(UNREPLIED)
            elif hit:
                self.others["not yet claimed"] += 1
            elif answer.kind == "replayed":
                raise Violation(f"{operation.key} was replayed to its first request: {answer}")
            self.acknowledged[operation.key] = (operation, answer.digest())
            self.answered += 1
            return True
        if answer.status == 409 and answer.error_code == UNKNOWN:
            if not hit:
                raise Violation(f"{operation.key} is unknown though nothing happened to it: {answer}")
            self.unknown.add(operation.key)
            self.to_classify[operation.key] = operation
            self.answered += 1
            return True
        if hit:
            self.cut_off[operation.key] = hit
        if answer.status in (502, 503) and answer.kind in ("released", None):
            self.others[f"told to retry ({answer.status})"] += 1
            return False
        raise Violation(f"{operation.key}: unexpected {answer}")

    def count(self, phase):
        self.phases[phase] += 1
        self.by_moment[self.moment][phase] += 1

    # looking again

    async def look_again(self, operations):
        """Every acknowledged answer must still be the same, every unknown still unknown."""
        queue = list(operations)

        async def reader():
            link = Link()
            while queue:
                await self.compare(link, queue.pop())
            link.drop()
        await asyncio.gather(*(reader() for _ in range(16)))

    async def compare(self, link, key):
        for _ in range(1000):
            operation = self.acknowledged[key][0] if key in self.acknowledged else self.unknown_operations[key]
            operation = self.without_dawdling(operation)
            try:
                answer = await asyncio.wait_for(link.exchange(self.address, operation), HANG_S)
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError) as error:
                raise Violation(f"{key} could not be read again: {error!r}\n{self.log_text()[-4000:]}") from error
            if answer.status == 503:
                await asyncio.sleep(0.01)
                continue
            break
        self.rechecked += 1
        if key in self.acknowledged:
            if answer.kind != "replayed" or answer.digest() != self.acknowledged[key][1]:
                raise Violation(f"the acknowledged answer of {key} is now another: {answer}")
        elif answer.status != 409 or answer.error_code != UNKNOWN:
            raise Violation(f"{key} was unknown and is now {answer}")

    @staticmethod
    def without_dawdling(operation):
        """The same request, byte for byte, by a client that reads at once."""
        copy = Operation(operation.delay_us, operation.size)
        copy.key = operation.key
        return copy

    # one kill

    def choose_moment(self):
        """Moments that hit what was hit least."""
        rarest = min(PHASES, key=lambda phase: self.phases[phase])
        choices = {
            UNSENT: ["request received", "request received", "connections refused"],
            UNANSWERED: ["request received", "random"],
            UNDURABLE: ["just answered"],
            UNREPLIED: ["soon after an answer", "soon after an answer", "slow reader"],
        }[rarest]
        everything = ["random", "request received", "just answered", "soon after an answer", "slow reader",
                      "connections refused", "starting"]
        return self.random.choice(choices if self.random.random() < 0.7 else everything)

    def trigger(self, on, count, delay_us):
        return {"on": on, "count": count, "delay_us": delay_us, "pid": self.process.pid}

    async def pull_trigger(self):
        """Kills the process at a moment of the chosen kind, and returns when the signal was sent."""
        moment = self.moment
        count = self.random.randrange(1, 200)
        if moment == "request received":
            trigger = self.trigger("received", count, self.random.choice([0, 0, 0, 50, 200]))
        elif moment == "just answered":
            trigger = self.trigger("answered", count, self.random.choice([0, 0, 30, 100, 300]))
        elif moment == "soon after an answer":
            trigger = self.trigger("answered", count, int(10 ** self.random.uniform(2.0, 3.8)))
        else:
            trigger = None
        if trigger:
            await self.upstream.do("arm", trigger=trigger)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.process.wait(), 5)
        elif moment == "connections refused":
            await self.upstream.do("close", on=True)
            await asyncio.sleep(0.02)
            await self.upstream.do("refuse")
            await asyncio.sleep(self.random.uniform(0.02, 0.2))
        elif moment == "slow reader":
            await asyncio.sleep(self.random.uniform(0.05, 0.3))
        else:
            await asyncio.sleep(self.random.uniform(0.0, 0.2))
        if self.process.returncode is None:
            return (await self.upstream.do("kill", pid=self.process.pid))["kill_ns"]
        return (await self.upstream.do("disarm"))["kill_ns"]

    async def one_round(self):
        await self.spawn()
        if self.moment == "starting":
            await asyncio.sleep(self.random.uniform(0, 0.05))
            await self.upstream.do("kill", pid=self.process.pid)
            await self.reap()
            self.kills += 1
            await self.upstream.do("quiesce")
            self.moment = self.choose_moment()
            return
        await self.await_listening()
        self.running.set()
        await self.until_settled()
        await self.look_again(self.some(self.acknowledged) + self.some(self.unknown))
        self.moment = self.choose_moment()
        goal = self.answered + self.random.randrange(1, 400)
        await self.until(lambda: self.answered >= goal, "the load going on")
        if self.moment == "starting":
            self.running.clear()
        kill_ns = await self.pull_trigger()
        await self.reap()
        self.kills += 1
        self.kill_ns = kill_ns
        await self.upstream.do("quiesce")
        await self.check_effects()

    async def check_effects(self):
        doubles = await self.upstream.do("doubles")
        if doubles:
            raise Violation(f"{len(doubles)} keys have two effects: {dict(list(doubles.items())[:5])}")

    def some(self, keys):
        keys = list(keys)
        return self.random.sample(keys, min(RECHECKED_EACH_TIME, len(keys)))

    async def until(self, holds, what):
        deadline = time.monotonic() + HANG_S
        while not holds():
            if time.monotonic() > deadline:
                raise Violation(f"no progress: {what}")
            if self.process.returncode is not None:
                code = self.process.returncode
                raise Violation(f"the gateway ended by itself with {code}\n{self.log_text()[-4000:]}")
            await asyncio.sleep(0.001)

    async def until_settled(self):
        """Every operation that the last kill cut off gets its answer, and the unknown ones their phase."""
        await self.until(lambda: not any(operation.hit_by < self.generation for operation in self.cut_off.values()),
                         "operations that were cut off being answered")
        keys = list(self.to_classify)
        seen = await self.upstream.do("report", keys=keys)
        for key in keys:
            self.unknown_operations[key] = self.to_classify.pop(key)
            received, _, answering, answered = seen.get(key, [[], [], None, None])
            if not received:
                self.count(UNSENT)
            elif answering is None or answering >= self.kill_ns[1]:
                self.count(UNANSWERED)
            elif answered is not None and answered <= self.kill_ns[0]:
                self.count(UNDURABLE)
            else:
                self.others["at that very moment"] += 1

    # the whole

    def is_over(self):
        reached = min(self.phases.values()) >= self.options.target
        if self.kills >= self.options.kills and reached:
            return True
        if self.kills >= self.options.kills_max or time.monotonic() - self.began > self.options.deadline:
            return True
        return False

    async def run(self):
        await self.upstream.open()
        self.unknown_operations = {}
        self.kill_ns = [0, 0]
        clients = [asyncio.create_task(self.client(number)) for number in range(self.options.connections)]
        rounds = asyncio.create_task(self.rounds())
        try:
            done, _ = await asyncio.wait([rounds, *clients], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self.stopping = True
            for task in (rounds, *clients):
                task.cancel()
            await asyncio.gather(rounds, *clients, return_exceptions=True)
            if self.process and self.process.returncode is None:
                self.process.kill()
                await self.process.wait()

    async def rounds(self):
        while not self.is_over():
            await self.one_round()
            self.progress()
        await self.spawn()
        await self.await_listening()
        self.running.set()
        await self.until_settled()
        self.running.clear()
        await self.until(lambda: self.in_flight == 0, "the last requests being answered")
        await self.look_again([*self.acknowledged, *self.unknown_operations])
        await self.check_effects()

    def progress(self):
        if self.options.json:
            return
        counts = "  ".join(f"{phase} {self.phases[phase]}" for phase in PHASES)
        if sys.stderr.isatty():
            width = 24
            done = min(width, width * self.kills // self.options.kills)
            bar = "#" * done + "." * (width - done)
            sys.stderr.write(f"\r\033[K[{bar}] {self.kills}/{self.options.kills} kills  {counts}")
            sys.stderr.flush()
        elif self.kills - self.last_line >= max(1, self.options.kills // 10):
            self.last_line = self.kills
            print(f"{self.kills} kills: {self.answered} operations, {counts}", file=sys.stderr, flush=True)

    def report(self, failure):
        missed = {phase: count for phase, count in self.phases.items() if count < self.options.target}
        return {"failure": failure, "missed": missed, "kills": self.kills, "operations": self.answered,
                "acknowledged": len(self.acknowledged), "unknown": len(self.unknown), "looked_at_again": self.rechecked,
                "phases": dict(self.phases), "others": dict(self.others), "seed": self.options.seed,
                "by_moment": {moment: dict(counts) for moment, counts in self.by_moment.items()},
                "seconds": round(time.monotonic() - self.began, 1)}


def show(report, as_json):
    if as_json:
        print(json.dumps(report, indent=1))
        return
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
    print(f"{report['kills']} kills, {report['operations']} operations, {report['acknowledged']} answers acknowledged, "
          f"{report['unknown']} unknown, {report['looked_at_again']} looked at again, {report['seconds']} s, "
          f"seed {report['seed']}")
    for name, count in [*report["phases"].items(), *report["others"].items()]:
        print(f"  {name:<26} {count:>6}")
    if report["failure"]:
        print(f"FAILED: {report['failure']}")
    elif report["missed"]:
        print(f"NOT ENOUGH: these phases were hit too rarely: {report['missed']}")
    else:
        print("no key with two effects, no acknowledged answer lost or changed")


def arguments():
    parser = argparse.ArgumentParser(description="kill -9 of the gateway under load, until every phase was hit")
    parser.add_argument("--kills", type=int, default=200, help="at least this many kills (200)")
    parser.add_argument("--target", type=int, default=20, help="hit each phase at least this often (20)")
    parser.add_argument("--kills-max", type=int, help="give up after this many (five times --kills)")
    parser.add_argument("--deadline", type=float, default=1800, help="give up after this many seconds (1800)")
    parser.add_argument("--connections", type=int, default=64, help="clients at once (64)")
    parser.add_argument("--workers", type=int, default=2, help="workers of the gateway (2)")
    parser.add_argument("--pace-us", type=int, default=0, help="pause of each client between operations (0)")
    parser.add_argument("--short", action="store_true", help="20 kills, each phase once: for the test suite")
    parser.add_argument("--json", action="store_true", help="the report as JSON on standard output")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"), help="of the random choices")
    parser.add_argument("--dir", help="where the store lives (a temporary directory)")
    parser.add_argument("--hapax", default=os.environ.get("HAPAX") or ROOT / "build" / "src" / "hapax",
                        help="the program ($HAPAX, else build/src/hapax)")
    options = parser.parse_args()
    if options.short:
        options.kills, options.target, options.deadline = 20, 1, 300
    options.kills_max = options.kills_max or options.kills * 5
    if not os.access(options.hapax, os.X_OK):
        parser.error(f"there is no program at {options.hapax}: run ./dev build, or set HAPAX")
    return options


def main():
    options = arguments()
    soak = Soak(options)  # forks, and so comes before the loop
    failure = None
    try:
        asyncio.run(soak.run())
    except Violation as violation:
        failure = str(violation)
    soak.upstream.close()
    report = soak.report(failure)
    show(report, options.json)
    if failure:
        print(f"the store and the log are kept in {soak.directory}", file=sys.stderr)
        return 1
    shutil.rmtree(soak.directory, ignore_errors=True)
    return 3 if report["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
