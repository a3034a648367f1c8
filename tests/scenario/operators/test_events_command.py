# SPDX-License-Identifier: Apache-2.0
"""`hapax events` and `hapax endpoints`: what an operator publishes, sees and sends again, over the admin socket."""
import json
import os
import pty
import re
import subprocess

import httpx
import pytest

from harness import EXIT_CONFIG, EXIT_STORE, HANG_S, Listening, answer, binary, eventually

LOCAL = "events: {allow: [127.0.0.0/8]}"


class Operator:
    """Runs commands on the admin socket of a gateway whose endpoints may be on this machine."""

    def __init__(self, hapax, gateway):
        self.hapax = hapax
        self.place = ["--admin", f"unix:{gateway.store}/admin.sock"]

    def run(self, *words, code=0, **options):
        result = self.hapax(*words, *self.place, **options)
        assert result.code == code, result
        return result

    def json(self, *words):
        return json.loads(self.run(*words, "--json").stdout)

    def publish(self, kind="refund.created", data="{}", *flags):
        return self.run("events", "publish", kind, "--data", data, *flags).stdout.strip()

    def endpoint(self, url, *flags):
        return self.json("endpoints", "add", url, *flags)["id"]

    def settled(self, event, state):
        """The only delivery of an event, once it is in this state."""
        def found():
            delivery = self.json("events", "show", event)["deliveries"][0]
            return delivery if delivery["state"] == state else None
        return eventually(found, f"{event} is {state}")


@pytest.fixture
def operator(start_api, hapax):
    return Operator(hapax, start_api(LOCAL).gateway)


@pytest.fixture
def listen():
    started = []

    def start(*flags):
        started.append(Listening("listen", "--json", *flags))
        return started[-1]

    yield start
    for each in started:
        each.finish()


def rows(result):
    """The cells of a table, its titles first; columns have two spaces between them."""
    return [re.split("  +", line) for line in result.stdout.splitlines()]


def test_an_event_is_published_and_shown_with_its_attempts(operator, listen):
    receiver = listen()
    endpoint = operator.endpoint(receiver.url, "--type", "refund.*, invoice.paid", "--filter", "/amount=100")
    result = operator.run("events", "publish", "refund.created", "--data", '{"amount": 100}', "--id", "r-1",
                          "--correlation-id", "c-1")
    assert result.stdout == "r-1\n" and "get it: 1" in result.stderr, result
    assert json.loads(receiver.line())["event_id"] == "r-1"
    attempt, = operator.settled("r-1", "delivered")["tries"]
    assert attempt["status"] == 200
    shown = operator.run("events", "show", "r-1").stdout
    assert "refund.created" in shown and '{"amount": 100}' in shown and "c-1" in shown
    assert f"to {endpoint}: delivered" in shown and '{"received":true}' in shown
    again = operator.run("events", "publish", "refund.created", "--data", '{"amount": 100}', "--id", "r-1",
                         "--correlation-id", "c-1")
    assert "published before" in again.stderr
    for other in (["refund.created", "--data", '{"amount": 99}'], ["order.made", "--data", '{"amount": 100}']):
        assert "get it: 0" in operator.run("events", "publish", *other).stderr
    titles, *events = rows(operator.run("events", "list"))
    assert titles == ["ACCEPTED", "ID", "TYPE", "TENANT", "SOURCE", "RECIPIENTS"]
    assert [event[2] for event in events] == ["order.made", "refund.created", "refund.created"]
    assert [event["id"] for event in operator.json("events", "list", "--limit", "3")["events"]][2] == "r-1"
    page = operator.json("events", "list", "--limit", "2")
    assert (page["count"], page["more"]) == (2, True)


def test_data_comes_from_a_file_or_from_standard_input(operator, tmp_path):
    file = tmp_path / "data.json"
    file.write_text('{"from":\n "file"}\n')
    event = operator.publish(data=f"@{file}")
    assert operator.json("events", "show", event)["data"] == {"from": "file"}
    done = subprocess.run([binary(), "events", "publish", "a.b", "-", *operator.place], input=b'["piped"]',
                          stdout=subprocess.PIPE, timeout=HANG_S, check=True)
    assert operator.json("events", "show", done.stdout.decode().strip())["data"] == ["piped"]


