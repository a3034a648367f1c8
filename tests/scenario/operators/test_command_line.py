# SPDX-License-Identifier: Apache-2.0
"""The command line: what helps, what is misspelled, and what `hapax check` shows."""
import json
import os
import pty
import re
import subprocess

import pytest

from harness import EXIT_CONFIG, binary

GOOD = """\
upstream: {app: "http://127.0.0.1:3000", files: "unix:/run/files.sock"}
store: journal:/var/lib/hapax
workers: 2
routes:
  - {name: refunds, match: POST /refunds, lifetime: 7d}
  - {name: refresh, match: POST /auth/refresh, mode: pass}
  - {name: presence, match: PUT /presence, mode: pass, because: the last write wins}
  - {name: profile, match: "PUT,PATCH /profile/{id}", upstream: files}
"""


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "hapax.yaml"
    path.write_text(GOOD)
    return path


def lines_with(text, word):
    return [line for line in text.splitlines() if word in line]


@pytest.mark.parametrize("words", [[], ["help"], ["--help"], ["-h"]], ids=str)
def test_overview_names_the_commands(hapax, words):
    result = hapax(*words)
    assert result.code == 0
    for command in ("serve", "check", "version", "help"):
        assert re.search(rf"^  {command} +\w", result.stdout, re.M), result
    assert "reference" not in result.stdout and not result.stderr


def test_every_command_has_its_page(hapax):
    overview = hapax("help").stdout
    commands = re.findall(r"^  ([a-z]+) +\w", overview, re.M)
    for command in (name for name in commands if name != "hapax"):
        asked, flagged = hapax("help", command), hapax(command, "--help")
        assert asked.code == flagged.code == 0
        assert asked.stdout == flagged.stdout and asked.stdout.startswith(f"  hapax {command}"), asked
        assert max(map(len, asked.stdout.splitlines())) <= 80, asked


def test_version_is_printed(hapax):
    assert re.fullmatch(r"hapax \d+\.\d+\.\d+\n", hapax("version").stdout)
    assert hapax("--version").stdout == hapax("version").stdout


