#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A consumer of Yoked's webhooks, as the contract wants it: it stores each `eventId` that it has processed for 7 days,
ignores a duplicate within them, and answers both with 200. Needs nothing but Python 3.

    python3 examples/yoked/matches/consumer.py --secret-file FILE [--listen 127.0.0.1:3002] [--data DIR]

It is an ordinary receiver of Standard Webhooks, with no Hapax of its own."""
import argparse
import base64
import contextlib
import hashlib
import hmac
import http.server
import json
import os
import sqlite3
import time

BODY_BYTES_MAX = 512 * 1024
TOLERANCE_S = 300
REMEMBERED_S = 7 * 24 * 3600
SCHEMA = """
CREATE TABLE IF NOT EXISTS processed (event_id TEXT PRIMARY KEY, at INT NOT NULL);
CREATE TABLE IF NOT EXISTS greetings (match TEXT NOT NULL, recipient TEXT NOT NULL);
"""


def is_signed(headers, body, secret):
    """Whether this came from whoever has the secret, a moment ago."""
    at, event = headers.get("webhook-timestamp", ""), headers.get("webhook-id", "")
    if not at.isdigit() or abs(time.time() - int(at)) > TOLERANCE_S:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mac = base64.b64encode(hmac.new(key, f"{event}.{at}.".encode() + body, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(f"v1,{mac}", given) for given in headers.get("webhook-signature", "").split())


def process(database, event):
    """The effect, and that it was done, in one transaction. Returns what became of it."""
    now = int(time.time())
    database.execute("DELETE FROM processed WHERE at <= ?", (now - REMEMBERED_S,))
    added = database.execute("INSERT INTO processed VALUES (?, ?) ON CONFLICT DO NOTHING", (event["eventId"], now))
    if added.rowcount == 0:
        return "ignored"
    if event["eventType"] == "match.created":
        for user in event["data"]["users"]:
            database.execute("INSERT INTO greetings VALUES (?, ?)", (event["data"]["matchId"], user))
    return "processed"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
            return self.answer(413, {"error": "a body has a length, and up to 512 KiB"})
        body = self.rfile.read(int(length))
        if not is_signed(self.headers, body, self.server.secret):
            return self.answer(401, {"error": "the signature is not valid"})
        with contextlib.closing(sqlite3.connect(self.server.path, timeout=60)) as database, database:
            result = process(database, json.loads(body))
        return self.answer(200, {"result": result})

    def answer(self, status, value):
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_request(self, code="-", size="-"):
        pass


def main():
    parser = argparse.ArgumentParser(description="a consumer of Yoked's webhooks")
    parser.add_argument("--listen", default="127.0.0.1:3002", metavar="HOST:PORT")
    parser.add_argument("--secret-file", required=True, metavar="FILE")
    parser.add_argument("--data", default=".", metavar="DIR", help="where its database is kept")
    options = parser.parse_args()
    host, _, port = options.listen.rpartition(":")
    with http.server.ThreadingHTTPServer((host, int(port)), Handler) as server:
        with open(options.secret_file, encoding="ascii") as file:
            server.secret = file.read().strip()
        server.path = os.path.join(options.data, "consumer.db")
        with contextlib.closing(sqlite3.connect(server.path)) as database:
            database.executescript(SCHEMA)
        print(f"the consumer listens on http://{host}:{server.server_address[1]}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    main()
