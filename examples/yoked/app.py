#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Yoked: the API of the "Idempotency and Retries Contract" on SQLite, for `hapax serve --config hapax.yaml` to stand
before. Needs nothing but Python 3.

    python3 examples/yoked/app.py [--listen 127.0.0.1:3000] [--data examples/yoked/data]

One request is one transaction: it is committed before its answer is sent, and an error answer means that nothing was
kept. It does not deduplicate: a request that comes twice happens twice."""
import argparse
import contextlib
import http.server
import json
import os
import re
import socket
import sqlite3
import sys
import urllib.parse

import api
import tokens

HERE = os.path.dirname(os.path.abspath(__file__))
BODY_BYTES_MAX = 8 * 1024 * 1024
LOCK_WAIT_S = 60


class Database:
    """One SQLite file. Every request has a connection of its own, and its transaction is the only one that writes."""

    def __init__(self, path):
        self.path = path
        is_new = not os.path.exists(path)
        with contextlib.closing(self._connect()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            if is_new:
                with open(os.path.join(HERE, "schema.sql"), encoding="utf-8") as schema:
                    connection.executescript(schema.read())

    def _connect(self):
        connection = sqlite3.connect(self.path, timeout=LOCK_WAIT_S, isolation_level=None)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    @contextlib.contextmanager
    def transaction(self):
        with contextlib.closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection  # whatever is raised here closes the connection, and so takes everything back
            connection.execute("COMMIT")


class Dropped(Exception):
    """The connection breaks here, because the request asked for it."""


def multipart(content_type, body):
    """The parts of a form by their names."""
    boundary = re.search(r'boundary="?([^";]+)"?', content_type)
    if not content_type.lower().startswith("multipart/form-data") or not boundary:
        raise api.Refused(415, "form_wanted", "send multipart/form-data")
    parts = {}
    for part in (b"\r\n" + body).split(b"\r\n--" + boundary[1].encode("latin-1"))[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        name = re.search(rb'\bname="([^"]*)"', head)
        if name:
            parts[name[1].decode("utf-8", "replace")] = content
    return parts


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keep-alive
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024  # an answer leaves in one piece
    timeout = 120

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def _serve(self):
        try:
            status, body = self._answer()
        except Dropped:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        content = b"" if body is None else json.dumps(body).encode() + b"\n"
        self.send_response(status)
        if body is not None:
            self.send_header("Content-Type", "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _answer(self):
        try:
            return self._execute()
        except api.Refused as refused:
            return refused.status, {"error": {"code": refused.code, "message": str(refused)}}
        except Dropped:
            raise
        except Exception as error:  # the transaction was taken back, whatever it was
            sys.stderr.write(f"yoked: {self.command} {self.path}: {error!r}\n")
            return 500, {"error": {"code": "internal", "message": "nothing was changed"}}

    def _execute(self):
        target = urllib.parse.urlsplit(self.path)
        body = self._body()
        handler, parameters = api.find(self.command, target.path)
        call = api.Call(parameters=parameters, query=dict(urllib.parse.parse_qsl(target.query)), body=body,
                        form=lambda: multipart(self.headers.get("Content-Type", ""), body),
                        secret=self.server.secret, token_lifetime_s=self.server.token_lifetime_s)
        fault = self.headers.get("Demo-Fault")
        with self.server.database.transaction() as call.db:
            authorization = self.headers.get("Authorization")
            if handler.for_nobody and authorization:
                raise api.Refused(400, "credentials_unwanted", "sign in without an Authorization header")
            if handler.signed_in or (handler.may_sign_in and authorization):
                call.sign_in(authorization or "", revoked_too=handler.revoked_too)
            status, answer = handler(call)
            if self.headers.get("Idempotency-Key") and handler.can_be_asked_about:
                call.remember(self.headers["Idempotency-Key"], answer)
            if fault == "drop-before-commit":
                raise Dropped
            if fault == "fail-before-commit":
                raise RuntimeError("the request asked for it")
        if fault == "hang-after-commit":
            self.rfile.read(1)  # until the other side gives up
        if fault in ("drop-after-commit", "hang-after-commit"):
            raise Dropped
        return status, answer

    def _body(self):
        length = self.headers.get("Content-Length", "0")
        if self.headers.get("Transfer-Encoding") or not length.isdigit() or int(length) > BODY_BYTES_MAX:
            self.close_connection = True  # whatever follows isn't read
            raise api.Refused(413 if length.isdigit() else 411, "body", f"a body has a length, up to {BODY_BYTES_MAX}")
        return self.rfile.read(int(length))

    def log_message(self, format, *words):
        if self.server.verbose:
            sys.stderr.write(f"yoked: {format % words}\n")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


def duration_s(text):
    found = re.fullmatch(r"(\d+)([smhd])", text)
    if not found:
        raise argparse.ArgumentTypeError("a duration is like 15m or 24h")
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]


def main():
    parser = argparse.ArgumentParser(description="the Yoked API, which does not deduplicate")
    parser.add_argument("--listen", default="127.0.0.1:3000", metavar="HOST:PORT")
    parser.add_argument("--data", default=os.path.join(HERE, "data"), metavar="DIRECTORY",
                        help="where the database and the secret of the tokens are kept")
    parser.add_argument("--token-lifetime", default="15m", type=duration_s, metavar="15m")
    parser.add_argument("--verbose", action="store_true", help="a line for each request")
    options = parser.parse_args()
    os.makedirs(options.data, mode=0o700, exist_ok=True)
    host, _, port = options.listen.rpartition(":")
    with Server((host, int(port)), Handler) as server:
        server.secret = tokens.secret_of(options.data)
        server.token_lifetime_s = options.token_lifetime
        server.database = Database(os.path.join(options.data, "yoked.db"))
        server.verbose = options.verbose
        print(f"yoked listens on http://{host}:{server.server_address[1]}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    main()
