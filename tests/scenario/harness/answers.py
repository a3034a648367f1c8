# SPDX-License-Identifier: Apache-2.0
"""What the fake upstream can do with a request. Each function returns a behaviour: something called with one
Exchange. A behaviour executes its effect first (`exchange.execute()`, which also waits while the path is held) and
answers, or fails to answer, after it."""
import queue
import threading

from .waiting import HANG_S
from .wire import PIECE_BYTES, as_bytes, chunk, head_bytes, pairs

REASONS = {200: "OK", 201: "Created", 202: "Accepted", 204: "No Content", 304: "Not Modified", 404: "Not Found",
           409: "Conflict", 422: "Unprocessable Entity", 429: "Too Many Requests", 500: "Internal Server Error",
           502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout"}


def _finish(exchange, then):
    if then == "close":
        exchange.close()
    elif then == "reset":
        exchange.reset()


def _take(exchange, effect):
    exchange.read_body()
    if effect:
        exchange.execute()
    else:
        exchange.arrive()


def _framed(exchange, status, headers, body):
    names = {name.lower() for name, _ in headers}
    framed = names & {"content-length", "transfer-encoding"} or status in (204, 304)
    return headers if framed else headers + [("Content-Length", len(body))]


def answer(status=201, body=b"", headers=(), reason=None, effect=True, then=None):
    """An ordinary answer. `body` may be bytes, text, something for JSON, or a function of the request.
    `then`: "close" or "reset" the connection afterwards without having said so."""

    def behave(exchange):
        _take(exchange, effect)
        content = as_bytes(body(exchange.request) if callable(body) else body)
        fields = _framed(exchange, status, pairs(headers), content)
        line = f"HTTP/1.1 {status} {REASONS.get(status, 'Status') if reason is None else reason}"
        quiet = exchange.request.method == "HEAD" or status in (204, 304)
        exchange.send(head_bytes(line, fields) + (b"" if quiet else content))
        _finish(exchange, then)

    return behave


def answer_raw(data, effect=True, then="close"):
    """These very bytes, whatever they are."""

    def behave(exchange):
        _take(exchange, effect)
        exchange.send(data)
        _finish(exchange, then)

    return behave


def numbered(exchange):
    """The default: every execution gets an answer that no other execution gets."""
    exchange.read_body()
    if exchange.request.method in ("GET", "HEAD", "OPTIONS", "TRACE"):
        exchange.arrive()
        content = as_bytes({"path": exchange.request.path})
        status = 200
    else:
        number = exchange.execute()
        content = as_bytes({"id": f"rf_{number}", "effect": number})
        status = 201
    fields = [("Date", "Thu, 19 Feb 2026 12:00:00 GMT"), ("Content-Type", "application/json"),
              ("Content-Length", len(content))]
    body = b"" if exchange.request.method == "HEAD" else content
    exchange.send(head_bytes(f"HTTP/1.1 {status} {REASONS[status]}", fields) + body)


def chunked(pieces, status=200, headers=(), trailers=(), effect=True):
    """The pieces as chunks, with trailers."""

    def behave(exchange):
        _take(exchange, effect and exchange.request.method not in ("GET", "HEAD"))
        exchange.send(head_bytes(f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}",
                                 pairs(headers) + [("Transfer-Encoding", "chunked")]))
        for piece in pieces:
            exchange.send(chunk(as_bytes(piece)))
        exchange.send(b"0\r\n" + b"".join(f"{n}: {v}\r\n".encode() for n, v in trailers) + b"\r\n")

    return behave


def until_close(body, status=200, headers=(), reset=False):
    """A body without any framing: it ends with the connection."""

    def behave(exchange):
        exchange.read_body()
        exchange.execute()
        exchange.send(head_bytes(f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}",
                                 pairs(headers) + [("Connection", "close")]) + as_bytes(body))
        _finish(exchange, "reset" if reset else "close")

    return behave


def drop_after_effect(reset=False):
    """The effect happens, and the connection breaks without a byte of an answer."""

    def behave(exchange):
        exchange.read_body()
        exchange.execute()
        _finish(exchange, "reset" if reset else "close")

    return behave


def reset_before_reading(exchange):
    """The body is never read and nothing is executed."""
    exchange.arrive()
    exchange.reset()


