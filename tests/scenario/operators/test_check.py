# SPDX-License-Identifier: Apache-2.0
"""`hapax check`: what routes say of callers, keys and fingerprints, what is worth a look, and what a file changes."""
import json

import pytest

EXIT_CONFIG = 2

NO_KEYS = ("the key file /etc/keys.json can't be read here (No such file or directory): the daemon doesn't start "
           "without it")
FILE = """\
upstream: http://127.0.0.1:3000
cors: {origins: ["https://app.example.com"], credentials: true}
trusted_proxies: [10.0.0.0/8, "fd00::/8"]
publish_policy: true
groups:
  money: {lifetime: 7d, dialect: ietf}
  unused: {wait: 1s}
routes:
  - {name: refunds, match: POST /refunds, group: money, rate: 50/s, quota: 100, result: /id, formerly: [old]}
  - {name: otp, match: POST /otp, key: {from: "{body:/phone}", shared: true}}
  - name: reports
    match: POST /reports
    key: {from: "{principal}:{window:1h}", prefer: header}
  - name: offers
    match: PUT /offers/{id}
    require: key-or-if-match
    scope: principal
    principal: ["jwt:sub", "cookie:sid"]
    jwt: {jwks: /etc/keys.json, issuer: me}
    authorize: GET /me
    fingerprint: {body: [/price], ignore: [/sentAt, "query:trace"], headers: [X-Tenant]}
    forward_key: scoped
    deny_headers: [Server]
  - {name: trial, match: POST /trial, mode: shadow, because: until we are sure}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "hapax.yaml"
    path.write_text(FILE)
    return path


def lines_below(text, name):
    """What a route's line says of its protection, and the lines below it."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(f"  {name} "))
    below = [line.strip() for line in lines[first + 1:]]
    end = next(i for i, line in enumerate(lines[first + 1:]) if not line.startswith("    "))
    return lines[first], below[:end]


def test_every_rule_is_shown_in_words(hapax, file):
    result = hapax("check", file)
    assert (result.code, result.stderr) == (0, "")
    head, below = lines_below(result.stdout, "refunds")
    assert head.endswith("key required; response replayed for 7d")
    assert below == ["dialect ietf", "each caller: up to 50/s, up to 100 live keys", "result at /id", "formerly old"]
    head, below = lines_below(result.stdout, "otp")
    assert "key made of {body:/phone}; response replayed" in head
    assert below == ["unauthenticated callers share their operations"]
    head, below = lines_below(result.stdout, "reports")
    assert "key made of {principal}:{window:1h}, where none is sent;" in head
    assert below == ["callers by authorization; without one 401",
                     "for 70s after a boundary the previous window is looked up first"]
    head, below = lines_below(result.stdout, "offers")
    assert "key or If-Match required" in head
    assert below == ["callers by jwt:sub, else cookie:sid",
                     "one key for all routes of this scope (scope principal)",
                     "tokens verified by jwks /etc/keys.json, issuer me",
                     "another credential is checked by GET /me",
                     "the same request by /price, but /sentAt, query:trace, and header x-tenant",
                     "the upstream gets a key made by Hapax", "headers not stored: server"]
    assert "nothing (shadow mode): until we are sure" in lines_below(result.stdout, "trial")[0]
    for line in ("cors      https://app.example.com with credentials", "trusted   10.0.0.0/8", "trusted   fd00::/8",
                 "publishes /.well-known/idempotency"):
        assert f"  {line}\n" in result.stdout
    assert f'Warnings:\n  {file}:7:3: no route is in group "unused"\n  {NO_KEYS}\n' in result.stdout


def test_every_rule_is_told_in_json(hapax, file):
    told = json.loads(hapax("check", "--json", file).stdout)
    routes = {route["name"]: route for route in told["routes"]}
    assert told["cors"] == {"origins": ["https://app.example.com"], "credentials": True}
    assert told["trusted_proxies"] == ["10.0.0.0/8", "fd00::/8"] and told["publish_policy"]
    assert told["notes"] == [f'{file}:7:3: no route is in group "unused"', NO_KEYS]
    assert routes["refunds"]["rate"] == {"count": 50, "per_ms": 1000} and routes["refunds"]["quota"] == 100
    assert routes["refunds"]["formerly"] == ["old"] and routes["refunds"]["result"] == "/id"
    assert routes["otp"]["key"] == {"from": "{body:/phone}", "prefer": "from", "shared": True, "overlap_ms": 70_000,
                                    "min": 16, "max": 255, "format": "any"}
    assert routes["otp"]["fingerprint"] == {"body": "key", "ignore": [], "ignore_query": [], "headers": []}
    assert not routes["otp"]["require_principal"] and routes["reports"]["require_principal"]
    assert routes["reports"]["key"]["prefer"] == "header"
    offers = routes["offers"]
    assert offers["require"] and offers["if_match_suffices"] and offers["scope"] == "principal"
    assert offers["principal"] == ["jwt:sub", "cookie:sid"] and offers["authorize"] == {"method": "GET",
                                                                                        "target": "/me"}
    assert offers["jwt"] == {"jwks": "/etc/keys.json", "issuer": "me", "audience": "", "leeway_ms": 30_000}
    assert offers["fingerprint"] == {"body": ["/price"], "ignore": ["/sentAt"], "ignore_query": ["trace"],
                                     "headers": ["x-tenant"]}
    assert offers["forward_key"] == "scoped" and offers["deny_headers"] == ["server"]
    assert routes["trial"]["mode"] == "shadow" and not routes["trial"]["protected"]
    assert told["defaults"]["rate"] is None and told["defaults"]["jwt"] is None