def test_the_same_key_publishes_once(operator):
    first, second = (operator.publish("a.b", "1", "--key", "k-1") for _ in range(2))
    assert first == second and operator.json("events", "list")["count"] == 1
    other = operator.run("events", "publish", "a.b", "--data", "2", "--key", "k-1", code=EXIT_CONFIG)
    assert "used before" in other.stderr or "Idempotency-Key" in other.stderr, other


def test_an_endpoint_is_added_changed_and_deleted(operator):
    made = operator.run("endpoints", "add", "https://example.com/hooks", "--description", "shop", "--tenant", "acme",
                        "--rate", "5", "--header", "X-A: 1", "--header", "X-B: 2")
    secret = re.search(r"^secret +(whsec_\S+)$", made.stdout, re.M)[1]
    assert "not shown again" in made.stderr
    listed, = operator.json("endpoints", "list")["endpoints"]
    assert (listed["tenant"], listed["rate"], listed["description"]) == ("acme", 5, "shop")
    titles, row = rows(operator.run("endpoints", "list", "--tenant", "acme"))
    assert titles[:2] == ["ID", "STATE"] and row[:2] == [listed["id"], "active"]
    named = [listed["id"], "--tenant", "acme"]
    operator.run("endpoints", "change", *named, "--type", "a.*", "--type", "b", "--concurrency", "3", "--rate", "0")
    changed = operator.json("endpoints", "show", *named)
    assert (changed["types"], changed["concurrency"], changed["rate"]) == (["a.*", "b"], 3, 0)
    assert operator.json("endpoints", "change", *named, "--type", "")["types"] == []
    fresh = operator.run("endpoints", "rotate", *named, "--overlap", "1h")
    assert re.fullmatch(r"whsec_\S+\n", fresh.stdout) and fresh.stdout.strip() != secret, fresh
    assert "1h" in fresh.stderr and secret not in operator.run("endpoints", "show", *named).stdout
    operator.run("endpoints", "delete", *named)
    gone = operator.run("endpoints", "show", *named, code=EXIT_CONFIG)
    assert "no such endpoint" in gone.stderr and "lists those that exist" in gone.stderr
    assert "no endpoints" in operator.run("endpoints", "list").stderr


def test_why_tells_what_the_receiver_answered_and_what_waits(operator, listen):
    receiver = listen("--status", "400")
    endpoint = operator.endpoint(receiver.url, "--on-client-error", "dead")
    assert "does not fail" in operator.run("endpoints", "why", endpoint).stdout
    operator.settled(operator.publish(), "dead")
    said = operator.run("endpoints", "why", endpoint).stdout
    assert f"{endpoint} fails" in said and "wait: 0. Dead: 1." in said
    assert re.search(r"dead .* 400 .*\{\"received\":false\}$", said, re.M), said
    operator.run("endpoints", "disable", endpoint, "--why", "under repair")
    waits = operator.publish()
    said = operator.run("endpoints", "why", endpoint).stdout
    assert "disabled" in said and "under repair" in said and f"hapax endpoints enable {endpoint}" in said
    told = operator.json("endpoints", "why", endpoint)
    assert (told["waiting"], told["dead"], told["endpoint"]["disabled_reason"]) == (1, 1, "under repair")
    assert told["failed"]["deliveries"][0]["tries"][0]["status"] == 400
    cancelled = operator.json("events", "cancel", waits)
    assert cancelled == {"cancelled": 1, "not_cancelled": 0}
    assert "go on" in operator.run("endpoints", "enable", endpoint).stdout


def dead_events(operator, receiver, count):
    endpoint = operator.endpoint(receiver.url, "--on-client-error", "dead")
    events = [operator.publish() for _ in range(count)]
    for event in events:
        operator.settled(event, "dead")
    return endpoint, events


def test_dead_deliveries_are_sent_again_at_a_pace(operator, listen):
    endpoint, events = dead_events(operator, listen("--status", "400"), 3)
    titles, *listed = rows(operator.run("events", "dead", "--endpoint", endpoint))
    assert titles[:4] == ["WHEN", "STATE", "EVENT", "ENDPOINT"]
    assert {row[2] for row in listed} == set(events) and {row[1] for row in listed} == {"dead"}
    assert "No deliveries match" in operator.run("events", "dead", "--state", "unknown").stderr
    preview = operator.run("events", "redrive", "--all")
    assert "dead deliveries: 3." in preview.stdout and "Add --yes" in preview.stdout
    assert operator.json("events", "redrive", "--endpoint", endpoint) == {
        "would_redrive": 3, "skipped": 0, "too_old": 0, "more": False}
    assert operator.json("events", "dead")["count"] == 3
    healthy = listen()
    operator.run("endpoints", "change", endpoint, "--url", healthy.url)
    one = operator.run("events", "redrive", events[0], "--endpoint", endpoint)
    assert "sent again" in one.stdout and json.loads(healthy.line())["event_id"] == events[0]
    done = operator.json("events", "redrive", "--endpoint", endpoint, "--rate", "1/s", "--yes")
    assert (done["status"], done["armed"], done["skipped"]) == ("done", 2, 0)
    assert {json.loads(healthy.line())["event_id"] for _ in range(2)} == set(events[1:])
    assert operator.json("events", "dead")["count"] == 0


