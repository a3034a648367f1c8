# SPDX-License-Identifier: Apache-2.0
"""Access tokens: JSON Web Tokens (RFC 7519) with HS256, by a secret that is made at the first start. The gateway reads
the same secret, so that a retry with a refreshed token is known to come from the same person."""
import base64
import hashlib
import hmac
import json
import os
import secrets
import time

ISSUER = "yoked"


class Invalid(Exception):
    """Not a token of ours, or no longer."""


def secret_of(directory):
    """The secret's bytes, from a file that only this user can read."""
    path = os.path.join(directory, "jwt.secret")
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(48))
    except FileExistsError:
        pass
    with open(path, "rb") as file:
        return file.read()


def _encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decoded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _signature(secret, signed):
    return hmac.new(secret, signed.encode("ascii"), hashlib.sha256).digest()


def issue(secret, user, session, lifetime_s):
    """A token that no other call gets."""
    now = int(time.time())
    claims = {"iss": ISSUER, "sub": user, "sid": session, "jti": secrets.token_hex(8), "iat": now,
              "exp": now + lifetime_s}
    signed = ".".join(_encoded(json.dumps(part, separators=(",", ":")).encode())
                      for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    return f"{signed}.{_encoded(_signature(secret, signed))}"


def claims_of(secret, token):
    """What a valid token says; Invalid for any other."""
    signed, _, signature = token.rpartition(".")
    try:
        if not hmac.compare_digest(_signature(secret, signed), _decoded(signature)):
            raise Invalid
        header, payload = (json.loads(_decoded(part)) for part in signed.split("."))
    except ValueError as error:  # what isn't base64, JSON, ASCII or of three parts
        raise Invalid from error
    if header.get("alg") != "HS256" or payload.get("iss") != ISSUER or payload.get("exp", 0) < time.time():
        raise Invalid
    return payload