def answer_unread(status=200, body=b""):
    """An answer, and a body that stays where it is: what the next request on this connection begins with."""

    def behave(exchange):
        exchange.answer(status, b"" if exchange.request.method == "HEAD" else body)

    return behave


def never_answer(exchange):
    """The effect happens, and the connection stays open without an answer until the peer gives up."""
    exchange.read_body()
    exchange.execute()
    exchange.wait_for_peer_to_leave()


def interim(status, headers, then):
    """An interim answer before another behaviour's."""

    def behave(exchange):
        exchange.read_body()
        exchange.send(head_bytes(f"HTTP/1.1 {status} Interim", pairs(headers)))
        then(exchange)

    return behave


def in_turn(*behaviours):
    """The first request gets the first behaviour, and so on; the last one goes on for ever."""
    lock = threading.Lock()
    left = list(behaviours)

    def behave(exchange):
        with lock:
            current = left.pop(0) if len(left) > 1 else left[0]
        current(exchange)

    return behave


def sink(exchange):
    """Takes a body of any size, keeps only its length, and answers with that."""
    count = exchange.discard_body()
    exchange.execute()
    content = as_bytes({"bytes": count})
    exchange.send(head_bytes("HTTP/1.1 200 OK", [("Content-Length", len(content))]) + content)


class Zeros:
    """A download of any size that is never in memory as a whole; `sent` says how far it is."""

    def __init__(self, count):
        self.count = count
        self.sent = 0

    def __call__(self, exchange):
        exchange.read_body()
        exchange.send(head_bytes("HTTP/1.1 200 OK", [("Content-Type", "application/octet-stream"),
                                                     ("Content-Length", self.count)]))
        piece = bytes(PIECE_BYTES)
        left = self.count
        while left > 0:
            taken = exchange.send_some(piece[:min(left, len(piece))])
            left -= taken
            self.sent += taken


class Stream:
    """An answer that the test writes piece by piece while the request is open."""

    def __init__(self, status=200, headers=(("Content-Type", "text/event-stream"),), effect=True):
        self.status = status
        self.headers = list(headers)
        self.effect = effect
        self.pieces = queue.Queue()
        self.started = threading.Event()

    def __call__(self, exchange):
        exchange.read_body()
        if self.effect:
            exchange.execute()
        exchange.send(head_bytes(f"HTTP/1.1 {self.status} OK", self.headers + [("Transfer-Encoding", "chunked")]))
        self.started.set()
        while True:
            piece = self.pieces.get(timeout=HANG_S)
            if piece is None:
                exchange.send(b"0\r\n\r\n")
                return
            exchange.send(chunk(piece))

    def wait_started(self):
        assert self.started.wait(HANG_S), "the request never reached the upstream"

    def send(self, piece):
        self.pieces.put(as_bytes(piece))

    def end(self):
        self.pieces.put(None)


class Deduplicating:
    """An application that deduplicates by the key, as `guarantee: idempotent` asks of it: the first request of a key
    executes, and every later one gets the answer of that. Its first answers fail in the ways given, one after the
    other: a status, bytes that are sent as they are, "close", "reset", or "silence" (until the gateway gives up)."""

    def __init__(self, *faults):
        self.faults = list(faults)
        self.results = {}
        self._lock = threading.Lock()

    def __call__(self, exchange):
        exchange.read_body()
        key = exchange.request.key
        with self._lock:
            fault = self.faults.pop(0) if self.faults else None
            if key not in self.results:
                number = exchange.upstream.record_effect(exchange.request)
                self.results[key] = {"id": f"rf_{number}", "effect": number}
        exchange.arrive()
        if isinstance(fault, int):
            exchange.answer(fault, {"fault": fault})
        elif isinstance(fault, bytes):
            exchange.send(fault)
            exchange.close()
        elif fault == "silence":
            exchange.wait_for_peer_to_leave()
        elif fault is not None:
            _finish(exchange, fault)
        else:
            exchange.answer(201, self.results[key], [("Content-Type", "application/json")])


def echo_after_upgrade(exchange):
    """101 where the request asks for an upgrade, and then every byte comes back; else an ordinary answer."""
    if exchange.request.header("Upgrade") is None:
        numbered(exchange)
        return
    exchange.arrive()
    exchange.send(head_bytes("HTTP/1.1 101 Switching Protocols",
                             [("Connection", "Upgrade"), ("Upgrade", exchange.request.header("Upgrade"))]))
    exchange.echo()