def test_no_more_than_the_limit_are_sent_again(operator, listen):
    endpoint, _ = dead_events(operator, listen("--status", "400"), 3)
    healthy = listen()
    operator.run("endpoints", "change", endpoint, "--url", healthy.url)
    result = operator.run("events", "redrive", "--all", "--limit", "2", "--yes")
    assert "up to 2" in result.stdout and "sent again: 2." in result.stdout
    assert operator.json("events", "dead")["count"] == 1


def test_a_job_goes_on_without_its_command_and_can_be_stopped(operator, listen):
    endpoint, _ = dead_events(operator, listen("--status", "400"), 3)
    operator.run("endpoints", "change", endpoint, "--url", listen().url)
    begun = operator.run("events", "redrive", "--all", "--rate", "1/s", "--why", "repaired", "--yes", "--detach")
    name = begun.stdout.splitlines()[-1]
    assert "goes on in the daemon" in begun.stderr
    titles, row = [line.split() for line in operator.run("events", "redrives").stdout.splitlines()]
    assert titles[:2] == ["ID", "STATUS"] and row[:2] == [name, "running"]
    assert "sent again: " in operator.run("events", "stop", name, "--why", "enough").stdout
    shown = operator.run("events", "redrives", name).stdout
    assert "stopped" in shown and "enough" in shown and "repaired" in shown
    assert operator.json("events", "redrives", name)["armed"] < 3


def test_an_endpoint_recovers_earlier_events(operator, listen):
    for number in range(2):
        operator.run("events", "publish", "a.b", "--data", "1", "--id", f"e-{number}")
    receiver = listen()
    endpoint = operator.json("endpoints", "add", receiver.url)["id"]
    shown = operator.run("endpoints", "recover", endpoint, "--since", "1h")
    assert "not got: 2." in shown.stdout and "Add --yes" in shown.stdout
    done = operator.run("endpoints", "recover", endpoint, "--since", "1h", "--yes")
    assert "Deliveries sent: 2." in done.stdout
    assert [json.loads(receiver.line())["event_id"] for _ in range(2)] == ["e-0", "e-1"]


@pytest.mark.parametrize("answer, sent", [(b"y\n", True), (b"\n", False), (b"no\n", False)], ids=["yes", "enter", "no"])
def test_on_a_terminal_it_asks(operator, listen, answer, sent):
    endpoint, _ = dead_events(operator, listen("--status", "400"), 1)
    operator.run("endpoints", "change", endpoint, "--url", listen().url)
    ours, theirs = pty.openpty()
    process = subprocess.Popen([binary(), "events", "redrive", "--all", *operator.place], stdin=theirs, stdout=theirs,
                               stderr=theirs)
    os.close(theirs)
    said = b""
    while b"[y/N]" not in said:
        said += os.read(ours, 1024)
    os.write(ours, answer)
    assert process.wait(HANG_S) == 0
    os.close(ours)
    assert (operator.json("events", "dead")["count"] == 0) == sent


def test_a_received_event_is_shown_by_its_source(start_node, hapax, listen):
    receiver = listen()
    node = start_node("memory:", f"""
        events: {{allow: [127.0.0.0/8]}}
        inbox: {{listen: "127.0.0.1:0"}}
        sources: [{{name: shop, scheme: none, id_pointer: /id, tenant: acme, deliver: "{receiver.url}/hook"}}]
    """)
    operator = Operator(hapax, node)
    address = node.log.wait_event("inbox_listening")["address"]
    httpx.post(f"http://{address}/inbox/shop", json={"id": "e-1"}, trust_env=False, timeout=HANG_S).raise_for_status()
    receiver.line()
    listed = operator.json("events", "list", "--source", "shop", "--tenant", "acme")["events"]
    assert [event["id"] for event in listed] == ["e-1"]
    words = ["events", "show", "e-1", "--source", "shop", "--tenant", "acme"]
    eventually(lambda: operator.json(*words)["deliveries"][0]["state"] == "delivered")
    shown = operator.run(*words).stdout
    assert "to the application: delivered" in shown and '{"id":"e-1"}' in shown.replace(" ", "")
    assert json.loads(operator.json(*words)["body"]) == {"id": "e-1"}
    operator.run("events", "show", "e-1", "--source", "shop", code=EXIT_CONFIG)  # it is another tenant's


