# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 on a socket, strict and byte-exact. The client side and the fake upstream both read through here, so that
nothing a library would tidy up (header order, spelling, duplicates, framing) is lost before a test can look at it."""
import json
import os
import re
import socket
import struct
import uuid

from .waiting import HANG_S, eventually

PIECE_BYTES = 1 << 18
BODYLESS = (204, 304)
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, NLMSG_ERROR = 4, 20, 1, 2
TCP_ESTABLISHED, TCP_LISTEN = 1, 10


class Malformed(AssertionError):
    """The peer sent something that is not HTTP/1.1."""


class Disconnected(AssertionError):
    """The peer went away in the middle of a message."""


def fresh_key():
    return str(uuid.uuid4())


def quoted(key):
    return f'"{key}"'


def pairs(headers):
    """Headers as a list of pairs, from a dict or a list."""
    return list(headers.items()) if isinstance(headers, dict) else list(headers or ())


def as_bytes(body):
    if body is None or isinstance(body, (bytes, bytearray)):
        return body
    if isinstance(body, str):
        return body.encode()
    return json.dumps(body).encode()


def head_bytes(first_line, headers):
    lines = [first_line.encode("latin-1")]
    for name, value in headers:
        value = value if isinstance(value, bytes) else str(value).encode("latin-1")
        lines.append(name.encode("latin-1") + b": " + value)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def request_bytes(method, target, headers=(), body=None, host="hapax.test"):
    """A request with Host first, then the given headers in their order, then a Content-Length where none is given."""
    body = as_bytes(body)
    fields = pairs(headers)
    names = {name.lower() for name, _ in fields}
    if "host" not in names:
        fields.insert(0, ("Host", host))
    if not names & {"content-length", "transfer-encoding"} and (body is not None or method in ("POST", "PUT", "PATCH")):
        fields.append(("Content-Length", len(body or b"")))
    return head_bytes(f"{method} {target} HTTP/1.1", fields) + (body or b"")


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


class Reader:
    """Buffered reading of messages from one socket."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = bytearray()
        self.bytes_received = 0

    def more(self):
        """False at the end of the stream."""
        piece = self.sock.recv(PIECE_BYTES)
        self.bytes_received += len(piece)
        self.buffer += piece
        return bool(piece)

    def head(self):
        """The lines of one head, or None when the stream ends before its first byte."""
        while b"\r\n\r\n" not in self.buffer:
            if not self.more():
                if not self.buffer:
                    return None
                raise Disconnected(f"the stream ended inside a head: {bytes(self.buffer)!r}")
        head, _, rest = bytes(self.buffer).partition(b"\r\n\r\n")
        self.buffer = bytearray(rest)
        lines = head.decode("latin-1").split("\r\n")
        fields = []
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
                raise Malformed(f"bad header line {line!r}")
            fields.append((name, value.strip(" \t")))
        return lines[0], fields

    def line(self):
        while b"\r\n" not in self.buffer:
            if not self.more():
                raise Disconnected("the stream ended inside a line")
        line, _, rest = bytes(self.buffer).partition(b"\r\n")
        self.buffer = bytearray(rest)
        return line

    def exactly(self, count):
        """Pieces that add up to `count` bytes."""
        while count > 0:
            if not self.buffer and not self.more():
                raise Disconnected(f"the stream ended {count} bytes before the end of a body")
            piece = bytes(self.buffer[:count])
            del self.buffer[:len(piece)]
            count -= len(piece)
            yield piece

    def chunks(self):
        while True:
            size_line = self.line()
            if not re.fullmatch(rb"[0-9A-Fa-f]+(;.*)?", size_line):
                raise Malformed(f"bad chunk size {size_line!r}")
            size = int(size_line.split(b";")[0], 16)
            if size == 0:
                while self.line():
                    pass
                return
            yield from self.exactly(size)
            if self.line() != b"":
                raise Malformed("a chunk is longer than its size")

    def to_end(self):
        while True:
            if self.buffer:
                piece = bytes(self.buffer)
                self.buffer.clear()
                yield piece
            if not self.more():
                return

    def body_pieces(self, fields, status=None):
        """The body by its framing: of a request, or of a response where `status` is given."""
        lengths = [value for name, value in fields if name.lower() == "content-length"]
        codings = [value for name, value in fields if name.lower() == "transfer-encoding"]
        if codings:
            if [coding.lower() for coding in codings] != ["chunked"] or lengths:
                raise Malformed(f"ambiguous framing: {fields}")
            return self.chunks()
        if lengths:
            if len(lengths) != 1 or not lengths[0].isdigit():
                raise Malformed(f"ambiguous framing: {fields}")
            return self.exactly(int(lengths[0]))
        return self.to_end() if status is not None else iter(())


