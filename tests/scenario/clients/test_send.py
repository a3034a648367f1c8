# SPDX-License-Identifier: Apache-2.0
"""`hapax send`: a request from a shell or a job takes effect once, and whoever asks is told the truth about it."""
import collections
import fnmatch
import json
import os
import re
import resource
import signal
import stat
import subprocess
import time

import pytest

from harness import (EXIT_CONFIG, EXIT_STORE, EXIT_UNKNOWN, Deduplicating, Run, answer, binary, drop_after_effect,
                     hours_ahead, in_turn, killed_at_step, sanitized)
from harness.gateway import ROOT

DONE, REFUSED, EXHAUSTED = 0, 1, 69
REFUND = '{"amount": 5}'
STORED = [("Idempotency-Status", "stored")]
STEPS = 24  # a few more than a call makes at which it can be killed
CODES = {"attempt", "delay_ms", "status", "code", "notes"}


def problem(status, code, retryable=False, headers=()):
    return answer(status, json.dumps({"error_code": code, "retryable": retryable}),
                  [("Content-Type", "application/problem+json"), ("Error-Code", code), *headers], effect=False)


def keys(upstream):
    return [request.key for request in upstream.received("/refunds")]


def url(upstream, path="/refunds"):
    return upstream.url + path


# What the caller does before and after the first attempt

def test_a_request_gets_a_key_and_its_response_goes_to_standard_output(send, upstream):
    upstream.on("/refunds", answer(201, b'{"id": "re_1"}', STORED))
    ran = send("POST", url(upstream), "-d", REFUND)
    assert (ran.code, ran.stdout) == (DONE, '{"id": "re_1"}')
    assert len(keys(upstream)[0]) == 36 and keys(upstream)[0][14] == "7"
    assert upstream.last().header("content-type") == "application/json"
    assert upstream.effects("/refunds") == 1


def test_every_attempt_has_the_same_key_and_bytes(send, upstream):
    upstream.on("/refunds", in_turn(answer(500, effect=False), drop_after_effect(), answer(201, b"ok", STORED)))
    assert send("POST", url(upstream), "-d", REFUND).code == DONE
    assert len(keys(upstream)) == 3 and len(set(keys(upstream))) == 1
    assert {request.body for request in upstream.received("/refunds")} == {REFUND.encode()}


def test_the_same_name_finds_the_same_key_and_sends_nothing_again(send, upstream):
    upstream.on("/refunds", answer(201, b"once", STORED))
    first = send("POST", url(upstream), "-d", REFUND, "--for", "order-17")
    again = send("POST", url(upstream), "-d", REFUND, "--for", "order-17")
    assert (first.code, again.code, again.stdout) == (DONE, DONE, "once")
    assert upstream.effects("/refunds") == 1


def test_an_intent_is_private_and_forgets_what_was_sent(send, upstream):
    upstream.on("/refunds", in_turn(answer(503, effect=False), answer(201, b"ok", STORED)))
    send("POST", url(upstream), "-d", '{"card": "4242"}', "-H", "Authorization: Bearer hush", "--for", "n",
         "--attempts", "1")
    file = send.folder / send.files()[0]
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600 and stat.S_IMODE(os.stat(send.folder).st_mode) == 0o700
    assert b"hush" not in file.read_bytes() and b"4242" not in file.read_bytes()
    unfinished = len(file.read_bytes())
    assert send("--resume", "n").code == DONE
    assert upstream.last().header("authorization") == "Bearer hush"
    assert b"sealed" not in file.read_bytes() and unfinished > 0


def test_a_credential_in_a_file_is_read_at_each_attempt(send, upstream, tmp_path):
    token = tmp_path / "token"
    token.write_text("Authorization: Bearer old\n")
    upstream.on("/refunds", answer(503, effect=False))
    send("POST", url(upstream), "-H", f"@{token}", "--for", "n", "--attempts", "1")
    token.write_text("Authorization: Bearer fresh\n")
    upstream.on("/refunds", answer(201, b"ok", STORED))
    assert send("--resume", "n").code == DONE
    assert upstream.last().header("authorization") == "Bearer fresh"


@pytest.mark.parametrize("changed, part", [(["-d", '{"amount": 6}'], "body"),
                                           (["-d", REFUND, "-H", "X-A: b"], "headers")])
