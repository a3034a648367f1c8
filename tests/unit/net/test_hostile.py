# SPDX-License-Identifier: Apache-2.0
"""Hostile requests: each gets the same verdict however its bytes are cut into pieces, and none is handled."""
import itertools
import json
import pathlib
import re

import pytest

from server_harness import Server

VECTORS = pathlib.Path(__file__).resolve().parents[2] / "vectors" / "hostile_requests.json"
# What is wrong with these is the key, which is not this layer's to judge.
ABOUT_KEYS = {"two key lines", "key with an unbalanced quote", "key too long"}


def raw_of(case):
    raw = case["raw"]
    if "pad" in case:
        raw = raw.replace("{pad}", case["pad"]["char"] * case["pad"]["times"])
    return raw.encode("latin-1")


def head(*lines, body=b""):
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def get(*fields, line="GET /echo HTTP/1.1", host="Host: a"):
    return head(line, *([host] if host else []), *fields)


def post(*fields, body=b""):
    return head("POST /echo HTTP/1.1", "Host: a", *fields, body=body)


def chunked(body):
    return post("Transfer-Encoding: chunked", body=body)


MORE = {
    "two spaces before the target": (400, get(line="GET  /echo HTTP/1.1")),
    "two spaces before the version": (400, get(line="GET /echo  HTTP/1.1")),
    "a space after the version": (400, get(line="GET /echo HTTP/1.1 ")),
    "a tab for a space": (400, get(line="GET\t/echo HTTP/1.1")),
    "no version": (400, get(line="GET /echo")),
    "HTTP/0.9": (505, get(line="GET /echo HTTP/0.9")),
    "HTTP/1.2": (505, get(line="GET /echo HTTP/1.2")),
    "HTTP/2.0": (505, get(line="GET /echo HTTP/2.0")),
    "the preface of HTTP/2": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "RTSP": (400, get(line="OPTIONS * RTSP/1.0")),
    "ICE": (400, get(line="SOURCE /echo ICE/1.0")),
    "lower-case version": (400, get(line="GET /echo http/1.1")),
    "an unknown method": (501, get(line="BREW /echo HTTP/1.1")),
    "a method that is no token": (400, get(line="G@T /echo HTTP/1.1")),
    "a fragment": (400, get(line="GET /echo#x HTTP/1.1")),
    "a byte above 127 in the target": (400, get(line="GET /\xe9 HTTP/1.1")),
    "star for GET": (400, get(line="GET * HTTP/1.1")),
    "an https URL on a plain listener": (400, get(line="GET https://a/ HTTP/1.1")),
    "an URL with a user": (400, get(line="GET http://u@a/ HTTP/1.1")),
    "an URL without a host": (400, get(line="GET http:///x HTTP/1.1")),
    "an URL beside no Host": (400, get(line="GET http://a/ HTTP/1.1", host=None)),
    "an empty Host": (400, get(host="Host:")),
    "a Host with a bad port": (400, get(host="Host: a:99999")),
    "a Host with letters for a port": (400, get(host="Host: a:b")),
    "a Host with a path": (400, get(host="Host: a/b")),
    "a Host with a list": (400, get(host="Host: a,b")),
    "a Host with an open bracket": (400, get(host="Host: [::1")),
    "a Host with half an address": (400, get(host="Host: [::1]x")),
    "a Host with a byte above 127": (400, get(host="Host: \xe9")),
    "a folded Host": (400, get(host="Host: a\r\n b")),
    "a fold that hides a length": (400, post("X: y", " Content-Length: 5", body=b"hello")),
    "a fold with a tab": (400, get("X: y\r\n\tz")),
    "a line of white space": (400, get("X: y\r\n \r\nZ: z")),
    "a space in a name": (400, get("X Y: z")),
    "a slash in a name": (400, get("X/Y: z")),
    "a byte above 127 in a name": (400, get("X\xe9: z")),
    "DEL in a value": (400, get("X: a\x7fb")),
    "escape in a value": (400, get("X: a\x1bb")),
    "LF alone in the middle": (400, b"GET /echo HTTP/1.1\r\nHost: a\nX: y\r\n\r\n"),
    "LF alone at the end": (400, b"GET /echo HTTP/1.1\r\nHost: a\r\n\n"),
    "CR alone at the end": (400, b"GET /echo HTTP/1.1\r\nHost: a\r\n\rX"),
    "three empty lines first": (400, b"\r\n\r\n\r\n" + get()),
    "LF first": (400, b"\n" + get()),
    "a space first": (400, b" " + get()),
    "content-length above 2^63-1": (400, post("Content-Length: 9223372036854775808")),
    "content-length above 2^64": (400, post("Content-Length: 18446744073709551621", body=b"hello")),
    "content-length '-1'": (400, post("Content-Length: -1")),
    "content-length '5 5'": (400, post("Content-Length: 5 5", body=b"hello")),
    "transfer-encoding twice": (400, post("Transfer-Encoding: chunked", "Transfer-Encoding: chunked")),
    "transfer-encoding 'chunked, chunked'": (400, post("Transfer-Encoding: chunked, chunked")),
    "transfer-encoding 'xchunked'": (400, post("Transfer-Encoding: xchunked")),
    "transfer-encoding 'chunked;q=1'": (400, post("Transfer-Encoding: chunked;q=1")),
    "transfer-encoding before content-length": (400, post("Transfer-Encoding: chunked", "Content-Length: 3")),
    "two expectations": (417, post("Expect: 100-continue", "Expect: 100-continue", "Content-Length: 1", body=b"x")),
    "Connection lists Host": (400, get("Connection: close, Host")),
    "Connection lists Authorization": (400, get("Connection: authorization")),
    "Connection lists Content-Length": (400, post("Connection: Content-Length", "Content-Length: 1", body=b"x")),
    "Connection lists Transfer-Encoding": (400, post("Connection: transfer-encoding")),
    "Connection lists Cookie": (400, get("Connection: cookie")),
    "Connection is no list": (400, get("Connection: a b")),
    "Connection with 33 options": (400, get("Connection: " + ",".join("abcdefghijklmnopqrstuvwxyz0123456"))),
    "chunk: size of 17 digits": (400, chunked(b"00000000000000001\r\nx\r\n0\r\n\r\n")),
    "chunk: size above 2^63": (400, chunked(b"8000000000000000\r\nx\r\n0\r\n\r\n")),
    "chunk: space after the size": (400, chunked(b"1 \r\nx\r\n0\r\n\r\n")),
    "chunk: data shorter than size": (400, chunked(b"5\r\nhell\r\n0\r\n\r\n")),
    "chunk: CR without LF after the size": (400, chunked(b"1\rx\r\n0\r\n\r\n")),
    "chunk: CR in an extension": (400, chunked(b"1;a\rb\r\nx\r\n0\r\n\r\n")),
    "chunk: bare LF after a trailer": (400, chunked(b"0\r\nX: y\n\r\n")),
    "chunk: bare LF at the end": (400, chunked(b"0\r\n\n")),
    "chunk: folded trailer": (400, chunked(b"0\r\nX: y\r\n z\r\n\r\n")),
    "chunk: trailer without a name": (400, chunked(b"0\r\n: y\r\n\r\n")),
    "chunk: trailer without a colon": (400, chunked(b"0\r\nXy\r\n\r\n")),
    "chunk: NUL in a trailer": (400, chunked(b"0\r\nX: a\0b\r\n\r\n")),
    "chunk: endless trailers": (431, chunked(b"0\r\n" + b"X: yyyyyyyyyyyyyyyyyyyyyyyy\r\n" * 2000 + b"\r\n")),
    "a long request line": (414, b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"),
    "101 fields": (431, get(*[f"X{i}: y" for i in range(100)])),
}

FINE = {
    "one empty line first": b"\r\n" + get(),
    "two empty lines first": b"\r\n\r\n" + get(),
    "white space around a value": get("X: \t y \t "),
    "an empty value": get("X:"),
    "bytes above 127 in a value": get("X: \xe9\xff"),
    "100 fields": get(*[f"X{i}: y" for i in range(99)]),
    "a port": get(host="Host: a.example:8080"),
    "an address of version 6": get(host="Host: [::1]:8080"),
    "an empty port": get(host="Host: a:"),
    "HTTP/1.0 without Host": head("GET /echo HTTP/1.0"),
    "OPTIONS for the server": get(line="OPTIONS * HTTP/1.1"),
    "chunked in capitals": post("Transfer-Encoding: CHUNKED", body=b"0\r\n\r\n"),
    "chunk: extensions": chunked(b"5;a=b;c=\"d e\"\r\nhello\r\n0;z\r\n\r\n"),
    "chunk: size of 16 digits": chunked(b"0000000000000005\r\nhello\r\n0\r\n\r\n"),
    "chunk: capital digits": chunked(b"A\r\nhellohello\r\n0000\r\n\r\n"),
    "chunk: trailers": chunked(b"0\r\nX: y\r\nContent-Length: 7\r\n\r\n"),
    "content-length with zeros first": post("Content-Length: 0005", body=b"hello"),
    "an expectation on HTTP/1.0": head("GET /echo HTTP/1.0", "Expect: y"),
}


def vectors():
    for case in json.loads(VECTORS.read_text())["cases"]:
        expect = "accept" if case["name"] in ABOUT_KEYS else case["expect"]
        yield pytest.param(raw_of(case), expect, id=case["name"])
    for name, (status, raw) in MORE.items():
        yield pytest.param(raw, f"reject-{status}", id=name)
    for name, raw in FINE.items():
        yield pytest.param(raw, "accept", id=name)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "socket"
    with Server(f"unix:{path}") as running:
        yield running


def cut(raw, positions):
    edges = [0, *positions, len(raw)]
    return [raw[a:b] for a, b in zip(edges, edges[1:])]


def verdict(server, pieces, expect):
    """Sends the pieces, each read by the server before the next, and returns what came back."""
    with server.connect() as client:
        for piece in pieces:
            try:
                client.send_read(piece)
            except (BrokenPipeError, ConnectionResetError):
                break  # it has its answer and was cut off; what it got can still be read
        if expect.startswith("close") or "or-close" in expect:
            client.no_more()
            try:
                answer = client.answer()
            except EOFError:
                return "closed", None
        else:
            answer = client.answer()
        if expect != "accept":
            assert answer.get("Connection") == "close"
            assert client.is_over()
        return answer.status, re.sub(rb"peer=\S+", b"", answer.body)


def is_as_expected(got, expect):
    status, _ = got
    if expect == "accept":
        return status == 200
    if expect.startswith("close"):
        return status == "closed"
    allowed = expect[len("reject-"):].split("-or-")
    return (status == "closed" and "close" in allowed) or str(status) in allowed


@pytest.mark.parametrize("raw, expect", vectors())
def test_verdict_is_the_same_however_the_bytes_are_cut(server, raw, expect):
    whole = verdict(server, [raw], expect)
    assert is_as_expected(whole, expect), whole
    every = range(1, len(raw))
    step = 1 if len(raw) < 3000 else len(raw) // 200
    for position in every[::step]:
        assert verdict(server, cut(raw, [position]), expect) == whole, position
    assert verdict(server, cut(raw, every[::1 if len(raw) < 3000 else 61]), expect) == whole


MARKS = itertools.count()


def events_until_now(server):
    """What the server has said since the last call, up to a request that is made for the purpose."""
    mark = f"/now?mark={next(MARKS)}"
    with server.connect() as client:
        client.ask(mark)
    server.saw(f"request GET {mark}")
    events = list(server.seen)
    server.seen.clear()
    return events


@pytest.mark.parametrize("raw, expect", vectors())
def test_nothing_hostile_is_handled(server, raw, expect):
    """The handler that reads the whole body before it acts never sees the end of a refused request's."""
    events_until_now(server)
    verdict(server, [raw], expect)
    handled = any(event.startswith("body ") for event in events_until_now(server))
    assert handled == (expect == "accept")


def test_trailers_do_not_change_the_message(server):
    raw = next(raw_of(c) for c in json.loads(VECTORS.read_text())["cases"] if "trailers may not" in c["name"])
    status, body = verdict(server, [raw], "accept")
    assert status == 200 and body.endswith(b"\n\n{}") and b"another-key" not in body and b"Content-Length" not in body


def test_nothing_after_a_refused_request_is_read_as_another(server):
    events_until_now(server)
    with server.connect() as client:
        client.send(get("X : y") + get(line="GET /smuggled HTTP/1.1"))
        assert client.answer().status == 400
        assert client.is_over()
    assert not any("smuggled" in event for event in events_until_now(server))
