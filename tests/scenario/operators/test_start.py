# SPDX-License-Identifier: Apache-2.0
"""Starting, and refusing to start: exit codes that tell apart what is wrong, messages that name it, nothing touched."""
import os
import re
import shutil
import socket
import stat
import textwrap

import pytest

from harness import (EXIT_ADDRESS, EXIT_CONFIG, EXIT_STORE, Connection, binary, directory_hash, drop_after_effect,
                     fresh_key)

TEN_MISTAKES = """\
    listen: 127.0.0.1:notaport  # wrong
    upstream: ftp://127.0.0.1:3000  # wrong
    store: cassandra://127.0.0.1  # wrong
    workers: many  # wrong
    defaults:
      lifetme: 24h  # wrong
      wait: 10 parsecs  # wrong
    routes:
      - name: refunds
        match: POST /refunds
        mode: sometimes  # wrong
        body_max: -5  # wrong
      - name: refunds  # wrong
        match: POST /charges
        require: perhaps  # wrong
      - name: voids
        match: POST /voids
    """


def serve(hapax, upstream, store, *more, **options):
    return hapax("serve", "--listen", "127.0.0.1:0", "--upstream", upstream.url, "--store", f"journal:{store}", *more,
                 **options)


def lines_reported(text, file):
    return {int(number) for number in re.findall(rf"{re.escape(os.path.basename(file))}:(\d+):\d+", text)}


@pytest.fixture
def ten_mistakes(tmp_path):
    path = tmp_path / "mistakes.yaml"
    text = textwrap.dedent(TEN_MISTAKES)
    path.write_text(text, encoding="utf-8")
    wrong = {number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# wrong")}
    assert len(wrong) == 10
    return path, wrong


def test_configuration_with_ten_mistakes_reports_all_ten(hapax, ten_mistakes, tmp_path):
    path, wrong = ten_mistakes
    before = directory_hash(tmp_path)
    result = hapax("serve", "--config", path)
    assert result.code == EXIT_CONFIG
    assert lines_reported(result.stderr, path) == wrong, result
    assert re.search(r'unknown option "lifetme".*did you mean "lifetime"\?', result.stderr), result
    assert directory_hash(tmp_path) == before


def test_check_finds_the_same_ten_mistakes(hapax, ten_mistakes):
    path, wrong = ten_mistakes
    result = hapax("check", path)
    assert result.code == EXIT_CONFIG
    assert lines_reported(result.stdout + result.stderr, path) == wrong, result


def test_check_likes_a_good_configuration(hapax, tmp_path):
    path = tmp_path / "good.yaml"
    path.write_text("upstream: http://127.0.0.1:3000\nroutes:\n  - {name: refunds, match: POST /refunds}\n")
    assert hapax("check", path).code == 0


@pytest.mark.parametrize("text, said", [
    ("upstream: http://127.0.0.1:3000\nupstream: http://127.0.0.1:3001\n", r":2:1"),
    ("upstream: &a http://127.0.0.1:3000\n", r":1:"),
    ("upstream: http://127.0.0.1:3000\n---\nworkers: 2\n", r":2:|:3:"),
    ("upstream: [\n", r":\d+:\d+"),
    ("\tupstream: http://127.0.0.1:3000\n", r":1:"),
    ("upstream: http://127.0.0.1:3000\ndefaults: {lifetime: 1s}\n", r":2:.*lifetime"),
    ("upstream: http://127.0.0.1:3000\nroutes: [{name: a, match: POST /a}, {name: b, match: POST /a}]\n", r":2:"),
], ids=["twice", "anchor", "two documents", "unfinished", "tab", "lifetime below the lease", "same match"])
def test_bad_file_is_refused_with_its_place(hapax, tmp_path, text, said):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    result = hapax("check", path)
    assert result.code == EXIT_CONFIG, result
    assert re.search("bad.yaml" + said, result.stdout + result.stderr), result


def test_file_that_is_not_there_or_not_text_is_refused(hapax, tmp_path):
    assert hapax("serve", "--config", tmp_path / "nothing.yaml").code == EXIT_CONFIG
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"store: \xff\n")
    assert hapax("serve", "--config", path).code == EXIT_CONFIG


