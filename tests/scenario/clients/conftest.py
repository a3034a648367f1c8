# SPDX-License-Identifier: Apache-2.0
import json
import os
import queue
import signal
import sqlite3
import subprocess
import threading

import pytest

from harness import HANG_S, Run, binary
from harness.gateway import environment


class Sender:
    """Runs `hapax send` with a folder of intents of its own."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, *words, env=None):
        return Run(["send", *words, "--intents", self.folder, "--quiet"], env=env)

    def json(self, *words, env=None):
        ran = self(*words, "--json", env=env)
        return ran.code, json.loads(ran.stdout) if ran.stdout else None

    def files(self):
        return sorted(name for name in os.listdir(self.folder) if name.endswith(".intent"))


@pytest.fixture
def send(tmp_path):
    return Sender(tmp_path / "intents")


class Jobs:
    """Runs commands by `hapax run`, with a store of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "run.sqlite"
        self.store = f"sqlite:{self.file}"
        self.log = folder / "effects"

    def words(self, *command, key="k", flags=()):
        return ["run", "--store", self.store, "--key", key, *flags, "--", *command]

    def __call__(self, *command, key="k", flags=(), env=None):
        return Run(self.words(*command, key=key, flags=flags), env=env)

    def shell(self, script, key="k", flags=(), env=None):
        return self("sh", "-c", script, key=key, flags=flags, env=env)

    def start(self, *command, key="k", flags=(), **popen):
        words = [str(word) for word in (binary(), *self.words(*command, key=key, flags=flags))]
        popen = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen}
        return subprocess.Popen(words, env=environment(), **popen)

    def told(self, script, key="k", flags=()):
        """The exit code, and what --outcome-file says."""
        file = self.folder / "outcome"
        ran = self.shell(script, key=key, flags=[*flags, "--outcome-file", file])
        return ran.code, json.loads(file.read_text())

    def resolve(self, word, key="k"):
        return Run(["run", "--store", self.store, "--key", key, "--resolve", word])

    def effects(self):
        return self.log.read_text().splitlines() if self.log.exists() else []

    def change(self, sql):
        """Changes the store behind everybody's back; returns how many rows."""
        database = sqlite3.connect(self.file, timeout=30)
        with database:
            count = database.execute(sql).rowcount
        database.close()
        return count

    def end_leases(self):
        """As if half a minute had passed since the claims that are in flight were renewed."""
        if self.file.exists():
            self.change("UPDATE hapax_operations SET lease_until = 1, due = 1 WHERE state = 1")


@pytest.fixture
def jobs(tmp_path):
    return Jobs(tmp_path)


class Server:
    """A running `hapax mcp`, and an agent that speaks JSON-RPC to it line by line. Whatever it writes to standard
    output must be JSON-RPC; `everything` is all that it has written anywhere."""

    def __init__(self, config):
        self.process = subprocess.Popen([str(binary()), "mcp", "--config", str(config)], env=environment(),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.notifications, self.everything = [], b""
        self._answers, self._waiting, self._ids = {}, queue.Queue(), 0
        self._threads = [threading.Thread(target=self._read), threading.Thread(target=self._log)]
        for thread in self._threads:
            thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.everything += line
            message = json.loads(line)
            assert message["jsonrpc"] == "2.0", message
            self._waiting.put(message)
        self._waiting.put(None)

    def _log(self):
        for line in self.process.stderr:
            self.everything += line

    def write(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def next(self):
        """The next message; None at the end."""
        return self._waiting.get(timeout=HANG_S)

    def ask(self, method, params=None):
        """Sends a request; its id."""
        self._ids += 1
        message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params or {}}
        self.write(json.dumps(message).encode() + b"\n")
        return self._ids

    def answer(self, number):
        while number not in self._answers:
            message = self.next()
            assert message is not None, self.everything
            if "method" in message:
                self.notifications.append(message)
            else:
                self._answers[message["id"]] = message
        return self._answers.pop(number)

    def begin(self, tool, meta=None, **arguments):
        return self.ask("tools/call", {"name": tool, "arguments": arguments, **({"_meta": meta} if meta else {})})

    def end(self, number):
        result = self.answer(number)["result"]
        said = result["structuredContent"]
        assert json.loads(result["content"][0]["text"]) == said
        assert said["message"] and said["what_next"], said
        return said

    def call(self, tool, **arguments):
        return self.end(self.begin(tool, **arguments))

    def notify(self, method, **params):
        self.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.finish()

    def close(self):
        """Ends the input, as a client does that is done; all messages that still came."""
        self.process.stdin.close()
        messages = list(iter(self.next, None))
        self.finish()
        assert self.process.returncode == 0, self.everything
        return messages

    def finish(self):
        self.process.wait(timeout=HANG_S)
        for thread in self._threads:
            thread.join(HANG_S)
        assert b"Sanitizer" not in self.everything and b"hapax: bug" not in self.everything, self.everything
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()


class Agents:
    """Starts servers for agents, one after the other or at once, with one configuration."""

    def __init__(self, folder, upstream):
        self.folder, self.servers = folder, []
        self.config = folder / "agents.yaml"
        self.options = {"intents": "intents", "store": "sqlite:run.sqlite", "allow": ["127.0.0.1"],
                        "hosts": [{"url": upstream.url, "match": ["POST /refunds", "GET,DELETE /refunds/{id}"]}],
                        "commands": [["/bin/sh", str(folder / "job.sh"), "*"], ["/bin/echo", "safe", "**"]]}

    def start(self, **options):
        self.config.write_text(json.dumps({"mcp": {**self.options, **options}}))  # JSON is YAML
        self.servers.append(Server(self.config))
        return self.servers[-1]


@pytest.fixture
def agents(tmp_path, upstream):
    made = Agents(tmp_path, upstream)
    yield made
    for server in made.servers:
        if server.process.returncode is None:
            server.kill()
