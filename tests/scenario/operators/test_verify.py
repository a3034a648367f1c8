# SPDX-License-Identifier: Apache-2.0
"""`hapax verify` tells a person whose webhooks fail why: which check, and which of the usual mistakes. Signatures are
made here as senders make them; tests/webhooks has those of their own libraries."""
import base64
import hashlib
import hmac
import json
import os
import pty
import re
import shlex
import subprocess
import unicodedata

import pytest

from harness import EXIT_CONFIG, HANG_S, Run, binary
from harness.gateway import ROOT

NOT_VERIFIED = 1
AT = 1731705121
BODY = b'{"id":"evt_1",\r\n"event_id":"Ev1"}'
SECRET = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ="
DECODED = base64.b64decode(SECRET[6:])


def mac(key, *parts):
    return hmac.new(key if isinstance(key, bytes) else key.encode(), b"".join(parts), hashlib.sha256).digest()


def headers_of(scheme, body=BODY, key=None, at=AT):
    """The headers of a request as the sender makes them."""
    key = key or (DECODED if scheme in ("standard", "svix") else SECRET)
    prefix = "webhook" if scheme == "standard" else scheme
    if scheme in ("standard", "svix"):
        signature = base64.b64encode(mac(key, f"msg_1.{at}.".encode(), body)).decode()
        return {f"{prefix}-id": "msg_1", f"{prefix}-timestamp": str(at), f"{prefix}-signature": f"v1,{signature}"}
    if scheme == "stripe":
        return {"Stripe-Signature": f"t={at},v1={mac(key, f'{at}.'.encode(), body).hex()}"}
    if scheme == "github":
        return {"X-Hub-Signature-256": f"sha256={mac(key, body).hex()}", "X-GitHub-Delivery": "72d3162e"}
    if scheme == "shopify":
        return {"X-Shopify-Hmac-SHA256": base64.b64encode(mac(key, body)).decode(), "X-Shopify-Webhook-Id": "b54557e4"}
    signature = mac(key, f"v0:{at}:".encode(), body).hex()
    return {"X-Slack-Request-Timestamp": str(at), "X-Slack-Signature": f"v0={signature}"}


SCHEMES = ["standard", "svix", "stripe", "github", "shopify", "slack"]


class Kept:
    """A request that was kept, and its secret in a file."""

    def __init__(self, folder):
        self.folder, self.body, self.secret = folder, folder / "body", folder / "secret"

    def verify(self, scheme, headers, *flags, body=BODY, secret=SECRET + "\n", at=AT):
        self.body.write_bytes(body)
        self.secret.write_text(secret)
        lines = [word for name, value in headers.items() for word in ("-H", f"{name}: {value}")]
        words = ["verify", "--scheme", scheme, "--secret-file", self.secret, "--at", at, *lines, *flags, self.body]
        return Run(words)

    def judge(self, *arguments, **options):
        """The result as JSON."""
        run = self.verify(*arguments, "--json", **options)
        result = json.loads(run.stdout)
        assert run.code == (0 if result["verified"] else NOT_VERIFIED) and not run.stderr, run
        return result


@pytest.fixture
def kept(tmp_path):
    return Kept(tmp_path)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_senders_signature_is_verified(kept, scheme):
    run = kept.verify(scheme, headers_of(scheme))
    assert run.code == 0 and run.stdout.startswith("verdict   verified: The signature is valid.\n"), run
    assert "\033" not in run.stdout
    result = kept.judge(scheme, headers_of(scheme))
    assert result["result"] == "ok" and result["secret"] == 1
    expected = {"github": "72d3162e", "shopify": "b54557e4", "slack": "Ev1", "stripe": "evt_1"}.get(scheme, "msg_1")
    assert (result["event_id"], result["event_id_signed"]) == (expected, scheme not in ("github", "shopify"))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_forged_body_is_not_and_nothing_tells_how_to_forge_it(kept, scheme):
    forged = b'{"id":"evt_2"}'
    for flags in ([], ["--json"]):
        run = kept.verify(scheme, headers_of(scheme), *flags, body=forged)
        assert run.code == NOT_VERIFIED, run
        told = run.stdout + run.stderr
        assert "raw bytes" in told and SECRET not in told and SECRET[6:] not in told
        for at in (b"", f"{AT}.".encode(), f"msg_1.{AT}.".encode(), f"v0:{AT}:".encode()):
            right = mac(DECODED if scheme in ("standard", "svix") else SECRET, at, forged)
            assert right.hex() not in told and base64.b64encode(right).decode() not in told
    assert kept.judge(scheme, headers_of(scheme), body=forged)["causes"] == []