@pytest.mark.parametrize("words, said", [
    (["sevre"], 'unknown command "sevre", did you mean "serve"?'),
    (["nonsense"], 'unknown command "nonsense"'),
    (["\033[2J"], r'unknown command "\x1b[2J"'),
    (["help", "chekc"], 'unknown command "chekc", did you mean "check"?'),
    (["check", "--stict", "x"], "hapax check: unknown flag --stict, did you mean --strict?"),
    (["check", "-x"], "hapax check: unknown flag -x"),
    (["check", "--upstream"], "hapax check: --upstream needs a value: URL"),
    (["check", "-u"], "hapax check: --upstream needs a value: URL"),
    (["check", "--strict=yes", "x"], "hapax check: --strict takes no value"),
    (["check", "a", "b"], 'hapax check: unexpected argument "b"'),
    (["serve", "http://h"], 'hapax serve: unexpected argument "http://h"; did you mean --upstream http://h?'),
    (["serve", "hapax.yaml"], 'hapax serve: unexpected argument "hapax.yaml"; did you mean --config hapax.yaml?'),
    (["check"], "hapax check: check needs a file"),
    (["check", "a", "--config", "b"], "hapax check: give FILE or --config, not both"),
    (["reference", "nothing"], 'unknown page "nothing"'),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_misuse_is_named(hapax, words, said):
    result = hapax(*words)
    assert result.code == EXIT_CONFIG
    assert said in result.stderr and "Try `hapax help" in result.stderr, result
    assert not result.stdout


def test_check_shows_what_protects_each_route(hapax, good):
    result = hapax("check", good)
    assert (result.code, result.stderr) == (0, "")
    assert "\033" not in result.stdout
    assert re.search(r"POST /refunds +key required; response replayed for 7d", result.stdout), result
    assert re.search(r"POST /auth/refresh +nothing, without a reason", result.stdout), result
    assert re.search(r"PUT /presence +nothing: the last write wins", result.stdout), result
    assert re.search(r"PUT,PATCH /profile/\{id\} +key required, but optional on PUT", result.stdout), result
    assert re.search(r"\(any other\) .*without a key: not protected", result.stdout), result


RULES = GOOD.replace("lifetime: 7d}", """lifetime: 7d, tombstone: 30d, guarantee: idempotent,
     class: background, retry: {attempts: 3}, retry_safe: true, on_unknown: probe,
     probe: {request: "GET /refunds?key={key}", found: {status: 200, pointer: /data/0}, settle: 30s},
     provider_duplicate: {status: 409, pointer: /code, value: duplicate},
     outcome: {302: release, 500: store}, not_executed: [503]}""") + "admin: {listen: unix:/run/hapax/admin.sock}\n"


def test_check_shows_what_becomes_of_a_routes_answers(hapax, good):
    good.write_text(RULES)
    result = hapax("check", good)
    assert (result.code, result.stderr) == (0, "")
    shown = [line.strip() for line in result.stdout.splitlines()]
    assert "admin     unix:/run/hapax/admin.sock" in shown
    first = next(i for i, line in enumerate(shown) if line.startswith("refunds "))
    assert shown[first].endswith("key required; response replayed for 7d, then refused for 30d")
    assert shown[first + 1:first + 7] == [
        "guarantee idempotent",
        "up to 3 attempts within 5m, 4s doubling to 64s apart, jitter spread",
        "when unknown: GET /refunds?key={key}; found with 200 and /data/0, settled after 30s",
        'already applied: 409 with "duplicate" at /code',
        "302: release, 500: store, 503: not_executed",
        "safe methods, and PUT and DELETE without a key, retried after resets, 502, 503 and 504",
    ]
    assert shown[first + 7].startswith("refresh ")  # what is as by default needs no line


def test_check_tells_what_becomes_of_a_routes_answers_in_json(hapax, good):
    good.write_text(RULES)
    told = json.loads(hapax("check", "--json", good).stdout)
    refunds, refresh = told["routes"][:2]
    assert told["admin"] == "unix:/run/hapax/admin.sock"
    assert refunds["outcome"] == {"302": "release", "500": "store", "503": "not_executed"}
    assert refunds["retry"] == {"attempts": 3, "total_ms": 300_000, "base_ms": 4000, "cap_ms": 64_000,
                                "jitter": "spread"}
    assert refunds["probe"] == {"method": "GET", "target": "/refunds?key={key}", "settle_ms": 30_000,
                                "found": {"status": 200, "pointer": "/data/0"}, "answer": {"status": 200, "body": ""}}
    assert refunds["provider_duplicate"] == {"status": 409, "pointer": "/code", "value": "duplicate"}
    wanted = {"guarantee": "idempotent", "class": "background", "on_unknown": "probe", "retry_safe": True,
              "tombstone_ms": 30 * 86_400_000}
    assert {name: refunds[name] for name in wanted} == wanted
    assert refresh["probe"] is None and refresh["provider_duplicate"] is None and refresh["outcome"] == {}
    assert refresh["guarantee"] == "none" and refresh["class"] == "user" and refresh["on_unknown"] == "hold"


def test_check_is_coloured_on_a_terminal_only(good):
    def shown(**env):
        ours, theirs = pty.openpty()
        with subprocess.Popen([binary(), "check", good], stdout=theirs, env={"PATH": "/bin", **env}) as process:
            os.close(theirs)
            text = b""
            while True:
                try:
                    piece = os.read(ours, 65536)
                except OSError:  # how Linux says that the other side of a terminal is closed
                    break
                text += piece
        os.close(ours)
        assert process.returncode == 0
        return text.decode()

    assert "\033[33mnothing" in shown() and "\033[32mkey required" in shown()
    assert "\033" not in shown(NO_COLOR="1")


def test_strict_check_refuses_what_passes_without_a_reason(hapax, good):
    result = hapax("check", "--strict", good)
    assert result.code == EXIT_CONFIG
    unwritten, refresh, profile = sorted(result.stderr.splitlines())
    assert unwritten.startswith(f"{good}:1:1: unsafe requests without a key pass unprotected to every path")
    assert refresh == f'{good}:6:54: an unsafe method passes unprotected here; say why: "because: …"'
    assert profile.endswith('an unsafe method (PUT) without a key passes unprotected here; say why: "because: …"')


def test_strict_check_lists_every_unprotected_route(hapax, good):
    explained = GOOD.replace("refresh, mode: pass", "refresh, mode: pass, because: each call rotates the token")
    good.write_text(explained.replace("upstream: files}", "upstream: files, because: whole profiles}")
                    + "require_key: true\n")
    result = hapax("check", "--strict", good)
    assert result.code == 0
    listed = result.stdout.split("let unsafe methods pass unprotected:")[1]
    assert lines_with(listed, "refresh: each call rotates the token") and lines_with(listed, "presence: the last write")
    assert lines_with(listed, "profile: whole profiles (without a key, where none is required)")  # its PUT
    assert "3 of these let" in result.stdout and not lines_with(listed, "refunds")


def test_check_speaks_json(hapax, good):
    result = hapax("check", "--json", good)
    told = json.loads(result.stdout)
    assert told["ok"] and told["errors"] == [] and told["workers"] == 2
    assert [route["name"] for route in told["routes"]] == ["refunds", "refresh", "presence", "profile"]
    assert [route["protected"] for route in told["routes"]] == [True, False, False, True]
    assert told["routes"][0]["lifetime_ms"] == 7 * 86_400_000
    assert told["routes"][3]["upstream"] == "unix:/run/files.sock"

    good.write_text("workers: 0\nlisten: x\n")
    result = hapax("check", "--json", good)
    told = json.loads(result.stdout)
    assert result.code == EXIT_CONFIG
    assert not told["ok"] and told["errors"] == result.stderr.splitlines() and len(told["errors"]) == 3


def test_flags_complete_a_file(hapax, tmp_path):
    path = tmp_path / "hapax.yaml"
    path.write_text("routes: [{match: POST /refunds}]\n")
    assert hapax("check", path).code == EXIT_CONFIG
    result = hapax("check", path, "--upstream", "http://127.0.0.1:3000", "--listen", "127.0.0.1:1", "-l", "127.0.0.1:2")
    assert result.code == 0
    assert len(lines_with(result.stdout, "  listen ")) == 2


def test_output_that_cannot_be_written_is_no_success(good):
    with open("/dev/full", "wb") as full:
        result = subprocess.run([binary(), "check", good], stdout=full, stderr=subprocess.PIPE, check=False)
    assert result.returncode == EXIT_CONFIG
    assert b"standard output can't be written" in result.stderr
