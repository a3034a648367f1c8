# SPDX-License-Identifier: Apache-2.0
"""The Yoked example for the stories: its application as a process, the gateway with the example's own configuration
before it, and its people. Effects are rows in the application's database, counted from outside.

With HAPAX_BYPASS=1 in the environment there is no gateway: the same stories talk to the application itself, and those
that the gateway is there for must fail."""
import collections
import contextlib
import itertools
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import threading

from .gateway import ROOT, Gateway, environment, hours_ahead
from .waiting import HANG_S
from .wire import wait_all_read

EXAMPLE = ROOT / "examples" / "yoked"
CONFIG = EXAMPLE / "hapax.yaml"
BYPASSED = os.environ.get("HAPAX_BYPASS") == "1"
DUPLICATED = "an effect that happened too often or not at all"  # what a bypassed story has to fail with

Person = collections.namedtuple("Person", "id phone auth refresh_token")


class Effects(AssertionError):
    """Rows are not what they should be."""


class App:
    """examples/yoked/app.py, with a database of its own."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.database = self.directory / "yoked.db"
        self.output = []
        command = [sys.executable, str(EXAMPLE / "app.py"), "--listen", "127.0.0.1:0", "--data", str(directory),
                   "--token-lifetime", "30d"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, env=environment({"PYTHONDONTWRITEBYTECODE": "1"}))
        first = self.process.stdout.readline().decode()
        found = re.fullmatch(r"yoked listens on (http://([\d.]+):(\d+))\n", first)
        assert found, f"the application said: {first}{self.process.stdout.read().decode()}"
        self.url = found[1]
        self.address = found[2], int(found[3])
        threading.Thread(target=lambda: self.output.extend(self.process.stdout), daemon=True).start()

    def _connect(self):
        return contextlib.closing(sqlite3.connect(self.database, timeout=HANG_S, isolation_level=None))

    def ask(self, sql, *values):
        with self._connect() as connection:
            return connection.execute(sql, values).fetchall()

    @contextlib.contextmanager
    def held(self):
        """Requests arrive at the application, and none of them gets any further meanwhile."""
        with self._connect() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("ROLLBACK")

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=HANG_S)


class Direct(Gateway):
    """The application itself in the gateway's place."""

    def __init__(self, app, directory):
        super().__init__(app.url, directory)
        self.address = app.address

    def start(self, env=None, **popen):
        return self

    def restart(self, how="kill", env=None):
        return self

    def wait_inside(self, pendings):
        wait_all_read(pendings)
        return pendings


def derived(app, *changes):
    """The example's configuration for this application; each change is (old text, new text)."""
    text = CONFIG.read_text(encoding="utf-8")
    for old, new in (("data/jwt.secret", str(app.directory / "jwt.secret")),
                     ("defaults:\n", "defaults:\n  wait: 60s\n"),  # a slow machine is not what these are about
                     *changes):
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {CONFIG}"
        text = text.replace(old, new)
    return text


def minutes_ahead(minutes):
    """An environment in which the wall clock runs this far ahead."""
    return {**hours_ahead(0), "FAKETIME": f"+{minutes}m"}


class Yoked:
    """The application, the gateway or nothing in front of it, and the effects that it had."""

    def __init__(self, directory, *changes):
        (directory / "app").mkdir()
        (directory / "gateway").mkdir()
        self.app = App(directory / "app")
        self.direct = Direct(self.app, directory / "gateway")
        self.front = self.direct if BYPASSED else Gateway(self.app, directory / "gateway", workers=2,
                                                          config=derived(self.app, *changes))
        try:
            self.front.start()
        except BaseException:
            self.app.close()
            raise
        self._phones = itertools.count(15550100001)

    def close(self):
        try:
            self.front.finish()
        finally:
            self.app.close()

    # People

    def sign_in(self, phone=None):
        """Somebody who signed in, past the gateway: signing in is what other stories are about."""
        phone = phone or f"+{next(self._phones)}"
        request = self.direct.post("/auth/otp/send", json={"phone": phone}).json()["requestId"]
        answer = self.direct.post("/auth/otp/verify", json={"requestId": request, "code": self.code(request)}).json()
        return Person(answer["userId"], phone, f"Bearer {answer['accessToken']}", answer["refreshToken"])

    def code(self, request):
        """What the text message said."""
        return self.app.ask("SELECT code FROM otp_requests WHERE id = ?", request)[0][0]

    def offer(self, whom, counterpart):
        return self.app.ask("SELECT id FROM match_offers WHERE user_id = ? AND counterpart_id = ?", whom.id,
                            counterpart.id)[0][0]

    def match(self, one, other):
        """A match of two who have accepted each other."""
        for whom, counterpart in ((one, other), (other, one)):
            answer = self.direct.post(f"/matches/offers/{self.offer(whom, counterpart)}/action", auth=whom.auth,
                                      json={"action": "accept"})
        return answer.json()["matchId"]

    # Requests

    def post(self, target, by=None, **what):
        return self.front.post(target, auth=by and by.auth, **what)

    def ten_together(self, target, by=None, **what):
        """Ten of one request, all of them under way before the first one gets anywhere."""
        with self.app.held():
            return self._all_sent([self.front.send("POST", target, auth=by and by.auth, **what) for _ in range(10)])

    def _all_sent(self, pendings):
        self.front.wait_inside(pendings)
        return pendings

    def later(self, minutes):
        """The gateway starts again, and the clock is so much further on."""
        self.front.restart("drain", env=minutes_ahead(minutes))

    # Effects

    def count(self, table, **where):
        condition = " AND ".join(f"{column} IS ?" for column in where) or "true"
        return self.app.ask(f"SELECT count(*) FROM {table} WHERE {condition}", *where.values())[0][0]

    def has(self, wanted, table, **where):
        """Asserts how many rows there are: how often it happened."""
        found = self.count(table, **where)
        if found != wanted:
            raise Effects(f"{DUPLICATED}: {found} rows in {table} instead of {wanted} {where or ''}")


def photo_form(content, boundary="frontier", name="me.jpg"):
    """(headers, body) of an upload."""
    body = (f'--{boundary}\r\nContent-Disposition: form-data; name="photo"; filename="{name}"\r\n'
            "Content-Type: image/jpeg\r\n\r\n").encode() + content + f"\r\n--{boundary}--\r\n".encode()
    return {"Content-Type": f"multipart/form-data; boundary={boundary}"}, body


def on_stage(request, directory, *changes):
    """The body of a fixture: starts everything, prints what happened when a story fails, and ends everything."""
    yoked = Yoked(directory, *changes)
    request.node.gateways = [yoked.front]
    try:
        yield yoked
    finally:
        yoked.close()
