# SPDX-License-Identifier: Apache-2.0
"""The application behind the gateway in the kill soak: a process of its own that survives every kill. It executes an
effect for each request that it receives, never deduplicates, and remembers to the nanosecond when it received and when
it answered each key. It also pulls the trigger, because it is the one who knows that moment first.

It is driven over a socket with one JSON object a line: {"do": "arm", ...} and so on, each answered by one line."""
import asyncio
import collections
import json
import os
import re
import signal
import socket
import time

SPIN_MAX_US = 1000
KEY = re.compile(rb"\r\nidempotency-key: *\"?([^\"\r\n;]+)", re.I)
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.I)
DELAY = re.compile(rb"\r\nsoak-delay-us: *(\d+)", re.I)
SIZE = re.compile(rb"\r\nsoak-size: *(\d+)", re.I)


def number(pattern, head, default=0):
    match = pattern.search(head)
    return int(match[1]) if match else default


class Key:
    """What happened to one key here."""
    __slots__ = ("received_ns", "effects", "answering_ns", "answered_ns")

    def __init__(self):
        self.received_ns = []
        self.effects = []
        self.answering_ns = None
        self.answered_ns = None

    def as_list(self):
        return [self.received_ns, self.effects, self.answering_ns, self.answered_ns]


class Application:
    def __init__(self, loop):
        self.loop = loop
        self.keys = collections.defaultdict(Key)
        self.effects = 0
        self.doubled = set()
        self.connections = set()
        self.answers_due = 0
        self.trigger = None
        self.kill_ns = None
        self.saying_close = False
        self.accepting = False
        self.pings = {}
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.accept()

    def accept(self):
        self.listener.listen(1024)
        if not self.accepting:
            self.loop.add_reader(self.listener, self.on_connection)
            self.accepting = True

    def refuse(self):
        """Accepts nothing more: once the kernel's queue of one is full, connections hang before their first byte."""
        if self.accepting:
            self.loop.remove_reader(self.listener)
            self.listener.listen(0)
            self.accepting = False

    def on_connection(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.loop.create_task(self.loop.connect_accepted_socket(lambda: Connection(self), sock))

    def event(self, name):
        """Pulls the trigger when the event that it waits for has happened often enough."""
        trigger = self.trigger
        if trigger is None or trigger["on"] != name:
            return
        trigger["count"] -= 1
        if trigger["count"] > 0:
            return
        self.trigger = None
        if trigger["delay_us"] <= SPIN_MAX_US:
            until = time.monotonic_ns() + trigger["delay_us"] * 1000
            while time.monotonic_ns() < until:
                pass
            self.kill(trigger["pid"])
        else:
            self.loop.call_later(trigger["delay_us"] / 1e6, self.kill, trigger["pid"])

    def kill(self, pid):
        before = time.monotonic_ns()
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.kill_ns = [before, time.monotonic_ns()]

    async def quiesce(self):
        """Returns once everything that an earlier gateway sent has been read, and every answer has been written."""
        self.saying_close = False
        self.accept()
        token = os.urandom(8).hex()
        self.pings[token] = self.loop.create_future()
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"PING {token}\r\n".encode())
        await self.pings[token]  # the queue is first in, first out: whoever came before is accepted by now
        writer.close()
        while self.connections or self.answers_due:
            await asyncio.sleep(0.001)

    async def obey(self, order):
        what = order["do"]
        if what == "arm":
            self.kill_ns = None
            self.trigger = order["trigger"]
        elif what == "disarm":
            self.trigger = None
        elif what == "kill":
            self.trigger = None
            self.kill(order["pid"])
        elif what == "close":
            self.saying_close = order["on"]
        elif what == "refuse":
            self.refuse()
        elif what == "quiesce":
            await self.quiesce()
        elif what == "report":
            return {key: self.keys[key].as_list() for key in order["keys"] if key in self.keys}
        elif what == "due":
            return {"due": self.answers_due}
        elif what == "doubles":
            return {key: self.keys[key].as_list() for key in self.doubled}
        return {"kill_ns": self.kill_ns}


class Connection(asyncio.Protocol):
    """One connection from the gateway."""

    def __init__(self, application):
        self.application = application
        self.buffer = b""
        self.transport = None

    def connection_made(self, transport):
        self.transport = transport
        self.application.connections.add(self)

    def connection_lost(self, error):
        self.application.connections.discard(self)

    def data_received(self, data):
        self.buffer += data
        if self.buffer.startswith(b"PING "):
            if b"\r\n" in self.buffer:
                self.application.connections.discard(self)
                self.application.pings[self.buffer.split()[1].decode()].set_result(True)
            return
        while True:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.buffer[:end + 2]
            whole = end + 4 + number(LENGTH, head)
            if len(self.buffer) < whole:
                return
            self.buffer = self.buffer[whole:]
            self.request(head)

    def request(self, head):
        application = self.application
        match = KEY.search(head)
        key = match[1].decode() if match else ""
        seen = application.keys[key]
        seen.received_ns.append(time.monotonic_ns())
        application.effects += 1
        seen.effects.append(application.effects)
        if len(seen.effects) > 1:
            application.doubled.add(key)
        application.event("received")
        application.answers_due += 1
        delay_us = number(DELAY, head)
        body = b'{"effect":%d,"pad":"%s"}' % (application.effects, b"x" * number(SIZE, head))
        if delay_us:
            application.loop.call_later(delay_us / 1e6, self.answer, seen, body)
        else:
            self.answer(seen, body)

    def answer(self, seen, body):
        application = self.application
        application.answers_due -= 1
        if self.transport.is_closing():
            return
        close = application.saying_close
        head = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nX-Order: 1\r\nx-order: 2\r\n" \
               b"%sContent-Length: %d\r\n\r\n" % (b"Connection: close\r\n" if close else b"", len(body))
        seen.answering_ns = time.monotonic_ns()
        self.transport.write(head + body)
        seen.answered_ns = time.monotonic_ns()
        if close:
            self.transport.close()
        application.event("answered")


async def serve(control):
    """Serves until the other end of `control` closes."""
    loop = asyncio.get_running_loop()
    application = Application(loop)
    reader, writer = await asyncio.open_unix_connection(sock=control, limit=1 << 26)
    writer.write(json.dumps({"port": application.port}).encode() + b"\n")
    while line := await reader.readline():
        reply = await application.obey(json.loads(line))
        writer.write(json.dumps(reply).encode() + b"\n")
        await writer.drain()


def run(control):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(serve(control))
