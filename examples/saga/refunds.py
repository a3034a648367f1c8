#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The refund service: the producer of the saga. Needs nothing but Python 3.

    python3 examples/saga/refunds.py [--listen 127.0.0.1:3000] [--data DIR] [--api 127.0.0.1:8081] [--token-file FILE]

A refund and the events about it are one transaction ("domain change + outbox row"). The publisher below passes the rows
on to Hapax until Hapax has them: they have ids from the start, so one that is published twice is still one event. It
does not deduplicate requests: called twice, it refunds twice."""
import contextlib
import http.client
import json
import os
import sys
import threading
import time
import uuid

import service

PAUSE_S = 0.2  # between attempts to publish while Hapax can't be reached
SCHEMA = """
CREATE TABLE IF NOT EXISTS refunds (id TEXT PRIMARY KEY, charge TEXT, amount INT, idempotency_key TEXT, answer TEXT);
CREATE INDEX IF NOT EXISTS refunds_by_key ON refunds (idempotency_key);
CREATE TABLE IF NOT EXISTS outbox (number INTEGER PRIMARY KEY, event_id TEXT, type TEXT, data TEXT, published_at TEXT);
CREATE INDEX IF NOT EXISTS outbox_to_do ON outbox (number) WHERE published_at IS NULL;
"""


def make_refund(database, headers, _query, body):
    charge, amount = (body.get("charge_id"), body.get("amount")) if isinstance(body, dict) else (None, None)
    if not isinstance(charge, str) or not isinstance(amount, int) or amount <= 0:
        raise service.Refused(422, "charge_id_and_amount_wanted")
    refund = f"rf_{uuid.uuid4().hex[:12]}"
    answer = {"id": refund, "charge_id": charge, "amount": amount}
    database.execute("INSERT INTO refunds VALUES (?, ?, ?, ?, ?)",
                     (refund, charge, amount, headers.get("Idempotency-Key"), json.dumps(answer)))
    # Consumers get these in any order, so each says which version of the refund it describes.
    for version, state in enumerate(("created", "succeeded"), start=1):
        data = {"refund": refund, "charge": charge, "amount": amount, "state": state, "version": version}
        database.execute("INSERT INTO outbox (event_id, type, data) VALUES (?, ?, ?)",
                         (f"{refund}-{version}", f"refund.{state}", json.dumps(data)))
    return 201, answer


def find_refunds(database, _headers, query, _body):
    """What the gateway asks after a response was lost."""
    found = database.execute("SELECT answer FROM refunds WHERE idempotency_key = ?", (query.get("idempotency_key"),))
    return 200, {"data": [json.loads(row["answer"]) for row in found]}


class Publisher(threading.Thread):
    """The delivery job of the outbox table: publishes each row until Hapax has said that it is stored."""

    def __init__(self, database, api, token_file):
        super().__init__(daemon=True)
        self.database, self.api, self.token_file = database, api, token_file
        self.wanted = threading.Event()

    def run(self):
        while True:
            self.wanted.clear()
            try:
                self.publish_all()
            except (OSError, http.client.HTTPException) as error:
                print(f"not published yet: {error!r}", file=sys.stderr)
                time.sleep(PAUSE_S)
                continue
            self.wanted.wait()

    def publish_all(self):
        with contextlib.closing(self.database.connect()) as database, \
                contextlib.closing(http.client.HTTPConnection(self.api, timeout=10)) as connection:
            rows = database.execute("SELECT * FROM outbox WHERE published_at IS NULL ORDER BY number").fetchall()
            for row in rows:
                self.publish(connection, row)
                service.die_if_asked()
                database.execute("UPDATE outbox SET published_at = datetime() WHERE number = ?", (row["number"],))

    def publish(self, connection, row):
        with open(self.token_file, encoding="ascii") as file:
            token = file.read().strip()
        event = {"id": row["event_id"], "type": row["type"], "data": json.loads(row["data"]), "source": "refunds"}
        connection.request("POST", "/v1/events", json.dumps(event), {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        said = answer.read()
        if answer.status // 100 != 2:
            raise http.client.HTTPException(f"{answer.status} {said[:200]!r}")


def main():
    parser = service.arguments("refund", 3000)
    parser.add_argument("--api", default="127.0.0.1:8081", metavar="HOST:PORT", help="the API of this side's gateway")
    parser.add_argument("--token-file", metavar="FILE", help="a token with the scope publish; the default is in --data")
    options = parser.parse_args()
    routes = {"POST /refunds": make_refund, "GET /refunds": find_refunds}
    server = service.start("refunds", options, SCHEMA, routes)
    publisher = Publisher(server.database, options.api, options.token_file or os.path.join(options.data, "token"))
    server.after_commit = publisher.wanted.set
    publisher.start()
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
