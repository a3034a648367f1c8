#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Yoked's offers on PostgreSQL: the accept that makes a match also publishes `match.created`, in the same transaction.
Needs Python 3 and psycopg2 (Debian: python3-psycopg2).

    python3 examples/yoked/matches/app.py [--listen 127.0.0.1:3000] [--database postgres:///yoked] [--create]

--create makes its tables where they are not there yet."""
import argparse
import contextlib
import http.server
import json
import os
import re
import sys
import uuid

import psycopg2

HERE = os.path.dirname(os.path.abspath(__file__))
BODY_BYTES_MAX = 64 * 1024
RESULT_OF = {"accept": "accepted", "pass": "passed", "not_now": "not_now"}


def decide(cursor, offer, action):
    """Decides an offer; two that are accepted become a match. Returns what the client is told."""
    cursor.execute("SELECT pair_id FROM match_offers WHERE id = %s", (offer,))
    found = cursor.fetchone()
    if not found or action not in RESULT_OF:
        return 404 if not found else 422, {"error": "no such offer" if not found else "no such action"}
    cursor.execute("SELECT id FROM match_offers WHERE pair_id = %s ORDER BY id FOR UPDATE", found)  # both, in one order
    cursor.execute("UPDATE match_offers SET status = %s, accepted_at = now() WHERE id = %s AND status = 'offered'",
                   (RESULT_OF[action], offer))
    cursor.execute("UPDATE match_offers SET status = 'matched' WHERE pair_id = %s AND 2 ="
                   " (SELECT count(*) FROM match_offers WHERE pair_id = %s AND status = 'accepted')"
                   " RETURNING user_id", found * 2)
    users = sorted(row[0] for row in cursor)
    if users:
        create_match(cursor, found[0], users)
    cursor.execute("SELECT o.status, m.id FROM match_offers o LEFT JOIN matches m USING (pair_id) WHERE o.id = %s",
                   (offer,))
    status, match = cursor.fetchone()
    return 200, {"offerId": offer, "status": status, **({"matchId": match} if match else {})}


def create_match(cursor, pair, users):
    """The match and the event about it: both are committed, or neither."""
    match = f"mat_{uuid.uuid4().hex[:12]}"
    cursor.execute("INSERT INTO matches (id, pair_id, users) VALUES (%s, %s, %s)", (match, pair, users))
    cursor.execute("SELECT hapax.publish('match.created', %s, id => %s)",
                   (json.dumps({"matchId": match, "users": users}), f"{match}-created"))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    url = None

    def do_POST(self):
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
            return self.answer(413, json.dumps({"error": "body_too_large"}))
        body = self.rfile.read(int(length))
        found = re.fullmatch(r"/matches/offers/([\w-]+)/action", self.path)
        try:
            action = json.loads(body)["action"]
        except (ValueError, KeyError, TypeError):
            found = None
        if not found:
            return self.answer(400, json.dumps({"error": "POST /matches/offers/ID/action {\"action\": \"accept\"}"}))
        try:
            return self.answer(*self.do_once(found[1], action))
        except psycopg2.Error as error:  # it was not done, or nobody knows: the gateway looks for its mark
            self.log_error("%s", str(error).strip().replace("\n", " "))
            return self.answer(503, json.dumps({"error": "unavailable"}))

    def do_once(self, offer, action):
        """The decision, its event and Hapax's mark of the request, in one transaction."""
        fault = self.headers.get("Demo-Fault")
        with contextlib.closing(psycopg2.connect(self.url)) as connection:
            with connection, connection.cursor() as cursor:
                status, value = decide(cursor, offer, action)
                text = json.dumps(value) + "\n"
                operation = self.headers.get("Hapax-Operation")
                if operation:
                    verb = "complete" if status == 200 else "fail"
                    cursor.execute(f"SELECT hapax.{verb}(%s, %s, %s, %s)",
                                   (operation, status, json.dumps({"Content-Type": "application/json"}), text))
                if fault == "fail-before-commit":
                    raise psycopg2.OperationalError("the request asked for it")
            if fault == "die-after-commit":
                os._exit(1)
        return status, text

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_request(self, code="-", size="-"):
        pass


def create(url):
    with contextlib.closing(psycopg2.connect(url)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('match_offers') IS NULL")
        if cursor.fetchone()[0]:
            with open(os.path.join(HERE, "schema.sql"), encoding="utf-8") as schema:
                cursor.execute(schema.read())


def main():
    parser = argparse.ArgumentParser(description="Yoked's offers and matches on PostgreSQL")
    parser.add_argument("--listen", default="127.0.0.1:3000", metavar="HOST:PORT")
    parser.add_argument("--database", default="postgres:///yoked", metavar="URL")
    parser.add_argument("--create", action="store_true", help="make the tables, if they are not there")
    options = parser.parse_args()
    Handler.url = options.database
    if options.create:
        create(options.database)
    host, _, port = options.listen.rpartition(":")
    server = http.server.ThreadingHTTPServer((host, int(port)), Handler)
    print(f"matches listens on http://{host}:{server.server_address[1]}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
