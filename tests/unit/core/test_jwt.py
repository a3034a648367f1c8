# SPDX-License-Identifier: Apache-2.0
"""Tokens made by PyJWT and cryptography: each algorithm is taken with its key, and every forgery refused.

JWT_DRIVER names the program that asks ours.
"""
import base64
import datetime
import hashlib
import hmac
import json
import os
import subprocess

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, padding, rsa, utils, x25519

NOW = 1_800_000_000  # seconds
CLAIMS = {"iss": "https://issuer.example", "sub": "alice", "aud": "payments", "exp": NOW + 60, "nbf": NOW - 60}
SECRET = bytes(range(64))


def b64(raw):
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def number(value, size=None):
    return b64(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


class Driver:
    def __init__(self):
        self.process = subprocess.Popen([os.environ["JWT_DRIVER"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, kind, keys, token, issuer="", audience="", leeway=0, now=NOW):
        """(error's name, payload as bytes), or ("keys", why)."""
        if isinstance(keys, (dict, list)):
            keys = json.dumps(keys)
        words = [w.encode() if isinstance(w, str) else w for w in (keys, token, issuer, audience)]
        line = " ".join([kind] + [w.hex() for w in words] + [str(int(leeway * 1000)), str(int(now * 1000))])
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().decode()
        assert answer, "the driver died"
        name, rest = answer.rstrip("\n").split(" ", 1)
        return (name, rest) if name == "keys" else (name, bytes.fromhex(rest))

    def name(self, *arguments, **named):
        return self.ask(*arguments, **named)[0]

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


@pytest.fixture(scope="module")
def driver():
    driver = Driver()
    yield driver
    driver.close()


class Key:
    """One private key, and its public half in every form that we take."""

    def __init__(self, private, jwk):
        self.private = private
        self.jwk = jwk

    @property
    def pem(self):
        return self.private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def rsa_key(bits=2048):
    private = rsa.generate_private_key(65537, bits)
    public = private.public_key().public_numbers()
    return Key(private, {"kty": "RSA", "n": number(public.n), "e": number(public.e)})


def ec_key(curve, name, size):
    private = ec.generate_private_key(curve)
    public = private.public_key().public_numbers()
    return Key(private, {"kty": "EC", "crv": name, "x": number(public.x, size), "y": number(public.y, size)})


def okp_key(kind, name):
    private = kind.generate()
    raw = private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return Key(private, {"kty": "OKP", "crv": name, "x": b64(raw)})


@pytest.fixture(scope="module")
def keys():
    return {
        "RSA": rsa_key(),
        "P-256": ec_key(ec.SECP256R1(), "P-256", 32),
        "P-384": ec_key(ec.SECP384R1(), "P-384", 48),
        "P-521": ec_key(ec.SECP521R1(), "P-521", 66),
        "Ed25519": okp_key(ed25519.Ed25519PrivateKey, "Ed25519"),
        "Ed448": okp_key(ed448.Ed448PrivateKey, "Ed448"),
        "oct": Key(SECRET, {"kty": "oct", "k": b64(SECRET)}),
    }


FITTING = {
    "RS256": "RSA", "RS384": "RSA", "RS512": "RSA", "PS256": "RSA", "PS384": "RSA", "PS512": "RSA",
    "ES256": "P-256", "ES384": "P-384", "ES512": "P-521",
    "HS256": "oct", "HS384": "oct", "HS512": "oct",
}
EVERY = sorted(FITTING.items()) + [("EdDSA", "Ed25519"), ("EdDSA", "Ed448")]
HASHES = {"256": hashes.SHA256, "384": hashes.SHA384, "512": hashes.SHA512}


def sign(key, alg, signed):
    """What a signer does who says `alg` and has `key`, whether they fit or not."""
    private, digest = key.private, HASHES.get(alg[2:])
    if isinstance(private, bytes):
        return hmac.new(private, signed, digest().name).digest()
    if isinstance(private, rsa.RSAPrivateKey):
        pad = padding.PKCS1v15() if alg[0] == "R" else padding.PSS(padding.MGF1(digest()), digest.digest_size)
        return private.sign(signed, pad, digest())
    if isinstance(private, ec.EllipticCurvePrivateKey):
        size = (private.curve.key_size + 7) // 8
        r, s = utils.decode_dss_signature(private.sign(signed, ec.ECDSA(digest())))
        return r.to_bytes(size, "big") + s.to_bytes(size, "big")
    return private.sign(signed)


def forge(key, header, payload=None, signature=None):
    """A token of any bytes: header and payload as text or object."""
    texts = [t if isinstance(t, (str, bytes)) else json.dumps(t) for t in (header,
        CLAIMS if payload is None else payload)]
    signed = ".".join(b64(t.encode() if isinstance(t, str) else t) for t in texts).encode()
    if signature is None:
        alg = header["alg"] if isinstance(header, dict) else json.loads(header)["alg"]
        signature = sign(key, alg, signed)
    return signed.decode() + "." + b64(signature)


# Every algorithm

@pytest.mark.parametrize("alg, name", EVERY)
def test_a_token_of_pyjwt_is_taken_with_its_key(driver, keys, alg, name):
    key = keys[name]
    token = jwt.encode(CLAIMS, key.private, alg, headers={"kid": "one"})
    error, payload = driver.ask("jwks", {"keys": [dict(key.jwk, kid="one")]}, token, "https://issuer.example",
                                "payments")
    assert error == "OK"
    assert json.loads(payload) == CLAIMS
    assert driver.name("jwks", key.jwk, token) == "OK", "a single JWK"
    assert driver.name("jwks", dict(key.jwk, alg=alg, use="sig", key_ops=["verify"]), token) == "OK"
    if name == "oct":
        assert driver.name("secret", SECRET, token) == "OK"
    else:
        assert driver.name("pem", key.pem, token) == "OK"


@pytest.mark.parametrize("alg, name", EVERY)
def test_a_change_anywhere_is_seen(driver, keys, alg, name):
    key = keys[name]
    token = jwt.encode({"sub": "alice", "n": 1}, key.private, alg)
    other = jwt.encode({"sub": "mallory", "n": 1}, key.private, alg)
    head, payload, signature = token.split(".")
    assert driver.name("jwks", key.jwk, token) == "OK"
    assert driver.name("jwks", key.jwk,
                       f"{head}.{other.split('.')[1]}.{signature}") == "BAD_SIGNATURE", "swapped payload"
    assert driver.name("jwks", key.jwk, f"{head}.{payload}.{other.split('.')[2]}") == "BAD_SIGNATURE"
    assert driver.name("jwks", key.jwk, f"{head}.{payload}.") == "BAD_SIGNATURE", "stripped signature"
    assert driver.name("jwks", key.jwk, f"{head}.{payload}") == "NOT_A_TOKEN"
    raw = base64.urlsafe_b64decode(signature + "==")
    for wrong in (raw[:-1], raw + b"\0", b"\0" + raw, b"\0" * len(raw), b"\xff" * len(raw), raw[::-1]):
        assert driver.name("jwks", key.jwk, f"{head}.{payload}.{b64(wrong)}") == "BAD_SIGNATURE"
    for at in (0, len(raw) // 2, len(raw) - 1):
        flipped = bytearray(raw)
        flipped[at] ^= 1
        assert driver.name("jwks", key.jwk, f"{head}.{payload}.{b64(bytes(flipped))}") == "BAD_SIGNATURE"


def test_the_salt_of_pss_is_as_long_as_its_hash(driver, keys):
    signed = forge(keys["RSA"], {"alg": "PS256"}).rsplit(".", 1)[0]
    for size, error in ((32, "OK"), (0, "BAD_SIGNATURE"), (20, "BAD_SIGNATURE"), (48, "BAD_SIGNATURE")):
        signature = keys["RSA"].private.sign(signed.encode(), padding.PSS(padding.MGF1(hashes.SHA256()), size),
                                             hashes.SHA256())
        assert driver.name("jwks", keys["RSA"].jwk, f"{signed}.{b64(signature)}") == error


@pytest.mark.parametrize("alg, name", [("Ed25519", "Ed25519"), ("Ed448", "Ed448")])
def test_edwards_curves_by_their_own_names(driver, keys, alg, name):
    token = forge(keys[name], {"alg": alg})
    assert driver.name("jwks", keys[name].jwk, token) == "OK"
    other = keys["Ed448" if name == "Ed25519" else "Ed25519"]
    assert driver.name("jwks", other.jwk, token) == "NO_KEY"


# The key decides

@pytest.mark.parametrize("alg", sorted(FITTING) + ["EdDSA"])
@pytest.mark.parametrize("name", ["RSA", "P-256", "P-384", "P-521", "Ed25519", "oct"])
def test_no_key_is_used_with_an_algorithm_that_is_not_its_own(driver, keys, alg, name):
    fits = FITTING.get(alg, "Ed25519") == name
    if name.startswith("P-") and alg.startswith("E") and not fits and alg != "EdDSA":
        token = forge(keys[name], {"alg": alg})  # well signed, with the wrong digest for the curve
    elif fits:
        token = forge(keys[name], {"alg": alg})
    else:
        token = forge(None, {"alg": alg}, signature=b"\1" * 64)
    assert driver.name("jwks", keys[name].jwk, token) == ("OK" if fits else "NO_KEY")


def test_a_public_key_is_no_secret(driver, keys):
    key = keys["RSA"]
    pem = key.pem
    signed = f'{b64(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())}.{b64(json.dumps(CLAIMS).encode())}'
    for secret in (pem, pem.strip(), key.jwk["n"].encode(), base64.urlsafe_b64decode(key.jwk["n"] + "==")):
        token = signed + "." + b64(hmac.new(secret, signed.encode(), hashlib.sha256).digest())
        assert driver.name("pem", pem, token) == "NO_KEY"
        assert driver.name("jwks", key.jwk, token) == "NO_KEY"
        assert driver.name("jwks", {"keys": [key.jwk, keys["oct"].jwk]}, token) == "BAD_SIGNATURE"
    error, why = driver.ask("secret", pem, token)
    assert error == "keys" and "PEM" in why


def test_a_jwk_that_names_its_algorithm_allows_no_other(driver, keys):
    key = keys["RSA"]
    only = dict(key.jwk, alg="PS256")
    assert driver.name("jwks", only, forge(key, {"alg": "PS256"})) == "OK"
    for other in ("RS256", "RS512", "PS384", "PS512"):
        assert driver.name("jwks", only, forge(key, {"alg": other})) == "NO_KEY"
    secret = dict(keys["oct"].jwk, alg="HS512")
    assert driver.name("jwks", secret, forge(keys["oct"], {"alg": "HS256"})) == "NO_KEY"
    assert driver.name("jwks", secret, forge(keys["oct"], {"alg": "HS512"})) == "OK"


@pytest.mark.parametrize("alg",
                         ["none", "None", "NONE", "", "RS257", "rs256", "HS1", "RS256 ", "RS256\0", "A256GCM",
                          "ES256K"])
def test_an_algorithm_that_is_none_is_none(driver, keys, alg):
    for signature in (b"", b"x" * 32, b"\0" * 256):
        token = forge(None, {"alg": alg}, signature=signature)
        for name in ("RSA", "oct", "P-256"):
            assert driver.name("jwks", keys[name].jwk, token) == "UNSUPPORTED"


@pytest.mark.parametrize("header",
                         ["{}", '{"typ":"JWT"}', '{"alg":null}', '{"alg":256}', '{"alg":["RS256"]}', '{"alg":{"a":1}}',
                                    '["RS256"]', '"RS256"', "RS256", "", "null", '{"alg":"HS256","kid":7}',
                                    '{"alg":"HS256"}}',
                                    '{"alg":"HS256",}', '\ufeff{"alg":"HS256"}', '{"alg":"HS256","alg":"HS256"}',
                                    '{"alg":"none","alg":"HS256"}', '{"alg":"HS256","\\u0061lg":"none"}',
                                    '{"alg":"HS256","x":{"y":1,"y":2}}', b'{"alg":"HS256","x":"\xff"}'])
def test_a_header_that_is_not_clean_is_no_token(driver, keys, header):
    text = header if isinstance(header, bytes) else header.encode()
    signed = f"{b64(text)}.{b64(json.dumps(CLAIMS).encode())}"
    token = signed + "." + b64(hmac.new(SECRET, signed.encode(), hashlib.sha256).digest())
    assert driver.name("secret", SECRET, token) == "NOT_A_TOKEN"


@pytest.mark.parametrize("payload",
                         ['{"sub":"a","sub":"b"}', '{"sub":"a","s\\u0075b":"b"}', '{"exp":1,"exp":9999999999}',
                                     '{"a":{"b":1,"b":1}}', "[]", '"x"', "null", "", "{", '{"sub":"a"} x',
                                     '{"sub":\'a\'}',
                                     '{"exp":NaN}', '{"exp":0x7fffffff}', '{"exp":01}', b'{"sub":"\xc0\x80"}',
                                     '{"sub":"\\ud800"}'])
def test_a_payload_that_is_not_clean_is_no_token(driver, keys, payload):
    token = forge(keys["oct"], {"alg": "HS256"}, payload)
    assert driver.name("secret", SECRET, token) == "NOT_A_TOKEN"


# What a header can't ask for

@pytest.mark.parametrize("extra",
                         [{"crit": ["exp"], "exp": 1}, {"crit": []}, {"crit": None}, {"b64": False}, {"b64": True},
                                   {"crit": ["b64"], "b64": False}, {"enc": "A256GCM"}, {"zip": "DEF"}])
def test_what_must_be_understood_is_refused(driver, keys, extra):
    assert driver.name("secret", SECRET, forge(keys["oct"], {"alg": "HS256", **extra})) == "UNSUPPORTED"


def test_keys_that_a_token_brings_are_not_looked_at(driver, keys):
    mallory = rsa_key()
    headers = [{"jwk": mallory.jwk}, {"jku": "https://evil.example/jwks.json"},
               {"x5u": "https://evil.example/cert.pem"},
               {"x5c": [b64(mallory.pem)]}, {"jwk": dict(mallory.jwk, kid="one"), "kid": "one"}, {"x5t": "AAAA"}]
    for extra in headers:
        known = {"keys": [dict(keys["RSA"].jwk, kid="one")]}
        assert driver.name("jwks", known, forge(mallory, {"alg": "RS256", **extra})) == "BAD_SIGNATURE"
        assert driver.name("jwks", known, forge(keys["RSA"], {"alg": "RS256", **extra})) == "OK"


def test_encrypted_and_json_tokens_are_none(driver, keys):
    head, payload, signature = forge(keys["oct"], {"alg": "HS256"}).split(".")
    for text in ("e30.e30.e30.e30.e30", f"{head}.{payload}.{signature}.", f"{head}.{payload}.{signature}.{signature}",
                 "", ".", "..",
                 "...", f".{payload}.{signature}", f"{head}..{signature}", "opaque",
                 json.dumps({"protected": head, "payload": payload, "signature": signature})):
        assert driver.name("secret", SECRET, text) == "NOT_A_TOKEN"


# One token, one spelling

def test_base64_has_one_spelling(driver, keys):
    token = forge(keys["oct"], {"alg": "HS256", "pad": "??>>"}, {"sub": "alice??>>~~"})
    head, payload, signature = token.split(".")
    assert driver.name("secret", SECRET, token) == "OK"
    assert len(signature) == 43
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    stray = signature[:-1] + alphabet[alphabet.index(signature[-1]) ^ 1]
    assert base64.urlsafe_b64decode(stray + "=") == base64.urlsafe_b64decode(signature + "="), "the same bytes"
    for other in (token + "=", f"{head}=.{payload}.{signature}", f"{head}.{payload}==.{signature}",
                  f"{head}.{payload}.{stray}",
                  f" {token}", f"{token} ", f"{token}\n", f"{head}\n.{payload}.{signature}",
                  f"{head}.{payload}.{signature}\0"):
        assert driver.name("secret", SECRET, other) == "NOT_A_TOKEN"
    standard = base64.b64encode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))).rstrip(b"=").decode()
    assert standard != payload
    signed = f"{head}.{standard}"
    mac = b64(hmac.new(SECRET, signed.encode(), hashlib.sha256).digest())
    assert driver.name("secret", SECRET, f"{signed}.{mac}") == "NOT_A_TOKEN"


def test_a_token_too_large_is_none(driver, keys):
    def of(size):
        claims = {"sub": "alice", "x": ""}
        missing = size - len(forge(keys["oct"], {"alg": "HS256"}, claims))
        claims["x"] = "x" * (missing * 3 // 4)
        return forge(keys["oct"], {"alg": "HS256"}, claims)
    assert len(of(16000)) > 15900 and driver.name("secret", SECRET, of(16000)) == "OK"
    assert len(of(16400)) > 16384 and driver.name("secret", SECRET, of(16400)) == "NOT_A_TOKEN"


def test_deep_and_wide_json_is_survived(driver, keys):
    for payload in ("[" * 7000, '{"a":' * 2000, '{"a":' + "[" * 100 + "]" * 100 + "}", '"' + "\\u0041" * 2000 + '"'):
        assert driver.name("secret", SECRET, forge(keys["oct"], {"alg": "HS256"}, payload)) == "NOT_A_TOKEN"
    wide = "{" + ",".join(f'"m{i}":{i}' for i in range(900)) + "}"
    assert driver.name("secret", SECRET, forge(keys["oct"], {"alg": "HS256"}, wide)) == "OK"


# kid

def test_kid_selects(driver, keys):
    first, second = rsa_key(), keys["RSA"]
    both = {"keys": [dict(first.jwk, kid="a"), dict(second.jwk, kid="b")]}
    token = lambda key, **header: forge(key, {"alg": "RS256", **header})
    assert driver.name("jwks", both, token(first, kid="a")) == "OK"
    assert driver.name("jwks", both, token(second, kid="b")) == "OK"
    assert driver.name("jwks", both, token(second, kid="a")) == "BAD_SIGNATURE", "the kid of another key"
    assert driver.name("jwks", both, token(second, kid="c")) == "NO_KEY", "a kid that no key has"
    assert driver.name("jwks", both, token(second, kid="B")) == "NO_KEY"
    assert driver.name("jwks", both, token(second, kid="")) == "NO_KEY"
    assert driver.name("jwks", both, token(second)) == "OK", "without a kid all are tried"
    assert driver.name("jwks", both, token(rsa_key())) == "BAD_SIGNATURE"


def test_keys_without_kid_are_tried_whatever_the_token_says(driver, keys):
    plain = {"keys": [rsa_key().jwk, dict(keys["RSA"].jwk, kid="a"), rsa_key().jwk]}
    other = {"keys": [rsa_key().jwk, keys["RSA"].jwk]}
    token = forge(keys["RSA"], {"alg": "RS256", "kid": "z"})
    assert driver.name("jwks", other, token) == "OK"
    assert driver.name("pem", keys["RSA"].pem, token) == "OK"
    assert driver.name("jwks", plain, token) == "NO_KEY", "its kid is unknown, and no key without one made it"
    assert driver.name("pem", keys["RSA"].pem, forge(rsa_key(), {"alg": "RS256"})) == "BAD_SIGNATURE"


def test_two_keys_may_have_one_kid(driver, keys):
    shared = {"keys": [dict(rsa_key().jwk, kid="a"), dict(keys["P-256"].jwk, kid="a"), dict(keys["RSA"].jwk, kid="a")]}
    assert driver.name("jwks", shared, forge(keys["RSA"], {"alg": "RS256", "kid": "a"})) == "OK"
    assert driver.name("jwks", shared, forge(keys["P-256"], {"alg": "ES256", "kid": "a"})) == "OK"


def test_tries_are_bounded(driver, keys):
    def others(count):
        return [{"kty": "oct", "k": b64(bytes([i]) * 32)} for i in range(count)]
    token = forge(keys["oct"], {"alg": "HS256"})
    assert driver.name("jwks", {"keys": others(9) + [keys["oct"].jwk]}, token) == "OK"
    assert driver.name("jwks", {"keys": others(10) + [keys["oct"].jwk]}, token) == "BAD_SIGNATURE"
    with_kid = {"keys": [dict(k, kid=str(i)) for i, k in enumerate(others(99))] + [dict(keys["oct"].jwk, kid="it")]}
    assert driver.name("jwks", with_kid, forge(keys["oct"], {"alg": "HS256", "kid": "it"})) == "OK"


def test_without_keys_there_is_no_key(driver, keys):
    assert driver.name("none", "", forge(keys["oct"], {"alg": "HS256"})) == "NO_KEY"
    assert driver.name("none", "", "opaque") == "NOT_A_TOKEN"


# Claims

@pytest.mark.parametrize("claims, leeway, error", [
    ({}, 0, "OK"),
    ({"exp": NOW + 1}, 0, "OK"),
    ({"exp": NOW}, 0, "EXPIRED"),
    ({"exp": NOW + 0.5}, 0, "OK"),
    ({"exp": NOW - 0.5}, 0, "EXPIRED"),
    ({"exp": NOW - 29.5}, 30, "OK"),
    ({"exp": NOW - 30}, 30, "EXPIRED"),
    ({"exp": 1e300}, 0, "OK"),
    ({"exp": -1}, 0, "EXPIRED"),
    ({"exp": 0}, 0, "EXPIRED"),
    ({"exp": str(NOW + 60)}, 0, "BAD_CLAIMS"),
    ({"exp": None}, 0, "BAD_CLAIMS"),
    ({"exp": True}, 0, "BAD_CLAIMS"),
    ({"exp": [NOW + 60]}, 0, "BAD_CLAIMS"),
    ({"exp": {"at": NOW + 60}}, 0, "BAD_CLAIMS"),
    ({"nbf": NOW}, 0, "OK"),
    ({"nbf": NOW + 0.5}, 0, "NOT_YET"),
    ({"nbf": NOW + 30}, 30, "OK"),
    ({"nbf": NOW + 31}, 30, "NOT_YET"),
    ({"nbf": str(NOW)}, 0, "BAD_CLAIMS"),
    ({"nbf": 1e300}, 0, "NOT_YET"),
    ({"exp": NOW + 1, "nbf": NOW + 2}, 0, "NOT_YET"),
])
def test_dates(driver, keys, claims, leeway, error):
    assert driver.name("secret", SECRET, forge(keys["oct"], {"alg": "HS256"}, claims), leeway=leeway) == error


@pytest.mark.parametrize("text, error", [
    ('{"exp":1.8000000005e9}', "OK"), ('{"exp":18E+8}', "EXPIRED"), ('{"exp":1e999}', "OK"),
    ('{"exp":-1e999}', "EXPIRED"),
    ('{"exp":1800000001.' + "0" * 60 + "}", "BAD_CLAIMS"), ('{"nbf":1e999}', "NOT_YET"), ('{"nbf":-0}', "OK"),
])
def test_dates_as_they_can_be_written(driver, keys, text, error):
    assert driver.name("secret", SECRET, forge(keys["oct"], {"alg": "HS256"}, text)) == error


@pytest.mark.parametrize("aud, fine", [
    ("payments", True), (["payments"], True), (["other", "payments"], True), ("other", False), (["other"], False),
    ([], False),
    ("Payments", False), ("payments2", False), ("payment", False), (["payments2", "payment"], False), (None, False),
    (7, False),
    ([["payments"]], False), ({"payments": 1}, False), ("", False), ("pay\u006dents", True),
])
def test_the_audience(driver, keys, aud, fine):
    token = forge(keys["oct"], {"alg": "HS256"}, {"aud": aud})
    assert driver.name("secret", SECRET, token, audience="payments") == ("OK" if fine else "BAD_AUDIENCE")
    assert driver.name("secret", SECRET, token) == "OK"


def test_the_issuer(driver, keys):
    for issuer, error in (("https://issuer.example", "OK"), ("https://issuer.example/", "BAD_ISSUER"),
                          (["https://issuer.example"], "BAD_ISSUER"),
                          (None, "BAD_ISSUER"), (True, "BAD_ISSUER")):
        assert driver.name("secret", SECRET, forge(keys["oct"], {"alg": "HS256"}, {"iss": issuer}),
                           "https://issuer.example") == error
    assert driver.name("secret", SECRET, forge(keys["oct"], {"alg": "HS256"}, {}),
                       "https://issuer.example") == "BAD_ISSUER"
    for unquoted in ("true", "7"):
        token = forge(keys["oct"], {"alg": "HS256"}, '{"iss":%s,"aud":%s}' % (unquoted, unquoted))
        assert driver.name("secret", SECRET, token, unquoted) == "BAD_ISSUER"
        assert driver.name("secret", SECRET, token, "", unquoted) == "BAD_AUDIENCE"


def test_a_forged_token_is_judged_by_its_signature_first(driver, keys):
    token = forge(keys["oct"], {"alg": "HS256"}, {"sub": "alice", "exp": 1}, b"\0" * 32)
    error, payload = driver.ask("secret", SECRET, token, "x", "y")
    assert error == "BAD_SIGNATURE"
    assert json.loads(payload) == {"sub": "alice", "exp": 1}


# Key sets

@pytest.mark.parametrize("text, part", [
    ("", "JSON"), ("[]", "JSON"), ("{", "JSON"), ('{"keys":[],"keys":[]}', "twice"), ("{}", "no JWKS"),
    ('{"keys":{}}', "no list"),
    ('{"keys":7}', "no list"), ('{"keys":[]}', "no key"), ('{"keys":[null,7,"x",[],{}]}', "no key"),
    ('{"kty":"RSA"}', "no key"),
    ('{"kty":7}', "no key"), ('{"keys":[{"kty":"RSA","kty":"RSA"}]}', "twice"),
    ('{"keys":[' + ",".join(["{}"] * 101) + "]}", "100"), ('{"keys":[' + ",".join(["{}"] * 100) + "]}", "no key"),
    ("<html>502 Bad Gateway</html>", "JSON"),
])
def test_what_is_no_jwks_is_said_to_be_none(driver, text, part):
    error, why = driver.ask("jwks", text, "x")
    assert error == "keys" and part in why


def without(jwk, member):
    return {name: value for name, value in jwk.items() if name != member}


def test_keys_that_cannot_verify_are_skipped(driver, keys):
    weak, x448 = rsa_key(1024), x25519.X25519PrivateKey.generate().public_key()
    raw = x448.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    good = dict(keys["Ed25519"].jwk, kid="good")
    p256, big = keys["P-256"].jwk, keys["RSA"].jwk
    bad = [
        weak.jwk,
        dict(big, use="enc"), dict(big, use=7), dict(big, key_ops=["encrypt"]), dict(big, key_ops=[]),
        dict(big, key_ops="verify"),
        dict(big, alg="RSA-OAEP"), dict(big, alg="HS256"), dict(big, alg="ES256"), dict(big, alg=""), dict(big, alg=7),
        dict(big, kid=7),
        without(big, "n"), without(big, "e"), without(big, "kty"), dict(big, e=b64(b"\1")), dict(big, e=b64(b"\2")),
        dict(big, e=""),
        dict(big, e=b64(b"\1" * 9)), dict(big, n=big["n"] + "="), dict(big, n=""), dict(big, n=7), dict(big, kty="rsa"),
        dict(big, n=number((1 << 9000) + 1)), dict(big, n=number(1 << 2047)),
        dict(p256, crv="P-384"), dict(p256, crv="secp256k1"), dict(p256, crv="Ed25519"), dict(p256, x=p256["y"]),
        dict(p256, x=b64(b"\0" * 32)),
        dict(p256, y=b64(base64.urlsafe_b64decode(p256["y"] + "=") + b"\0")), without(p256, "y"), dict(p256, kty="OKP"),
        dict(p256, alg="ES384"), {"kty": "OKP", "crv": "X25519", "x": b64(raw)},
        {"kty": "OKP", "crv": "Ed25519", "x": b64(raw[:-1])},
        {"kty": "OKP", "crv": "P-256", "x": b64(raw)}, {"kty": "oct", "k": b64(b"short")},
        {"kty": "oct", "k": b64(b"x" * 31)},
        {"kty": "oct", "k": b64(b"x" * 47), "alg": "HS384"}, {"kty": "oct"}, {"kty": "AKP", "alg": "ML-DSA-44"},
    ]
    token = forge(keys["Ed25519"], {"alg": "EdDSA", "kid": "good"})
    for jwk in bad:
        error, why = driver.ask("jwks", {"keys": [jwk]}, token)
        assert error == "keys" and "no key" in why, jwk
        assert driver.name("jwks", {"keys": [jwk, good]}, token) == "OK"


def test_a_secret_serves_the_hashes_that_it_is_long_enough_for(driver):
    for size, fitting in ((32, "256"), (47, "256"), (48, "256 384"), (63, "256 384"), (64, "256 384 512")):
        secret = os.urandom(size)
        for bits in ("256", "384", "512"):
            token = forge(Key(secret, None), {"alg": "HS" + bits})
            assert driver.name("secret", secret, token) == ("OK" if bits in fitting.split() else "SHORT_SECRET")
            assert driver.name("jwks", {"kty": "oct", "k": b64(secret)},
                               token) == ("OK" if bits in fitting.split() else "SHORT_SECRET")
    for secret in (b"", b"x" * 31, b"x" * 65537):
        error, why = driver.ask("secret", secret, "x")
        assert error == "keys" and str(len(secret)) in why


def certificate(key, signer=None):
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "issuer")])
    long_ago = datetime.datetime(2001, 1, 1)
    digest = None if isinstance(key, (ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey)) else hashes.SHA256()
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(7)
    made = made.not_valid_before(long_ago).not_valid_after(long_ago + datetime.timedelta(days=1)).sign(signer or key,
        digest)
    return made.public_bytes(serialization.Encoding.PEM)