def test_one_name_for_two_requests_is_refused(send, upstream, changed, part):
    upstream.on("/refunds", answer(201, b"ok", STORED))
    send("POST", url(upstream), "-d", REFUND, "--for", "n")
    ran = send("POST", url(upstream), *changed, "--for", "n")
    assert ran.code == EXIT_CONFIG and part in ran.stderr
    assert upstream.effects("/refunds") == 1


def test_a_natural_key_is_the_same_all_day(send, upstream):
    upstream.on("/refunds", answer(201, b"ok", STORED))
    words = ["POST", url(upstream), "-d", REFUND, "--key", "daily:{date:America/New_York}:user-123"]
    for at in ("2026-03-08T05:30:00Z", "2026-03-09T03:30:00Z", "2026-03-09T04:30:00Z"):
        assert send(*words, "--at", at).code == DONE
    assert keys(upstream) == ["daily:2026-03-08:user-123", "daily:2026-03-09:user-123"]


# What a response means

@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
def test_a_client_error_is_never_retried(send, upstream, status):
    upstream.on("/refunds", answer(status, b"no", effect=False))
    ran = send("POST", url(upstream), "-d", REFUND)
    assert (ran.code, ran.stdout) == (REFUSED, "no")
    assert len(keys(upstream)) == 1


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_errors_of_the_moment_are_retried(send, upstream, status):
    upstream.on("/refunds", in_turn(answer(status, effect=False), answer(201, b"ok", STORED)))
    assert send("POST", url(upstream), "-d", REFUND).code == DONE
    assert len(keys(upstream)) == 2


def test_retry_after_is_obeyed(send, upstream):
    later = answer(429, headers=[("Retry-After", "1")], effect=False)
    upstream.on("/refunds", in_turn(later, answer(201, b"", STORED)))
    began = time.monotonic()
    code, said = send.json("POST", url(upstream), "-d", REFUND)
    assert code == DONE and time.monotonic() - began >= 1
    assert said["attempts"][1]["delay_ms"] >= 1000


def test_a_stored_error_is_final_and_a_replay_says_so(send, upstream):
    headers = [("Idempotency-Status", "replayed"), ("Idempotent-Replayed", "true"),
               ("Original-Request-Time", "2026-02-19T12:00:00Z")]
    upstream.on("/refunds", answer(500, b"broken", headers, effect=False))
    code, said = send.json("POST", url(upstream), "-d", REFUND)
    assert code == REFUSED and len(keys(upstream)) == 1
    assert (said["replayed"], said["original_time"]) == (True, "2026-02-19T12:00:00Z")


def test_nothing_listens_and_nothing_was_done(send, upstream):
    upstream.stop_listening()
    code, said = send.json("POST", url(upstream), "-d", REFUND, "--for", "n", "--attempts", "2")
    assert code == EXHAUSTED
    assert [attempt["may_have_happened"] for attempt in said["attempts"]] == [False, False]
    assert send("--status", "n").code == EXHAUSTED


def test_no_response_is_unknown_until_the_server_says_more(send, upstream):
    server = Deduplicating()
    upstream.on("/refunds", in_turn(drop_after_effect(), server))
    ran = send("POST", url(upstream), "-d", REFUND, "--for", "n", "--attempts", "1")
    assert ran.code == EXIT_UNKNOWN and "--resume 'n'" in ran.stderr
    assert send("--status", "n").code == EXIT_UNKNOWN


def test_a_refusal_says_nothing_of_an_earlier_attempt(send, upstream):
    """The first attempt may have been executed; that the second is not allowed any more doesn't undo it."""
    upstream.on("/refunds", in_turn(drop_after_effect(), answer(401, effect=False)))
    assert send("POST", url(upstream), "-d", REFUND).code == EXIT_UNKNOWN
    assert upstream.effects("/refunds") == 1


def test_a_deleted_thing_that_is_gone_was_deleted(send, upstream):
    upstream.on("/refunds", in_turn(drop_after_effect(), answer(404, effect=False)))
    assert send("DELETE", url(upstream)).code == DONE
    upstream.on("/refunds", answer(404, effect=False))
    assert send("DELETE", url(upstream)).code == REFUSED


def test_without_a_key_what_may_have_arrived_is_not_repeated(send, upstream):
    upstream.on("/refunds", drop_after_effect())
    assert send("POST", url(upstream), "--no-key", "-d", REFUND).code == EXIT_UNKNOWN
    assert upstream.effects("/refunds") == 1 and keys(upstream) == [None]


