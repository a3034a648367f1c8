# SPDX-License-Identifier: Apache-2.0
"""The API of a gateway: requests with tokens on its listener, and the admin socket, which makes the tokens."""
import socket

from .gateway import bearer
from .wire import Connection, pairs

SCOPES = ("publish", "consume", "operate", "view")


class Api:
    def __init__(self, gateway):
        self.gateway = gateway
        self.address = gateway.log.wait_event("api_listening")["address"]

    def connect(self):
        if self.address.startswith("unix:"):
            return Connection(self.address.removeprefix("unix:"), socket.AF_UNIX)
        host, _, port = self.address.rpartition(":")
        family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        return Connection((host.strip("[]"), int(port)), family)

    def send(self, connection, method, target, token=None, body=None, headers=()):
        """`headers` may say another Host than the listener's own address."""
        fields = pairs(headers)
        if "host" not in {name.lower() for name, _ in fields}:
            fields.insert(0, ("Host", "localhost" if self.address.startswith("unix:") else self.address))
        fields += [("Authorization", bearer(token))] if token is not None else []
        return connection.request(method, target, fields, body)

    def call(self, method, target, token=None, **what):
        with self.connect() as connection:
            return self.send(connection, method, target, token, **what).response

    def operator(self, method, target, body=None):
        """The same on the admin socket, where no token is needed."""
        with Connection(str(self.gateway.store / "admin.sock"), socket.AF_UNIX) as connection:
            return connection.request(method, target, body=body).response

    def create(self, name, *scopes, tenant=None):
        """A new token, with all that is shown of it."""
        made = self.operator("POST", "/v1/tokens", {"name": name, "scopes": scopes, "tenant": tenant})
        assert made.status == 200, made
        return made.json()

    def token(self, *scopes, tenant=None, name="tester"):
        return self.create(name, *scopes, tenant=tenant)["token"]