def test_pem_in_all_its_forms(driver, keys):
    for name, alg in (("RSA", "RS256"), ("P-256", "ES256"), ("P-384", "ES384"), ("P-521", "ES512"),
                      ("Ed25519", "EdDSA"), ("Ed448", "EdDSA")):
        token = forge(keys[name], {"alg": alg})
        assert driver.name("pem", certificate(keys[name].private), token) == "OK"
        assert driver.name("pem", b"some words before\n" + keys[name].pem + b"\nand behind\n", token) == "OK"
        assert driver.name("pem", keys[name].pem.replace(b"\n", b"\r\n"), token) == "OK"
    pkcs1 = keys["RSA"].private.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.PKCS1)
    assert driver.name("pem", pkcs1, forge(keys["RSA"], {"alg": "RS256"})) == "OK"


def test_pem_that_is_not_taken_says_why(driver, keys):
    private = lambda key, how: key.private_bytes(serialization.Encoding.PEM, how, serialization.NoEncryption())
    pkcs8, old = serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL
    pem = keys["RSA"].pem
    curve = ec.generate_private_key(ec.SECP256K1()).public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    cases = [
        (b"", "no PEM"), (b"hello", "no PEM"), (b"\0" * 100, "no PEM"), (pem[: len(pem) // 2], "no PEM"),
        (pem.replace(b"M", b"!"), "no PEM"),
        (private(keys["RSA"].private, pkcs8), "private key"), (private(keys["RSA"].private, old), "private key"),
        (private(keys["P-256"].private, old), "private key"), (pem + keys["P-256"].pem, "more than one"),
        (certificate(keys["RSA"].private) * 2, "more than one"), (rsa_key(1024).pem, "2048"), (curve, "neither RSA"),
        (dsa.generate_private_key(2048).public_key().public_bytes(serialization.Encoding.PEM,
            serialization.PublicFormat.SubjectPublicKeyInfo),
         "neither RSA"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "decoded"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "decoded"),
        (b"-----BEGIN DH PARAMETERS-----\nAAAA\n-----END DH PARAMETERS-----\n", "neither a public key"),
    ]
    for text, part in cases:
        error, why = driver.ask("pem", text, "x")
        assert error == "keys" and part in why, (text, why)


def test_any_broken_token_is_survived(driver, keys):
    token = forge(keys["P-256"], {"alg": "ES256", "kid": "k"}).encode()
    known = {"keys": [dict(keys["P-256"].jwk, kid="k")]}
    for at in range(len(token)):
        assert driver.name("jwks", known, token[:at]) != "OK"
        for byte in (0, 0x2e, 0x80, 0x41 if token[at] != 0x41 else 0x42):
            changed = token[:at] + bytes([byte]) + token[at + 1:]
            assert changed == token or driver.name("jwks", known, changed) != "OK"
