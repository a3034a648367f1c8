# SPDX-License-Identifier: Apache-2.0
"""`hapax mcp`: what an agent does takes effect once, whatever is killed in between; it does only what the operator
allows, sees no credential, and is told what to do next."""
import json
import os
import re
import signal

import pytest

from harness import (EXIT_CONFIG, Deduplicating, Run, answer, drop_after_effect, eventually, in_turn, never_answer,
                     sanitized)

REFUND = {"amount": 5, "currency": "EUR"}
SECRET = "sk_live_0123456789abcdef"
STORED = [("Idempotency-Status", "stored"), ("Content-Type", "application/json")]


def refund(server, upstream, intent="refund-order-17", body=None, **more):
    return server.call("send_once", intent=intent, method="POST", url=upstream.url + "/refunds",
                       body=REFUND if body is None else body, **more)


def keys(upstream):
    return [request.key for request in upstream.received("/refunds")]


def script(agents, text):
    (agents.folder / "job.sh").write_text(text)


def job(server, agents, intent="job-1", word="now"):
    return server.call("run_once", intent=intent, command=["/bin/sh", str(agents.folder / "job.sh"), word])


# One intent, one effect

def test_an_intent_takes_effect_once_however_often_the_server_is_killed(agents, upstream):
    upstream.on("/refunds", Deduplicating("silence", "close"))
    first = agents.start()
    first.begin("send_once", intent="i", method="POST", url=upstream.url + "/refunds", body=REFUND)
    upstream.wait_effects(1)
    first.kill()
    second = agents.start()
    unknown = second.call("did_it_go_through", intent="i")
    assert unknown["outcome"] == "unknown" and "same intent" in unknown["what_next"]
    assert [row["intent"] for row in second.call("list_unknown")["operations"]] == ["i"]
    done = refund(second, upstream, "i")
    assert (done["outcome"], done["status"], json.loads(done["body"])["effect"]) == ("done", 201, 1)
    second.kill()
    third = agents.start()
    again = refund(third, upstream, "i")
    assert re.match(r"Already done at \d{4}-\d\d-\d\dT[\d:.]+Z, not repeated", again["message"])
    assert (again["outcome"], again["body"]) == ("done", done["body"])
    assert third.call("did_it_go_through", intent="i")["outcome"] == "done"
    assert third.call("list_unknown")["operations"] == []
    assert upstream.effects("/refunds") == 1 and len(set(keys(upstream))) == 1 and len(keys(upstream)) == 3


def test_a_replay_by_the_server_is_named_as_one(agents, upstream):
    upstream.on("/refunds", answer(201, b"{}", [("Idempotent-Replayed", "true"), ("Idempotency-Status", "replayed"),
                                                ("Original-Request-Time", "2026-02-19T12:00:00Z")]))
    assert refund(agents.start(), upstream)["message"].startswith("Already done at 2026-02-19T12:00:00Z, not repeated")


def test_calls_at_once_with_one_intent_are_one_effect(agents, upstream):
    upstream.on("/refunds", answer(201, b"once", STORED))
    server = agents.start()
    with upstream.hold("/refunds") as held:
        calls = [server.begin("send_once", intent="i", method="POST", url=upstream.url + "/refunds", body=REFUND)
                 for _ in range(8)]
        held.wait_arrived()
        assert server.answer(server.ask("ping"))["result"] == {}
        assert server.call("did_it_go_through", intent="i")["outcome"] == "running"
    assert {server.end(number)["body"] for number in calls} == {"once"}
    assert upstream.effects("/refunds") == 1


def test_more_calls_than_the_limit_are_refused_and_do_nothing(agents, upstream):
    upstream.on("/refunds", answer(201, b"", STORED))
    server = agents.start()
    with upstream.hold("/refunds"):
        calls = [server.begin("send_once", intent=f"i{n}", method="POST", url=upstream.url + "/refunds")
                 for n in range(17)]
        assert "16 calls" in server.answer(calls[-1])["error"]["message"]
    assert all(server.end(number)["outcome"] == "done" for number in calls[:-1])
    assert upstream.effects("/refunds") == 16


