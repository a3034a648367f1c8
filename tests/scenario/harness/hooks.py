# SPDX-License-Identifier: Apache-2.0
"""Events of a gateway: publishing and endpoints by its API, webhooks to its inbox, signed as their senders do."""
import base64
import hashlib
import hmac
import json
import re
import time

from .waiting import eventually
from .wire import Connection

KEY = bytes(range(32))


def signature(message):
    return hmac.new(KEY, message, hashlib.sha256)


class Hooks:
    SECRETS = {"GITHUB_SECRET": KEY.hex(), "STANDARD_SECRET": "whsec_" + base64.b64encode(KEY).decode()}

    def __init__(self, api, upstream):
        self.api, self.upstream, self.gateway = api, upstream, api.gateway
        self.token = api.token("publish", "operate", "view", name="shop")
        self.find_inbox()

    def find_inbox(self):
        address = self.gateway.log.wait_event("inbox_listening")["address"]
        self.inbox = ("127.0.0.1", int(address.rpartition(":")[2]))

    def restart(self, how="kill"):
        self.gateway.restart(how)
        self.api = type(self.api)(self.gateway)
        self.find_inbox()

    def call(self, method, target, body=None, token=None, **headers):
        fields = [(name.replace("_", "-"), value) for name, value in headers.items()]
        return self.api.call(method, target, token or self.token, body=body, headers=fields)

    def endpoint(self, path, token=None, **members):
        made = self.call("POST", "/v1/endpoints", {"url": self.upstream.url + path, **members}, token)
        assert made.status == 201, made
        return made.json()

    def publish(self, kind="refund.created", data=None, token=None, key=None, **members):
        headers = {"Idempotency_Key": key} if key else {}
        return self.call("POST", "/v1/events", {"type": kind, "data": data or {}, **members}, token, **headers)

    def delivery(self, endpoint, event):
        return self.call("GET", f"/v1/deliveries/{endpoint}/{event}").json()

    def wait_state(self, endpoint, event, state):
        eventually(lambda: self.delivery(endpoint, event).get("state") == state, f"{event} is {state}")
        return self.delivery(endpoint, event)

    def send(self, source, body, headers):
        with Connection(self.inbox) as connection:
            return connection.request("POST", f"/inbox/{source}", headers, body).response

    def github(self, event, body=b'{"a": 1}', secret=KEY.hex()):
        mac = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        return self.send("github", body, [("X-GitHub-Delivery", event), ("X-GitHub-Event", "push"),
                                          ("X-Hub-Signature-256", f"sha256={mac}")])

    def standard(self, source, event, body=b'{"a": 1}', at=None):
        at = int(at or time.time())
        mac = base64.b64encode(signature(f"{event}.{at}.".encode() + body).digest()).decode()
        return self.send(source, body, [("webhook-id", event), ("webhook-timestamp", str(at)),
                                        ("webhook-signature", f"v1,{mac}"), ("Content-Type", "application/json")])


class Following:
    """A client of server-sent events. `last` is the position of the last event that it has seen."""

    def __init__(self, api, target, token, last=None):
        self.connection = api.connect()
        headers = [("Accept", "text/event-stream")] + ([("Last-Event-ID", str(last))] if last is not None else [])
        api.send(self.connection, "GET", target, token, headers=headers)
        self.status, _, self.fields = self.connection.receive_head()
        self.pieces = self.connection.reader.body_pieces(self.fields, self.status)
        self.last, self.text = last, ""

    def block(self):
        """The lines of the next event or comment; None at the end of the response."""
        while "\n\n" not in self.text:
            piece = next(self.pieces, None)
            if piece is None:
                return None
            self.text += piece.decode()
        block, _, self.text = self.text.partition("\n\n")
        return block.split("\n")

    def next(self):
        """The next event; None at the end of the response."""
        for lines in iter(self.block, None):
            fields = dict(line.split(": ", 1) for line in lines if not line.startswith(":"))
            if fields:
                event = json.loads(fields["data"])
                assert (fields["id"], fields["event"]) == (str(event["position"]), event["type"])
                self.last = event["position"]
                return event
        return None

    def take(self, count):
        return [self.next() for _ in range(count)]


def is_signed(request, secret):
    """Whether a delivery is signed by Standard Webhooks, with this secret, a moment ago."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    at, event = request.header("webhook-timestamp"), request.header("webhook-id")
    signed = f"{event}.{at}.".encode() + request.body
    mac = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return f"v1,{mac}" in request.header("webhook-signature").split() and re.fullmatch(r"\d{10}", at) is not None


def envelope(request):
    return json.loads(request.body)
