# SPDX-License-Identifier: Apache-2.0
"""What the soaks of several gateways on one PostgreSQL share: gateways that are killed and started again, clients that
ask with their keys until they have an answer, and what must hold of all answers and effects at the end."""
import asyncio
import collections
import contextlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "scenario")]
from kill import HANG_S, UNKNOWN, Link, Operation, Upstream, Violation  # noqa: E402

ROOT = HERE.parents[1]
IN_FLIGHT = "CONFLICT.idempotency.in_flight"
READERS = 32


class Node:
    """One gateway of the fleet."""

    def __init__(self, fleet, number):
        self.fleet = fleet
        self.log = fleet.directory / f"node-{number}.log"
        self.config = fleet.directory / f"node-{number}.yaml"
        self.config.write_text(fleet.config, encoding="ascii")
        self.process = None
        self.address = None
        self.kills = 0

    def start(self):
        with open(self.log, "ab") as log:
            self.log_from = log.tell()
            self.process = subprocess.Popen(
                [str(self.fleet.options.hapax), "serve", "--config", str(self.config), "--listen", "127.0.0.1:0",
                 "--upstream", f"http://127.0.0.1:{self.fleet.upstream.port}", "--store", self.fleet.url,
                 "--workers", str(self.fleet.options.workers)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=log)

    def said(self):
        with open(self.log, "rb") as log:
            log.seek(self.log_from)
            return log.read().decode("utf-8", "replace")

    async def await_listening(self):
        deadline = time.monotonic() + HANG_S
        while time.monotonic() < deadline:
            for line in self.said().splitlines():
                if '"listening"' in line and line.endswith("}"):
                    host, _, port = json.loads(line)["address"].rpartition(":")
                    self.address = (host, int(port))
                    return
            if self.process.poll() is not None:
                raise Violation(f"a gateway did not start: exit {self.process.returncode}\n{self.said()[-4000:]}")
            await asyncio.sleep(0.005)
        raise Violation(f"a gateway did not listen within {HANG_S} s\n{self.said()[-4000:]}")

    async def killed(self):
        """Its end by the signal that was sent, and by nothing else."""
        self.address = None
        deadline = time.monotonic() + HANG_S
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                raise Violation("a gateway does not end")
            await asyncio.sleep(0.001)
        if self.process.returncode != -9:
            raise Violation(f"a gateway ended by itself with {self.process.returncode}\n{self.said()[-4000:]}")
        self.kills += 1

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Fleet:
    """Gateways on one store, the application behind them, and all that its clients ever learned."""

    def __init__(self, options, url, config):
        self.options, self.url = options, url
        self.config = "access_log: off\n" + config
        self.random = random.Random(options.seed)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="hapax-soak-"))
        self.upstream = Upstream()  # forks, and so comes before the loop
        self.nodes = [Node(self, number) for number in range(options.nodes)]
        self.acknowledged = {}  # key: (operation, digest of the first answer)
        self.unknown = {}  # key: operation
        self.others = collections.Counter()
        self.in_flight = 0
        self.answered = 0
        self.rechecked = 0
        self.began = time.monotonic()

    async def open(self):
        await self.upstream.open()
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            await node.await_listening()

    def close(self):
        for node in self.nodes:
            node.close()
        self.upstream.close()

    # Clients

    async def ask(self, link, node, operation):
        """One request. None: there was no answer."""
        if node.address is None:
            await asyncio.sleep(0.005)
            return None
        self.in_flight += 1
        try:
            return await asyncio.wait_for(link.exchange(node.address, operation), HANG_S)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            link.drop()
            await asyncio.sleep(0.005)
            if node.process.poll() not in (None, -9):
                raise Violation(f"a gateway ended with {node.process.poll()}\n{node.said()[-4000:]}") from None
            return None
        except asyncio.TimeoutError:
            raise Violation(f"no answer within {HANG_S} s for {operation.key}\n{node.said()[-2000:]}") from None
        finally:
            self.in_flight -= 1

    async def settle(self, link, node, operation):
        """Asks one node until there is an answer to keep; its digest, or None where the outcome is unknown."""
        deadline = time.monotonic() + 2 * HANG_S
        while time.monotonic() < deadline:
            answer = await self.ask(link, node, operation)
            if answer is None:
                self.others["no answer"] += 1
                continue
            self.answered += 1
            if answer.status == 201 and answer.kind in ("stored", "replayed"):
                return self.keep(operation, answer)
            if answer.status == 409 and answer.error_code == UNKNOWN:
                return self.declared_unknown(operation)
            may_retry = answer.status in (502, 503, 504) or answer.error_code == IN_FLIGHT
            if not may_retry or answer.header("retry-after") is None:
                raise Violation(f"{operation.key}: unexpected {answer}")
            self.others[f"told to retry ({answer.status} {answer.kind or ''})"] += 1
            await asyncio.sleep(0.01)
        raise Violation(f"{operation.key} was never answered")

    def keep(self, operation, answer):
        digest = answer.digest()
        before = self.acknowledged.setdefault(operation.key, (operation, digest))
        if before[1] != digest:
            raise Violation(f"two answers for {operation.key}; the second is {answer}")
        if self.unknown.pop(operation.key, None):
            self.others["unknown at first, answered later"] += 1
        return digest

    def declared_unknown(self, operation):
        if operation.key in self.acknowledged:
            self.others["unknown to one, answered to another"] += 1
        else:
            self.unknown[operation.key] = operation
        return None

    # What must hold

    async def look_again(self, keys):
        """What was acknowledged is replayed by every node, byte for byte; what is unknown is so everywhere."""
        queue = [(key, node) for key in keys for node in self.nodes]

        async def reader():
            links = {node: Link() for node in self.nodes}
            while queue:
                key, node = queue.pop()
                await self.compare(links[node], node, key)
            for link in links.values():
                link.drop()
        await asyncio.gather(*(reader() for _ in range(READERS)))

    async def compare(self, link, node, key):
        acknowledged = self.acknowledged.get(key)
        operation = acknowledged[0] if acknowledged else self.unknown[key]
        for _ in range(6000):
            answer = await self.ask(link, node, operation)
            if answer is not None and answer.status != 503:
                break
            await asyncio.sleep(0.01)
        self.rechecked += 1
        if acknowledged:
            if answer is None or answer.kind != "replayed" or answer.digest() != acknowledged[1]:
                raise Violation(f"the acknowledged answer of {key} is now another: {answer}")
        elif answer is None or answer.status != 409 or answer.error_code != UNKNOWN:
            raise Violation(f"{key} was unknown and is now {answer}")

    async def check_effects(self):
        doubles = await self.upstream.do("doubles")
        if doubles:
            raise Violation(f"{len(doubles)} keys have two effects: {dict(list(doubles.items())[:5])}")
        keys = list(self.acknowledged)
        seen = await self.upstream.do("report", keys=keys)
        without = [key for key in keys if key not in seen]
        if without:
            raise Violation(f"{len(without)} keys were answered without an effect: {without[:5]}")

    def report(self, failure, **more):
        return {"failure": failure, **more, "acknowledged": len(self.acknowledged), "unknown": len(self.unknown),
                "looked_at_again": self.rechecked, "others": dict(self.others), "seed": self.options.seed,
                "seconds": round(time.monotonic() - self.began, 1)}