def test_other_arguments_for_one_intent_send_nothing_and_say_what_differs(agents, upstream):
    upstream.on("/refunds", answer(201, b"{}", STORED))
    server = agents.start()
    refund(server, upstream)
    for changed, part in (({"body": {**REFUND, "amount": 6}}, "body"),
                          ({"headers": {"Accept": "text/html"}}, "query or headers")):
        said = refund(server, upstream, **changed)
        assert (said["outcome"], said["differs"]) == ("mismatch", part) and f"another {part}" in said["message"]
        assert "first arguments" in said["what_next"] and "new intent" in said["what_next"]
    said = server.call("send_once", intent="refund-order-17", method="DELETE", url=upstream.url + "/refunds/1")
    assert said["differs"] == "method"
    assert len(upstream.received()) == 1
    same = refund(server, upstream, body='{ "currency" : "EUR", "amount" : 5.0 }')  # the same value, written anew
    assert same["outcome"] == "done" and len(upstream.received()) == 1


def test_the_key_depends_on_the_server_and_the_intent(agents, upstream):
    upstream.on("/refunds", answer(201, b"{}", STORED))
    refund(agents.start(), upstream, "a")
    refund(agents.start(), upstream, "b")
    refund(agents.start(name="other"), upstream, "a")
    assert len(set(keys(upstream))) == 3 and all(re.fullmatch("[0-9a-f]{32}", key) for key in keys(upstream))
    assert agents.start(name="third").call("did_it_go_through", intent="a")["outcome"] == "never_begun"


def test_what_was_not_done_is_done_by_the_same_call(agents, upstream):
    upstream.on("/refunds", answer(422, b"no such order", effect=False))
    server = agents.start(budget="1s")
    refused = refund(server, upstream, "a")
    assert (refused["outcome"], refused["status"], refused["body"]) == ("refused", 422, "no such order")
    assert "new intent" in refused["what_next"]
    upstream.on("/refunds", answer(503, headers=[("Retry-After", "30")], effect=False))
    assert refund(server, upstream, "b")["outcome"] == "not_done"
    assert [row["outcome"] for row in server.call("list_unknown")["operations"]] == ["not_done"]
    upstream.on("/refunds", answer(201, b"{}", STORED))
    assert refund(server, upstream, "b")["outcome"] == "done"
    assert upstream.effects("/refunds") == 1


def test_attempts_are_reported_as_progress(agents, upstream):
    upstream.on("/refunds", in_turn(answer(503, effect=False), drop_after_effect(), answer(201, b"{}", STORED)))
    server = agents.start()
    number = server.begin("send_once", meta={"progressToken": "t"}, intent="i", method="POST",
                          url=upstream.url + "/refunds")
    assert server.end(number)["attempts"] == 3
    assert [(note["params"]["progressToken"], note["params"]["progress"]) for note in server.notifications] == [
        ("t", 1), ("t", 2)]


def test_a_cancelled_call_makes_no_further_attempt_and_gets_no_answer(agents, upstream):
    upstream.on("/refunds", answer(503, headers=[("Retry-After", "3")], effect=False))
    server = agents.start()
    number = server.begin("send_once", meta={"progressToken": 1}, intent="i", method="POST",
                          url=upstream.url + "/refunds")
    assert server.next()["method"] == "notifications/progress"
    server.notify("notifications/cancelled", requestId=number)
    assert server.close() == []
    assert len(upstream.received()) == 1


def test_the_end_of_the_input_waits_for_what_is_under_way(agents, upstream):
    upstream.on("/refunds", answer(201, b"{}", STORED))
    server = agents.start()
    with upstream.hold("/refunds") as held:
        number = server.begin("send_once", intent="i", method="POST", url=upstream.url + "/refunds")
        held.wait_arrived()
        server.process.stdin.close()
    messages = list(iter(server.next, None))
    assert [message["id"] for message in messages] == [number]
    server.finish()


# What agents may do