class Message:
    """What requests and responses have in common: ordered headers and a body."""

    def __init__(self, fields, body=b""):
        self.headers = fields
        self.body = body

    def all(self, name):
        return [value for field, value in self.headers if field.lower() == name.lower()]

    def header(self, name, default=None):
        """The one value of a header; two lines of it are an error, because a test that asks for one means one."""
        values = self.all(name)
        assert len(values) <= 1, f"{name} occurs {len(values)} times: {self.headers}"
        return values[0] if values else default

    def json(self):
        return json.loads(self.body)


class Response(Message):
    """One answer from the gateway."""

    def __init__(self, status, reason, fields, body=b"", interim=()):
        super().__init__(fields, body)
        self.status = status
        self.reason = reason
        self.interim = list(interim)

    @property
    def idempotency(self):
        return self.header("Idempotency-Status")

    def problem(self):
        """The problem document of an error of the gateway's own, after checking that it is whole."""
        assert self.header("Content-Type", "").split(";")[0] == "application/problem+json", f"not a problem: {self}"
        problem = self.json()
        wanted = ("type", "title", "status", "detail", "instance", "error_code", "retryable", "hint")
        missing = [name for name in wanted if name not in problem]
        assert not missing, f"problem without {missing}: {problem}"
        assert problem["status"] == self.status, problem
        assert problem["error_code"] == self.header("Error-Code"), (problem, self.headers)
        assert isinstance(problem["retryable"], bool), problem
        assert problem["hint"] and problem["detail"], problem
        return problem

    def refuses(self, status, code):
        """Asserts that this is the gateway's own refusal, and returns its problem document."""
        assert self.status == status, f"expected {status} {code}, got {self}"
        problem = self.problem()
        assert problem["error_code"] == code, problem
        assert self.idempotency in (None, "released", "unknown"), self  # an error of ours is nothing that was stored
        return problem

    def __repr__(self):
        body = self.body if len(self.body) <= 400 else self.body[:400] + b"..."
        return f"<{self.status} {self.reason} {self.headers} {body!r}>"