ACTIONS = [
    ("VALIDATION.request_malformed", 400, REFUSED, 1), ("AUTH.token_invalid", 401, REFUSED, 1),
    ("AUTH.replay_not_authorized", 403, EXIT_UNKNOWN, 1), ("CONFLICT.idempotency.payload_mismatch", 409, REFUSED, 1),
    ("CONFLICT.idempotency.duplicate_rejected", 409, DONE, 1), ("CONFLICT.idempotency.failed_before", 409, REFUSED, 1),
    ("CONFLICT.idempotency.response_not_retained", 409, DONE, 1),
    ("CONFLICT.idempotency.expired", 409, EXIT_UNKNOWN, 1), ("CONFLICT.idempotency.in_flight", 409, EXIT_UNKNOWN, 2),
    ("CONFLICT.idempotency.outcome_unknown", 409, EXIT_UNKNOWN, 2),
    ("RATE_LIMIT.exceeded", 429, EXHAUSTED, 2), ("DEPENDENCY.unavailable", 503, EXHAUSTED, 2),
    ("DEPENDENCY.timeout", 504, EXHAUSTED, 2), ("TRANSIENT.overloaded", 503, EXHAUSTED, 2),
]


@pytest.mark.parametrize("code, status, exit_code, attempts", ACTIONS)
def test_each_error_of_hapax_has_its_action(send, upstream, code, status, exit_code, attempts):
    upstream.on("/refunds", problem(status, code))
    assert send("POST", url(upstream), "-d", REFUND, "--attempts", "2").code == exit_code
    assert len(keys(upstream)) == attempts


def test_the_guide_has_an_action_for_every_error_of_hapax():
    rows = re.findall(r"^\| (`.*?`) \| \w", (ROOT / "docs/guide/send.md").read_text(), re.M)
    known, family = [], ""
    for name in re.findall(r"`([^`]+)`", " ".join(rows)):
        known.append(name if "." in name else f"{family}.{name}")
        family = known[-1].rpartition(".")[0]
    codes = set(re.findall(r'"([A-Z_]+\.[a-z_.]+)"', (ROOT / "src/core/operation/errors.def").read_text()))
    missing = [code for code in codes if not any(fnmatch.fnmatch(code, name) for name in known)]
    assert len(codes) > 15 and not missing, missing


def test_an_error_of_hapax_after_the_request_was_sent_is_unknown(send, upstream):
    upstream.on("/refunds", problem(504, "DEPENDENCY.timeout", True, [("Idempotency-Status", "unknown")]))
    assert send("POST", url(upstream), "-d", REFUND, "--attempts", "2").code == EXIT_UNKNOWN


# Through a gateway

def test_through_the_gateway_a_lost_response_is_replayed(send, gateway, upstream):
    through = f"http://127.0.0.1:{gateway.address[1]}/refunds"
    upstream.on("/refunds", answer(201, b'{"id": "re_1"}'))
    words = ["POST", through, "-d", REFUND, "--for", "n", "-H", "Authorization: Bearer a"]
    assert send(*words).code == DONE
    assert send("--forget", "n").code == DONE
    key = keys(upstream)[0]
    code, said = send.json("POST", through, "-d", REFUND, "--key", key, "-H", "Authorization: Bearer a")
    assert (code, said["replayed"], said["body"]) == (DONE, True, '{"id": "re_1"}')
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("fate, code, says", [("done", DONE, "was done"), ("lost", EXIT_UNKNOWN, "doesn't know"),
                                              ("at work", EXIT_UNKNOWN, "at work"), ("never", EXIT_UNKNOWN, "")])
def test_the_gateway_is_asked_whether_it_went_through(send, gateway, upstream, fate, code, says):
    """The client gave up on its only attempt; the gateway went on with it, and `--status` sends nothing."""
    through = f"http://127.0.0.1:{gateway.address[1]}/refunds"
    words = ["POST", through, "-d", REFUND, "--for", "n", "-H", "Authorization: Bearer a", "--attempts", "1"]
    with upstream.hold("/refunds") as held:
        assert send(*words, "--timeout", "300ms").code == EXIT_UNKNOWN
        held.wait_arrived()
        if fate == "at work":
            told = send("--status", "n")
    if fate == "done":
        told = send("--status", "n", "--budget", "30s")
    if fate == "lost":
        upstream.on("/refunds", drop_after_effect())
        assert send(*words[:5], "other", *words[6:]).code == EXIT_UNKNOWN
        told = send("--status", "other")
    if fate == "never":
        told = send("--status", "n", "-H", "Authorization: Bearer another")
    assert told.code == code and says in told.stderr, told
    assert len(upstream.received("/refunds")) == 1 + (fate == "lost")


