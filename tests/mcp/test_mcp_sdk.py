# SPDX-License-Identifier: Apache-2.0
"""An agent made with the SDK of the Model Context Protocol (npm: @modelcontextprotocol/sdk) uses `hapax mcp`: its
operations take effect once, though the server is killed again and again.

HAPAX names the program; else it is that of build/.
"""
import http.server
import json
import os
import pathlib
import subprocess
import threading

import pytest

HERE = pathlib.Path(__file__).resolve().parent
HAPAX = os.environ.get("HAPAX") or HERE.parent.parent / "build" / "src" / "hapax"
SECRET = "sk_live_0123456789abcdef"
HANG_S = 120


class Bank(http.server.ThreadingHTTPServer):
    """Executes each key once. The first request gets no answer: its file says that it has come, and it waits for the
    caller's end."""

    daemon_threads = True

    def __init__(self, arrived):
        super().__init__(("127.0.0.1", 0), Teller)
        self.arrived, self.effects, self.requests, self.tokens = arrived, [], 0, set()
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Teller(http.server.BaseHTTPRequestHandler):
    def do_POST(self):  # pylint: disable=invalid-name
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        bank, key = self.server, self.headers["Idempotency-Key"]
        with bank.lock:
            bank.requests += 1
            bank.tokens.add(self.headers["Authorization"])
            is_first = not bank.effects
            if key not in (known for known, _ in bank.effects):
                bank.effects.append((key, body))
        if is_first:
            bank.arrived.touch()
            self.connection.recv(1)  # until the caller has gone
            return
        said = json.dumps({"id": "re_1", "you_are": self.headers["Authorization"]}).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


@pytest.fixture(name="bank")
def running_bank(tmp_path):
    with Bank(tmp_path / "arrived") as bank:
        yield bank
        bank.shutdown()


@pytest.fixture(name="agent")
def agent_of_the_sdk(tmp_path, bank):
    if not (HERE / "node_modules" / "@modelcontextprotocol" / "sdk").exists():
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=HERE, check=True)
    (tmp_path / "token").write_text(f"Authorization: Bearer {SECRET}\n")
    (tmp_path / "job.sh").write_text(f"echo ran >> {tmp_path}/ran\n[ -e {tmp_path}/go ] || kill -9 $$\n")
    config = tmp_path / "agents.yaml"
    config.write_text(json.dumps({"mcp": {
        "intents": "intents", "store": "sqlite:run.sqlite", "allow": ["127.0.0.1"],
        "hosts": [{"url": f"http://127.0.0.1:{bank.server_port}", "match": ["POST /refunds"], "credentials": "token"}],
        "commands": [["/bin/sh", str(tmp_path / "job.sh")]]}}))

    def run(*steps):
        ran = subprocess.run(["node", HERE / "agent.mjs", str(HAPAX), str(config)], input=json.dumps(steps), text=True,
                             capture_output=True, check=False, timeout=HANG_S)
        assert ran.returncode == 0, ran.stderr
        assert SECRET not in ran.stdout and SECRET not in ran.stderr
        return json.loads(ran.stdout)

    return run


def refund(bank, amount=5, host=None, **more):
    return {"tool": "send_once", "arguments": {"intent": "refund-order-17", "method": "POST",
                                               "url": f"http://{host or f'127.0.0.1:{bank.server_port}'}/refunds",
                                               "body": {"amount": amount, "currency": "EUR"}}, **more}


def test_three_calls_with_the_server_killed_in_between_are_one_effect(agent, bank):
    ask = {"tool": "did_it_go_through", "arguments": {"intent": "refund-order-17"}}
    told = agent({"list": True}, refund(bank, kill_after=str(bank.arrived)), ask, refund(bank), {"kill": True},
                 refund(bank), ask, refund(bank, amount=6), refund(bank, host="evil.example"), {"tool": "list_unknown"})
    tools, lost, unknown, second, _, third, answered, changed, evil, rest = told["done"]
    assert {tool["name"] for tool in tools} == {"send_once", "run_once", "did_it_go_through", "list_unknown"}
    assert lost == "lost" and unknown["structuredContent"]["outcome"] == "unknown"
    assert (second["structuredContent"]["outcome"], second["isError"]) == ("done", False)
    assert "not repeated" in third["structuredContent"]["message"]
    assert third["structuredContent"]["body"] == second["structuredContent"]["body"]
    assert json.loads(third["structuredContent"]["body"]) == {"id": "re_1", "you_are": "[credential]"}
    assert answered["structuredContent"]["outcome"] == "done"
    assert (changed["isError"], changed["structuredContent"]["differs"]) == (True, "body")
    assert (evil["isError"], evil["structuredContent"]["outcome"]) == (True, "not_allowed")
    assert rest["structuredContent"]["operations"] == []
    assert len(bank.effects) == 1 and bank.effects[0][1]["amount"] == 5 and bank.requests == 2
    assert bank.tokens == {f"Bearer {SECRET}"}
    assert told["about"]["version"]["name"] == "hapax" and "intent" in told["about"]["instructions"]


def test_a_command_that_was_killed_is_listed_and_not_run_again(agent, tmp_path):
    run = {"tool": "run_once", "arguments": {"intent": "job-1", "command": ["/bin/sh", str(tmp_path / "job.sh")]}}
    ask = {"tool": "did_it_go_through", "arguments": {"intent": "job-1"}}
    killed, _, listed, asked, again = agent(run, {"kill": True}, {"tool": "list_unknown"}, ask, run)["done"]
    (tmp_path / "go").touch()
    assert killed["structuredContent"]["outcome"] == again["structuredContent"]["outcome"] == "unknown"
    assert [row["intent"] for row in listed["structuredContent"]["operations"]] == ["job-1"]
    assert asked["structuredContent"]["outcome"] == "unknown" and not asked["isError"]
    words = asked["structuredContent"]["resolve"].replace("done|failed|release", "release").split()[1:]
    subprocess.run([HAPAX, *words, "--store", f"sqlite:{tmp_path}/run.sqlite"], check=True, capture_output=True)
    done, = agent(run)["done"]
    assert done["structuredContent"]["outcome"] == "done"
    assert (tmp_path / "ran").read_text() == "ran\nran\n"