def finish(fleet, report, as_json):
    """Prints, cleans up, and returns the exit code."""
    fleet.close()
    if as_json:
        print(json.dumps(report, indent=1))
    else:
        words = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in report.items()
                          if name not in ("failure", "others", "seed", "seconds"))
        print(f"{words}, {report['seconds']} s, seed {report['seed']}")
        for name, count in sorted(report["others"].items()):
            print(f"  {name:<40} {count:>7}")
        print(f"FAILED: {report['failure']}" if report["failure"] else
              "no key with two effects, no acknowledged answer lost or changed")
    if report["failure"]:
        print(f"the logs are kept in {fleet.directory}", file=sys.stderr)
        return 1
    shutil.rmtree(fleet.directory, ignore_errors=True)
    return 0


def progress(options, text):
    if not options.json:
        print(text, file=sys.stderr, flush=True)


def common_arguments(parser):
    parser.add_argument("--workers", type=int, default=2, help="of each gateway (2)")
    parser.add_argument("--json", action="store_true", help="the report as JSON on standard output")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"), help="of the random choices")
    parser.add_argument("--hapax", default=os.environ.get("HAPAX") or ROOT / "build" / "src" / "hapax",
                        help="the program ($HAPAX, else build/src/hapax)")


def checked(parser):
    options = parser.parse_args()
    if not os.access(options.hapax, os.X_OK):
        parser.error(f"there is no program at {options.hapax}: run ./dev build, or set HAPAX")
    return options


@contextlib.asynccontextmanager
async def running(*coroutines):
    """Tasks beside the body; the first of them that fails ends it."""
    tasks = [asyncio.create_task(each) for each in coroutines]
    body = asyncio.current_task()

    def ended(task):
        if not task.cancelled() and task.exception() is not None:
            body.cancel()

    for task in tasks:
        task.add_done_callback(ended)
    try:
        yield tasks
    except asyncio.CancelledError:
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception():
                raise task.exception() from None
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


__all__ = ["Fleet", "HANG_S", "Link", "Operation", "Violation", "checked", "common_arguments", "finish", "progress",
           "running"]