@pytest.mark.parametrize("cause, signed, given", [
    ("body_newline_added", BODY, BODY + b"\n"),
    ("body_newline_added", BODY, BODY + b"\r\n"),
    ("body_newline_removed", BODY + b"\n", BODY),
    ("body_crlf_removed", BODY, BODY.replace(b"\r\n", b"\n")),
    ("body_crlf_added", BODY.replace(b"\r\n", b"\n"), BODY),
    ("body_lines_added", BODY.replace(b"\r\n", b""), BODY),
    ("body_bom_added", BODY, b"\xef\xbb\xbf" + BODY),
    ("body_newline_added", b"a\0b", b"a\0b\n"),
    ("body_newline_removed", b"a\0b\n", b"a\0b"),
])
@pytest.mark.parametrize("scheme", ["stripe", "standard"])
def test_a_changed_body_is_explained(kept, scheme, cause, signed, given):
    result = kept.judge(scheme, headers_of(scheme, signed), body=given)
    assert result["result"] == "no_match"
    assert [found["cause"] for found in result["causes"]] == [cause]


@pytest.mark.parametrize("scheme, cause, key, secret", [
    ("standard", "secret_not_decoded", SECRET, SECRET),
    ("standard", "secret_half_decoded", SECRET[6:], SECRET),
    ("standard", "secret_not_decoded", SECRET[6:], SECRET[6:]),
    ("stripe", "secret_decoded", DECODED, SECRET),
    ("stripe", "secret_cut", SECRET[6:], SECRET),
    ("stripe", "secret_newline", SECRET + "\n", SECRET),
    ("github", "secret_spaced", "hush", " hush\t"),
    ("github", "secret_newline", "hush\n", "hush\n"),
    ("slack", "secret_hex", bytes.fromhex("00ff10"), "00ff10"),
])
def test_a_mistaken_secret_is_explained(kept, scheme, cause, key, secret):
    result = kept.judge(scheme, headers_of(scheme, key=key), secret=secret)
    assert [found["cause"] for found in result["causes"]] == [cause]
    run = kept.verify(scheme, headers_of(scheme, key=key), secret=secret)
    assert run.code == NOT_VERIFIED and "Without that, the signature is valid." in run.stdout, run


@pytest.mark.parametrize("scheme, header, value, cause", [
    ("github", "X-Hub-Signature-256", "sha256=" + base64.b64encode(mac(SECRET, BODY)).decode(), "signature_encoding"),
    ("github", "X-Hub-Signature-256", mac(SECRET, BODY).hex(), "signature_prefix"),
    ("shopify", "X-Shopify-Hmac-SHA256", mac(SECRET, BODY).hex(), "signature_encoding"),
    ("shopify", "X-Shopify-Hmac-SHA256", "sha256=" + base64.b64encode(mac(SECRET, BODY)).decode(), "signature_prefix"),
])
def test_a_signature_written_otherwise_is_explained(kept, scheme, header, value, cause):
    result = kept.judge(scheme, {header: value})
    assert not result["verified"] and [found["cause"] for found in result["causes"]] == [cause]


def test_two_mistakes_at_once_are_explained(kept):
    result = kept.judge("stripe", headers_of("stripe", key=DECODED), body=BODY + b"\n")
    assert [found["cause"] for found in result["causes"]] == ["body_newline_added", "secret_decoded"]


def test_milliseconds_are_told_from_the_far_future(kept):
    result = kept.judge("slack", headers_of("slack", at=AT * 1000))
    assert result["result"] == "timestamp_future"
    assert [found["cause"] for found in result["causes"]] == ["timestamp_milliseconds"]
    assert "timestamp" not in result  # RFC 3339 has no year 56845
    assert f"{AT * 1000}, after the year 9999" in kept.verify("slack", headers_of("slack", at=AT * 1000)).stdout
    forged = kept.judge("slack", headers_of("slack", at=AT * 1000), body=b"other")
    assert (forged["causes"], forged["hints"]) == ([], ["Whatever the time, no signature matches."])