def test_a_thousand_routes_with_long_lists_are_told(hapax, tmp_path):
    path = tmp_path / "hapax.yaml"
    pointers = ", ".join(f'"/{"é" * 400}{i}"' for i in range(64))
    path.write_text("upstream: http://127.0.0.1:3000\ngroups: {long: {fingerprint: {ignore: [" + pointers + "]}}}\n"
                    "routes:\n" + "".join(f"  - {{match: POST /{i}, group: long}}\n" for i in range(1000)))
    told = json.loads(hapax("check", "--json", path).stdout)
    assert len(told["routes"]) == 1000 and len(told["routes"][999]["fingerprint"]["ignore"]) == 64


def test_strict_asks_why_a_route_is_only_watched(hapax, file):
    file.write_text(FILE + "require_key: true\n")
    assert "trial: until we are sure (shadow mode)" in hapax("check", "--strict", file).stdout
    file.write_text((FILE + "require_key: true\n").replace(", because: until we are sure", ""))
    assert hapax("check", file).code == 0
    result = hapax("check", "--strict", file)
    assert result.code == EXIT_CONFIG
    assert result.stderr.splitlines() == [
        f'{file}:24:45: an unsafe method is only watched, not protected, here; say why: "because: …"']


@pytest.mark.parametrize("match, hint", [
    ("POST /a/:id", 'a parameter is written "{id}"'), ("POST|PUT /a", "separated by commas"),
    ("ANY /a", "write the path alone"), ("* /a", "write the path alone"), ("PSOT /a", 'did you mean "POST"?'),
    ("POST /a/[0-9]+", "not a regular expression"), ("POST /a/{rest...}", "one segment"),
    ("POST /a/<id>", 'a parameter is written "{id}"'), ("FROBNICATE /a", "unknown method")])
def test_a_route_that_could_never_match_is_refused(hapax, file, match, hint):
    file.write_text(f'upstream: http://127.0.0.1:3000\nroutes:\n  - match: "{match}"\n')
    result = hapax("check", file)
    assert result.code == EXIT_CONFIG
    assert result.stderr.startswith(f"{file}:3:12: ") and hint in result.stderr, result


@pytest.mark.parametrize("match", ["PROPFIND,MKCOL /a", "POST /a:b/(1)/x+y$", "/a/{id}"])
def test_a_route_that_only_looks_odd_is_taken(hapax, file, match):
    file.write_text(f'upstream: http://127.0.0.1:3000\nroutes:\n  - match: "{match}"\n')
    assert hapax("check", file).code == 0


def test_names_of_files_go_by_the_directory_of_the_configuration(hapax, file):
    file.write_text("upstream: http://127.0.0.1:3000\nstore: sqlite:data/keys.db\n"
                    "defaults: {jwt: {secret: data/secret}}\n")
    told = json.loads(hapax("check", "--json", file).stdout)
    here = file.parent
    assert told["store"] == f"sqlite:{here}/data/keys.db"
    assert told["defaults"]["jwt"]["secret"] == f"{here}/data/secret"
    file.write_text("upstream: http://127.0.0.1:3000\nstore: memory\n")
    assert json.loads(hapax("check", "--json", file).stdout)["store"] == "memory:"


STRICT = "upstream: http://127.0.0.1:3000\n"


@pytest.mark.parametrize("text, complaint", [
    ("routes: [{match: POST /a}]\n", "to every path that no route names"), ("", "to every path that no route names"),
    ("require_key: true\nroutes: [{match: PUT /a}]\n", "(PUT) without a key passes unprotected"),
    ("require_key: true\nroutes: [{match: /a}]\n", "(PUT) without a key passes unprotected")])
