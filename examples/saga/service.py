# SPDX-License-Identifier: Apache-2.0
"""What both services of the saga need: JSON over HTTP, and one SQLite transaction for each request. SIGUSR1 asks a
service to die at the worst moment: when something is done, and nobody has been told yet."""
import argparse
import contextlib
import http.server
import json
import os
import signal
import sqlite3
import sys
import threading
import urllib.parse

LOCK_WAIT_S = 60
BODY_BYTES_MAX = 64 * 1024


dying = threading.Event()


def die_if_asked():
    if dying.is_set():
        os.kill(os.getpid(), signal.SIGKILL)


class Refused(Exception):
    """The request can't be done: (status, error code)."""


class Database:
    def __init__(self, path, schema):
        self.path = path
        with contextlib.closing(self.connect()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(schema)

    def connect(self):
        connection = sqlite3.connect(self.path, timeout=LOCK_WAIT_S, isolation_level=None)
        connection.row_factory = sqlite3.Row
        return connection

    @contextlib.contextmanager
    def transaction(self):
        with contextlib.closing(self.connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection  # whatever is raised here closes the connection, and so takes everything back
            connection.execute("COMMIT")
        die_if_asked()


class Handler(http.server.BaseHTTPRequestHandler):
    """Calls server.routes["POST /path"](database, headers, query, body), which returns a status and a JSON value."""
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024  # a response leaves in one piece

    def _serve(self):
        target = urllib.parse.urlsplit(self.path)
        try:
            route = self.server.routes.get(f"{self.command} {target.path}")
            body = self._body()
            if route is None:
                raise Refused(404, "not_found")
            with self.server.database.transaction() as database:
                status, value = route(database, self.headers, dict(urllib.parse.parse_qsl(target.query)), body)
        except Refused as refused:
            status, value = refused.args[0], {"error": refused.args[1]}
        except Exception as error:  # the transaction was taken back, whatever it was
            sys.stderr.write(f"{self.command} {self.path}: {error!r}\n")
            status, value = 500, {"error": "nothing was changed"}
        content = json.dumps(value).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()
        if self.command == "POST":
            self.server.after_commit()

    do_GET = do_POST = _serve

    def _body(self):
        length = self.headers.get("Content-Length", "0")
        if self.headers.get("Transfer-Encoding") or not length.isdigit() or int(length) > BODY_BYTES_MAX:
            self.close_connection = True  # the rest is not read
            raise Refused(413, "body_too_large")
        text = self.rfile.read(int(length))
        try:
            return json.loads(text) if text else {}
        except ValueError:
            raise Refused(400, "request_malformed") from None

    def log_request(self, code="-", size="-"):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, address, routes, database):
        super().__init__(address, Handler)
        self.routes, self.database, self.after_commit = routes, database, lambda: None


def arguments(name, port):
    parser = argparse.ArgumentParser(description=f"the {name} service of the saga")
    parser.add_argument("--listen", default=f"127.0.0.1:{port}", metavar="HOST:PORT")
    parser.add_argument("--data", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "data"),
                        metavar="DIRECTORY", help="where the database is kept")
    return parser


def start(name, options, schema, routes):
    """A server that listens and doesn't serve yet."""
    os.makedirs(options.data, mode=0o700, exist_ok=True)
    signal.signal(signal.SIGUSR1, lambda *_: dying.set())
    host, _, port = options.listen.rpartition(":")
    server = Server((host, int(port)), routes, Database(os.path.join(options.data, f"{name}.db"), schema))
    print(f"{name} listens on http://{options.listen}", flush=True)
    return server