def test_the_tolerance_is_exact_and_an_old_request_can_be_verified_as_of_then(kept):
    headers = headers_of("stripe")
    assert kept.judge("stripe", headers, at=AT + 300)["verified"]
    late = kept.judge("stripe", headers, at=AT + 301)
    assert (late["result"], late["age_ms"], late["header"]) == ("timestamp_stale", 301000, "Stripe-Signature")
    assert "But for its time" in late["hints"][0]
    assert "Whatever the time" in kept.judge("stripe", headers, at=AT + 301, body=b"other")["hints"][0]
    assert kept.judge("stripe", headers, at=AT - 300)["verified"]
    assert kept.judge("stripe", headers, at=AT - 301)["result"] == "timestamp_future"
    assert kept.judge("stripe", headers, "--tolerance", "1h", at=AT + 3600)["verified"]
    assert kept.judge("stripe", headers, at="2024-11-15T21:12:01Z")["verified"]
    assert "730d ago" in kept.verify("stripe", headers, at=AT + 730 * 86400 + 5).stdout


def test_missing_headers_are_named_with_what_is_there_instead(kept):
    result = kept.judge("github", headers_of("stripe"))
    assert (result["result"], result["header"]) == ("header_missing", "X-Hub-Signature-256")
    assert result["hints"] == ["The request has Stripe-Signature: is it --scheme stripe?"]
    older = kept.judge("github", {"X-Hub-Signature": "sha1=0123"})
    assert "SHA-1" in older["hints"][0]
    assert "SHA-1" in kept.judge("github", {"X-Hub-Signature-256": "sha1=0123"})["hints"][0]
    assert "--scheme svix" in kept.judge("standard", headers_of("svix"))["hints"][0]


def test_any_of_several_secrets_may_have_signed(kept, tmp_path):
    (tmp_path / "old").write_text("another")
    words = ["--secret-file", tmp_path / "old"]
    assert kept.judge("github", headers_of("github", key="another"), *words)["secret"] == 2
    assert kept.judge("github", headers_of("github"), *words)["secret"] == 1
    assert not kept.judge("github", headers_of("github", key="third"), *words)["verified"]


def test_another_senders_scheme_is_described_by_flags(kept):
    value = "hmac " + base64.b64encode(mac("k", f"{AT}|".encode(), BODY, b"|end")).decode()
    flags = ["--signature-header", "X-Sig", "--timestamp-header", "X-Time", "--encoding", "base64", "--prefix", "hmac ",
             "--signed", "{timestamp}|{body}|end"]
    headers = {"x-sig": value, "x-time": str(AT)}
    assert kept.judge("hmac", headers, *flags, secret="k")["verified"]
    assert not kept.judge("hmac", {**headers, "x-time": str(AT + 1)}, *flags, secret="k")["verified"]
    run = kept.verify("hmac", headers, "--signature-header", "X-Sig", "--timestamp-header", "X-Time")
    assert run.code == EXIT_CONFIG and "anyone can change it" in run.stderr, run


def test_what_is_signed_here_is_verified_here(kept, tmp_path):
    (tmp_path / "b").write_bytes(BODY)
    (tmp_path / "s").write_text(SECRET)
    words = ["verify", "--sign", "--scheme", "standard", "--secret-file", tmp_path / "s", "--id", "msg_7"]
    run = Run([*words, tmp_path / "b"])
    headers = dict(line.split(": ", 1) for line in run.stdout.splitlines())
    assert list(headers) == ["webhook-id", "webhook-timestamp", "webhook-signature"]
    assert headers["webhook-id"] == "msg_7"
    assert kept.judge("standard", headers, at="0s")["verified"]
    first, second = (Run([*words[:-2], tmp_path / "b"]).stdout.splitlines()[0] for _ in range(2))
    assert first != second  # ids are drawn


