# SPDX-License-Identifier: Apache-2.0
"""Keys from files and URLs: rotation, failure, garbage, answers too large and too slow, and stopping in the middle.

JWKS_DRIVER names the program that asks ours. Nothing here is measured in seconds: what must happen is waited for, and
what must not would show in the server's list of requests or in the log.
"""
import datetime
import http.server
import ipaddress
import json
import os
import queue
import socket
import ssl
import subprocess
import threading

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PATIENCE = 60  # seconds: a test that hangs shall fail


class Key:
    def __init__(self, kid):
        self.private = ec.generate_private_key(ec.SECP256R1())
        numbers = self.private.public_key().public_numbers()
        text = lambda n: jwt.utils.base64url_encode(n.to_bytes(32, "big")).decode()
        self.jwk = {"kty": "EC", "crv": "P-256", "x": text(numbers.x), "y": text(numbers.y), "kid": kid}
        self.token = jwt.encode({"sub": "alice"}, self.private, "ES256", headers={"kid": kid})
        self.pem = self.private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def jwks(*keys):
    return json.dumps({"keys": [key.jwk for key in keys]})


class Server:
    """Answers each path by what stands in `answers`, and keeps a list of what was asked."""

    def __init__(self, context=None):
        self.answers = {}
        self.asked = queue.Queue()
        self.count = 0
        self.released = threading.Event()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                server.count += 1
                server.asked.put((self.path, dict(self.headers)))
                try:
                    server.answers[self.path](self)
                except (BrokenPipeError, ConnectionResetError):
                    pass
                self.close_connection = True

            def log_message(self, *arguments):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        if context:
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def url(self, path, scheme="http"):
        return f"{scheme}://127.0.0.1:{self.port}{path}"

    def request(self):
        return self.asked.get(timeout=PATIENCE)

    def give(self, path, body, status=200, etag=None, **fields):
        def answer(handler):
            if etag and handler.headers.get("If-None-Match") == etag:
                handler.send_response(304)
                handler.send_header("Content-Length", "0")
                handler.end_headers()
                return
            raw = body.encode() if isinstance(body, str) else body
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(raw)))
            if etag:
                handler.send_header("ETag", etag)
            for name, value in fields.items():
                handler.send_header(name.replace("_", "-"), value)
            handler.end_headers()
            handler.wfile.write(raw)
        self.answers[path] = answer

    def hold(self, path, begun=b""):
        """Begins an answer, perhaps, and says no more."""
        def answer(handler):
            handler.wfile.write(begun)
            handler.wfile.flush()
            self.released.wait(PATIENCE)
        self.answers[path] = answer

    def close(self):
        self.released.set()
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