def test_the_key_ends_when_the_server_says_so(send, upstream):
    upstream.on("/refunds", answer(503, b"", [("Idempotency-Expires", "2030-01-01T00:00:00Z")], effect=False))
    code, said = send.json("POST", url(upstream), "-d", REFUND, "--for", "n", "--attempts", "1")
    assert code == EXIT_UNKNOWN and said["key_ends_at"].startswith("2030-01-01T00:00:00")


def test_past_the_life_of_the_key_nothing_is_sent(send, upstream):
    upstream.on("/refunds", answer(500, effect=False))
    assert send("POST", url(upstream), "-d", REFUND, "--for", "n", "--attempts", "1").code == EXIT_UNKNOWN
    ran = send("--resume", "n", env=hours_ahead(24))
    assert ran.code == EXIT_UNKNOWN and "too old" in ran.stderr
    assert len(keys(upstream)) == 1


# Crashes, two at a time, and damage

def kill_at_every_step(send, target, tmp_path, count):
    """Kills the command at its first, second, … step, each time in a new operation, and then resumes it, until it died
    so many times. Returns how often in which call, and how many operations there were."""
    died, number = collections.Counter(), -1
    while died.total() < count:
        number += 1
        name, step = f"operation-{number}", tmp_path / "step"
        step.unlink(missing_ok=True)
        words = ["POST", target, "-d", REFUND, "--for", name, "-H", "Authorization: Bearer a"]
        ran = send(*words, env=killed_at_step(number % STEPS + 1, step))
        if ran.code != -signal.SIGKILL:
            assert ran.code == DONE
            continue
        died[step.read_text()] += 1
        assert send(*words).code == DONE
        assert send("--status", name).code == DONE
    return died, number + 1


@pytest.mark.parametrize("server", ["deduplicating", "gateway"])
def test_killed_anywhere_and_run_again_it_is_done_once(send, upstream, tmp_path, server, request):
    """A server that deduplicates by itself, or any behind a gateway."""
    target = url(upstream)
    if server == "gateway":
        target = f"http://127.0.0.1:{request.getfixturevalue('gateway').address[1]}/refunds"
    else:
        upstream.on("/refunds", Deduplicating())
    count = int(os.environ.get("HAPAX_SEND_KILLS", str(STEPS)))
    died, operations = kill_at_every_step(send, target, tmp_path, count)
    print(died.total(), dict(died))
    assert upstream.effects("/refunds") == operations
    assert set(died) >= {"create", "write", "sync", "link", "unlink", "connect", "send", "recv", "rename"}, died
    if count >= 200:
        assert min(died.values()) >= 5, died


def test_the_intent_is_durable_before_anything_is_sent(send, upstream, tmp_path):
    upstream.on("/refunds", answer(201, b"ok", STORED))
    trace = tmp_path / "trace"
    words = ["strace", "-f", "-y", "-o", trace, "-e", "trace=fsync,fdatasync,connect,linkat,link", binary(), "send",
             "POST", url(upstream), "--intents", send.folder, "--quiet"]
    if sanitized() or subprocess.run(["strace", "-o", trace, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this program, or this machine, doesn't let itself be traced")
    assert subprocess.run([str(word) for word in words], capture_output=True, check=False).returncode == DONE
    calls = [line.split(" ", 1)[1].strip() for line in trace.read_text().splitlines()]
    port = upstream.url.rsplit(":", 1)[1]
    connect = next(i for i, call in enumerate(calls) if call.startswith("connect(") and f"htons({port})" in call)
    link = max(i for i, call in enumerate(calls) if call.startswith("link") and ".intent" in call)
    written = calls[link].split('"')[1]  # under the name that it has before it is linked
    assert any(call.startswith("fsync(") and f"<{written}>" in call for call in calls[:link]), calls[:link]
    between = calls[link:connect]
    assert any(call.startswith("fsync(") and f"<{send.folder}>" in call for call in between), between
    assert any(call.startswith("fdatasync(") and f"<{written}>" in call for call in between), between  # the attempt


def test_one_process_works_on_an_intent_at_a_time(send, upstream):
    with upstream.hold("/refunds") as held:
        first = subprocess.Popen([str(binary()), "send", "POST", url(upstream), "--for",
                                  "n", "--intents", str(send.folder), "--quiet"])
        held.wait_arrived()
        second = send("POST", url(upstream), "--for", "n")
        assert second.code == EXIT_UNKNOWN and "another process" in second.stderr
    assert first.wait() == DONE
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("damage", ["middle", "empty", "garbage"])
def test_a_damaged_intent_sends_nothing(send, upstream, damage):
    upstream.on("/refunds", answer(500, effect=False))
    send("POST", url(upstream), "-d", REFUND, "--for", "n", "--attempts", "1")
    file = send.folder / send.files()[0]
    text = file.read_bytes()
    file.write_bytes({"middle": text.replace(b'"number":1', b'"number":2', 1), "empty": b"",
                      "garbage": b"\x00\xff garbage\n" + text}[damage])
    ran = send("--resume", "n")
    assert ran.code == EXIT_STORE and file.name in ran.stderr
    assert len(keys(upstream)) == 1


def test_what_was_done_is_unknown_where_its_outcome_cant_be_written(send, upstream):
    upstream.on("/refunds", answer(201, b"x" * 5000, STORED))
    small = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000)), "restore_signals": False}
    ran = Run(["send", "POST", url(upstream), "--for", "n", "--intents", send.folder], **small)
    assert ran.code == EXIT_UNKNOWN and "can't write the outcome" in ran.stderr and upstream.effects("/refunds") == 1
    assert send("--status", "n").code == EXIT_UNKNOWN
    assert send("--resume", "n").code == DONE and len(set(keys(upstream))) == 1