def test_strict_refuses_what_passes_without_a_key(hapax, file, text, complaint):
    file.write_text(STRICT + text)
    assert hapax("check", file).code == 0
    result = hapax("check", "--strict", file)
    assert result.code == EXIT_CONFIG and complaint in result.stderr, result


@pytest.mark.parametrize("text", [
    "require_key: true\nroutes: [{match: POST /a}]\n", "defaults: {because: only us}\nroutes: [{match: PUT /a}]\n",
    "require_key: true\nroutes: [{match: 'PUT,POST /a', require: true}, {match: PUT /b, because: last write wins}]\n"])
def test_strict_takes_what_is_required_or_explained(hapax, file, text):
    file.write_text(STRICT + text)
    result = hapax("check", "--strict", file)
    assert result.code == 0, result


@pytest.mark.parametrize("store, size, least", [("journal:/tmp/x", "20MiB", 48), ("sqlite:/tmp/x.db", "100KiB", 1)])
def test_a_store_that_could_not_be_opened_is_refused(hapax, file, store, size, least):
    file.write_text(STRICT + f"store: {store}\nstore_max: {size}\n")
    result = hapax("check", file)
    assert result.code == EXIT_CONFIG and f"at least {least} MiB" in result.stderr, result
    file.write_text(STRICT + f"store: {store}\nstore_max: {least}MiB\n")
    assert hapax("check", file).code == 0


OLD = """\
upstream: http://127.0.0.1:3000
routes:
  - {name: refunds, match: POST /refunds}
  - {name: payouts, match: POST /payouts}
  - {name: orders, match: POST /orders, lifetime: 2d}
  - {name: gone, match: POST /gone}
  - {name: same, match: POST /same}
  - {name: lax, match: POST /lax}
"""


def diff(hapax, tmp_path, old, new):
    (tmp_path / "old.yaml").write_text(old)
    (tmp_path / "new.yaml").write_text(new)
    result = hapax("check", "--diff", tmp_path / "old.yaml", tmp_path / "new.yaml")
    told = json.loads(hapax("check", "--json", "--diff", tmp_path / "old.yaml", tmp_path / "new.yaml").stdout)
    assert told["ok"] == (result.code == 0)
    return result, told


def test_diff_writes_a_rate_as_the_file_does(hapax, tmp_path):
    result, _ = diff(hapax, tmp_path, OLD, OLD.replace("POST /refunds}", "POST /refunds, rate: 5/s}"))
    assert "5/s" in result.stdout and "per_ms" not in result.stdout, result


def test_nothing_changed(hapax, tmp_path):
    result, told = diff(hapax, tmp_path, OLD, OLD)
    assert (result.code, result.stderr) == (0, "")
    assert "No route is changed." in result.stdout and "A reload would take it." in result.stdout
    assert told["routes"] == told["refused"] == told["refused_while_operations_live"] == []


def test_what_changes_no_key_is_taken(hapax, tmp_path):
    new = (OLD.replace("name: payouts,", "name: payments, formerly: [payouts],")
           .replace("POST /refunds", "POST /refunds, lifetime: 7d").replace("POST /same", "POST /same, wait: 1s"))
    result, told = diff(hapax, tmp_path, OLD, new)
    assert result.code == 0, result
    assert "  renamed  payouts → payments  POST /payouts\n" in result.stdout
    assert "lifetime: 24h → 7d\n" in result.stdout and "wait: 10s → 1s\n" in result.stdout
    assert [(route["change"], route["was"], route["name"]) for route in told["routes"]] == [
        ("changed", "refunds", "refunds"), ("renamed", "payouts", "payments"), ("changed", "same", "same")]
    assert told["routes"][0]["differences"] == [
        {"rule": "lifetime_ms", "old": 86_400_000, "new": 7 * 86_400_000, "part_of_every_key": False}]