def test_nothing_is_sent_that_is_not_allowed(agents, upstream):
    server, host = agents.start(), upstream.url
    port = host.rsplit(":", 1)[1]
    for method, url in (
            ("POST", "http://localhost:" + port + "/refunds"), ("POST", host + ".evil.example/refunds"),
            ("POST", host + "@evil.example/refunds"), ("POST", host + "\\@evil.example/refunds"),
            ("PUT", host + "/refunds"), ("post", host + "/refunds"), ("POST", host + "/admin"),
            ("POST", host + "/refunds/"), ("POST", host + "/x/../refunds"), ("POST", host + "/%72efunds"),
            ("DELETE", host + "/refunds/..%2fadmin"), ("DELETE", host + "/refunds/..%5cadmin"),
            ("DELETE", host + "/refunds/{id}"), ("DELETE", host + "/refunds/a/b"), ("DELETE", host + "/refunds/"),
            ("DELETE", host + "//refunds/1"), ("POST", host), ("POST", ""), ("POST", "file:///etc/passwd"),
            ("POST", host + "/refunds#x"), ("POST", host + "/refunds HTTP/1.1\r\nX: y")):
        said = server.call("send_once", intent="i", method=method, url=url)
        assert said["outcome"] == "not_allowed" and f"POST /refunds at {host}" in said["message"], url
    large = "x" * (9 << 20)
    for said in (refund(server, upstream, body=large), refund(server, upstream, headers={"Accept": large}),
                 server.call("send_once", intent="i", method="POST", url=host + "/refunds?" + large),
                 server.call("run_once", intent="i", command=["/bin/echo", "safe", large])):
        assert said["outcome"] == "not_allowed"
    for name in ("Authorization", "Cookie", "Host", "Idempotency-Key", "X-HTTP-Method-Override", "X-Request-Timeout",
                 "Content-Length", "a b"):
        assert refund(server, upstream, headers={name: "x"})["outcome"] == "not_allowed"
    assert refund(server, upstream, headers={"Accept": "a\r\nX: b"})["outcome"] == "not_allowed"
    assert upstream.received() == [] and server.call("list_unknown")["operations"] == []
    assert not (agents.folder / "intents").exists() or not list((agents.folder / "intents").glob("*.intent"))


def test_a_header_that_the_operator_allows_is_sent(agents, upstream):
    upstream.on("/refunds", answer(201, b"{}", STORED))
    server = agents.start(hosts=[{**agents.options["hosts"][0], "headers": ["If-Match"]}])
    form = "application/x-www-form-urlencoded"
    refund(server, upstream, headers={"if-match": '"3"', "Content-Type": form}, body="a=1")
    request = upstream.last()
    assert (request.header("if-match"), request.header("content-type"), request.body) == ('"3"', form, b"a=1")


def test_an_address_that_is_not_public_is_not_dialled(agents, upstream):
    server = agents.start(allow=[])
    said = refund(server, upstream)
    assert said["outcome"] == "not_done" and "loopback" in said["message"] and said["attempts"] == 1
    assert upstream.received() == []


def test_credentials_are_added_and_never_seen(agents, upstream):
    token = agents.folder / "token"
    token.write_text(f"Authorization: Bearer {SECRET}\nX-Api-Key: {SECRET[::-1]}\n")
    upstream.on("/refunds", answer(201, json.dumps({"you_sent": SECRET, "key": SECRET[::-1]}).encode(), STORED))
    server = agents.start(hosts=[{**agents.options["hosts"][0], "credentials": str(token)}],
                          commands=[["/bin/cat", str(token)]])
    said = refund(server, upstream)
    assert upstream.last().header("authorization") == f"Bearer {SECRET}"
    assert json.loads(said["body"]) == {"you_sent": "[credential]", "key": "[credential]"}
    assert refund(server, upstream)["body"] == said["body"]
    server.call("did_it_go_through", intent="refund-order-17")
    server.answer(server.ask("tools/list"))
    output = server.call("run_once", intent="i", command=["/bin/cat", str(token)])["output"]["stdout"]
    assert "Authorization: [credential]" in output
    token.unlink()
    gone = refund(server, upstream, "another")
    assert gone["outcome"] == "server_error" and str(token) not in json.dumps(gone)
    server.close()
    assert SECRET.encode() not in server.everything and SECRET[::-1].encode() not in server.everything
    assert str(token).encode() in server.everything  # in the log
    for file in (agents.folder / "intents").rglob("*"):
        assert file.is_dir() or SECRET.encode() not in file.read_bytes()


def test_an_empty_configuration_allows_nothing(agents, upstream):
    server = agents.start(hosts=[], commands=[])
    tools = {tool["name"]: tool for tool in server.answer(server.ask("tools/list"))["result"]["tools"]}
    assert set(tools) == {"send_once", "run_once", "did_it_go_through", "list_unknown"}
    assert "Allowed here: nothing" in tools["send_once"]["description"]
    assert refund(server, upstream)["outcome"] == job(server, agents)["outcome"] == "not_allowed"
    assert upstream.received() == []


