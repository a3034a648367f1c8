# SPDX-License-Identifier: Apache-2.0
"""A fake application server. It records every request that it received and every effect that it executed, by path and
by key: these counts, and not the gateway's word, are what the stories assert on. It never deduplicates.

One thread accepts, and each connection has one of its own, so that a behaviour may block wherever it likes."""
import collections
import contextlib
import os
import re
import socket
import struct
import threading
import time
import traceback

from . import answers
from .places import passing_directory
from .waiting import HANG_S
from .wire import Disconnected, Malformed, Message, Reader, as_bytes, head_bytes, pairs

GONE = (ConnectionError, BrokenPipeError, Disconnected, socket.timeout, OSError)


class Request(Message):
    def __init__(self, method, target, version, fields, connection):
        super().__init__(fields)
        self.method = method
        self.target = target
        self.path, _, self.query = target.partition("?")
        self.version = version
        self.connection = connection
        self.arrived_at = time.time()
        self.at = time.monotonic()
        self.answered_at = None  # on the same clock, just before the first byte of the answer went out

    @property
    def key(self):
        """The key inside its header, whichever way it is spelled."""
        value = self.header("Idempotency-Key")
        match = re.match(r'"((?:[^"\\]|\\.)*)"', value or "")
        return match[1] if match else value

    def __repr__(self):
        return f"<{self.method} {self.target} {self.headers} {self.body[:200]!r}>"


class Hold:
    """Requests to a path arrive and execute, and their answers are withheld until released."""

    def __init__(self, upstream, path):
        self.upstream = upstream
        self.path = path
        self.arrived = 0
        self.released = threading.Event()

    def wait_arrived(self, count=1):
        self.upstream.wait(lambda: self.arrived >= count, f"{count} requests arriving at {self.path}")

    def release(self):
        self.released.set()


class Exchange:
    """One request in the hands of a behaviour."""

    def __init__(self, upstream, request, sock, reader):
        self.upstream = upstream
        self.request = request
        self.sock = sock
        self.reader = reader
        self.open = True
        self._pieces = None

    def _body(self):
        if self._pieces is None:
            if self.request.header("Expect", "").lower() == "100-continue":
                self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._pieces = self.reader.body_pieces(self.request.headers)
        return self._pieces

    def read_body(self):
        self.request.body += b"".join(self._body())
        return self.request.body

    def body_pieces(self):
        return self._body()

    def discard_body(self):
        return sum(len(piece) for piece in self._body())

    def execute(self):
        """Counts one effect, then waits while the path is held. Returns the effect's number."""
        number = self.upstream.record_effect(self.request)
        self.arrive()
        return number

    def arrive(self):
        """Waits while the path is held, without an effect."""
        self.upstream.pass_hold(self.request.path)

    def send(self, data):
        if self.request.answered_at is None:
            self.request.answered_at = time.monotonic()
        self.sock.sendall(data)

    def answer(self, status, body=b"", headers=()):
        """A whole answer, for behaviours that a story writes itself."""
        content = as_bytes(body)
        fields = pairs(headers) + [("Content-Length", len(content))]
        self.send(head_bytes(f"HTTP/1.1 {status} Answer", fields) + content)

    def send_some(self, data):
        return self.sock.send(data)

    def echo(self):
        if self.reader.buffer:
            self.send(bytes(self.reader.buffer))
            self.reader.buffer.clear()
        while True:
            data = self.sock.recv(65536)
            if not data:
                break
            self.send(data)
        self.close()

    def close(self):
        """FIN, once everything that was sent before is on its way."""
        self.open = False
        self.sock.shutdown(socket.SHUT_RDWR)

    def reset(self):
        self.open = False
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def wait_for_peer_to_leave(self):
        self.open = False
        while self.sock.recv(65536):
            pass