def test_the_body_may_come_from_standard_input(tmp_path):
    (tmp_path / "s").write_text(SECRET)
    words = ["verify", "--scheme", "github", "--secret-file", tmp_path / "s"]
    value = headers_of("github")["X-Hub-Signature-256"]
    done = subprocess.run([binary(), *words, "-H", f"X-Hub-Signature-256: {value}", "-"], input=BODY,
                          capture_output=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done


@pytest.mark.parametrize("words, said", [
    ([], "Which body?"),
    (["BODY"], "Which scheme?"),
    (["BODY", "--scheme", "strip"], 'unknown scheme "strip", did you mean "stripe"?'),
    (["BODY", "--scheme", "stripe"], "Which secret?"),
    (["BODY", "--scheme", "stripe", "--secret-env", "NO_SUCH_VARIABLE"], "no variable NO_SUCH_VARIABLE"),
    (["BODY", "--scheme", "stripe", "--secret-env", SECRET], "the variable's name, not the secret"),
    (["BODY", "--scheme", "stripe", "--secret-file", "/no/such"], "/no/such can't be read"),
    (["BODY", "--scheme", "stripe", "--secret-env", "API_KEY"], "prefix is that of another kind of key"),
    (["BODY", "--scheme", "standard", "--secret-env", "SPACED"], "There is white space around it."),
    (["BODY", "--scheme", "stripe", "--secret-env", "EMPTY"], "The secret is empty."),
    (["BODY", "--scheme", "hmac", "--secret-env", "SPACED"], "needs --signature-header"),
    (["BODY", "--scheme", "slack", "--prefix", "x", "--secret-env", "SPACED"], "are for --scheme hmac"),
    (["BODY", "--scheme", "slack", "--tolerance", "soon", "--secret-env", "SPACED"], "--tolerance must be a duration"),
    (["BODY", "--scheme", "slack", "--at", "noon", "--secret-env", "SPACED"], "--at must be a time"),
    (["BODY", "--scheme", "slack", "-H", "nonsense", "--secret-env", "SPACED"], "is not 'Name: value'"),
    (["BODY", "--scheme", "slack", "-H", "\x1b[35m\x9b", "--secret-env", "SPACED"], '-H "\\x1b[35m\\x9b" is not'),
    (["BODY", "--sign", "--scheme", "stripe", "--secret-env", "SPACED"], "--sign is for --scheme standard and svix"),
    (["BODY", "--sign", "--scheme", "standard", "--secret-env", "PUBLIC"], "a public key, which can't sign"),
    (["BODY", "--sign", "--scheme", "standard", "--id", "a.b", "--secret-env", "GOOD"], "without a dot"),
    (["BODY", "--id", "a", "--scheme", "standard", "--secret-env", "GOOD"], "--id is for --sign"),
    (["-", "--scheme", "standard", "--secret-file", "-"], "can't be both the secret and the body"),
], ids=lambda value: value[:30] if isinstance(value, str) else "")
def test_misuse_is_named(tmp_path, words, said):
    (tmp_path / "BODY").write_bytes(BODY)
    env = {"API_KEY": "sk_live_0123456789", "SPACED": " " + SECRET, "EMPTY": "", "GOOD": SECRET,
           "PUBLIC": "whpk_" + base64.b64encode(bytes(32)).decode()}
    run = Run(["verify", *words], env=env, cwd=tmp_path)
    assert run.code == EXIT_CONFIG and said in run.stderr and not run.stdout, run
    assert not any(value in run.stderr for value in env.values() if value), run


@pytest.mark.parametrize("body", [
    '{"id":"\x7f\x9b35m \u202egnp.exe \u2028 \u2066 ü"}'.encode(),
    '{"id":"'.encode() + b"\\u001b[35m\\u202e" + '","é":1}'.encode(),
    b"\x9b35m \x1b[35m \xff",
])
def test_nothing_in_a_body_is_obeyed_by_a_terminal(kept, body):
    told = kept.judge("stripe", headers_of("stripe", body), body=body)
    assert told["signed_begins"] == f"{AT}." + body.decode(errors="replace")
    for flags in ([], ["--json"]):
        shown = kept.verify("stripe", headers_of("stripe", body), *flags, body=body).stdout.replace("\n", "")
        assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or
                    unicodedata.bidirectional(c) in ("RLO", "LRO", "RLI", "LRI")]


def test_the_verdict_is_coloured_on_a_terminal_only(kept):
    run = kept.verify("github", headers_of("github"))
    ours, theirs = pty.openpty()
    with subprocess.Popen([binary(), *run.words], stdout=theirs, env={"PATH": "/bin"}) as process:
        os.close(theirs)
        text = os.read(ours, 4096)
        assert process.wait(timeout=HANG_S) == 0
    os.close(ours)
    assert b"\033[32mverified\033[0m" in text


def test_the_guides_examples_print_what_it_says(tmp_path):
    guide = (ROOT / "docs" / "guide" / "webhooks.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```\n\$ hapax (verify .*?[^\\])\n(.*?)```$", guide, re.M | re.S)
    assert len(examples) == 2
    files = re.search(r"^```sh\n(echo .*?)```$", guide, re.M | re.S)[1]
    subprocess.run(["sh", "-ec", files], cwd=tmp_path, timeout=HANG_S, check=True)
    for words, output in examples:
        assert Run(shlex.split(words.replace("\\\n", "")), cwd=tmp_path).stdout == output