def test_what_live_operations_would_hold_up_is_told_with_the_way_out(hapax, tmp_path):
    new = """\
upstream: http://127.0.0.1:3000
routes:
  - {name: refunds, match: POST /refunds, principal: "header:X-User", fingerprint: {ignore: [/t]}}
  - {name: payments, match: POST /payouts, formerly: [payouts]}
  - {name: bestellungen, match: POST /orders}
  - {name: same, match: POST /same}
  - {name: lax, match: POST /lax, mode: pass, because: last write wins}
  - {name: fresh, match: POST /fresh}
"""
    result, told = diff(hapax, tmp_path, OLD, new)
    assert result.code == EXIT_CONFIG and result.stderr == ""
    assert 'principal: ["authorization"] → ["header:x-user"] (part of every key)' in result.stdout
    assert "  gone     gone  POST /gone\n" in result.stdout and "  new      fresh  POST /fresh\n" in result.stdout
    assert "--accept-rescope" in result.stdout
    assert told["refused"] == []
    assert sorted(told["refused_while_operations_live"]) == sorted([
        'route "refunds" is under other rules for its keys (principal, fingerprint.ignore): leave those as they were; '
        "its operations expire within 24h",
        'route "orders" is not there any more: if it is called "bestellungen" now, write "formerly: [\'orders\']" '
        "there; its operations expire within 2d",
        'route "gone" is not there any more: list its name in "formerly" of the route that takes its place; '
        "its operations expire within 24h",
        'route "lax" is not protected any more; its operations expire within 24h',
        'route "fresh" takes over POST /fresh from what matches no route: write "formerly: [\'POST /fresh\']" there; '
        "its operations expire within 24h"])
    for line in told["refused_while_operations_live"]:
        assert f"  {line}\n" in result.stdout


MATCH = "has another match, or another route before it that takes some of its requests"


@pytest.mark.parametrize("old, new, said", [
    ("{name: a, match: POST /a}", "{name: a, match: POST /a, forward_key: scoped}",
     "is under other rules for its keys (forward_key)"),
    ("{name: a, match: POST /a, forward_key: scoped}", "{name: a, match: POST /a, forward_key: scoped, dialect: ietf}",
     "has another dialect, and its keys are made here"),
    ("{name: a, match: POST /a}", '{name: a, match: "POST,PUT /a"}', MATCH),
    ('{name: a, match: "POST /a/{id}"}', '{name: b, match: POST /a/b}, {name: a, match: "POST /a/{id}"}', MATCH),
    ("{name: a, match: POST /a, formerly: [b]}", "{name: a, match: POST /a, formerly: [c, b]}",
     "is known by another name"),
], ids=["forward_key", "dialect", "methods", "a route before", "name"])
def test_the_cause_is_the_one_that_is_there(hapax, tmp_path, old, new, said):
    files = [f"upstream: http://127.0.0.1:3000\nroutes: [{routes}]\n" for routes in (old, new)]
    _, told = diff(hapax, tmp_path, *files)
    lines = told["refused_while_operations_live"]
    assert any(line.startswith(f'route "a" {said}') for line in lines), lines


def test_what_a_reload_never_takes_is_told(hapax, tmp_path):
    result, told = diff(hapax, tmp_path, OLD, OLD.replace("3000", "3001") + "workers: 2\n")
    assert result.code == EXIT_CONFIG
    assert any('"upstream" can\'t change while running' in line for line in told["refused"])
    assert told["routes"] == []  # that the application has moved is no change of its routes


def test_a_key_rule_written_otherwise_is_the_same(hapax, tmp_path):
    one = 'upstream: http://127.0.0.1:3000\nroutes: [{name: a, match: POST /a, fingerprint: {headers: [X-B, x-a]}}]\n'
    other = 'upstream: http://127.0.0.1:3000\nroutes: [{name: a, match: POST /a, fingerprint: {headers: [X-A, x-b]}}]\n'
    result, told = diff(hapax, tmp_path, one, other)
    assert result.code == 0 and told["routes"] == []


def test_mistakes_in_both_files_are_told(hapax, tmp_path):
    (tmp_path / "old.yaml").write_text("workers: 0\n")
    (tmp_path / "new.yaml").write_text("upstream: http://127.0.0.1:3000\nlifetme: 1\n")
    result = hapax("check", "--diff", tmp_path / "old.yaml", tmp_path / "new.yaml")
    assert result.code == EXIT_CONFIG and result.stdout == ""
    assert f"{tmp_path}/old.yaml:1:10:" in result.stderr and f"{tmp_path}/new.yaml:2:1:" in result.stderr
    assert hapax("check", "--diff", tmp_path / "old.yaml").code == EXIT_CONFIG


SOURCES = """\
upstream: http://127.0.0.1:3000
sources:
  - {name: stripe, scheme: stripe, secret_file: [new, old], deliver: "http://127.0.0.1:3000/hooks", tenant: shop}
  - {name: github, scheme: github, secret_env: GH, deliver: "https://app.example.com/h", ack: processed,
     guarantee: none, strict: true}
  - {name: open, scheme: none, dedupe_key: "{body:/a}:{window:1h}", deliver: "http://127.0.0.1:3000/open"}
events: {disable_after: off, allow: [10.0.0.0/8], streams: [{match: "audit-*", retention: forever}]}
"""