class Driver:
    def __init__(self, **environment):
        self.process = subprocess.Popen(
            [os.environ["JWKS_DRIVER"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment})
        self.lines, self.log = queue.Queue(), queue.Queue()
        self.seen = []
        self.changes = []
        threading.Thread(target=self.read, args=(self.process.stdout, self.lines), daemon=True).start()
        self.reader = threading.Thread(target=self.read, args=(self.process.stderr, self.log), daemon=True)
        self.reader.start()

    @staticmethod
    def read(stream, lines):
        for line in stream:
            lines.put(line.rstrip("\n"))

    def line(self):
        return self.lines.get(timeout=PATIENCE)

    def call(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        while True:
            line = self.line()
            if not line.startswith("changed"):
                return line
            self.changes.append(line)

    def changed(self):
        return self.changes.pop(0) if self.changes else self.line()

    def logged(self, event):
        """The next log line whose event or reason has these words."""
        while True:
            line = self.log.get(timeout=PATIENCE)
            self.seen.append(line)
            if event in line:
                return json.loads(line)

    def close(self):
        if self.process.stdin:
            self.process.stdin.close()
        code = self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)
        while not self.log.empty():
            self.seen.append(self.log.get())
        assert code == 0, self.seen
        return self.seen


@pytest.fixture
def driver():
    drivers = []

    def new(**environment):
        drivers.append(Driver(**environment))
        return drivers[-1]
    one = new()
    one.another = new
    yield one
    for each in drivers:
        each.close()


VALID = "The token is valid."
NO_KEY = "No configured key has made this token's signature."


# Files

def test_files_are_read_and_what_is_wrong_with_them_is_said(driver, tmp_path):
    key = Key("a")
    secret = "0123456789abcdef0123456789abcdef"
    (tmp_path / "key.pem").write_bytes(key.pem)
    (tmp_path / "set.json").write_text(jwks(key, Key("b")))
    (tmp_path / "secret").write_text(secret + "\n")
    (tmp_path / "bytes").write_bytes(b"\x01" * 31 + b"\n")
    (tmp_path / "garbage").write_text("not json, no pem, but more than thirty-two bytes\n")
    (tmp_path / "huge").write_bytes(b" " * (1024 * 1024 + 1))
    files = " ".join(f"{kind}={tmp_path}/{name}" for kind, name in
                     (("key", "key.pem"), ("jwks", "set.json"), ("secret", "secret"), ("secret", "bytes")))
    assert driver.call(f"open 0 {files}") == "ok 4"
    assert driver.call("keys 0") == "keys 1"
    assert driver.call("keys 1") == "keys 2"
    assert driver.call(f"verify 0 {key.token}") == VALID
    assert driver.call(f"verify 1 {key.token}") == VALID
    assert driver.call(f"verify 2 {jwt.encode({}, secret, 'HS256')}") == VALID, "without its line end"
    assert driver.call(f"verify 3 {jwt.encode({}, bytes([1]) * 31 + bytes([10]), 'HS256')}") == VALID
    for source, part in ((f"key={tmp_path}/none.pem", "No such file"), (f"jwks={tmp_path}", "Is a directory"),
                         (f"key={tmp_path}/garbage", "no PEM"), (f"jwks={tmp_path}/garbage", "not a JSON object"),
                         (f"secret={tmp_path}/key.pem", "PEM"), (f"key={tmp_path}/set.json", "no PEM"),
                         (f"jwks={tmp_path}/huge", "1 MiB"), (f"secret={os.devnull}", "0 bytes")):
        answer = driver.call(f"open 0 {source}")
        assert answer.startswith("error jwt: the ") and part in answer and source.split("=")[1] in answer, answer
    assert driver.call(f"verify 0 {key.token}") == VALID, "what was open before stays"
    driver.call("want 0")
    driver.call("want 7")


@pytest.mark.parametrize("url, part", [
    ("ftp://example.com/x", "https://HOST"), ("https:///x", "https://HOST"), ("/etc/passwd", "https://HOST"),
    ("file:///etc/passwd", "https://HOST"), ("https://user:word@example.com/x", "user name"),
])
def test_a_url_that_is_none_is_refused(driver, url, part):
    answer = driver.call(f"open 0 url={url}")
    assert answer.startswith("error") and part in answer
    assert "word" not in answer


# URLs

def test_keys_are_there_once_it_is_open(driver, server):
    key = Key("a")
    server.give("/jwks", jwks(key))
    assert driver.call(f"open 30000 url={server.url('/jwks')} @3600000") == "ok 1"
    path, headers = server.request()
    assert headers["Accept"].startswith("application/jwk-set+json") and headers["User-Agent"].startswith("hapax/")
    assert driver.call("keys 0") == "keys 1"
    assert driver.call(f"verify 0 {key.token}") == VALID


def test_keys_rotate(driver, server):
    first, second = Key("a"), Key("b")
    server.give("/jwks", jwks(first))
    driver.call(f"open 30000 url={server.url('/jwks')} @1000")
    driver.call("keys 0")
    driver.call("start")
    assert driver.call(f"verify 0 {second.token}") == NO_KEY
    server.give("/jwks", jwks(first, second))
    assert driver.changed() == "changed 0"
    assert driver.call(f"verify 0 {first.token}") == VALID
    assert driver.call(f"verify 0 {second.token}") == VALID
    server.give("/jwks", jwks(second))
    assert driver.changed() == "changed 0"
    assert driver.call(f"verify 0 {first.token}") == NO_KEY
    assert driver.call(f"verify 0 {second.token}") == VALID


def test_the_same_keys_are_no_change_and_are_asked_for_by_their_etag(driver, server):
    key, other = Key("a"), Key("b")
    server.give("/jwks", jwks(key), etag='"one"')
    driver.call(f"open 30000 url={server.url('/jwks')} @1000")
    driver.call("keys 0")
    driver.call("start")
    assert "If-None-Match" not in server.request()[1]
    for _ in range(2):
        assert server.request()[1]["If-None-Match"] == '"one"'
    server.give("/jwks", jwks(key))  # 200 with the same bytes
    server.request()
    server.request()
    server.give("/jwks", jwks(other), etag='"two"')
    assert driver.changed() == "changed 0", "and none before, or there would be two"
    driver.call("stop")
    assert driver.changes == [] and driver.lines.empty()
    assert driver.call(f"verify 0 {other.token}") == VALID


def test_a_url_that_cannot_be_had_is_no_error_and_comes_later(driver, server):
    key = Key("a")
    server.give("/jwks", "no", status=503)
    assert driver.call(f"open 30000 url={server.url('/jwks')} url=http://127.0.0.1:1/jwks") == "ok 2"
    assert driver.call("keys 0") == "keys 0"
    assert driver.call(f"verify 0 {key.token}") == NO_KEY
    assert "503" in driver.logged("503")["reason"]
    driver.call("start")
    server.give("/jwks", jwks(key))
    assert driver.changed() == "changed 0"
    assert driver.call(f"verify 0 {key.token}") == VALID
    assert driver.call("keys 1") == "keys 0"


@pytest.mark.parametrize("body, status, reason", [
    ("<html>hello</html>", 200, "not a JSON object"),
    ("", 200, "not a JSON object"),
    ('{"keys":[]}', 200, "no key"),
    ('{"keys":[{"kty":"oct","k":"' + "A" * 64 + '"}]}', 200, "shared secret"),
    ("huge", 200, "more than 1048576 bytes"),
    ("endless", 200, "more than 1048576 bytes"),
    ("gone", 404, "404"),
    ("later", 500, "500"),
    ("", 304, "304"),
    ("", 302, "redirects are not followed"),
])
def test_what_is_no_key_set_changes_nothing(driver, server, body, status, reason):
    key, other = Key("a"), Key("b")
    server.give("/jwks", jwks(key))
    server.give("/elsewhere", jwks(other))
    driver.call(f"open 30000 url={server.url('/jwks')} @1000")
    driver.call("keys 0")
    driver.call("start")
    if body == "huge":
        server.give("/jwks", " " * (1024 * 1024 + 1))
    elif body == "endless":
        def endless(handler):  # no length is announced
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            while True:
                handler.wfile.write(b" " * 65536)
        server.answers["/jwks"] = endless
    else:
        server.give("/jwks", body, status=status, Location=server.url("/elsewhere"))
    assert driver.logged("jwks_refresh_failed")["reason"].find(reason) >= 0
    assert driver.call("keys 0") == "keys 1"
    assert driver.call(f"verify 0 {key.token}") == VALID
    server.give("/jwks", jwks(key, other))
    assert driver.changed() == "changed 0", "and it goes on"
    assert driver.call(f"verify 0 {other.token}") == VALID


def test_proxies_of_the_environment_are_ignored(driver, server):
    trap = Server()
    server.give("/jwks", jwks(Key("a")))
    proxy = f"http://127.0.0.1:{trap.port}"
    careful = driver.another(http_proxy=proxy, HTTP_PROXY=proxy, https_proxy=proxy, all_proxy=proxy, ALL_PROXY=proxy,
                             no_proxy="")
    careful.call(f"open 30000 url={server.url('/jwks')}")
    assert careful.call("keys 0") == "keys 1"
    assert trap.count == 0
    trap.close()


def test_a_slow_answer_holds_up_no_other_and_ends(driver, server):
    """The slow ones end by our time-out; meanwhile the quick one rotates."""
    first, second = Key("a"), Key("b")
    server.hold("/silent")
    server.hold("/begun", b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{")
    server.give("/quick", jwks(first))
    driver.call(f"open 0 url={server.url('/silent')} url={server.url('/begun')} url={server.url('/quick')} @1000")
    driver.call("start")
    assert driver.changed() == "changed 2"
    assert driver.call(f"verify 2 {first.token}") == VALID
    server.give("/quick", jwks(second))
    assert driver.changed() == "changed 2"
    assert driver.call("keys 0") == "keys 0"
    for _ in range(2):
        assert "timed out" in driver.logged("jwks_fetch_failed")["reason"].lower()


def test_keys_on_demand_and_not_too_often(driver, server):
    """With a refresh of an hour only demand brings the new key: once, however often it is asked for."""
    first, second = Key("a"), Key("b")
    server.give("/jwks", jwks(first))
    driver.call(f"open 30000 url={server.url('/jwks')} @3600000")
    driver.call("keys 0")
    driver.call("start")
    server.request()
    server.give("/jwks", jwks(first, second))
    for _ in range(50):
        driver.call("want 0")
    assert server.count == 1, "it was fetched just now"
    assert driver.changed() == "changed 0"
    assert driver.call(f"verify 0 {second.token}") == VALID
    assert server.count == 2
    for _ in range(50):
        driver.call("want 0")
    assert driver.call("stop") == "stopped 0"
    driver.call("want 0")
    assert server.count == 2


# Stopping

@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{"])
def test_stopping_in_the_middle_of_a_fetch(driver, server, begun):
    server.hold("/jwks", begun)
    driver.call(f"open 0 url={server.url('/jwks')}")
    driver.call("start")
    server.request()
    assert driver.call("stop") == "stopped 0"
    assert driver.call("free 0") == "freed 0"
    log = driver.close()
    assert not [line for line in log if "timed out" in line], "it didn't wait for its time-out"


def test_stopping_while_a_connection_is_made(driver):
    """A listener that accepts nothing: its queue is full, and connecting hangs."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        place = listener.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(place)
        driver.call(f"open 0 url=http://127.0.0.1:{place[1]}/jwks")
        driver.call("start")
        assert driver.call("stop") == "stopped 0"
        assert not [line for line in driver.close() if "timed out" in line]
        for filler in fillers:
            filler.close()


def test_a_successor_takes_the_keys_over(driver, server):
    key = Key("a")
    server.give("/jwks", jwks(key), etag='"one"')
    driver.call(f"open 30000 url={server.url('/jwks')} @3600000")
    assert driver.call("keys 0") == "keys 1"
    server.give("/jwks", "down", status=500)
    server.give("/other", "down", status=500)
    assert driver.call(f"open 30000 url={server.url('/other')} url={server.url('/jwks')} @3600000") == "ok 2"
    assert driver.call("keys 0") == "keys 0"
    assert driver.call("keys 1") == "keys 1"
    assert driver.call(f"verify 1 {key.token}") == VALID
    requests = [server.request() for _ in range(server.asked.qsize())]
    assert [path for path, _ in requests].count("/jwks") == 1, "and aren't fetched anew before they are due"
    driver.call("start")
    driver.call("want 1")
    while True:
        path, headers = server.request()
        if path == "/jwks":
            break
    assert headers["If-None-Match"] == '"one"'


# TLS

@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A certificate for 127.0.0.1, by nobody whom the system knows."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.utcnow()
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    made = made.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
    made = made.add_extension(x509.BasicConstraints(True, None), True).sign(key, hashes.SHA256())
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context, str(folder / "cert.pem")


def test_tls_is_verified(driver, authority):
    context, certificate = authority
    server = Server(context)
    server.give("/jwks", jwks(Key("a")))
    url = server.url("/jwks", "https")
    assert driver.call(f"open 30000 url={url}") == "ok 1"
    assert driver.call("keys 0") == "keys 0"
    assert "certificate" in driver.logged("jwks_fetch_failed")["reason"]
    assert server.count == 0
    trusting = driver.another(SSL_CERT_FILE=certificate)
    assert trusting.call(f"open 30000 url={url}") == "ok 1"
    assert trusting.call("keys 0") == "keys 1"
    by_name = url.replace("127.0.0.1", "localhost")
    assert trusting.call(f"open 30000 url={by_name}") == "ok 1"
    assert trusting.call("keys 0") == "keys 0", "the certificate is another host's"
    server.close()
