#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A shop that Stripe tells of paid invoices. It stands behind Hapax's inbox, which has verified and stored each event
before it comes here. Needs nothing but Python 3.

    python3 examples/webhooks/app.py [--listen 127.0.0.1:3000] [--data examples/webhooks/data]

An event may be delivered again after a crash or a time-out, always with the same Idempotency-Key. The key is written in
the transaction of the effect, so the second delivery finds it and does nothing."""
import argparse
import contextlib
import http.server
import json
import os
import sqlite3

SCHEMA = """
CREATE TABLE IF NOT EXISTS processed (idempotency_key TEXT PRIMARY KEY, event_id TEXT NOT NULL, at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS payments (invoice TEXT NOT NULL, customer TEXT NOT NULL, amount INT NOT NULL);
CREATE TABLE IF NOT EXISTS calls (event_id TEXT NOT NULL);
"""


def process_stripe_webhook(database, event):
    """The effect: one row for a paid invoice. Other events need none."""
    if event["type"] == "invoice.paid":
        invoice = event["data"]["object"]
        database.execute("INSERT INTO payments VALUES (:id, :customer, :amount_paid)", invoice)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with contextlib.closing(sqlite3.connect(self.server.path, timeout=60)) as database:
            with database:  # how often it was called is kept, whatever becomes of the call
                database.execute("INSERT INTO calls VALUES (?)", (event["id"],))
                calls = database.execute("SELECT count(*) FROM calls WHERE event_id = ?", (event["id"],)).fetchone()[0]
            if event.get("demo_fault") == "fail-once" and calls == 1:
                return self.answer(500, {"error": "the event asked for it"})
            with database:
                added = database.execute("INSERT INTO processed VALUES (?, ?, datetime()) ON CONFLICT DO NOTHING",
                                         (self.headers["Idempotency-Key"], event["id"]))
                if added.rowcount == 1:
                    process_stripe_webhook(database, event)
            if event.get("demo_fault") == "drop-once" and calls == 1:
                self.close_connection = True  # it is done, and nobody is told
                return None
        return self.answer(200, {"processed": True})

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
    parser = argparse.ArgumentParser(description="a shop behind Hapax's inbox")
    parser.add_argument("--listen", default="127.0.0.1:3000", metavar="HOST:PORT")
    parser.add_argument("--data", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "data"))
    options = parser.parse_args()
    os.makedirs(options.data, mode=0o700, exist_ok=True)
    host, _, port = options.listen.rpartition(":")
    with http.server.ThreadingHTTPServer((host, int(port)), Handler) as server:
        server.path = os.path.join(options.data, "shop.db")
        with contextlib.closing(sqlite3.connect(server.path)) as database:
            database.executescript(SCHEMA)
        print(f"the shop listens on http://{host}:{server.server_address[1]}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    main()