@pytest.mark.parametrize("options, says", [
    ({"hosts": [{"match": ["POST /a"]}]}, 'no "url"'), ({"hosts": [{"url": "https://a.example"}]}, 'no "match"'),
    ({"hosts": [{"url": "https://a.example/x", "match": ["POST /a"]}]}, "must end behind the host"),
    ({"hosts": [{"url": "https://A.example", "match": ["POST /a"]}]}, "lower case"),
    ({"hosts": [{"url": "https://u@a.example", "match": ["POST /a"]}]}, "user or password"),
    ({"hosts": [{"url": "ftp://a.example", "match": ["POST /a"]}]}, '"url"'),
    ({"hosts": [{"url": "https://a.example", "match": ["FETCH /a"]}]}, "unknown method"),
    ({"hosts": [{"url": "https://a.example", "match": ["POST /a"]}] * 2}, "earlier host"),
    ({"commands": [["echo"]]}, "whole path"), ({"commands": [["/bin/echo", "**", "x"]]}, "last word"),
    ({"commands": ["/bin/echo"]}, "list of commands"), ({"allow": ["0.0.0.0/0"]}, "every address"),
    ({"store": "journal:x"}, "several processes"), ({"name": "a b"}, "letters"), ({"nome": "a"}, "did you mean"),
])
def test_a_mistake_in_the_configuration_is_named(agents, options, says):
    agents.config.write_text(json.dumps({"mcp": options}))
    for command in (["mcp", "--config"], ["check"]):
        ran = Run([*command, agents.config])
        assert ran.code == EXIT_CONFIG and says in ran.stderr and ran.stdout == "", ran


def test_a_file_for_agents_serves_no_gateway_and_one_for_a_gateway_no_agents(agents):
    agents.config.write_text(json.dumps({"mcp": agents.options}))
    assert Run(["check", agents.config]).code == 0
    assert json.loads(Run(["check", agents.config, "--json"]).stdout)["mcp"]["allow"] == ["127.0.0.1/32"]
    assert "no upstream" in Run(["serve", "--config", agents.config]).stderr
    agents.config.write_text('{"upstream": "http://127.0.0.1:1"}')
    assert 'no "mcp"' in Run(["mcp", "--config", agents.config]).stderr


# Commands

def test_a_command_runs_once_and_its_output_is_returned_again(agents):
    script(agents, f'echo "$1" >> {agents.folder}/effects; echo out; echo err >&2; exit 3')
    server = agents.start()
    first = job(server, agents)
    assert (first["outcome"], first["exit_code"]) == ("failed", 3)
    assert (first["output"]["stdout"], first["output"]["stderr"]) == ("out\n", "err\n")
    assert "new intent" in first["what_next"]
    server.kill()
    again = job(agents.start(), agents)
    assert again["output"] == first["output"] and "not repeated" in again["message"]
    assert (agents.folder / "effects").read_text() == "now\n"


def test_a_command_that_is_not_allowed_does_not_run(agents):
    script(agents, f"echo ran >> {agents.folder}/effects")
    server = agents.start()
    path = str(agents.folder / "job.sh")
    for command in (["/bin/sh", "-c", "true"], ["/bin/sh", path], ["/bin/sh", path, "--help"],
                    ["/bin/sh", path, "a", "b"], ["sh", path, "a"], ["/bin/../bin/sh", path, "a"],
                    ["/bin/echo", "danger"], ["/bin/echo"], [], ["/bin/echo", "safe\0x"]):
        said = server.call("run_once", intent="i", command=command)
        assert said["outcome"] == "not_allowed" and "/bin/echo safe **" in said["message"], command
    echoed = server.call("run_once", intent="i", command=["/bin/echo", "safe", "-n", ""])
    assert echoed["output"]["stdout"] == "safe -n \n"
    other = server.call("run_once", intent="i", command=["/bin/echo", "safe"])
    assert (other["outcome"], other["differs"]) == ("mismatch", "list of arguments")
    assert not (agents.folder / "effects").exists()