class Connection:
    """A client's connection to the gateway."""

    def __init__(self, address, family=socket.AF_INET, receive_bytes=None):
        """`receive_bytes`: what the kernel takes for us before we read; by default megabytes."""
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.settimeout(HANG_S)
        if receive_bytes:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sock.connect(address)
        if family != socket.AF_UNIX:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = Reader(self.sock)

    @property
    def port(self):
        return self.sock.getsockname()[1]

    def send(self, data):
        self.sock.sendall(data)

    def request(self, method, target, headers=(), body=None):
        """Sends; the answer is read when somebody looks at it."""
        self.send(request_bytes(method, target, headers, body))
        return Pending(self, method)

    def receive_head(self):
        """The next head, interim answers included: (status, reason, headers)."""
        head = self.reader.head()
        if head is None:
            raise Disconnected("the connection was closed without an answer")
        line, fields = head
        match = re.fullmatch(r"HTTP/1\.1 (\d{3}) ?(.*)", line)
        if not match:
            raise Malformed(f"bad status line {line!r}")
        return int(match[1]), match[2], fields

    def receive(self, method="GET"):
        """The next final answer, whole."""
        interim = []
        status, reason, fields = self.receive_head()
        while 100 <= status < 200 and status != 101:
            interim.append(status)
            status, reason, fields = self.receive_head()
        response = Response(status, reason, fields, interim=interim)
        if method != "HEAD" and status not in BODYLESS and status != 101:
            response.body = b"".join(self.reader.body_pieces(fields, status))
        return response

    def wait_read(self):
        """Returns once the gateway has taken every byte that we sent off its socket."""
        wait_all_read([Pending(self, None)])

    def at_end(self):
        """Waits for the peer to close, and says that nothing more came."""
        try:
            while self.reader.more():
                pass
        except ConnectionResetError:
            pass
        return not self.reader.buffer

    def wait_let_go(self):
        """Returns once the gateway, which has begun to answer, has closed its end; nothing is read."""
        def is_let_go():
            found = peers_end(self.sock)
            return found is None or found[0] != TCP_ESTABLISHED
        eventually(is_let_go, "the gateway letting go of a connection")

    def finish_sending(self):
        self.sock.shutdown(socket.SHUT_WR)

    def close(self):
        self.sock.close()

    def reset(self):
        """Closes with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Pending:
    """A request that was sent and whose answer is read at the first look at it; from then on it is that answer."""

    def __init__(self, connection, method, keep_open=True):
        self.connection = connection
        self.method = method
        self.keep_open = keep_open
        self._response = None

    @property
    def response(self):
        if self._response is None:
            self._response = self.connection.receive(self.method)
            if not self.keep_open:
                self.connection.close()
        return self._response

    def wait_read(self):
        """Returns once the gateway has taken the whole request off its socket."""
        wait_all_read([self])
        return self

    def abandon(self):
        """Leaves without waiting for the answer."""
        self.connection.close()

    def __getattr__(self, name):
        return getattr(self.response, name)

    def __repr__(self):
        return repr(self._response) if self._response else "<an answer nobody has read yet>"


def diagnosed(family, local, remote):
    """(state, unread bytes) of the one TCP socket of this machine with these ends, or None: linux/inet_diag.h."""
    ends = struct.pack("!HH16s16s", local[1], remote[1], socket.inet_pton(family, local[0]),
                       socket.inet_pton(family, remote[0])) + struct.pack("=III", 0, 0xffffffff, 0xffffffff)
    question = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, 0xffffffff) + ends
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(question), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0) + question)
        answer = kernel.recv(4096)
    if struct.unpack_from("=H", answer, 4)[0] == NLMSG_ERROR:
        return None
    return answer[17], struct.unpack_from("=I", answer, 16 + 4 + 48 + 4)[0]


def listed(local, remote):
    """The same from a list of all the machine's sockets, which is slow: tens of thousands after a while of tests."""
    with open("/proc/net/tcp", encoding="ascii") as table:
        for row in table:
            if f":{local[1]:04X} " in row and f":{remote[1]:04X} " in row:
                fields = row.split()
                if fields[1].endswith(f":{local[1]:04X}") and fields[2].endswith(f":{remote[1]:04X}"):
                    return int(fields[3], 16), int(fields[4].split(":")[1], 16)
    return None


def peers_end(sock):
    """(state, unread bytes) of the peer's socket, or None where it has none any more."""
    try:
        ours, its = sock.getsockname()[:2], sock.getpeername()[:2]
    except OSError:
        return None
    found = diagnosed(sock.family, its, ours)
    if found is None and diagnosed(sock.family, ours, its) is None:  # a kernel that doesn't know even our own end
        found = listed(its, ours)
    return found


def unread_by_peer(sock):
    """How many bytes of ours the peer's program hasn't read (or hasn't accepted) yet; 0 too where it has closed."""
    found = peers_end(sock)
    return found[1] if found and found[0] != TCP_LISTEN else 0


def wait_all_read(pendings):
    """Returns once the gateway has read all of these requests: after this they wait inside it, not in the kernel."""
    left = [pending.connection.sock for pending in pendings]

    def all_read():
        while left and not unread_by_peer(left[-1]):
            left.pop()
        return not left
    eventually(all_read, "the gateway reading every request")


def raise_open_files():
    """Raises our soft limit of open files to the hard one and returns it."""
    import resource
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def cpu_seconds(pid):
    """Processor time that a process has used."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


OF_THIS_REQUEST = {"age", "x-correlation-id", "idempotency-status", "idempotent-replayed", "original-request-time",
                   "connection"}


def lasting(response):
    """What every answer for one operation has in common, byte for byte and in order."""
    kept = [(name, value) for name, value in response.headers if name.lower() not in OF_THIS_REQUEST]
    return response.status, kept, response.body