def test_a_long_error_code_of_a_server_is_cut(send, upstream):
    upstream.on("/refunds", problem(500, "X" * 20000))
    assert send("POST", url(upstream), "--for", "n", "--attempts", "1").code == EXIT_UNKNOWN
    assert len(send.json("--status", "n")[1]["attempts"][0]["code"]) == 255


def test_a_line_that_a_crash_cut_off_is_dropped(send, upstream):
    upstream.on("/refunds", in_turn(answer(500, effect=False), answer(201, b"ok", STORED)))
    send("POST", url(upstream), "-d", REFUND, "--for", "n", "--attempts", "1")
    file = send.folder / send.files()[0]
    file.write_bytes(file.read_bytes() + b'a 12345678 {"number"')
    assert send("--resume", "n").code == DONE


def test_all_that_has_not_ended_is_resumed(send, upstream):
    upstream.on("/refunds", answer(500, effect=False))
    for name in "abc":
        send("POST", url(upstream), "-d", REFUND, "--for", name, "--attempts", "1")
    upstream.on("/refunds", answer(201, b"ok", STORED))
    assert send("--resume").code == DONE
    assert upstream.effects("/refunds") == 3
    assert send("--list").stdout.count("done  ") == 3


def test_attempts_are_exported_as_the_playbook_has_them(send, upstream):
    upstream.on("/refunds", in_turn(problem(429, "RATE_LIMIT.exceeded"), answer(201, b"", STORED)))
    lines = send("POST", url(upstream), "-d", REFUND, "--csv", "-").stdout.splitlines()
    assert set(lines[0].split(",")) == CODES
    assert lines[1].startswith("1,0,429,RATE_LIMIT.exceeded,") and lines[2].startswith("2,")


@pytest.mark.parametrize("words, says", [
    (["POST"], "METHOD and URL"), (["POST", "ftp://x"], "http://"), (["P OST", "http://x"], "method"),
    (["POST", "http://x", "-H", "nonsense"], "neither"), (["POST", "http://x", "-H", "Idempotency-Key: k"], "--key"),
    (["POST", "http://x", "--key", "a b"], "--key"), (["POST", "http://x", "--key", "{date:Nowhere/Land}"], "--key"),
    (["POST", "http://x", "--timeout", "soon"], "--timeout"), (["POST", "http://x", "--class", "webhook"], "--class"),
    (["POST", "http://x", "--attempts", "0"], "--attempts"), (["--status", "nothing"], "no intent"),
    (["POST", "http://x", "--key", "k", "--no-key"], "exclude"), (["--resume", "--list"], "one of"),
    (["POST", "http://x", "-d", "@/nonexistent"], "/nonexistent"),
])
def test_bad_usage_sends_nothing_and_says_what_is_wrong(send, words, says):
    ran = send(*words)
    assert ran.code == EXIT_CONFIG and says in ran.stderr, ran
    assert not send.folder.exists() or send.files() == []
