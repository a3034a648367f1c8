# SPDX-License-Identifier: Apache-2.0
"""Runs net_test_server and talks to it over bare sockets, byte for byte."""
import array
import fcntl
import os
import queue
import resource
import select
import signal
import socket
import struct
import subprocess
import termios
import threading

BINARY = os.environ["NET_TEST_SERVER"]
# Sanitizers keep freed memory and shadows of it: what is resident says nothing then.
SANITIZED = any(mark in open(BINARY, "rb").read() for mark in (b"__asan_init", b"__tsan_init"))
PATIENCE = 120  # seconds until a wait counts as lost; no test depends on how fast it ends


class Server:
    """One process. Its standard output is a list of events; `saw` waits for one."""

    def __init__(self, *addresses, files=None, environment=None, **limits):
        arguments = [BINARY, *(addresses or ("127.0.0.1:0",))]
        arguments += [f"{name}={value}" for name, value in limits.items()]
        limit = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))) if files else None
        self.process = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limit,
            env={**os.environ, **(environment or {})},
        )
        self.events, self.seen, self.complaints = queue.Queue(), [], []
        for pipe, sink in ((self.process.stdout, self.events.put), (self.process.stderr, self.complaints.append)):
            threading.Thread(target=self._collect, args=(pipe, sink), daemon=True).start()
        self.addresses = [self.saw("listening ")[len("listening "):] for _ in (addresses or (1,))]

    @staticmethod
    def _collect(pipe, sink):
        for line in pipe:
            sink(line.rstrip("\n"))

    def saw(self, start):
        """Waits for an event that begins so, and returns it; those before it are in `seen`."""
        while True:
            event = self.events.get(timeout=PATIENCE)
            self.seen.append(event)
            if event.startswith(start):
                return event

    def so_far(self):
        while not self.events.empty():
            self.seen.append(self.events.get())
        return self.seen

    def connect(self, index=0, **options):
        return Client(self.addresses[index], **options)

    def stats(self, index=0):
        """(connections, resident KiB)"""
        with self.connect(index) as client:
            client.send(b"GET /stats HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            connections, resident = client.answer().body.split()
        return int(connections) - 1, int(resident)

    def cpu_seconds(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self):
        return self.process.wait(timeout=PATIENCE)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            self.terminate()
            try:
                self.process.wait(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        code = self.process.returncode
        trouble = "\n".join(self.complaints)
        if kind is None:
            assert code == 0 and "Sanitizer" not in trouble and "runtime error" not in trouble, (code, trouble)
        elif code != 0:
            print(f"the server ended with {code}\n{trouble}")


class Answer:
    def __init__(self, status, headers, body, framing):
        self.status, self.headers, self.body, self.framing = status, headers, body, framing

    def get(self, name):
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


class Client:
    def __init__(self, address, receive_buffer=None):
        if address.startswith("unix:"):
            self.socket = socket.socket(socket.AF_UNIX)
            target = address[len("unix:"):]
        else:
            host, port = address.rsplit(":", 1)
            is_v6 = host.startswith("[")
            self.socket = socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET)
            target = (host.strip("[]"), int(port))
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(target)
        self.rest = b""

    def send(self, data):
        self.socket.sendall(data)

    def send_read(self, data):
        """Sends and waits until the server has read it: on a unix socket the kernel tells."""
        self.socket.sendall(data)
        unread = array.array("i", [1])
        while unread[0]:
            try:
                fcntl.ioctl(self.socket, termios.TIOCOUTQ, unread)
            except OSError:
                return

    def no_more(self):
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def more(self):
        """Some bytes, b"" at the end of file."""
        data, self.rest = self.rest, b""
        return data or self.socket.recv(1 << 16)

    def line(self):
        while b"\r\n" not in self.rest:
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError(self.rest)
            self.rest += data
        line, self.rest = self.rest.split(b"\r\n", 1)
        return line.decode("latin-1")

    def exactly(self, count):
        gathered = bytearray(self.rest)
        while len(gathered) < count:
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError(bytes(gathered))
            gathered += data
        self.rest = bytes(gathered[count:])
        return bytes(gathered[:count])

    def to_the_end(self):
        gathered, self.rest = bytearray(self.rest), b""
        while piece := self.socket.recv(1 << 16):
            gathered += piece
        return bytes(gathered)

    def is_silent(self):
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return not self.rest and not poll.poll(0)

    def answer(self, method="GET"):
        version, status, _ = self.line().split(" ", 2)
        assert version == "HTTP/1.1"
        headers = []
        while line := self.line():
            headers.append(tuple(part.strip() for part in line.split(":", 1)))
        answer = Answer(int(status), headers, b"", "none")
        if method == "HEAD" or answer.status in (100, 101, 204, 304):
            return answer
        if answer.get("Transfer-Encoding") == "chunked":
            answer.framing = "chunked"
            gathered = bytearray()
            while size := int(self.line(), 16):
                gathered += self.exactly(size)
                assert self.line() == ""
            assert self.line() == ""
            answer.body = bytes(gathered)
        elif answer.get("Content-Length") is not None:
            answer.framing = "length"
            answer.body = self.exactly(int(answer.get("Content-Length")))
        else:
            answer.framing = "close"
            answer.body = self.to_the_end()
        return answer

    def ask(self, target, method="GET", body=None, headers=""):
        length = "" if body is None else f"Content-Length: {len(body)}\r\n"
        self.send(f"{method} {target} HTTP/1.1\r\nHost: a\r\n{length}{headers}\r\n".encode() + (body or b""))
        return self.answer(method)

    def is_over(self):
        """Waits: true when the server ends the connection without another byte."""
        try:
            return self.more() == b""
        except ConnectionResetError:
            return True

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
