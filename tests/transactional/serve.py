# SPDX-License-Identifier: Apache-2.0
"""The application around the guide's lines, for tests/scenario/examples/test_transactional_guide.py:

    python3 serve.py DESCRIPTOR DATABASE-URL FILE     FILE defines refund(connection, operation, charge, amount)

DESCRIPTOR is a socket that listens already.
"""
import contextlib
import http.server
import json
import os
import signal
import socket
import sys

import psycopg2

DESCRIPTOR, URL, FILE = sys.argv[1:]
GUIDE = {}
with open(FILE, encoding="utf-8") as file:
    exec(compile(file.read(), FILE, "exec"), GUIDE)  # the guide's own lines


class Application(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            with contextlib.closing(psycopg2.connect(URL)) as connection:
                status, headers, body = GUIDE["refund"](connection, self.headers["Hapax-Operation"], asked["charge"],
                                                        asked["amount"])
        except psycopg2.Error as error:  # no connection
            status, headers, body = 503, {}, str(error)
        if self.headers["Die"] == "after-commit":
            os.kill(os.getpid(), signal.SIGKILL)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": len(body.encode())}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format, *args):
        pass


http.server.ThreadingHTTPServer.daemon_threads = True
SERVER = http.server.ThreadingHTTPServer(None, Application, bind_and_activate=False)
SERVER.socket.close()
SERVER.socket = socket.socket(fileno=int(DESCRIPTOR))
print("listening", flush=True)
SERVER.serve_forever()