@pytest.mark.parametrize("words", [
    ["serve", "--no-such-flag"], ["serve"], ["no-such-command"], ["serve", "--upstream"],
    ["serve", "--upstream", "not a url"], ["serve", "--upstream", "http://127.0.0.1:3000", "--workers", "0"],
    ["serve", "--upstream", "http://127.0.0.1:3000", "--listen", "127.0.0.1:99999"],
], ids=" ".join)
def test_bad_usage_is_refused(hapax, words):
    result = hapax(*words)
    assert result.code == EXIT_CONFIG, result
    assert result.stderr.strip(), result


def test_flags_override_the_file(start_gateway, start_upstream, upstream, key):
    elsewhere = start_upstream()
    gateway = start_gateway(f"upstream: {elsewhere.url}\nlisten: 127.0.0.1:1\nworkers: 1\n")
    assert gateway.post("/refunds", key=key, json={}).status == 201
    assert (upstream.effects(), elsewhere.effects()) == (1, 0)


def test_second_instance_on_the_same_store_is_refused(start_gateway, hapax, upstream, key):
    first = start_gateway()
    stored = first.post("/refunds", key=key, json={})
    second = serve(hapax, upstream, first.store)
    assert second.code == EXIT_STORE, second
    assert str(first.store) in second.stderr
    assert re.search(r"lock|another|in use", second.stderr, re.I), second
    assert first.post("/refunds", key=key, json={}).body == stored.body
    assert upstream.effects("/refunds") == 1