def test_sources_and_events_are_shown_in_words(hapax, file):
    file.write_text(SOURCES)
    (file.parent / "new").write_text("whsec_x")
    result = hapax("check", file)
    assert (result.code, result.stderr) == (0, "")
    assert "  inbox     127.0.0.1:8090\n" in result.stdout
    head, below = lines_below(result.stdout, "stripe")
    assert head.endswith("POST /inbox/stripe  signed by stripe, with one of 2 secrets, at most 5m ago")
    assert below == [
        "event id at /id; duplicates answered with 200 for 7d after it was processed",
        "another payload under the same id is held and answered with 200",
        "answered once it is stored, then delivered to http://127.0.0.1:3000/hooks (16 at a time, 20s each, bodies up "
        "to 256KiB)",
        "a call that may have been processed is repeated with the same Idempotency-Key", "tenant shop"]
    head, below = lines_below(result.stdout, "github")
    assert head.endswith("signed by github")
    assert below == [
        "event id in header X-GitHub-Delivery; duplicates answered with 200 for 7d after it was processed",
        "another payload under the same id is held and answered with 409",
        "the same payload under another id is held for 1h",
        "answered by the handler itself: https://app.example.com/h (16 at a time, 20s each, bodies up to 256KiB)",
        "a call that may have been processed becomes unknown, and is not repeated"]
    head, below = lines_below(result.stdout, "open")
    assert head.endswith("nothing: anyone may send")
    assert below[0].startswith("event id made of {body:/a}:{window:1h};")
    assert "  events  kept for 7d, dead letters for 30d; up to 512 attempts at a time\n" in result.stdout
    assert "an endpoint that fails is never disabled;" in result.stdout and "may go to 10.0.0.0/8\n" in result.stdout
    assert f'{file}:6:26: "scheme: none" verifies nothing' in result.stdout
    assert f"the secret file {file.parent}/old can't be read here" in result.stdout
    assert f"{file.parent}/new can't" not in result.stdout


def test_sources_and_events_are_told_in_json(hapax, file):
    file.write_text(SOURCES)
    told = json.loads(hapax("check", "--json", file).stdout)
    stripe, github, unsigned = told["sources"]
    assert told["inbox"] == {"listen": ["127.0.0.1:8090"]}
    assert stripe["secrets"] == [{"file": str(file.parent / "new")}, {"file": str(file.parent / "old")}]
    assert stripe["id"] == {"pointer": "/id", "signed": True} and stripe["tolerance_ms"] == 300_000
    assert github["id"] == {"header": "X-GitHub-Delivery", "signed": False}
    assert (github["replay_guard_ms"], github["ack"], github["guarantee"], github["strict"]) == (
        3_600_000, "processed", "none", True)
    assert unsigned["scheme"] == "none" and unsigned["secrets"] == []
    assert unsigned["id"] == {"template": "{body:/a}:{window:1h}", "signed": False}
    assert told["events"] == {
        "attempts": 512, "retention_ms": 604_800_000, "dead_retention_ms": 2_592_000_000, "disable_after_ms": 0,
        "pause_max_ms": 432_000_000, "schedule_max_ms": 31_536_000_000, "payload_max": 262_144, "response_max": 4096,
        "allow": ["10.0.0.0/8"], "ca_file": "", "streams": [{"match": "audit-*", "retention_ms": 0}]}


def test_strict_refuses_a_source_that_verifies_nothing(hapax, file):
    file.write_text(SOURCES + "require_key: true\n")
    result = hapax("check", "--strict", file)
    assert result.code == EXIT_CONFIG
    assert result.stderr.splitlines() == [
        f'{file}:6:26: "scheme: none" verifies nothing: whoever can reach the inbox may send these events']


@pytest.mark.parametrize("before, after, option", [
    ("deliver: \"http://127.0.0.1:3000/hooks\"", "deliver: \"http://127.0.0.1:3001/hooks\"", "sources"),
    ("secret_env: GH", "secret_env: GITHUB", "sources"), ("disable_after: off", "disable_after: 1h", "events"),
    ("allow: [10.0.0.0/8]", "allow: [10.0.0.0/9]", "events"),
    ("events:", "inbox: {listen: 127.0.0.1:1}\nevents:", "inbox")])
def test_sources_and_events_change_by_a_restart(hapax, file, tmp_path, before, after, option):
    old = tmp_path / "old.yaml"
    old.write_text(SOURCES)
    file.write_text(SOURCES.replace(before, after))
    assert f'"{option}" can\'t change while running' in hapax("check", "--diff", old, file).stdout
    file.write_text(SOURCES)
    assert "A reload would take it" in hapax("check", "--diff", old, file).stdout