def test_nothing_from_the_network_reaches_a_terminal_as_it_is(operator, upstream):
    """Neither in tables nor in JSON, which still means the same."""
    hostile = "a\033[2J\x9b\u202eb\x7f"
    upstream.on("/hooks", answer(400, hostile.encode()))
    operator.endpoint(upstream.url + "/hooks", "--on-client-error", "dead")
    event = operator.publish("a.b", json.dumps({"x": hostile}, ensure_ascii=False))
    assert operator.settled(event, "dead")["tries"][0]["response"] == hostile
    for words in (["show", event], ["show", event, "--json"], ["dead"], ["dead", "--json"]):
        said = operator.run("events", *words).stdout
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", said), words
    assert operator.json("events", "show", event)["data"] == {"x": hostile}


@pytest.mark.parametrize("words, said", [
    (["events"],
     "a command is missing: list, show, publish, tail, cancel, dead, redrive, redrives, pause, resume or stop"),
    (["events", "nothing"], 'unknown command "nothing"'),
    (["events", "list", "x"], 'unexpected argument "x"'),
    (["events", "list", "--limit", "0"], "--limit must be between 1 and 10000"),
    (["events", "list", "--yes"], "--yes is not for list, but for redrive, resume"),
    (["events", "show"], "show needs ID"),
    (["events", "show", "none"], "no such event"),
    (["events", "publish", "a.b"], "publish needs --data"),
    (["events", "publish", "a.b", "--data", "{"], "the data must be JSON"),
    (["events", "publish", "a.b", "--data", '1,"tenant":"x"'], "the data must be JSON"),
    (["events", "publish", "a.b", "--data", "@/none"], "/none"),
    (["events", "publish", "a.b", "--data", "1", "-"], 'unexpected argument "-"'),
    (["events", "publish", "a b", "--data", "1"], '"type" must have'),
    (["events", "publish", "a.b", "--data", "1", "--key", "a\r\nb: c"], "--key must have"),
    (["events", "redrive"], "which deliveries?"),
    (["events", "redrive", "x", "--all"], "exclude each other"),
    (["events", "redrive", "--all", "--rate", "0/s"], "--rate must be"),
    (["events", "redrive", "--all", "--state", "pending"], "--state must be"),
    (["events", "redrive", "x", "--endpoint", "y"], "no such delivery"),
    (["endpoints", "add", "ftp://x"], '"url" must begin'),
    (["endpoints", "add", "http://x.test", "--filter", "currency=EUR"], "--filter must be"),
    (["endpoints", "add", "http://x.test", "--concurrency", "x"], "--concurrency must be a number"),
    (["endpoints", "change", "x"], "what is to change?"),
    (["endpoints", "disable", "x"], "--why is missing"),
    (["endpoints", "recover", "x"], "--since is missing"),
    (["endpoints", "why", "x"], "no such endpoint"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_a_mistake_is_named_and_changes_nothing(operator, words, said):
    result = operator.run(*words, code=EXIT_CONFIG)
    assert said in result.stderr and not result.stdout, result
    assert operator.json("events", "list")["count"] == operator.json("endpoints", "list")["count"] == 0


def test_a_daemon_that_is_not_there_is_named(hapax, tmp_path):
    result = hapax("endpoints", "list", "--admin", f"unix:{tmp_path}/none.sock")
    assert result.code == EXIT_STORE and "can't reach the daemon" in result.stderr, result


def test_tail_follows_a_stream_over_a_restart(start_api, hapax, tmp_path):
    gateway = start_api(LOCAL, store=f"journal:{tmp_path}/events").gateway
    operator = Operator(hapax, gateway)
    for number in range(2):
        operator.publish("order.changed", json.dumps({"n": number}), "--stream", "orders-1")
    place = ["--stream", "orders-1", "--after", "0", *operator.place]
    tail = subprocess.Popen([binary(), "events", "tail", *place, "--json", "--limit", "3"], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        events = [json.loads(tail.stdout.readline()) for _ in range(2)]
        gateway.kill()
        assert "Waiting" in tail.stderr.readline()
        gateway.start()
        operator.publish("order.changed", '{"n": 2,\n "s": 0}', "--stream", "orders-1", "--expected-version", "2")
        events.append(json.loads(tail.stdout.readline()))
        assert tail.wait(timeout=HANG_S) == 0
    finally:
        tail.kill()
    assert [(event["position"], event["data"]["n"]) for event in events] == [(1, 0), (2, 1), (3, 2)]
    lines = operator.run("events", "tail", *place[:4], "--limit", "3").stdout.splitlines()
    assert len(lines) == 3 and lines[2].startswith("3 ") and "order.changed" in lines[2]
    refused = operator.run("events", "publish", "t", "--data", "1", "--stream", "orders-1", "--expected-version", "2",
                           code=EXIT_CONFIG)
    assert "version 3" in refused.stderr, refused
    operator.run("events", "tail", "--stream", "orders-1", "--after", "9", code=EXIT_CONFIG)
    operator.run("events", "tail", code=EXIT_CONFIG)


def test_consumers_are_listed_and_moved(start_api, hapax, tmp_path):
    api = start_api(LOCAL, store=f"journal:{tmp_path}/events")
    operator = Operator(hapax, api.gateway)
    assert "No consumers match." in operator.run("consumers", "list").stderr
    for _ in range(5):
        operator.publish("t", "1", "--stream", "orders-1")
    token = api.token("consume")
    for name, position in (("billing", 3), ("search", 5)):
        body = {"stream": "orders-1", "position": position, "generation": 1}
        assert api.call("POST", f"/v1/consumers/{name}/ack", token, body=body).status == 200
    table = [line.split()[:5] for line in operator.run("consumers", "list", "--stream", "orders-1").stdout.splitlines()]
    assert table == [["STREAM", "CONSUMER", "POSITION", "BEHIND", "GENERATION"],
                     ["orders-1", "billing", "3", "2", "1"], ["orders-1", "search", "5", "0", "1"]]
    moved = operator.run("consumers", "seek", "billing", "1", "--stream", "orders-1").stdout
    assert "up to 1 of 5" in moved and "generation 2" in moved
    assert operator.json("consumers", "seek", "billing", "newest", "--stream", "orders-1")["position"] == 5
    assert operator.json("consumers", "list")["count"] == 2
    tailed = operator.run("consumers", "seek", "search", "oldest", "--stream", "orders-1") and operator.run(
        "events", "tail", "--stream", "orders-1", "--consumer", "search", "--limit", "5")
    assert [line.split()[0] for line in tailed.stdout.splitlines()] == ["1", "2", "3", "4", "5"]
    for words in (["seek", "billing", "6", "--stream", "orders-1"], ["seek", "billing", "6"], ["seek", "billing"],
                  ["seek", "billing", "first", "--stream", "orders-1"], ["list", "--stream", "a b"]):
        operator.run("consumers", *words, code=EXIT_CONFIG)


def test_a_test_event_says_what_the_endpoint_answers(operator, upstream):
    endpoint = operator.endpoint(upstream.url + "/hook", "--type", "refund.*", "--ordered")
    operator.endpoint(upstream.url + "/other")
    upstream.on("/hook", answer(200, "thank you"))
    told = operator.run("endpoints", "test", endpoint).stdout
    assert "200" in told and "thank you" in told and " ms" in told
    (got,) = upstream.received()
    assert (got.path, json.loads(got.body)["eventType"]) == ("/hook", "hapax.test")
    upstream.on("/hook", answer(503, "not now"))
    refused = operator.run("endpoints", "test", endpoint, code=1).stdout
    assert "503" in refused and "not now" in refused
    pending = operator.json("events", "dead", "--state", "pending", "--endpoint", endpoint)["deliveries"]
    assert pending == []  # a test is not repeated
    upstream.stop_listening()
    upstream.close_idle()
    unreached = operator.run("endpoints", "test", endpoint, "--json", code=1).stdout
    assert "status" not in json.loads(unreached)["tries"][0]
    operator.run("endpoints", "disable", endpoint, "--why", "moved")
    assert "disabled" in operator.run("endpoints", "test", endpoint, code=2).stderr
    assert "no such endpoint" in operator.run("endpoints", "test", "ep_none", code=2).stderr
