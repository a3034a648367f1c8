#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the primary under load, again and again: two gateways on a PostgreSQL with a synchronous standby, which is
promoted each time and gets a new standby, where the dead primary was. The gateways know both addresses and live on.

Each kill comes at a random moment with at least 32 requests that wait for a commit; every second time the standby
hangs first, until at least 32 connections wait for it inside their commits.

What must hold: nothing that a client was told is lost (every acknowledged answer is replayed byte for byte by the new
primary), and no key has two effects. Exit code 0: it held; 1: it did not; 3: too little was in flight at a kill."""
import argparse
import asyncio
import sys

from fleet import HANG_S, Fleet, Link, Operation, Violation, checked, common_arguments, finish, progress, running

from harness.postgres import Server
from harness.waiting import eventually

CONFIG = """defaults:
  wait: 50s
"""
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hapax' AND wait_event = 'SyncRep'"
RECHECKED_EACH_TIME = 200


class Soak(Fleet):
    def __init__(self, options, primary):
        self.primary = primary
        database = primary.create_database()
        self.standby = primary.standby()
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{self.standby.port}"
        super().__init__(options, f"postgres://postgres@{hosts}/{database.name}?target_session_attrs=read-write",
                         CONFIG)
        self.servers = [primary, self.standby]
        self.kills = 0
        self.stopping = False
        self.flowing = asyncio.Event()  # not while a standby is made, which takes as long as it takes
        self.least_requests = self.least_connections = None

    async def client(self, number):
        node, link = self.nodes[number % len(self.nodes)], Link()
        while not self.stopping:
            await self.settle(link, node, Operation(size=self.random.choice([0, 0, 0, 2000])))
            await self.flowing.wait()
        link.drop()

    async def until(self, holds, what):
        for _ in range(int(HANG_S / 0.002)):
            if holds():
                return
            await asyncio.sleep(0.002)
        raise Violation(f"no progress: {what}")

    async def load_goes_on(self, count):
        goal = len(self.acknowledged) + count
        await self.until(lambda: len(self.acknowledged) >= goal, f"{count} more answers")

    async def wait_for_commits(self):
        """Requests that wait for a commit, and connections that are inside one, as near to the kill as can be."""
        await self.until(lambda: self.in_flight >= 2 * self.options.in_flight, "enough requests under way")
        if self.kills % 2 == 1:
            self.standby.pause()
            await asyncio.to_thread(eventually, lambda: self.primary.ask(WAITING)[0][0] >= self.options.in_flight,
                                    "enough commits that wait for the standby")
            connections = self.primary.ask(WAITING)[0][0]
            least = self.least_connections
            self.least_connections = connections if least is None else min(least, connections)
        busy = (await self.upstream.do("due"))["due"]
        requests = self.in_flight - busy
        self.least_requests = requests if self.least_requests is None else min(self.least_requests, requests)

    async def one_kill(self):
        self.flowing.set()
        await self.load_goes_on(self.random.randrange(1, 300))
        await asyncio.sleep(self.random.uniform(0, 0.2))
        await self.wait_for_commits()
        before = set(self.acknowledged)
        dead = self.primary.kill()
        self.kills += 1
        if self.kills % 2 == 0:
            self.standby.resume()
        await asyncio.to_thread(self.standby.promote)
        self.primary = self.standby
        await self.load_goes_on(1)
        self.flowing.clear()
        await self.look_again(self.random.sample(sorted(before), min(RECHECKED_EACH_TIME, len(before))))
        await self.check_effects()
        self.servers.remove(dead)
        dead.standbys.clear()  # the new primary is one of them
        dead.close()
        self.standby = await asyncio.to_thread(self.primary.standby, True, dead.port)
        self.servers.append(self.standby)
        progress(self.options, f"{self.kills} kills: {len(self.acknowledged)} answers, {len(self.unknown)} unknown")

    async def run(self):
        await self.open()
        async with running(*(self.client(number) for number in range(self.options.connections))) as clients:
            for _ in range(self.options.kills):
                await self.one_kill()
            self.stopping = True
            self.flowing.set()
            await asyncio.gather(*clients)
        await self.look_again([*self.acknowledged, *self.unknown])
        await self.check_effects()

    def close_servers(self):
        for server in self.servers:
            server.close()


def arguments():
    parser = argparse.ArgumentParser(description="kill -9 of a primary with a synchronous standby, under two gateways")
    parser.add_argument("--kills", type=int, default=20, help="and promotions (20)")
    parser.add_argument("--connections", type=int, default=192, help="clients at once (192)")
    parser.add_argument("--in-flight", type=int, default=32, help="at least this many commits at each kill (32)")
    parser.add_argument("--nodes", type=int, default=2, help="gateways (2)")
    parser.add_argument("--short", action="store_true", help="2 kills: for the test suite")
    common_arguments(parser)
    parser.set_defaults(workers=20)  # with a connection at work each: enough for 32 commits at once on two gateways
    options = checked(parser)
    if options.short:
        options.kills = 2
    return options


def main():
    options = arguments()
    primary = Server().start()
    soak = None
    try:
        soak = Soak(options, primary)
        failure = None
        try:
            asyncio.run(soak.run())
        except (Violation, AssertionError) as violation:
            failure = str(violation)
        report = soak.report(failure, kills=soak.kills, least_requests_in_flight=soak.least_requests,
                             least_connections_in_commit=soak.least_connections)
        code = finish(soak, report, options.json)
        if code == 0 and min(soak.least_requests, soak.least_connections) < options.in_flight:
            return 3
        return code
    finally:
        if soak:
            soak.close()
            soak.close_servers()
        primary.close()


if __name__ == "__main__":
    sys.exit(main())