class Upstream:
    def __init__(self, host="127.0.0.1", unix=None, listening=True):
        self.changed = threading.Condition()
        self.requests = []
        self.effect_log = []
        self.effects_by_key = collections.Counter()
        self.connections = 0
        self.bytes_received = 0
        self.errors = []
        self._behaviours = {}
        self._holds = {}
        self._open = {}
        self._idle = set()
        self._reset_on_accept = False
        self._closing = False
        self._unix = unix
        self.listener = self._bind(host, unix)
        self.url = self._url(host, unix)
        if listening:
            self.listen()

    def _bind(self, host, unix):
        if unix:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(unix)
            return listener
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, 0))
        return listener

    def _url(self, host, unix):
        if unix:
            return f"unix:{unix}"
        self.port = self.listener.getsockname()[1]
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def listen(self):
        """Until this is called, a connection to the bound address is refused."""
        self.listener.listen(4096)
        threading.Thread(target=self._accept, daemon=True).start()

    def stop_listening(self):
        """From now on connections are refused; those that are open go on."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            with self.changed:
                if self._closing:
                    sock.close()
                    return
                self.connections += 1
                number = self.connections
                self.changed.notify_all()
                if self._reset_on_accept:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    sock.close()
                    continue
                self._open[number] = sock
            if not self._unix:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(number, sock), daemon=True).start()

    def _serve(self, number, sock):
        reader = Reader(sock)
        try:
            while self._serve_one(number, sock, reader):
                pass
        except GONE:
            pass
        except Malformed as error:
            self.errors.append(f"the gateway sent something malformed: {error}")
        except Exception:
            self.errors.append(traceback.format_exc())
        finally:
            with self.changed:
                self.bytes_received += reader.bytes_received
                self._open.pop(number, None)
                self._idle.discard(number)
                self.changed.notify_all()
            sock.close()

    def _serve_one(self, number, sock, reader):
        with self.changed:
            if not reader.buffer:
                self._idle.add(number)
            self.bytes_received += reader.bytes_received
            reader.bytes_received = 0
            self.changed.notify_all()
        head = reader.head()
        with self.changed:
            self._idle.discard(number)
        if head is None:
            return False
        line, fields = head
        match = re.fullmatch(r"(\S+) (\S+) (HTTP/1\.[01])", line)
        if not match:
            raise Malformed(f"bad request line {line!r}")
        request = Request(match[1], match[2], match[3], fields, number)
        with self.changed:
            self.requests.append(request)
            behaviour = self._behaviour_for(request)
            self.changed.notify_all()
        exchange = Exchange(self, request, sock, reader)
        behaviour(exchange)
        says_close = request.header("Connection", "").lower() == "close"
        return exchange.open and not says_close

    def _behaviour_for(self, request):
        for name in (f"{request.method} {request.path}", request.path, "*"):
            if name in self._behaviours:
                return self._behaviours[name]
        return answers.numbered

    def on(self, where, behaviour):
        """`where` is "/path", "POST /path" or "*"."""
        with self.changed:
            self._behaviours[where] = behaviour
        return behaviour

    def record_effect(self, request):
        with self.changed:
            self.effect_log.append((request.path, request.key))
            self.effects_by_key[request.key] += 1
            self.changed.notify_all()
            return len(self.effect_log)

    def pass_hold(self, path):
        with self.changed:
            hold = self._holds.get(path)
            if hold is None:
                return
            hold.arrived += 1
            self.changed.notify_all()
        if not hold.released.wait(timeout=HANG_S):
            self.errors.append(f"{path} was held and never released")

    @contextlib.contextmanager
    def hold(self, path):
        hold = Hold(self, path)
        with self.changed:
            self._holds[path] = hold
        try:
            yield hold
        finally:
            with self.changed:
                self._holds.pop(path, None)
            hold.release()

    @contextlib.contextmanager
    def resetting_every_connection(self):
        """Connections are accepted and reset before a byte is read."""
        self._reset_on_accept = True
        try:
            yield
        finally:
            self._reset_on_accept = False

    def wait(self, holds, what):
        with self.changed:
            assert self.changed.wait_for(holds, timeout=HANG_S), f"never saw {what}; requests: {self.requests}"

    def wait_requests(self, count):
        self.wait(lambda: len(self.requests) >= count, f"{count} requests")

    def wait_effects(self, count):
        self.wait(lambda: len(self.effect_log) >= count, f"{count} effects")

    def effects(self, path=None):
        with self.changed:
            return sum(1 for effect_path, _ in self.effect_log if path in (None, effect_path))

    def received(self, path=None):
        """The requests that came for a path, in order."""
        with self.changed:
            return [request for request in self.requests if path in (None, request.path)]

    def last(self):
        with self.changed:
            return self.requests[-1]

    def open_connections(self):
        with self.changed:
            return len(self._open)

    def close_idle(self):
        """Closes every keep-alive connection, as servers do with idle ones. Returns how many there were."""
        with self.changed:
            assert self.changed.wait_for(lambda: self._idle >= set(self._open), timeout=HANG_S)
            numbers = list(self._idle)
            for number in numbers:
                with contextlib.suppress(OSError):
                    self._open[number].shutdown(socket.SHUT_RDWR)
            assert self.changed.wait_for(lambda: not any(n in self._open for n in numbers), timeout=HANG_S)
        return len(numbers)

    def close(self):
        with self.changed:
            self._closing = True
            self.changed.notify_all()
            for hold in self._holds.values():
                hold.release()
            for sock in self._open.values():
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        self.stop_listening()
        if self._unix:
            with contextlib.suppress(OSError):
                os.unlink(self._unix)


def unix_socket_path():
    """A short path: the names of unix sockets may have 107 bytes only."""
    return os.path.join(passing_directory(), "app.sock")
