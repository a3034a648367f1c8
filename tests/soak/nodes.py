#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two gateways on one PostgreSQL, and kill -9 of either: every request is sent to both at once with the same key, by
clients that ask on until they are answered, while one gateway or the other dies and is started again.

What must hold: one effect for each key, or a declared unknown; the same answer from both, byte for byte, whoever asks
and however often; and the nodes never wait for each other in the server. Exit code 0: it held; 1: it did not."""
import argparse
import asyncio
import sys

from fleet import Fleet, Link, Operation, Violation, checked, common_arguments, finish, progress, running

from harness.postgres import Pooler, Server

CONFIG = """defaults:
  lease: 1s
  wait: 20s
"""


class Soak(Fleet):
    def __init__(self, options, url):
        super().__init__(options, url, CONFIG)
        self.left = options.keys
        self.done = 0
        self.kills = 0
        self.stopping = False

    def next_operation(self):
        chance = self.random.random()
        if chance < 0.6:
            return Operation()
        if chance < 0.95:
            return Operation(delay_us=self.random.randrange(200, 20000))
        return Operation(delay_us=self.random.randrange(5000, 100000), size=self.random.randrange(0, 50000))

    async def client(self):
        """One key after the other, each of them to every node at once."""
        links = [Link() for _ in self.nodes]
        while self.left > 0:
            self.left -= 1
            operation = self.next_operation()
            await asyncio.gather(*(self.settle(link, node, operation) for link, node in zip(links, self.nodes)))
            self.done += 1
        for link in links:
            link.drop()

    async def pull_trigger(self, node):
        """Kills at a moment that the application sees, or at any."""
        if self.random.random() < 0.75:
            trigger = {"on": self.random.choice(["received", "answered"]), "count": self.random.randrange(1, 50),
                       "delay_us": self.random.choice([0, 0, 50, 300, int(10 ** self.random.uniform(2, 4))]),
                       "pid": node.process.pid}
            await self.upstream.do("arm", trigger=trigger)
            for _ in range(1000):
                if node.process.poll() is not None:
                    return
                await asyncio.sleep(0.002)
        await self.upstream.do("kill", pid=node.process.pid)

    async def killer(self):
        """Kills spread over the whole run."""
        for number in range(1, self.options.kills + 1):
            goal = self.options.keys * number // (self.options.kills + 1)
            while self.done < goal:
                await asyncio.sleep(0.002)
            both = self.random.random() < 0.1
            for node in self.nodes if both else [self.random.choice(self.nodes)]:
                await self.pull_trigger(node)
                await node.killed()
                self.kills += 1
                node.start()
            for node in self.nodes:
                await node.await_listening()
            if number % max(1, self.options.kills // 10) == 0:
                progress(self.options, f"{self.kills} kills: {self.done} keys, {len(self.unknown)} unknown")

    async def run(self):
        await self.open()
        async with running(self.killer(), *(self.client() for _ in range(self.options.connections))) as tasks:
            await asyncio.gather(*tasks)
        if self.done != self.options.keys:
            raise Violation(f"{self.done} keys of {self.options.keys} came to an end")
        await self.upstream.do("disarm")
        # An unknown may have become an answer meanwhile, if its node lived on.
        link = Link()
        for operation in list(self.unknown.values()):
            await self.settle(link, self.nodes[0], operation)
            link.drop()
        await self.look_again([*self.acknowledged, *self.unknown])
        await self.check_effects()


def arguments():
    parser = argparse.ArgumentParser(description="two gateways on one PostgreSQL, and kill -9 of either under load")
    parser.add_argument("--keys", type=int, default=20000, help="each is sent to both gateways at once (20000)")
    parser.add_argument("--kills", type=int, default=60, help="of either gateway, spread over the run (60)")
    parser.add_argument("--connections", type=int, default=48, help="keys at once (48)")
    parser.add_argument("--nodes", type=int, default=2, help="gateways (2)")
    parser.add_argument("--pooled", action="store_true", help="through PgBouncer in transaction mode")
    parser.add_argument("--short", action="store_true", help="300 keys and 2 kills: for the test suite")
    common_arguments(parser)
    options = checked(parser)
    if options.short:
        options.keys, options.kills, options.connections = 300, 2, 16
    return options


def main():
    options = arguments()
    server = Server().start()
    pooler = Pooler(server).start() if options.pooled else None
    try:
        database = server.create_database()
        soak = Soak(options, pooler.url(database.name) if pooler else database.url)
        failure = None
        try:
            asyncio.run(soak.run())
        except Violation as violation:
            failure = str(violation)
        deadlocks = database.ask("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0][0]
        if deadlocks and not failure:
            failure = f"the nodes waited for each other {deadlocks} times in PostgreSQL"
        return finish(soak, soak.report(failure, keys=options.keys, kills=soak.kills), options.json)
    finally:
        if pooler:
            pooler.close()
        server.close()


if __name__ == "__main__":
    sys.exit(main())