def test_a_command_outlives_the_server_and_the_next_call_gets_its_output(agents):
    gate = agents.folder / "gate"
    os.mkfifo(gate)
    script(agents, f"echo ran >> {agents.folder}/effects; cat {gate}")
    first = agents.start()
    first.begin("run_once", intent="job-1", command=["/bin/sh", str(agents.folder / "job.sh"), "now"])
    eventually((agents.folder / "effects").exists, "the command runs")
    first.kill()
    server = agents.start()
    assert server.call("did_it_go_through", intent="job-1")["outcome"] == "running"
    assert [row["outcome"] for row in server.call("list_unknown")["operations"]] == ["running"]
    number = server.begin("run_once", intent="job-1", command=["/bin/sh", str(agents.folder / "job.sh"), "now"])
    gate.write_text("go\n")
    done = server.end(number)
    assert (done["outcome"], done["output"]["stdout"]) == ("done", "go\n")
    assert (agents.folder / "effects").read_text() == "ran\n"


def test_a_command_that_was_killed_is_unknown_until_somebody_says_how_it_ended(agents, jobs):
    pid = agents.folder / "pid"
    script(agents, f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 1000")
    server = agents.start()
    number = server.begin("run_once", intent="job-1", command=["/bin/sh", str(agents.folder / "job.sh"), "now"])
    eventually(pid.exists, "the command runs")
    os.kill(int(pid.read_text()), signal.SIGKILL)
    unknown = server.end(number)
    assert unknown["outcome"] == "unknown" and "Don't choose a new intent" in unknown["what_next"]
    row, = server.call("list_unknown")["operations"]
    assert (row["tool"], row["outcome"]) == ("run_once", "unknown")
    assert server.call("did_it_go_through", intent="job-1")["outcome"] == "unknown"
    assert job(server, agents)["outcome"] == "unknown"
    words = unknown["resolve"].split()[1:]
    words[words.index("done|failed|release")] = "done"
    assert Run([*words, "--store", jobs.store]).code == 0
    assert server.call("did_it_go_through", intent="job-1")["outcome"] == "done"
    assert server.call("list_unknown")["operations"] == []
    assert job(server, agents)["outcome"] == "done"


def test_the_death_of_the_process_that_runs_the_command_is_found_out(agents, jobs):
    script(agents, f"echo ran >> {agents.folder}/effects; sleep 1000")
    server = agents.start()
    number = server.begin("run_once", intent="job-1", command=["/bin/sh", str(agents.folder / "job.sh"), "now"])
    eventually((agents.folder / "effects").exists, "the command runs")
    children = f"/proc/{server.process.pid}/task/"
    for task in os.listdir(children):
        with open(f"{children}{task}/children", encoding="ascii") as file:
            for pid in file.read().split():
                os.kill(int(pid), signal.SIGKILL)
    assert server.end(number)["outcome"] == "unknown"
    jobs.end_leases()
    assert server.call("did_it_go_through", intent="job-1")["outcome"] == "unknown"
    assert job(server, agents)["outcome"] == "unknown"
    assert (agents.folder / "effects").read_text() == "ran\n"


def test_output_without_end_is_cut(agents):
    script(agents, "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2")
    output = job(agents.start(), agents)["output"]
    assert output["stdout_is_cut"] and output["stderr_is_cut"]
    assert len(output["stdout"]) == len(output["stderr"]) == 80 << 10


def test_a_command_that_cannot_be_started_may_be_called_again(agents):
    program = agents.folder / "program"
    server = agents.start(commands=[[str(program)]])
    assert server.call("run_once", intent="i", command=[str(program)])["outcome"] == "not_done"
    program.write_text("#!/bin/sh\necho now\n")
    program.chmod(0o755)
    assert server.call("run_once", intent="i", command=[str(program)])["output"]["stdout"] == "now\n"


# The protocol, and what is not of it

def test_versions_are_negotiated(agents):
    server = agents.start()
    for asked, got in (("2024-11-05", "2024-11-05"), ("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25"),
                       (7, "2025-11-25")):
        result = server.answer(server.ask("initialize", {"protocolVersion": asked, "capabilities": {}}))["result"]
        assert result["protocolVersion"] == got and result["capabilities"] == {"tools": {}}
        assert result["serverInfo"]["name"] == "hapax" and "intent" in result["instructions"]
    for tool in server.answer(server.ask("tools/list"))["result"]["tools"]:
        assert tool["inputSchema"]["type"] == "object" and tool["description"]


DEEP = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}"