def test_address_in_use_is_refused(hapax, upstream, tmp_path):
    with socket.socket() as occupant:
        occupant.bind(("127.0.0.1", 0))
        occupant.listen()
        address = "127.0.0.1:%d" % occupant.getsockname()[1]
        result = hapax("serve", "--listen", address, "--upstream", upstream.url, "--store", f"journal:{tmp_path}/s")
    assert result.code == EXIT_ADDRESS, result
    assert f"hapax: can't listen on {address}: another process listens there" in result.stderr
    shutil.rmtree(tmp_path / "s", ignore_errors=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_address_of_another_instance_is_refused(start_gateway, hapax, upstream, tmp_path, workers):
    first = start_gateway(workers=workers)
    address = "%s:%d" % first.address
    result = hapax("serve", "--listen", address, "--upstream", upstream.url, "--workers", workers,
                   "--store", f"journal:{tmp_path}/other")
    assert result.code == EXIT_ADDRESS, result
    assert address in result.stderr
    shutil.rmtree(tmp_path / "other", ignore_errors=True)
    for _ in range(20):
        assert first.post("/refunds", key=fresh_key(), json={}).status == 201
    assert upstream.effects("/refunds") == 20


@pytest.fixture
def stopped_store(start_gateway, upstream):
    """A store with some operations in it and nobody using it."""
    gateway = start_gateway()
    for _ in range(20):
        assert gateway.post("/refunds", key=fresh_key(), json={}).status == 201
    gateway.terminate()
    assert gateway.wait_exit() == 0
    return gateway.store


def test_store_that_may_not_be_written_is_refused(stopped_store, hapax, upstream, tmp_path):
    program, identity = None, {}
    if os.geteuid() == 0:  # root may write everywhere, so somebody else must try
        open_to_all(stopped_store, tmp_path)
        program = shutil.copy(binary(), tmp_path / "hapax")
        identity = {"user": 65534, "group": 65534, "extra_groups": []}
    else:
        for path in [stopped_store, *stopped_store.rglob("*")]:
            path.chmod(path.stat().st_mode & ~0o222)
    before = directory_hash(stopped_store)
    result = serve(hapax, upstream, stopped_store, executable=program, cwd="/", **identity)
    assert result.code == EXIT_STORE, result
    assert str(stopped_store) in result.stderr
    assert re.search(r"permission|read-only|writ", result.stderr, re.I), result
    assert directory_hash(stopped_store) == before
    for path in [stopped_store, *stopped_store.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)


def test_usual_place_of_the_store_is_made_with_all_that_is_above_it(start_gateway, upstream, tmp_path, key):
    """A new account has no ~/.local."""
    place = tmp_path / "home" / ".local" / "state" / "hapax"
    gateway = start_gateway(store=f"journal:{place}", env={"STATE_DIRECTORY": str(place)})
    assert gateway.post("/refunds", key=key, json={}).idempotency == "stored"
    for made in [place, *list(place.parents)[:3]]:
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert upstream.effects("/refunds") == 1


def test_place_that_somebody_chose_is_not_made_up(hapax, upstream, tmp_path):
    result = serve(hapax, upstream, tmp_path / "mnt" / "not-mounted" / "hapax")
    assert result.code == EXIT_STORE, result
    assert f"{tmp_path / 'mnt'} doesn't exist" in result.stderr, result
    assert not (tmp_path / "mnt").exists()


def open_to_all(store, tmp_path):
    for path in [store, *store.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    for parent in [tmp_path, *tmp_path.parents, store.parent]:
        if parent.stat().st_uid == 0 and not parent.stat().st_mode & stat.S_IXOTH:
            parent.chmod(parent.stat().st_mode | 0o055)


def test_store_of_a_newer_format_is_refused(stopped_store, hapax, upstream):
    file = stopped_store / "FORMAT"
    text = file.read_text()
    file.write_text(re.sub(r"\d+", "999", text, count=1))
    assert file.read_text() != text
    before = directory_hash(stopped_store)
    result = serve(hapax, upstream, stopped_store)
    assert result.code == EXIT_STORE, result
    assert re.search(r"newer|format", result.stderr, re.I) and "999" in result.stderr, result
    assert directory_hash(stopped_store) == before
    assert upstream.effects() == 20


def test_directory_of_something_else_is_refused(hapax, upstream, tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "beach.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    before = directory_hash(photos)
    result = serve(hapax, upstream, photos)
    assert result.code == EXIT_STORE, result
    assert str(photos) in result.stderr
    assert directory_hash(photos) == before


def test_store_that_is_a_file_is_refused(hapax, upstream, tmp_path):
    file = tmp_path / "store"
    file.write_text("hello")
    result = serve(hapax, upstream, file)
    assert result.code == EXIT_STORE, result
    assert file.read_text() == "hello"


def used_part(store):
    """The file with the log in it, and how many bytes of it are in use."""
    files = [path for path in store.rglob("*") if path.is_file()]
    log = max(files, key=lambda path: len(path.read_bytes().rstrip(b"\0")))
    return log, len(log.read_bytes().rstrip(b"\0"))


@pytest.mark.parametrize("where", [0.3, 0.5, 0.7])
def test_damaged_store_is_refused_by_name_and_left_as_it_is(stopped_store, hapax, upstream, where):
    log, used = used_part(stopped_store)
    data = bytearray(log.read_bytes()[:used])
    at = data.index(b'"effect"', int(used * where))  # inside a stored answer, and not the last one
    with open(log, "r+b") as file:
        file.seek(at)
        file.write(bytes([data[at] ^ 0x40]))
    for hint in stopped_store.rglob("*hint*"):
        hint.unlink()
    before = directory_hash(stopped_store)
    result = serve(hapax, upstream, stopped_store)
    assert result.code == EXIT_STORE, result
    assert "hapax store salvage" in result.stderr, result
    assert log.name in result.stderr, result
    assert directory_hash(stopped_store) == before
    assert upstream.effects() == 20


def test_torn_tail_is_cut_and_the_rest_is_there(start_gateway, upstream):
    gateway = start_gateway()
    keys = [fresh_key() for _ in range(6)]
    bodies = {key: gateway.post("/refunds", key=key, json={}).body for key in keys}
    gateway.kill()
    log, used = used_part(gateway.store)
    with open(log, "r+b") as file:
        file.seek(used - 8)
        file.write(bytes(8))
    gateway.start()
    for key in keys[:5]:
        assert gateway.post("/refunds", key=key, json={}).body == bodies[key]
    last = gateway.post("/refunds", key=keys[5], json={})
    if last.status == 409:
        last.refuses(409, "CONFLICT.idempotency.outcome_unknown")
    else:
        assert last.body == bodies[keys[5]]
    assert upstream.effects("/refunds") == 6


def test_gateway_says_where_it_listens_and_what_it_stores(start_gateway, upstream):
    gateway = start_gateway(workers=2)
    assert gateway.address[1] > 0
    assert str(gateway.store) in gateway.shown_output()
    with Connection(gateway.address) as connection:
        assert connection.request("GET", "/up").status == 200
    assert len(upstream.requests) == 1


def test_memory_store_says_loudly_that_it_forgets(start_gateway, upstream, key):
    gateway = start_gateway(store="memory:")
    warnings = [line for line in gateway.output if '"level":"warn"' in line]
    assert any(re.search("forget|lost|memory", line) for line in warnings), gateway.shown_output()
    gateway.post("/refunds", key=key, json={})
    assert gateway.post("/refunds", key=key, json={}).idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


def test_errors_point_to_the_documentation_that_the_file_names(start_gateway, upstream):
    gateway = start_gateway("""
        error_docs: https://docs.example.com/hapax#
        require_key: true
    """)
    problem = gateway.post("/refunds", json={}).refuses(400, "VALIDATION.idempotency_key_missing")
    assert problem["type"] == "https://docs.example.com/hapax#VALIDATION.idempotency_key_missing"
    assert upstream.effects("/refunds") == 0


def test_a_start_says_which_routes_promise_less(start_gateway, upstream):
    gateway = start_gateway("""
        routes:
          - {name: refunds, match: POST /refunds}
          - {name: reads, match: GET /reads, mode: pass}
          - {name: logout, match: POST /logout, mode: pass, because: it is made to be repeated}
          - {name: refresh, match: POST /refresh, mode: pass, because: every call makes new tokens}
        """)
    told = gateway.wait_events("routes_unprotected")
    assert [(event["routes"], event["first"]) for event in told] == [(2, "logout")]
    assert start_gateway("routes: [{match: POST /refunds}]").events("routes_unprotected") == []


def test_a_start_says_what_is_worth_a_look(start_gateway, upstream):
    gateway = start_gateway('routes:\n  - {name: any, match: "POST /a/{id}"}\n  - {name: special, match: "/a/b"}\n')
    told = [event["note"] for event in gateway.wait_events("configuration_warning")]
    assert len(told) == 1 and "some requests match both" in told[0]
    assert start_gateway("routes: [{match: POST /refunds}]").events("configuration_warning") == []


@pytest.mark.parametrize("option", ["rate: 5/s", "quota: 5"])
def test_a_start_says_that_limits_are_each_gateways_own(start_gateway, upstream, tmp_path, option):
    rules = f"routes: [{{name: refunds, match: POST /refunds, {option}}}]"
    event = "limits_per_gateway"
    shared = start_gateway(rules, store=f"sqlite:{tmp_path}/store.db")
    assert [told["first"] for told in shared.wait_events(event)] == ["refunds"]
    assert start_gateway(rules).events(event) == []


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_every_store_has_a_socket_for_its_operators(request, start_gateway, upstream, hapax, key, tmp_path, kind):
    """In a place that follows from the store: who knows that finds the gateway, and another gateway on the same store
    serves without one, and says so."""
    url = f"sqlite:{tmp_path}/store.db" if kind == "sqlite" else request.getfixturevalue("database").url
    env = {"STATE_DIRECTORY": str(tmp_path / "state")}
    one, other = (start_gateway(store=url, env=env) for _ in range(2))
    place = one.wait_events("admin_listening")[0]["address"].removeprefix("unix:")
    assert stat.S_IMODE(os.stat(place).st_mode) == 0o600
    refused = other.wait_events("admin_unavailable")[0]
    assert "another process listens there" in refused["reason"]
    upstream.on("/refunds", drop_after_effect())
    assert other.post("/refunds", key=key, json={}).idempotency == "unknown"
    shown = hapax("keys", "show", key, "--store", url, env=env)
    assert shown.code == 0 and "unknown" in shown.stdout, shown
    one.terminate()
    assert one.wait_exit() == 0
    assert not os.path.exists(place)
