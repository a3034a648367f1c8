#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The ledger service: the consumer of the saga, behind the inbox of its own gateway. Needs nothing but Python 3.

    python3 examples/saga/ledger.py [--listen 127.0.0.1:3001] [--data DIR]

Hapax calls it at least once for each event: again, if it dies between its commit and its response. So the inbox row and
the entries are one transaction, and an event whose row is there changes nothing. No order is assumed: what a refund is
now is decided by the version that an event carries, and entries are made by `refund.succeeded` alone."""
import contextlib
import hashlib
import json

import service

SCHEMA = """
CREATE TABLE IF NOT EXISTS inbox_events (event_id TEXT PRIMARY KEY, source TEXT NOT NULL, payload_hash TEXT NOT NULL,
    received_at TEXT NOT NULL, processed_at TEXT, result TEXT);
CREATE TABLE IF NOT EXISTS refunds (refund TEXT PRIMARY KEY, state TEXT NOT NULL, version INT NOT NULL);
CREATE TABLE IF NOT EXISTS entries (refund TEXT NOT NULL, account TEXT NOT NULL, amount INT NOT NULL);
CREATE TABLE IF NOT EXISTS calls (event_id TEXT NOT NULL);
"""


def handle_event(database, headers, _query, event):
    data = event["data"]
    database.execute("INSERT INTO calls VALUES (?)", (event["eventId"],))  # only to show how often Hapax has called
    payload = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    added = database.execute("INSERT INTO inbox_events VALUES (?, 'refunds', ?, ?, datetime(), 'ok')"
                             " ON CONFLICT DO NOTHING", (event["eventId"], payload, headers["Hapax-Received-At"]))
    if added.rowcount == 0:
        return 200, {"result": "replayed"}
    database.execute("INSERT INTO refunds VALUES (:refund, :state, :version) ON CONFLICT (refund) DO UPDATE"
                     " SET state = excluded.state, version = excluded.version WHERE excluded.version > version", data)
    if event["eventType"] == "refund.succeeded":
        database.execute("INSERT INTO entries VALUES (:refund, 'merchant', -:amount), (:refund, :charge, :amount)",
                         data)
    return 200, {"result": "ok"}


def show_ledger(database, _headers, _query, _body):
    entries = [tuple(row) for row in database.execute("SELECT * FROM entries ORDER BY refund, account")]
    refunds = [tuple(row) for row in database.execute("SELECT * FROM refunds ORDER BY refund")]
    return 200, {"entries": entries, "refunds": refunds, "balanced": sum(entry[2] for entry in entries) == 0}


def main():
    options = service.arguments("ledger", 3001).parse_args()
    server = service.start("ledger", options, SCHEMA, {"POST /events": handle_event, "GET /ledger": show_ledger})
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
