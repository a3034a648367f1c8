#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The refund service on PostgreSQL, with every effect exactly once: what a request does and Hapax's mark of it are one
transaction (docs/guide/transactional.md). Needs Python 3 and psycopg2 (Debian: python3-psycopg2).

    python3 examples/refunds/postgres/app.py [--listen 127.0.0.1:3000] [--database postgres:///refunds] [--create]

--create makes its tables where they are not there yet. A request without Hapax-Operation did not come through the
gateway, or has no key: it is done, and nothing is remembered of it."""
import argparse
import contextlib
import http.server
import json
import os
import re
import sys

import psycopg2

HERE = os.path.dirname(os.path.abspath(__file__))
BODY_BYTES_MAX = 64 * 1024
AMOUNT_MAX = 2**31 - 1


class Refused(Exception):
    """The request can't be done, and couldn't be if it came again."""

    def __init__(self, status, code, message):
        super().__init__(message)
        self.status, self.body = status, {"error": code, "message": message}


def amount_of(asked):
    amount = asked.get("amount")
    if not isinstance(amount, int) or isinstance(amount, bool) or not 0 < amount <= AMOUNT_MAX:
        raise Refused(422, "amount_invalid", "An amount is a whole number of cents above 0.")
    return amount


def enter(cursor, debit, credit, amount, reason):
    cursor.execute("INSERT INTO entries (account, amount, reason) VALUES (%s, %s, %s), (%s, %s, %s)",
                   (debit, amount, reason, credit, -amount, reason))


def charge(cursor, asked):
    amount, currency = amount_of(asked), asked.get("currency", "USD")
    if not isinstance(currency, str) or not re.fullmatch("[A-Z]{3}", currency):
        raise Refused(422, "currency_invalid", "A currency has three capital letters.")
    cursor.execute("INSERT INTO charges (amount, currency) VALUES (%s, %s) RETURNING number", (amount, currency))
    number = cursor.fetchone()[0]
    enter(cursor, "customer", "merchant", amount, f"charge ch_{number}")
    return f"/charges/ch_{number}", {"id": f"ch_{number}", "amount": amount, "currency": currency}


def refund(cursor, asked):
    named = re.fullmatch(r"ch_([1-9]\d{0,8})", str(asked.get("charge_id")))
    amount = amount_of(asked)
    cursor.execute("SELECT amount - refunded FROM charges WHERE number = %s FOR UPDATE", (named and named[1],))
    found = cursor.fetchone()
    if not found:
        raise Refused(404, "charge_not_found", "There is no such charge.")
    if amount > found[0]:
        raise Refused(422, "amount_too_large", f"Only {found[0]} of this charge are left.")
    cursor.execute("UPDATE charges SET refunded = refunded + %s WHERE number = %s", (amount, named[1]))
    cursor.execute("INSERT INTO refunds (charge, amount) VALUES (%s, %s) RETURNING number", (named[1], amount))
    number = cursor.fetchone()[0]
    enter(cursor, "merchant", "customer", amount, f"refund rf_{number}")
    return f"/refunds/rf_{number}", {"id": f"rf_{number}", "charge_id": f"ch_{named[1]}", "amount": amount}


def ledger(cursor):
    cursor.execute("SELECT account, amount, reason FROM entries ORDER BY number")
    entries = [dict(zip(("account", "amount", "reason"), row)) for row in cursor]
    return {"entries": entries, "balanced": sum(entry["amount"] for entry in entries) == 0}


def refunds(cursor):
    cursor.execute("SELECT number, charge, amount FROM refunds ORDER BY number")
    return {"data": [{"id": f"rf_{row[0]}", "charge_id": f"ch_{row[1]}", "amount": row[2]} for row in cursor]}


EFFECTS = {"/charges": charge, "/refunds": refund}
VIEWS = {"/ledger": ledger, "/refunds": refunds}


def do_once(connection, operation, effect, asked):
    """The effect and its mark, in one transaction: the whole of it. Returns the answer."""
    with connection, connection.cursor() as cursor:
        try:
            cursor.execute("SAVEPOINT before")
            location, body = effect(cursor, asked)
            status, headers, verb = 201, {"Content-Type": "application/json", "Location": location}, "complete"
        except Refused as refused:  # what it did is taken back, and that it was refused is what is remembered
            cursor.execute("ROLLBACK TO before")
            status, headers, verb = refused.status, {"Content-Type": "application/json"}, "fail"
            body = refused.body
        text = json.dumps(body) + "\n"
        if operation:
            cursor.execute(f"SELECT hapax.{verb}(%s, %s, %s, %s)", (operation, status, json.dumps(headers), text))
    return status, headers, text


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    url = None
    books = None

    def connected(self):
        """This client connection's own connection to the database."""
        if self.books is None or self.books.closed:
            self.books = psycopg2.connect(self.url)
        return self.books

    def finish(self):
        if self.books:
            self.books.close()
        super().finish()

    def send(self, status, headers, text):
        body = text.encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_json(self, status, value):
        self.send(status, {"Content-Type": "application/json"}, json.dumps(value) + "\n")

    def send_unavailable(self, error):
        """The transaction has failed, or nobody knows: the gateway looks for the mark, and decides."""
        with contextlib.suppress(psycopg2.Error):
            if self.books:
                self.books.close()
        self.log_error("%s", str(error).strip().replace("\n", " "))
        self.send_json(503, {"error": "unavailable", "message": "The transaction was not done, or may have been."})

    def asked(self):
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"\d{1,9}", length) or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
            raise Refused(413, "body_too_large", f"A request has up to {BODY_BYTES_MAX} bytes.")
        try:
            value = json.loads(self.rfile.read(int(length)))
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise Refused(400, "request_malformed", "The body is a JSON object.")
        return value

    def do_POST(self):
        try:
            asked = self.asked()
            if self.path not in EFFECTS:
                raise Refused(404, "not_found", "POST /charges and POST /refunds are here.")
            self.send(*do_once(self.connected(), self.headers.get("Hapax-Operation"), EFFECTS[self.path], asked))
        except Refused as refused:
            self.send_json(refused.status, refused.body)
        except psycopg2.Error as error:
            self.send_unavailable(error)

    def discard_body(self):
        """What is left of a body that nobody wants would be taken for the next request of this connection."""
        length = self.headers.get("Content-Length", "0")
        if self.headers.get("Transfer-Encoding") or not length.isdigit() or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
        else:
            self.rfile.read(int(length))

    def do_GET(self):
        self.discard_body()
        if self.path not in VIEWS:
            self.send_json(404, {"error": "not_found", "message": "GET /refunds and GET /ledger are here."})
            return
        try:
            with self.connected() as connection, connection.cursor() as cursor:
                self.send_json(200, VIEWS[self.path](cursor))
        except psycopg2.Error as error:
            self.send_unavailable(error)

    def log_request(self, code="-", size="-"):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


def create(url):
    with contextlib.closing(psycopg2.connect(url)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('charges') IS NULL")
        if cursor.fetchone()[0]:
            with open(os.path.join(HERE, "schema.sql"), encoding="utf-8") as schema:
                cursor.execute(schema.read())


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("--listen", default="127.0.0.1:3000")
    options.add_argument("--database", default="postgres:///refunds")
    options.add_argument("--create", action="store_true")
    given = options.parse_args()
    Handler.url = given.database
    if given.create:
        create(given.database)
    host, _, port = given.listen.rpartition(":")
    server = Server((host, int(port)), Handler)
    print(f"refunds listens on http://{host}:{server.server_address[1]}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