HOSTILE = [
    (b"hello", -32700), (b"{", -32700), (b"\xff\xfe", -32700), (b'{"a":1,"a":2}', -32700), (DEEP, -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping"} x', -32700), (b"\x00" * 100, -32700), (b"1", -32600), (b"null", -32600),
    (b"[]", -32600), (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600), (b"{}", -32600),
    (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600), (b'{"jsonrpc":"2.0","id":1}', -32600),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600), (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":"' + b"x" * 300 + b'","method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600), (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"resources/list"}', -32601), (b'{"jsonrpc":"2.0","id":1,"method":""}', -32601),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm"}}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send_once","arguments":[]}}', -32602),
]


def test_what_is_not_a_request_is_answered_with_its_code(agents):
    server = agents.start()
    for line, code in HOSTILE:
        server.write(line + b"\n")
        assert server.next()["error"]["code"] == code, line[:100]
    assert server.answer(server.ask("ping"))["result"] == {}
    assert server.close() == []


def test_a_line_of_100_megabytes_is_skipped_in_bounded_memory(agents):
    server = agents.start()
    for _ in range(100):
        server.write(b"x" * (1 << 20))
    server.write(b"\n")
    assert server.next()["error"]["code"] == -32600
    assert server.answer(server.ask("ping"))["result"] == {}
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
        peak_kib = int(re.search(r"VmHWM:\s+(\d+)", status.read())[1])
    assert sanitized() or peak_kib < 64 << 10
    assert server.close() == []


def test_what_needs_no_answer_gets_none(agents):
    server = agents.start()
    for line in (b"", b"\r", b"  ", b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
                 b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}',
                 b'{"jsonrpc":"2.0","method":"notifications/cancelled"}', b'{"jsonrpc":"2.0","id":1,"result":{}}'):
        server.write(line + b"\n")
    server.write(b'{"jsonrpc":"2.0","id":"last","method":"ping"}')  # without a line end
    assert [message["id"] for message in server.close()] == ["last"]


def test_wrong_arguments_are_named_and_do_nothing(agents, upstream):
    server, url = agents.start(), upstream.url + "/refunds"
    for tool, arguments, says in (
            ("send_once", {}, "intent"), ("send_once", {"intent": "a b", "method": "POST", "url": url}, "intent"),
            ("send_once", {"intent": "x" * 101, "method": "POST", "url": url}, "intent"),
            ("send_once", {"intent": 5, "method": "POST", "url": url}, '"intent" must be a text'),
            ("send_once", {"intent": "i", "method": ["POST"], "url": url}, '"method" must be a text'),
            ("send_once", {"intent": "i", "verb": "POST", "url": url}, 'no member "verb"'),
            ("run_once", {"intent": "i", "command": "rm"}, '"command" must be a list'),
            ("run_once", {"intent": "i", "command": [1]}, '"command" must be a list'),
            ("did_it_go_through", {"intent": ""}, "intent"), ("list_unknown", {"all": True}, 'no member "all"')):
        said = server.call(tool, **arguments)
        assert said["outcome"] == "invalid" and says in said["message"], said
    said = refund(server, upstream, headers=["Accept"])
    assert said["outcome"] == "not_allowed" and "headers" in said["message"]
    assert upstream.received() == []


def test_intents_that_cannot_be_used_send_nothing(agents, upstream):
    upstream.on("/refunds", never_answer)
    server = agents.start(timeout="1s", budget="1s")
    assert refund(server, upstream)["outcome"] == "unknown"
    folder = agents.folder / "intents"
    file, = folder.glob("*.intent")
    sent = len(upstream.received())
    file.write_bytes(file.read_bytes()[:-20] + b"broken\n")
    assert refund(server, upstream)["outcome"] == "server_error"
    assert server.call("did_it_go_through", intent="refund-order-17")["outcome"] == "server_error"
    assert server.call("list_unknown")["unreadable"] == 1
    folder.chmod(0o755)
    said = refund(server, upstream, "another")
    assert said["outcome"] == "server_error" and str(folder) not in said["message"]
    assert len(upstream.received()) == sent
